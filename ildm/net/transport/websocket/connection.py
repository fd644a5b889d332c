"""One WebSocket: towards the socket an ``asyncio.Protocol``, towards the session a transport."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, NamedTuple

from ildm.net.transport.websocket.frames import (
    BINARY,
    PONG,
    CloseCode,
    FrameError,
    FrameReader,
    close_frame,
    frame,
)
from ildm.net.transport.websocket.upgrade import HEAD_LIMIT, UpgradeError, answer

if TYPE_CHECKING:
    from ildm.core.counters import Counters
    from ildm.core.driver import Transport
    from ildm.core.session import Origin
    from ildm.net.transport.turns import Pace

UPGRADES = 2048
"""Connections of one listener that have not become WebSockets yet; further ones are closed."""
FIXED_HEADER = 5
"""Bytes of the longest header of a packet (MQTT 2.1): a frame has room for a packet of the largest size."""
CLOSE = close_frame(CloseCode.NORMAL)


class WebSocketOptions(NamedTuple):
    """What the configuration says."""

    path: str | None
    """See :func:`.upgrade.answer`."""
    origins: Collection[str] | None
    largest: int
    """Bytes of a frame."""
    timeout: float
    """Seconds until the request must be whole."""


class WebSocketRules:
    """What the WebSockets of one listener have in common.

    Args:
        session: makes what talks over one; it has the methods of ``asyncio.Protocol``.
    """

    def __init__(self, session: Callable[[Any], Any], counters: Counters, options: WebSocketOptions) -> None:
        self.session = session
        self.counters = counters
        self.path = options.path
        self.origins = None if options.origins is None else frozenset(map(str.lower, options.origins))
        self.largest = options.largest
        self.timeout = options.timeout
        self.waiting = 0
        """Connections that have not become WebSockets."""


class WebSocket(asyncio.Protocol):
    """Each write of the session becomes one frame."""

    __slots__ = (
        "_arrival",
        "_closing",
        "_head",
        "_reader",
        "_rules",
        "_session",
        "_timer",
        "_transport",
        "_waits",
        "_writable",
    )

    def __init__(self, rules: WebSocketRules, arrival: Origin) -> None:
        self._arrival = arrival
        self._rules = rules
        self._head: bytearray | None = bytearray()
        self._reader = FrameReader(rules.largest)
        self._session: Any = None
        self._transport: Transport
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._waits = False
        self._writable = True

    # asyncio.Protocol -------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._waits = True
        self._rules.waiting += 1
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._rules.timeout, self._timed_out)
        if self._arrival.begin(transport) is None:
            self.abort()
        elif self._rules.waiting > UPGRADES:
            self._refuse(UpgradeError(503, "too many connections"))

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        if self._head is not None:
            self._head += data
            rest = self._upgrade(self._head)
            if not rest:
                return
            data = rest
        reader = self._reader
        try:
            payload = reader.feed(data)
        except FrameError as error:
            self._rules.counters["websocket_errors"] += 1
            self._end(close_frame(error.code, str(error)))
            return
        if payload:
            self._session.data_received(payload)
        self._pong()
        if reader.closed is not None and not self._closing:
            self._end(close_frame(int.from_bytes(reader.closed[:2], "big")) if reader.closed else CLOSE)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._no_longer_waiting()
        self._arrival.end()
        if self._session is not None:
            self._session.connection_lost(exc)

    def _pong(self) -> None:
        """Answer the newest PING, as soon as the client takes what waits (RFC 6455, 5.5.3)."""
        reader = self._reader
        if reader.ping is not None and self._writable:
            pong, reader.ping = reader.ping, None
            if not self._closing:
                self._transport.write(frame(PONG, pong))

    def pause_writing(self) -> None:
        self._writable = False
        if self._session is not None:
            self._session.pause_writing()

    def resume_writing(self) -> None:
        self._writable = True
        self._pong()
        if self._session is not None:
            self._session.resume_writing()

    # the request ------------------------------------------------------------------------------

    def _upgrade(self, head: bytearray) -> bytes:
        """Answer the request when it is whole; what has come behind it."""
        end = head.find(b"\r\n\r\n")
        if end > HEAD_LIMIT or (end < 0 and len(head) > HEAD_LIMIT):
            self._refuse(UpgradeError(431, f"a request has {HEAD_LIMIT} bytes at most"))
            return b""
        if end < 0:
            return b""
        try:
            response = answer(bytes(head[:end]), self._rules.path, self._rules.origins)
        except UpgradeError as error:
            self._refuse(error)
            return b""
        rest = bytes(head[end + 4 :])
        self._head = None
        self._no_longer_waiting()
        self._transport.write(response)
        self._session = self._rules.session(self._arrival)
        self._session.connection_made(self)
        return b"" if self._closing else rest

    def _refuse(self, error: UpgradeError) -> None:
        self._rules.counters["websocket_refused"] += 1
        self._end(error.response())

    def _timed_out(self) -> None:
        self._timer = None
        self._rules.counters["websocket_refused"] += 1
        self._closing = True
        self._transport.abort()

    def _no_longer_waiting(self) -> None:
        if self._waits:
            self._waits = False
            self._rules.waiting -= 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self, last: bytes) -> None:
        if not self._closing:
            self._closing = True
            self._transport.write(last)
            self._transport.close()

    # in another process -----------------------------------------------------------------------

    @property
    def below(self) -> Transport:
        """The connection that carries it."""
        return self._transport

    @property
    def is_whole(self) -> bool:
        """It is a WebSocket by now, and no end of it is under way."""
        return self._head is None and not self._closing and self._reader.closed is None

    def part(self) -> tuple[bytes, list[Any]]:
        """End without a word to the session: what is still to be sent, and the state for :meth:`go_on`."""
        reader = self._reader
        pong = b"" if reader.ping is None else frame(PONG, reader.ping)
        self._closing = True
        self._session = None
        return pong, reader.state()

    def go_on(self, session: Any, below: Transport, state: list[Any]) -> None:
        """Carry a session whose connection another process has had. Raises: as ``FrameReader.go_on``."""
        self._reader.go_on(state)
        self._head = None
        self._session = session
        self._transport = below

    # the transport of the session -------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if data and not self._closing:
            self._transport.write(frame(BINARY, data))

    def close(self) -> None:
        """After what was written, and a close frame."""
        self._end(CLOSE)

    def abort(self) -> None:
        self._closing = True
        self._transport.abort()

    def can_write_eof(self) -> bool:
        return False

    def write_eof(self) -> None:
        raise NotImplementedError("a WebSocket ends both ways at once (RFC 6455, 7.1.4)")

    def is_closing(self) -> bool:
        return self._closing or self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    @property
    def pace(self) -> Pace | None:
        """Of the connection below."""
        return getattr(self._transport, "pace", None)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)
