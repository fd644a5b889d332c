"""One process of the load generator: connects its clients, sends and receives, writes its logs."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import platform
import resource
import select
import signal
import socket
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ildm.mqtt import Subscribe, Subscription, Version
from ildm_bench.load.connection import TOGETHER, Connection, LoadError, in_parts
from ildm_bench.load.logs import ReceiveLog, warm_up, write_send_log
from ildm_bench.load.pacing import Schedule, total_of
from ildm_bench.load.publisher import Publisher
from ildm_bench.load.rounds import Rounds
from ildm_bench.load.scenario import Scenario
from ildm_bench.load.sender import Sender
from ildm_bench.load.subscriber import Batch, Subscriber, collect, finish
from ildm_bench.load.wire import Channel
from ildm_bench.measure.schema import log_file

SECRET_VARIABLE = "ILDM_BENCH_SECRET"
COLLECT = 0.5
"""Seconds until each subscriber's chunks are parsed; where much comes less, down to a SOONER-th."""
SOONER = 16
AT_ONCE = 10
"""Subscribers of one topic that are looked at in one go."""
MANY = 4096
"""Messages that are parsed in one go, about: a stall of at most two milliseconds."""
EVENLY = 0.05
"""Seconds whose share of the connections is opened at a time."""
PATIENCE = 1.0
"""Seconds that a coordinator waits for a worker which is at another run."""
REPORT = 0.5
"""Seconds between two reports to the coordinator."""
TOLERANCE_NS = 20_000_000
LATEST_NS = 100_000_000
"""What is sent later after its time than the first, or one interval up to the second, has missed it."""


