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

    def __init__(self, protocol: Any, turns: Turns, partner: Pace | None = None) -> None:
        """``partner``: of a connection that this one answers, and waits with."""
        self._protocol = protocol
        self._turns = turns
        self.pace = Pace()
        self._partner = partner
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
        if self._rest or self.pace.waits or (self._partner is not None and self._partner.waits):
            self._rest += data
        else:
            self._rest = data
            self._pass_on_shares()
        if self._rest:
            self._transport.pause_reading()
            self._wait()

    def eof_received(self) -> bool:
        self._pass_on_rest()
        return bool(self._protocol.eof_received())

    def connection_lost(self, exc: Exception | None) -> None:
        try:
            self._pass_on_rest()
        finally:
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
        try:
            self._pass_on_share()
        except Exception as error:
            context = {"message": f"the turn of {self._protocol!r} failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
            self.abort()
            return
        if self._rest:
            self._wait()
        elif self._reading:
            self._transport.resume_reading()

    def _pass_on_shares(self) -> None:
        """What is little goes on to its end."""
        while self._rest and self._reading and not self.pace.waits:
            self._pass_on_share()

    def _pass_on_share(self) -> None:
        share, rest = self.pace.share, self._rest
        part, self._rest = rest[:share], rest[share:]
        clock = self._turns.clock
        begun = clock()
        self._protocol.data_received(part)
        self.pace.read(len(part), clock() - begun, self._turns.part)
        if not self._rest:
            self.pace.nothing_left()

    def _pass_on_rest(self) -> None:
        """The connection ends: what has come before is not lost."""
        rest, self._rest = self._rest, b""
        if rest:
            self._protocol.data_received(rest)
