"""Reading from many subscribers in rounds instead of at each message.

A broker writes each message by itself. Reading each by itself as well would cost the generator as much
as the broker, mostly in the kernel; a round takes what has gathered since the last one.
"""

from __future__ import annotations

import asyncio
import os
import select
import time
from collections.abc import Sequence

from ildm_bench.load.pacing import Alarm
from ildm_bench.load.subscriber import Subscriber

READ = 65_536


class Rounds:
    """Reads from the sockets of ``subscribers`` every ``every_ns``, past the event loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, subscribers: Sequence[Subscriber], every_ns: int
    ) -> None:
        self._every_ns = every_ns
        self._epoll = select.epoll()
        self._subscribers: dict[int, Subscriber] = {}
        for subscriber in subscribers:
            if subscriber.closed is not None:
                continue
            subscriber.transport.pause_reading()
            fd = subscriber.transport.get_extra_info("socket").fileno()
            self._subscribers[fd] = subscriber
            self._epoll.register(fd, select.EPOLLIN)
        self._alarm = Alarm(loop, self._round)
        self._next = time.monotonic_ns()
        self._alarm.set(self._next)

    def _round(self) -> None:
        for fd, _ in self._epoll.poll(0, max(1, len(self._subscribers))):
            self._read(fd)
        self._next = max(self._next + self._every_ns, time.monotonic_ns())
        self._alarm.set(self._next)

    def _read(self, fd: int) -> None:
        subscriber = self._subscribers[fd]
        while True:
            try:
                data = os.read(fd, READ)
            except BlockingIOError:
                return
            except OSError as error:
                self._end(fd, str(error))
                return
            if not data:
                self._end(fd, "closed by the target")
                return
            subscriber.data_received(data)
            if len(data) < READ:
                return

    def _end(self, fd: int, reason: str) -> None:
        self._epoll.unregister(fd)
        self._subscribers.pop(fd).lost(reason)

    def close(self) -> None:
        """Read what is there still, and stop."""
        self._alarm.close()
        for fd, _ in self._epoll.poll(0, max(1, len(self._subscribers))):
            self._read(fd)
        self._epoll.close()
