"""What makes the publishers of a worker send at their times."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from ildm_bench.load.pacing import Alarm
from ildm_bench.load.publisher import Publisher
from ildm_bench.load.scenario import Scenario

SEVERAL = 2
"""Messages of each publisher that are due at each waking, from which on there are no turns to be watched."""


class Sender:
    """Wakes up when something is due, and lets the publishers send it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        publishers: Sequence[Publisher],
        scenario: Scenario,
        offset_ns: int,
    ) -> None:
        """``offset_ns`` is added to the monotonic clock to get that of the schedules."""
        self._loop = loop
        self._scenario = scenario
        self._offset_ns = offset_ns
        self._alarms: list[Alarm] = []
        groups: dict[int, list[Publisher]] = {}
        for publisher in publishers:
            groups.setdefault(id(publisher.schedule), []).append(publisher)
        for group in groups.values():
            self._start(group)

    def _start(self, publishers: list[Publisher]) -> None:
        """Serve publishers that take turns in one schedule."""
        schedule = publishers[0].schedule
        # where the interval is longer than the load, not everybody's turn comes
        publishers = [each for each in publishers if schedule.time_of(each.place, 0) < schedule.end_ns]
        if not (count := len(publishers)):
            return
        phases = [schedule.time_of(place, 0) for place in range(count)]
        interval, total = schedule.interval_ns, schedule.total
        l_clients = self._scenario.topics[publishers[0].topic_index].interval is not None
        every_ns = 0 if l_clients else round(self._scenario.send_every * 1e6)
        offset = self._offset_ns
        if every_ns >= SEVERAL * interval:
            self._start_all(publishers, every_ns)
            return
        alone = self._scenario.qos == 0 and every_ns < interval
        message = turn = 0

        def send() -> None:
            nonlocal message, turn
            now = time.monotonic_ns() + offset
            while message < total:
                publisher = publishers[turn]
                due = phases[turn] + message * interval
                if due > now:
                    alarm.set(max(due, now + every_ns) - offset)
                    return
                # one that lags sends all that is due at once, so it may be ahead of its turn
                if (behind := message - len(publisher.sent_ns)) >= 0:
                    if alone and not behind and not publisher.hindered:
                        publisher.send_one(due)
                    else:
                        publisher.send_due(now)
                turn += 1
                if turn == count:
                    turn = 0
                    message += 1

        alarm = Alarm(self._loop, send)
        self._alarms.append(alarm)
        alarm.set(phases[0] - offset)

    def _start_all(self, publishers: list[Publisher], every_ns: int) -> None:
        """Serve publishers each of which has several messages to send whenever it is served."""
        offset = self._offset_ns
        schedule = publishers[0].schedule
        first = schedule.time_of(publishers[0].place, 0)
        last = schedule.time_of(publishers[-1].place, schedule.total - 1)

        def send() -> None:
            now = time.monotonic_ns() + offset
            for publisher in publishers:
                publisher.send_due(now)
            if now < last:
                alarm.set(now + every_ns - offset)

        alarm = Alarm(self._loop, send)
        self._alarms.append(alarm)
        alarm.set(first - offset)

    def close(self) -> None:
        for alarm in self._alarms:
            alarm.close()
