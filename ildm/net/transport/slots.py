"""When a node reads: as something comes or, under load, in slots, so that what has come goes on together.

How often a node wakes costs more than what it then finds. Brokers acknowledge messages one by one, so what
was joined at one place comes apart again at the next. So under load all connections of the reactor are read
together, once in each slot. What was read is never held.
"""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ildm.core.counters import Counters

ROW: Final = 16
"""Turns in a row, each less than a slot after the one before, until slots begin. A lone message of QoS 2
takes fewer."""
EMPTY: Final = 4
"""Slots in a row that bring nothing, at which they end."""
MEASURED: Final = 0.02
"""Seconds of load over which it is measured what comes, without slots and in them."""
GAIN: Final = 1.3
"""Times the bytes of a turn that a slot has to bring."""
KEPT: Final = 0.9
"""Part of the bytes per second that has to be left: clients that wait for answers send less, as these come
later."""
AGAIN: Final = 0.25
"""Seconds from slots that gained nothing to the next try. Each further one in vain doubles them."""
LONGEST: Final = 4.0
"""Seconds that they become at most."""
TRUSTED: Final = 1.0
"""Seconds from slots that gained something until it is measured anew."""
CLOCK_MONOTONIC: Final = 1
NS: Final = 1_000_000_000


class Measure:
    """What has come under load."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.bytes = 0
        self.turns = 0

    def add(self, seconds: float, count: int) -> None:
        self.seconds += seconds
        self.bytes += count
        self.turns += 1


class Slots:
    """Decides when the reactor reads; the clock is the reactor's.

    Args:
        length: seconds of a slot: nothing waits longer.
        counters: the node's.
    """

    def __init__(self, length: float, counters: Counters) -> None:
        self.length = length
        self._counters = counters
        self.open = False
        """The reactor reads in slots."""
        self._last = 0.0
        """When the last turn began, or the last slot ended."""
        self._passed = length
        """From the one before."""
        self._row = 0
        self._empty = 0
        self._without = Measure()
        self._within = Measure()
        self._on_trial = False
        """It is measured whether slots gain anything."""
        self._trusted_until = 0.0
        self._not_before = 0.0
        self._pause = AGAIN

    def begin(self, now: float) -> float:
        """Something has come while the reactor reads as it comes.

        Returns:
            How long it is to wait, as slots begin; 0: it is read now.
        """
        self._passed = passed = now - self._last
        self._last = now
        if passed >= self.length:
            self._row = 0
            return 0.0
        self._row += 1
        if self._row < ROW or now < self._not_before:
            return 0.0
        if now >= self._trusted_until and not self._on_trial:
            if self._without.seconds < MEASURED:
                return 0.0
            self._on_trial = True
            self._within = Measure()
        self.open = True
        self._empty = 0
        self._counters["read_slots"] += 1
        return self.length - passed

    def end(self, now: float, count: int) -> None:
        """A turn, or slot, has brought so many bytes; the slot may have been the last."""
        if not self.open:
            if self._passed < MEASURED:
                if self._without.seconds >= 2 * MEASURED and not self._on_trial:
                    self._without = Measure()
                self._without.add(self._passed, count)
            return
        self._within.add(now - self._last, count)
        self._last = now
        self._empty = 0 if count else self._empty + 1
        if self._on_trial and self._within.seconds >= MEASURED:
            self._judge(now)
        if self._empty == EMPTY or not (self._on_trial or now < self._trusted_until):
            self.open = False
            self._row = 0

    def _judge(self, now: float) -> None:
        within, without = self._within, self._without
        if (
            within.bytes * without.turns >= GAIN * without.bytes * within.turns
            and within.bytes * without.seconds >= KEPT * without.bytes * within.seconds
        ):
            self._trusted_until = now + TRUSTED
            self._pause = AGAIN
        else:
            self._counters["read_slots_vain"] += 1
            self._not_before = now + self._pause
            self._pause = min(2 * self._pause, LONGEST)
        self._on_trial = False
        self._without = Measure()


class Ticks:
    """A timer finer than those of event loops, which count in milliseconds (timerfd_create(2), of Linux)."""

    def __init__(self) -> None:
        """Raises: OSError, AttributeError: the system has none."""
        library = ctypes.CDLL(None, use_errno=True)
        self._settime: Any = library.timerfd_settime
        self.fd: int = library.timerfd_create(CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._times: Any = (ctypes.c_long * 4)()
        """Seconds and nanoseconds of the interval, and of the first."""

    def start(self, first: float, interval: float) -> None:
        """Tick after ``first`` seconds, then every ``interval``."""
        times = self._times
        times[0], times[1] = divmod(int(interval * NS), NS)
        times[2], times[3] = divmod(max(1, int(first * NS)), NS)
        self._settime(self.fd, 0, times, None)

    def stop(self) -> None:
        self._times[:] = (0, 0, 0, 0)
        self._settime(self.fd, 0, self._times, None)

    def take(self) -> bool:
        """Whether it has ticked since it was asked last, or started."""
        try:
            return bool(os.read(self.fd, 8))
        except BlockingIOError:
            return False

    def close(self) -> None:
        os.close(self.fd)