class Job:
    """One run of this worker."""

    def __init__(self, order: dict[str, Any], directory: Path) -> None:
        self.scenario = Scenario.model_validate(order["scenario"])
        self.directory = directory
        self.name: str = order["name"]
        self.offset_ns: int = order["offset_ns"]
        self.interval_ns = round(order["interval_ms"] * 1e6)
        self.connect_rate: float = order["connect_rate"]
        version = {"3.1.1": Version.V311, "5": Version.V5}[self.scenario.protocol]
        self.publishers: list[Publisher] = []
        self.subscribers: list[Subscriber] = []
        self.places: dict[str, list[int]] = order["places"]
        """The place of our first publisher, and how many there are, for each group (see `group_of`)."""
        for number, client_id, topic, target, publishes in order["clients"]:
            where = (number, client_id, target, version, topic, self.scenario)
            if publishes:
                self.publishers.append(Publisher(*where))
            else:
                self.subscribers.append(Subscriber(*where))
        topics = self.scenario.topics
        self._t_publishers = [p for p in self.publishers if topics[p.topic_index].interval is None]
        self.received = 0
        self.egress = 0
        self.window = (0, 0)
        self.cpu = [0.0, 0.0]
        self._schedules: dict[str, Schedule] = {}
        self._connacks: dict[int, Any] = {}
        self._log: ReceiveLog | None = None

    @property
    def clients(self) -> list[Connection]:
        return [*self.publishers, *self.subscribers]

    async def connect(self) -> None:
        """Open all connections, then subscribe.

        Raises:
            LoadError: a client was not accepted.
        """

        warm_up()

        async def connect(client: Any) -> None:
            self._connacks[client.number] = await client.connect()

        async def subscribe(client: Subscriber) -> None:
            wanted = Subscription(topic_filter=client.topic_filter, qos=client.qos)
            await client.subscribe(Subscribe(packet_id=1, subscriptions=[wanted]))
            client.begin(self.offset_ns)

        # few at a time where the rate is low, so that they come evenly
        together = max(1, min(TOGETHER, round(self.connect_rate * EVENLY)))
        await in_parts(self.clients, connect, self.connect_rate, together)
        await in_parts(self.subscribers, subscribe)
        duration_ns = round(self.scenario.duration * 1e9)
        for publisher in self.publishers:
            interval_ns = self._interval_of(publisher)
            connack = self._connacks[publisher.number]
            publisher.prepare(connack, interval_ns, total_of(duration_ns, interval_ns))

    def schedule(self, begin_ns: int, end_ns: int) -> None:
        """Set when each publisher sends; times of the coordinator."""
        seen: dict[str, int] = {}
        for publisher in self.publishers:
            interval = self._interval_of(publisher)
            group = group_of(self.scenario, publisher.topic_index)
            if group not in self._schedules:
                first, of = self.places[group]
                self._schedules[group] = Schedule(begin_ns, end_ns, interval, of, first, of)
            place = seen.get(group, 0)
            seen[group] = place + 1
            publisher.begin(self._schedules[group], place, self.offset_ns)

    def _interval_of(self, publisher: Publisher) -> int:
        topic = self.scenario.topics[publisher.topic_index]
        return self.interval_ns if topic.interval is None else round(topic.interval * 1e6)

    async def run(self, begin_ns: int, window: tuple[int, int], end_ns: int, channel: Channel) -> None:
        """The load, until the coordinator says stop.

        Raises:
            LoadError: the logs cannot be written, or the coordinator has gone.
        """
        self.window = window
        self.schedule(begin_ns, end_ns)
        for subscriber in self.subscribers:
            subscriber.since_ns = begin_ns
        self._log = ReceiveLog(self.directory, self.name)
        loop = asyncio.get_running_loop()
        sender = Sender(loop, self.publishers, self.scenario, self.offset_ns)
        rounds = self._start_rounds(loop)
        for index, at in enumerate(window):
            delay = (at - self.now()) / 1e9
            loop.call_later(delay, self._note_cpu, index)
        collecting = asyncio.create_task(self._collect())
        reporting = asyncio.create_task(self._report(channel))
        stopping = asyncio.create_task(channel.receive("stop"))
        gc.collect()
        gc.freeze()
        gc.disable()  # a collection stalls the load for milliseconds, and nothing here makes cycles
        tasks: list[asyncio.Task[Any]] = [collecting, reporting, stopping]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # raises, unless it is the order to stop
        finally:
            gc.enable()
            gc.unfreeze()
            sender.close()
            if rounds is not None:
                rounds.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for group in self._groups():
            self._take(finish(group), group[0].topic_index)
        for client in self.clients:
            client.abort()

    def _start_rounds(self, loop: asyncio.AbstractEventLoop) -> Rounds | None:
        topics = self.scenario.topics
        clients: list[Connection] = [
            each for each in self.subscribers if topics[each.topic_index].clients == "throughput"
        ]
        clients += [
            each for each in self.publishers if each.patient and topics[each.topic_index].interval is None
        ]
        every_ns = round(self.scenario.read_every * 1e6)
        if not every_ns or not clients or not hasattr(select, "epoll"):
            return None
        return Rounds(loop, clients, every_ns)

    def now(self) -> int:
        """Coordinator's clock."""
        return time.monotonic_ns() + self.offset_ns

    def _note_cpu(self, index: int) -> None:
        self.cpu[index] = time.process_time()

    async def _collect(self) -> None:
        """Parse what has come, a few subscribers at a time, so that no stall is long."""
        groups = self._groups()
        every = COLLECT
        while True:
            most = 0
            for group in groups:
                most = max(most, self._take(collect(group), group[0].topic_index))
                await asyncio.sleep(every / len(groups))
            if not groups:
                await asyncio.sleep(COLLECT)
            if most > MANY:
                every = max(every / 2, COLLECT / SOONER)
            elif most < MANY // 4:
                every = min(every * 2, COLLECT)

    def _groups(self) -> list[list[Subscriber]]:
        """Subscribers whose messages are alike, some together."""
        by_topic: dict[int, list[Subscriber]] = {}
        for subscriber in self.subscribers:
            by_topic.setdefault(subscriber.topic_index, []).append(subscriber)
        return [
            group[first : first + AT_ONCE]
            for group in by_topic.values()
            for first in range(0, len(group), AT_ONCE)
        ]

    def _take(self, batch: Batch | None, topic: int) -> int:
        """Note what subscribers of a topic have got; the number of messages."""
        if batch is None:
            return 0
        assert self._log is not None
        self._log.add(batch)
        if self.scenario.topics[topic].clients == "throughput":
            self.received += len(batch.records)
            begin, end = self.window
            self.egress += int(((batch.received_ns >= begin) & (batch.received_ns < end)).sum())
        return len(batch.records)

    async def _report(self, channel: Channel) -> None:
        while True:
            await asyncio.sleep(REPORT)
            await channel.send("progress", sent=self.sent(), received=self.received)

    def sent(self) -> int:
        """Messages of t-clients sent so far."""
        return sum(len(publisher.sent_ns) for publisher in self._t_publishers)

    def finish(self) -> dict[str, Any]:
        """Write the logs; what the coordinator needs for its summary.

        Raises:
            LoadError: the logs cannot be written.
        """
        assert self._log is not None
        self._log.close()
        write_send_log(self.directory, self.name, self.publishers)
        return {
            "cpu_seconds": self.cpu[1] - self.cpu[0],
            "egress": self.egress,
            "received": self.received,
            "foreign": sum(s.foreign for s in self.subscribers),
            "closed": [f"{c.client_id}: {c.closed}" for c in self.clients if c.closed][:20],
            **self._own_performance(),
        }

    def discard(self) -> None:
        """End the thread of a load that has failed."""
        if self._log is not None:
            self._log.discard()

    def _own_performance(self) -> dict[str, Any]:
        """Intended and sent within the window, and the lag where the target took what was sent."""
        begin, end = self.window
        intended = sent = late = blocked = 0
        by_topic = [0] * len(self.scenario.topics)
        lags: list[NDArray[np.int64]] = []
        for publisher in self.publishers:
            stamps = np.frombuffer(publisher.sent_ns, np.int64)
            by_topic[publisher.topic_index] += len(stamps)
            if self.scenario.topics[publisher.topic_index].interval is not None:
                continue
            schedule, place = publisher.schedule, publisher.place
            first, last = schedule.due(place, begin - 1), schedule.due(place, end - 1)
            intended += last - first
            sent += int(np.searchsorted(stamps, end) - np.searchsorted(stamps, begin))
            lag = stamps[first:last]
            lag = lag - schedule.time_of(place, first) - np.arange(len(lag)) * schedule.interval_ns
            missed = (
                last - first - int((lag <= max(TOLERANCE_NS, min(schedule.interval_ns, LATEST_NS))).sum())
            )
            late += missed
            if publisher.late_blocked or publisher.hindered:
                blocked += missed
            else:
                lags.append(lag)
        return {
            "intended": intended,
            "sent": sent,
            "late": late,
            "blocked": blocked,
            "by_topic": by_topic,
            "lags": _quantiles(lags),
        }


