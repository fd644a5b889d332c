"""How many connections a server of HTTP has, and for how long one may do nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from aiohttp import web

    from ildm.core.counters import Counters

SWEEPS = 4
"""In the time that one may be idle."""


class Connections:
    """Makes the protocol of each connection, and ends those that are idle.

    Args:
        server: what makes them speak HTTP.
        of: how its counters begin.
        most: at a time. Then the one that has been idle for longest goes; without such the new one does.
        idle: seconds without a whole request.
    """

    def __init__(self, server: web.Server, counters: Counters, of: str, most: int, idle: float) -> None:
        self._server = server
        self._counters = counters
        self._of = of
        self._most = most
        self._patience = idle
        self._idle: dict[asyncio.BaseProtocol, float] = {}
        """Since when; the one longest idle stands first."""
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(idle / SWEEPS, self._sweep)

    def accept(self) -> asyncio.BaseProtocol:
        if len(self._server.connections) >= self._most and not self._make_room():
            self._counters[f"{self._of}_connections_refused"] += 1
            return _Refused()
        protocol = self._server()
        self._idle[protocol] = self._loop.time()
        return protocol

    def begins(self, request: web.BaseRequest) -> None:
        """A request is being answered."""
        self._idle.pop(request.protocol, None)

    def ended(self, request: web.BaseRequest) -> None:
        self._idle[request.protocol] = self._loop.time()

    def stop(self) -> None:
        self._timer.cancel()

    def _make_room(self) -> bool:
        self._forget()
        if not self._idle:
            return False
        self._end(next(iter(self._idle)))
        return True

    def _sweep(self) -> None:
        self._timer = self._loop.call_later(self._patience / SWEEPS, self._sweep)
        self._forget()
        since = self._loop.time() - self._patience
        for protocol in [each for each, at in self._idle.items() if at < since]:
            self._end(protocol)

    def _forget(self) -> None:
        """Those that have ended by themselves."""
        there = set(self._server.connections)
        fresh = self._loop.time() - 1.0  # one just accepted may not know its transport yet
        for protocol in [each for each, at in self._idle.items() if each not in there and at < fresh]:
            del self._idle[protocol]

    def _end(self, protocol: asyncio.BaseProtocol) -> None:
        del self._idle[protocol]
        self._counters[f"{self._of}_connections_idle"] += 1
        cast("Any", protocol).force_close()


class _Refused(asyncio.Protocol):
    """A connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).abort()
