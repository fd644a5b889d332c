"""Open-loop pacing: when each message is due, and a timer that wakes up close to it."""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Schedule:
    """``publishers`` take turns: message ``k`` of publisher ``i`` is due at
    ``start + (k * publishers + i) * interval / publishers``, so that the load is even at all times.

    Times are integer nanoseconds. Numbers of messages are those of all publishers together, in order.
    """

    start_ns: int
    end_ns: int
    interval_ns: int
    publishers: int
    first: int = 0
    """Place of our first publisher among those of all generator processes, ``of`` in number (0: no other)."""
    of: int = 0

    @property
    def total(self) -> int:
        """Messages of one publisher: as many as begin within the time; at most one, if its turn comes, where
        the interval is longer than that."""
        return total_of(self.end_ns - self.start_ns, self.interval_ns)

    def time_of(self, publisher: int, message: int) -> int:
        """When a message of one of our publishers is due."""
        phase = (self.first + publisher) * self.interval_ns // (self.of or self.publishers)
        return self.start_ns + message * self.interval_ns + phase

    def due(self, publisher: int, now_ns: int) -> int:
        """How many messages of a publisher are due up to now."""
        passed = min(now_ns, self.end_ns - 1) - self.time_of(publisher, 0)
        if passed < 0:
            return 0
        return min(self.total, passed // self.interval_ns + 1)

    def within(self, publisher: int, begin_ns: int, end_ns: int) -> int:
        """How many messages of a publisher are due from ``begin_ns`` to before ``end_ns``."""
        return self.due(publisher, end_ns - 1) - self.due(publisher, begin_ns - 1)


def total_of(duration_ns: int, interval_ns: int) -> int:
    """Messages of one publisher (see `Schedule.total`)."""
    return max(1, duration_ns // interval_ns)


class Alarm:
    """Calls back at a point of the monotonic clock, with the precision of the kernel's timers.

    The timers of event loops count milliseconds, which is as long as a message is under way.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._fd = _timerfd_create()
        self._handle: asyncio.TimerHandle | None = None
        if self._fd is not None:
            loop.add_reader(self._fd, self._expired)

    def set(self, at_ns: int) -> None:
        """Call back once at ``at_ns``; replaces an earlier time."""
        if self._fd is not None:
            _timerfd_settime(self._fd, max(1, at_ns))
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop.call_later(max(0, at_ns - time.monotonic_ns()) / 1e9, self._callback)

    def close(self) -> None:
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None
        if self._handle is not None:
            self._handle.cancel()

    def _expired(self) -> None:
        assert self._fd is not None
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return  # set anew since it fired
        self._callback()


class _Spec(ctypes.Structure):
    _fields_ = [
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    ]


def _libc() -> ctypes.CDLL | None:
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.timerfd_create  # noqa: B018 - not on every system
    except (OSError, AttributeError):
        return None
    return libc


_LIBC = _libc()
_ABSOLUTE = 1


def _timerfd_create() -> int | None:
    """A timer of the monotonic clock as a file descriptor; None where the system has no such thing."""
    if _LIBC is None:
        return None
    fd = int(_LIBC.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC))
    return fd if fd >= 0 else None


def _timerfd_settime(fd: int, at_ns: int) -> None:
    assert _LIBC is not None
    spec = _Spec(0, 0, at_ns // 1_000_000_000, at_ns % 1_000_000_000)
    if _LIBC.timerfd_settime(fd, _ABSOLUTE, ctypes.byref(spec), None) != 0:
        raise OSError(ctypes.get_errno(), "timerfd_settime")
