"""Connections that the event loop carries, in shares like those of the reactor."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ildm.net.transport.turns import Pace

if TYPE_CHECKING:
    from ildm.net.transport.turns import Turns


class Paced(asyncio.Protocol):
    """A connection that the event loop carries, as one over TLS: what it reads goes on in shares.

    Towards the event loop it is the protocol, towards the session the transport.
    """

    def __init__(self, protocol: Any, turns: Turns) -> None:
        self._protocol = protocol
        self._turns = turns
        self._pace = Pace()
        self._transport: Any = None
        self._rest = b""
        """What has come and not gone on; nothing more is read meanwhile."""
        self._reading = True
        """The session takes what comes."""
        self._waits = False

    # asyncio.Protocol -------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.write = transport.write
        self.write_eof = transport.write_eof
        self.can_write_eof = transport.can_write_eof
        self.is_closing = transport.is_closing
        self.get_extra_info = transport.get_extra_info
        self.get_write_buffer_size = transport.get_write_buffer_size
        self.set_write_buffer_limits = transport.set_write_buffer_limits
        self._protocol.connection_made(self)

    def data_received(self, data: bytes) -> None:
        if self._rest or len(data) > self._pace.share or self._pace.waits:
            self._rest += data
            self._transport.pause_reading()
            self._wait()
        else:
            self._pass_on(data)

    def eof_received(self) -> bool:
        self._pass_on_rest()
        return bool(self._protocol.eof_received())

    def connection_lost(self, exc: Exception | None) -> None:
        self._pass_on_rest()
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    # the transport of the session -------------------------------------------------------------

    def close(self) -> None:
        self._end()
        self._transport.close()

    def abort(self) -> None:
        self._end()
        self._transport.abort()

    def _end(self) -> None:
        """The session takes nothing more."""
        self._reading = False
        self._rest = b""

    def pause_reading(self) -> None:
        self._reading = False
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._reading = True
        if self._rest:
            self._wait()
        else:
            self._transport.resume_reading()

    # within -----------------------------------------------------------------------------------

    def _wait(self) -> None:
        if not self._waits and self._reading:
            self._waits = True
            self._turns.wait(self._go_on)

    def _go_on(self) -> None:
        self._waits = False
        if not self._reading or not self._rest:
            return
        share = self._pace.share
        part, self._rest = self._rest[:share], self._rest[share:]
        self._pass_on(part)
        if self._rest:
            self._wait()
        elif self._reading:
            self._transport.resume_reading()

    def _pass_on(self, data: bytes) -> None:
        clock = self._turns.clock
        begun = clock()
        self._protocol.data_received(data)
        self._pace.read(len(data), clock() - begun)

    def _pass_on_rest(self) -> None:
        """The connection ends: what has come before is not lost."""
        rest, self._rest = self._rest, b""
        if rest:
            self._protocol.data_received(rest)
