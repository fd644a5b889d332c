"""Reading from many clients in rounds instead of at each message.

A broker writes each message by itself. Reading each by itself as well would cost the generator as much
as the broker, mostly in the kernel; a round takes what has gathered since the last one.
"""

from __future__ import annotations

import asyncio
import os
import select
import time
from collections.abc import Sequence

from ildm_bench.load.connection import Connection
from ildm_bench.load.pacing import Alarm

READ = 65_536
PLENTY = 32_768
"""Bytes that a round may find at one client: with more the next comes sooner, so that no socket is full
and holds up the target."""
SOONER = 8
"""By how much rounds may become more frequent."""


class Rounds:
    """Reads from the sockets of ``clients`` every ``every_ns``, or sooner, past the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clients: Sequence[Connection], every_ns: int) -> None:
        self._longest_ns = self._every_ns = every_ns
        self._epoll = select.epoll()
        self._clients: dict[int, Connection] = {}
        for client in clients:
            if client.closed is not None:
                continue
            client.transport.pause_reading()
            fd = client.transport.get_extra_info("socket").fileno()
            self._clients[fd] = client
            self._epoll.register(fd, select.EPOLLIN)
        self._alarm = Alarm(loop, self._round)
        self._next = time.monotonic_ns()
        self._alarm.set(self._next)

    def _round(self) -> None:
        most = self._read_all()
        if most > PLENTY:
            self._every_ns = max(self._every_ns // 2, self._longest_ns // SOONER)
        elif most < PLENTY // 4:
            self._every_ns = min(self._every_ns * 2, self._longest_ns)
        self._next = max(self._next + self._every_ns, time.monotonic_ns())
        self._alarm.set(self._next)

    def _read_all(self) -> int:
        """Read what is there; the most bytes that one client had."""
        most = 0
        for fd, _ in self._epoll.poll(0, max(1, len(self._clients))):
            client = self._clients[fd]
            size = 0
            while True:
                try:
                    data = os.read(fd, READ)
                except BlockingIOError:
                    break
                except OSError as error:
                    self._end(fd, str(error))
                    break
                if not data:
                    self._end(fd, "closed by the target")
                    break
                client.data_received(data)
                size += len(data)
                if len(data) < READ:
                    break
            most = max(most, size)
        return most

    def _end(self, fd: int, reason: str) -> None:
        self._epoll.unregister(fd)
        self._clients.pop(fd).lost(reason)

    def close(self) -> None:
        """Read what is there still, and stop."""
        self._alarm.close()
        self._read_all()
        self._epoll.close()