def _quantiles(parts: list[NDArray[np.int64]], most: int = 2000) -> list[int]:
    """Of all values, enough of them to work out the percentiles of several workers together."""
    values = np.sort(np.concatenate(parts)) if parts else np.empty(0, np.int64)
    if len(values) > most:
        values = values[np.linspace(0, len(values) - 1, most).astype(np.int64)]
    return [int(value) for value in values]


def group_of(scenario: Scenario, topic: int) -> str:
    """Publishers of one group take turns: all t-clients, and the l-clients of each topic."""
    return "throughput" if scenario.topics[topic].clients == "throughput" else str(topic)


async def serve(channel: Channel, local: bool) -> None:
    """Do what a coordinator wants: measure clocks, run jobs, hand over logs."""
    while True:
        order = await channel.receive("clock", "prepare", "bye")
        if order["kind"] == "bye":
            return
        if order["kind"] == "clock":
            await channel.send("time", monotonic_ns=time.monotonic_ns())
            continue
        with tempfile.TemporaryDirectory() as scratch:
            directory = Path(order["directory"]) if local else Path(scratch)
            job = Job(order, directory)
            try:
                await job.connect()
                await channel.send("ready")
                start = await channel.receive("start")
                await job.run(start["begin_ns"], tuple(start["window"]), start["end_ns"], channel)
                result = await asyncio.to_thread(job.finish)
                await channel.send("done", **result)
                if not local:
                    for role in ("send", "receive"):
                        await channel.send_file(log_file(directory, role, job.name))
            except LoadError as error:
                await channel.send("failed", reason=str(error))
                return
            finally:
                for client in job.clients:
                    client.abort()
                await asyncio.to_thread(job.discard)


async def listen(address: str, secret: str) -> None:
    """Serve coordinators that connect, one after the other, until cancelled."""
    host, _, port = address.rpartition(":")
    busy = asyncio.Lock()

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = str(writer.get_extra_info("peername"))
        channel = Channel(reader, writer, peer)
        try:
            await channel.prove(secret, coordinator=False)
            try:
                # the run before may just be putting its things away
                await asyncio.wait_for(busy.acquire(), PATIENCE)
            except TimeoutError:
                await channel.send("failed", reason=f"the worker at {address} is busy with another run")
                return
            try:
                await channel.send("welcome", host=platform.node(), pid=os.getpid())
                await serve(channel, local=False)
            finally:
                busy.release()
        except (LoadError, TimeoutError, ConnectionError) as error:
            print(f"{peer}: {error}", file=sys.stderr, flush=True)
        finally:
            channel.close()

    server = await asyncio.start_server(on_connection, host, int(port))
    bound = server.sockets[0].getsockname()
    address = f"{bound[0]}:{bound[1]}"  # with the port that 0 has become
    print(f"worker on {address}", file=sys.stderr, flush=True)
    async with server:
        await server.serve_forever()


async def _serve_fd(fd: int) -> None:
    """Serve the coordinator that has started this process and holds the other end of a socket pair."""
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=fd))
    channel = Channel(reader, writer, "the coordinator")
    await channel.send("welcome", host=platform.node(), pid=os.getpid())
    with suppress(LoadError):  # the coordinator has gone, and with it everything
        await serve(channel, local=True)


def run_loop(main: Any) -> None:
    """Run a coroutine on uvloop where there is one, with as many open files as the system lets us have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # as many as there were, then
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        asyncio.run(main)
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fd", type=int, required=True)
    sys.setswitchinterval(0.0005)  # the thread of the log gives way at once
    # Ctrl-C goes to the whole process group; the coordinator decides, and we end when it does
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run_loop(_serve_fd(parser.parse_args().fd))


if __name__ == "__main__":
    main()
