"""The admin API: whatever is asked, there is an answer in JSON, and none that speaks of a fault of the node.

An input is a line ``METHOD TARGET``, then the body.
"""

from __future__ import annotations

import asyncio
import json
import logging
import tempfile
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any

from ildm.admin.server import AdminServer
from ildm.config.watching import AdminConfig
from ildm.core.counters import Counters
from ildm.log import set_log_level
from tests.admin.fake_node import FakeView
from tests.fuzz.engine import Target
from tests.fuzz.mutator import mutate_text

STATUSES = frozenset((200, 201, 202, 400, 404, 405, 409, 413, 417, 501, 504))
"""What may be answered; 500 is what must not."""
PATIENCE = 5.0
"""Seconds until an answer."""


class Wire(asyncio.Transport):
    """The server's end of a connection that is none of the system: what is answered on it."""

    def __init__(self, protocol: asyncio.Protocol, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._protocol = protocol
        self._loop = loop
        self.answer = bytearray()
        self.ended: asyncio.Future[None] = loop.create_future()
        self._closing = False
        protocol.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.answer += data

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._lost)

    abort = close

    def _lost(self) -> None:
        self._protocol.connection_lost(None)
        if not self.ended.done():
            self.ended.set_result(None)

    def too_late(self) -> None:
        if not self.ended.done():
            self.ended.set_exception(TimeoutError(f"no answer within {PATIENCE} s"))

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Admin(Target):
    """Requests to one server, each on a connection of its own, which is in memory: those of the system take
    most of the time."""

    name = "admin"
    mutate = staticmethod(mutate_text)
    inputs_of_a_life = 500

    def __init__(self) -> None:
        set_log_level("error")
        logging.getLogger("aiohttp.server").disabled = True  # it tells of each request that is no HTTP
        self._directory = tempfile.TemporaryDirectory(prefix="ildm-fuzz-")
        self._path = Path(self._directory.name) / "admin.sock"
        self._loop = asyncio.new_event_loop()
        self._view = FakeView()
        self._server = AdminServer(self._view, self._path, AdminConfig(), Counters(), trace_timeout=0.05)
        self._loop.run_until_complete(self._server.start())
        connections = self._server._connections
        assert connections is not None
        self._accept: Any = connections.accept

    def fresh(self) -> None:
        self._view.__init__()  # type: ignore[misc]  # as it was at the beginning, for the same server

    def close(self) -> None:
        self._loop.run_until_complete(self._server.stop())
        self._loop.close()
        self._directory.cleanup()
        logging.getLogger("aiohttp.server").disabled = False
        set_log_level("info")

    def take(self, data: bytes) -> Iterable[Hashable]:
        line, _, body = data.partition(b"\n")
        head = b"%b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" % (line or b"GET /")
        request = b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)
        answer = self._ask(request)
        top, _, text = answer.partition(b"\r\n\r\n")
        status = int(top.split(b" ")[1])
        assert status in STATUSES, answer
        own = b"application/json" in top  # else it was no HTTP, and aiohttp has answered
        if own:
            json.loads(text)
        else:
            assert status in (400, 417, 501)
        return [(line.split(b" ")[0], line.split(b"?")[0][:20], status, own)]

    def _ask(self, request: bytes) -> bytes:
        """What is answered until the server ends the connection."""
        return self._loop.run_until_complete(self._asked(request))

    async def _asked(self, request: bytes) -> bytes:
        protocol = self._accept()
        wire = Wire(protocol, self._loop)
        timer = self._loop.call_later(PATIENCE, wire.too_late)
        protocol.data_received(request)
        await wire.ended
        timer.cancel()
        return bytes(wire.answer)
