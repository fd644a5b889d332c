"""What all sessions have in common: status, flow control, orderly and forced end."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from ildm.api import Role, SessionStatus, Unreachable
from ildm.mqtt import members

if TYPE_CHECKING:
    from ildm.api import Timer
    from ildm.core.driver import Driver, Transport

LINGER = 2.0
"""Seconds that the last answers of a peer are waited for where TLS can only be ended both ways at once."""
CLOSE_TIMEOUT = 10.0
"""Seconds until a peer that does not take its last bytes is cut off."""
_CLOSED: Final = SessionStatus.CLOSED
_ESTABLISHED: Final = SessionStatus.ESTABLISHED
_TERMINATING: Final = SessionStatus.TERMINATING
"""To look up a member of an enumeration takes longer than what is done with it, for each packet."""
_ids: Final = count(1)
"""Not an attribute of the class: to change one makes Python forget where it has found all others."""


def peer_of(transport: Transport, name: object = None) -> str:
    """Where a connection comes from or leads to, for people; who comes by a unix socket has no address.

    ``name`` is the transport's ``peername``, if it has been asked for already.
    """
    name = name or transport.get_extra_info("peername")
    if isinstance(name, tuple):
        return f"{name[0]}:{name[1]}"
    path = name or transport.get_extra_info("sockname")
    return f"unix:{path}" if isinstance(path, str) and path else ""


class Origin(Protocol):
    """What is known of a client's connection from before its session began."""

    @property
    def listener(self) -> str:
        """The label in metrics of the listener where it has come."""

    def begin(self, transport: Transport) -> str | None:
        """Where it comes from, for people; None: it is not to be served. May be asked again."""

    def end(self) -> None:
        """The connection has gone."""

    def authentication_failed(self) -> str | None:
        """It was refused for who it is; the address, or network, that is blocked from now on, if it is."""

    def is_blocked(self) -> bool:
        """Whether its address is blocked, since it has come."""

    def told(self, version: str, made: Any) -> bytes:
        """What the broker is told of it on the connection ``made`` (PROXY protocol ``v1``, ``v2``)."""


class BaseSession:
    """One TCP connection (thesis 5.2.1, Fig. 5.3); subclasses say what is done with its bytes."""

    __slots__ = (
        "_cut_off",
        "_pauses",
        "client_id",
        "driver",
        "id",
        "opened_at",
        "peer",
        "status",
        "transport",
        "version",
        "writable",
    )
    role: ClassVar[Role]

    def __init__(self, driver: Driver) -> None:
        self.id = next(_ids)
        self.driver = driver
        self.status = _CLOSED
        self.peer = ""
        self.client_id = ""
        self.version = members.V311
        self.transport: Transport | None = None
        self.opened_at = 0.0
        self.writable = True
        self._pauses: set[object] | None = None
        self._cut_off: Timer | None = None

    # asyncio.Protocol -------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.status = _ESTABLISHED
        self.writable = True  # whatever an earlier connection of the session was
        self.opened_at = self.driver.wall()
        self.peer = self._peer_of(transport)
        if self._pauses:
            transport.pause_reading()

    def _peer_of(self, transport: Transport) -> str:
        return peer_of(transport)

    def eof_received(self) -> bool | None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self.status = _CLOSED
        if self._cut_off is not None:
            self._cut_off.cancel()
            self._cut_off = None

    def dial_failed(self, reason: str, why: Unreachable = Unreachable.NO_ANSWER) -> None:
        self.status = _CLOSED

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True

    # flow control -----------------------------------------------------------------------------

    def pause(self, reason: object) -> None:
        """Stop reading; reading goes on when every reason given has been withdrawn."""
        if self._pauses is None:
            self._pauses = set()
        if not self._pauses and self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()
        self._pauses.add(reason)

    def resume(self, reason: object) -> None:
        if self._pauses and reason in self._pauses:
            self._pauses.remove(reason)
            if not self._pauses and self.transport is not None and not self.transport.is_closing():
                self.transport.resume_reading()

    @property
    def paused(self) -> bool:
        return bool(self._pauses)

    # sending and ending -----------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self.status is _ESTABLISHED

    def write(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)

    def end_writing(self) -> None:
        """Say that nothing more will come, and go on reading until the peer closes.

        It is cut off when it does not do so in time.
        """
        transport = self.transport
        if self.status is _ESTABLISHED and transport is not None and self._cut_off is None:
            if transport.can_write_eof():
                try:
                    transport.write_eof()
                except OSError:  # the connection has ended, and nobody has told yet
                    transport.abort()
                    return
                self._cut_off = self.driver.call_later(CLOSE_TIMEOUT, transport.abort)
            else:  # TLS ends both ways at once: time for what the peer is about to answer
                self._cut_off = self.driver.call_later(LINGER, self.close)

    def close(self) -> None:
        """End the session after what was written has gone out, by force after a time-out."""
        transport = self.transport
        if self.status is _ESTABLISHED and transport is not None:
            self.status = _TERMINATING
            waiting = transport.get_write_buffer_size()
            transport.close()
            if not waiting:
                return  # the connection is as good as ended
            if self._cut_off is not None:
                self._cut_off.cancel()
            # of this very connection: the session may have another one by then
            self._cut_off = self.driver.call_later(CLOSE_TIMEOUT, transport.abort)

    def abort(self) -> None:
        """End the session at once."""
        if self.transport is not None:
            self.status = _TERMINATING
            self.transport.abort()
