"""One plain connection on a :class:`ildm.net.transport.reactor.Reactor`."""

from __future__ import annotations

import os
import select
import socket
from abc import ABC, abstractmethod
from collections import deque
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ildm.net.transport.sockets import FAMILIES
from ildm.net.transport.turns import LIGHT, PART, Pace

if TYPE_CHECKING:
    from collections.abc import Callable

    from ildm.net.transport.reactor import Reactor

READABLE: Final = select.EPOLLIN
WRITABLE: Final = select.EPOLLOUT
BROKEN: Final = select.EPOLLERR | select.EPOLLHUP
HIGH: Final = 64 * 1024
"""Bytes that may wait to be sent before the protocol is told, as of asyncio's transports."""
QUICKACK: Final = (int(socket.IPPROTO_TCP), int(getattr(socket, "TCP_QUICKACK", 0)), 1)
"""Of Linux (tcp(7)); it holds for what has come by then."""
BUFFERS: Final = 64
"""Sent by one system call, at most."""


class Watched(ABC):
    """A socket that a reactor watches."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.mask = 0
        """The events it is watched for; 0: it is not, or it would be told of a peer that has gone over
        and over."""
        self.gone = False
        """It has ended, and will be told so."""

    @abstractmethod
    def ready(self, events: int) -> None:
        """Something of what it is watched for has happened."""

    @abstractmethod
    def abort(self) -> None:
        """End it at once."""

    @abstractmethod
    def end(self) -> None:
        """It is watched no more: give the socket back."""


class Asleep(Watched):
    """A connection that another process has made, until something comes by it.

    Args:
        wake: puts a :class:`Stream` in the place of this one.
    """

    def __init__(self, reactor: Reactor, fd: int, wake: Callable[[], None]) -> None:
        super().__init__(fd)
        self._reactor = reactor
        self._wake = wake

    def ready(self, events: int) -> None:
        self._wake()

    def abort(self) -> None:
        if not self.gone:
            self.gone = True
            self._reactor.watch(self, 0)
            self._reactor.ended(self)

    def end(self) -> None:
        os.close(self.fd)


class Stream(Watched):
    """What the node's sessions use of an ``asyncio.Transport``.

    What is written goes to the system at once; what that does not take waits, and the protocol is told by
    ``pause_writing`` and ``resume_writing`` as by asyncio's transports.

    Args:
        peer: where it leads, as ``accept`` and ``getpeername`` say it.
        sock: the socket of ``fd``, if there is an object for it already.
    """

    def __init__(
        self,
        reactor: Reactor,
        fd: int,
        protocol: Any,
        family: int,
        peer: Any = None,
        sock: socket.socket | None = None,
    ) -> None:
        super().__init__(fd)
        self._reactor = reactor
        self._protocol = protocol
        self._family = family
        self._peer = peer
        self._socket = sock
        self._reading = True
        self.pace = Pace()
        self._partner: Pace | None = None
        self._waits = False
        """For its turn to read; it is not watched for what comes meanwhile."""
        self._closing = False
        self._error: Exception | None = None
        self._broken = False
        """Nothing can be sent any more, for ``_error``; what has come before is still read."""
        self._ends_writing = False
        self._unsent: deque[bytes | memoryview] | None = None
        self._waiting = 0
        """Bytes in ``_unsent``."""
        self._high = HIGH
        self._low = HIGH // 4
        self._protocol_paused = False

    def begin(self) -> None:
        """Tell the protocol, and watch the socket."""
        self._reactor.watched[self.fd] = self
        try:
            self._protocol.connection_made(self)
        except Exception as error:
            self._fault(error, "connection_made")
        self._follow()

    def resume(self, mask: int) -> None:
        """Go on with another process's connection, which is watched with a mask already.

        Nothing is read until the protocol says so. Then :meth:`follow` is to be called.
        """
        self._reading = False
        self.mask = mask
        self._reactor.watched[self.fd] = self

    def follow(self) -> None:
        """The protocol has had its say."""
        self._follow()

    @property
    def is_whole(self) -> bool:
        """It goes on in both directions."""
        return not (self._closing or self._broken or self._ends_writing)

    def part(self) -> tuple[int, int, bytes]:
        """Watch the socket no more, without a word to the protocol: descriptor, family, unsent bytes."""
        unsent = b"" if self._unsent is None else b"".join(self._unsent)
        self._unsent = None
        self._waiting = 0
        self._reading = False
        self.gone = self._closing = True
        self._follow()
        del self._reactor.watched[self.fd]
        if self._socket is not None:
            self._socket.detach()
            self._socket = None
        self._protocol = None
        return self.fd, self._family, unsent

    # what the reactor calls -------------------------------------------------------------------

    def ready(self, events: int) -> None:
        if self._waiting and events & (WRITABLE | BROKEN):
            self._send_waiting()
        if self._reading and events & (READABLE | BROKEN):
            if self._has_to_wait():
                self._wait()
            else:
                while self._read() and self._reading and not self.pace.waits:
                    """What is little is read to its end."""

    def end(self) -> None:
        protocol, self._protocol = self._protocol, None
        try:
            protocol.connection_lost(self._error)
        except Exception as error:
            self._reactor.report(error, "connection_lost", protocol)
        finally:
            if self._socket is None:
                os.close(self.fd)
            else:
                self._socket.close()

    def _has_to_wait(self) -> bool:
        pace, partner, reactor = self.pace, self._partner, self._reactor
        full = reactor.last_read > reactor.full_at
        if pace.waits or (partner is not None and partner.waits):
            return full or reactor.turns.busy
        return full and pace.last > LIGHT

    def _wait(self) -> None:
        if not self._waits:
            self._waits = True
            self._follow()
            self._reactor.turns.wait(self._go_on)

    def _go_on(self) -> None:
        self._waits = False
        if self._reading and self._read() and self._reading:
            self._wait()
        else:
            self._follow()

    def _read(self) -> bool:
        """Whether there may be more to read."""
        reactor = self._reactor
        pace = self.pace
        share = pace.share
        try:
            count = os.readv(self.fd, reactor.into[share])
        except (BlockingIOError, InterruptedError):
            pace.nothing_left()
            if self._broken:
                self._lose(self._error)
            return False
        except OSError as error:
            self._lose(self._error or error)
            return False
        if count:
            reactor.bytes_read += count
            begun = reactor.clock()
            try:
                self._protocol.data_received(reactor.buffer[:count].tobytes())
            except Exception as error:
                self._fault(error, "data_received")
            reactor.last_read = end = reactor.clock()
            pace.last = end - begun
            if reactor.turns.busy:
                self._acknowledge()
            if end - begun > PART or count == share or pace.burst or pace.waits:
                pace.read(count, end - begun, reactor.turns.part)
            return count == share
        if self._broken:
            self._lose(self._error)
            return False
        self._reading = False
        try:
            half_open = self._protocol.eof_received()
        except Exception as error:
            self._fault(error, "eof_received")
            return False
        if half_open:
            self._follow()
        else:
            self.close()
        return False

    def _send_waiting(self) -> None:
        unsent = self._unsent
        assert unsent is not None
        try:
            sent = os.writev(self.fd, list(islice(unsent, BUFFERS)))
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._break(error)
            return
        self._waiting -= sent
        while sent:
            first = unsent.popleft()
            if sent < len(first):
                unsent.appendleft(memoryview(first)[sent:])  # no copy: it may be all of a large packet
                break
            sent -= len(first)
        if not self._waiting:
            if self._closing:
                self._lose(None)
                return
            if self._ends_writing:
                self._shut_down()
            self._follow()
        if self._protocol_paused and self._waiting <= self._low:
            self._protocol_paused = False
            try:
                self._protocol.resume_writing()
            except Exception as error:
                self._fault(error, "resume_writing")

    def answers(self, other: Pace | None) -> None:
        """What comes here answers what comes by another connection: it waits while that one does."""
        self._partner = other

    # what sessions call -----------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send; raises RuntimeError after :meth:`write_eof`."""
        if self._ends_writing:
            raise RuntimeError("nothing can be written after write_eof")
        if self.gone or self._broken or not data:
            return
        rest: bytes | memoryview = data
        if not self._waiting:
            try:
                sent = os.write(self.fd, data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                self._break(error)
                return
            if sent == len(data):
                return
            if sent:
                rest = memoryview(data)[sent:]
        if self._unsent is None:
            self._unsent = deque()
        self._unsent.append(rest)
        self._waiting += len(rest)
        self._follow()
        if self._waiting > self._high and not self._protocol_paused:
            self._protocol_paused = True
            try:
                self._protocol.pause_writing()
            except Exception as error:
                self._fault(error, "pause_writing")

    def write_eof(self) -> None:
        """Say that nothing more will come, after what waits. Raises: OSError, the connection has ended."""
        if self._closing or self._ends_writing:
            return
        self._ends_writing = True
        if not self._waiting:
            self._object().shutdown(socket.SHUT_WR)

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        """End it when what waits has been sent."""
        if self._closing:
            return
        self._closing = True
        self._reading = False
        if self._waiting:
            self._follow()
        else:
            self._lose(None)

    def abort(self) -> None:
        self._lose(None)

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            if self._broken:
                self._lose(self._error)
            self._follow()

    def resume_reading(self) -> None:
        if not self._reading and not self._closing:
            self._reading = True
            self._follow()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """``peername``, ``sockname`` or ``socket``."""
        if name == "peername" and self._peer is not None:
            return self._peer
        if self._protocol is None:  # the socket has gone
            return default
        if name == "socket":
            return self._object()
        try:
            if name == "peername":
                self._peer = self._object().getpeername()
                return self._peer
            if name == "sockname":
                return self._object().getsockname()
        except OSError:  # it has ended, and nobody has told yet
            return default
        return default

    def get_write_buffer_size(self) -> int:
        return self._waiting

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Bytes from which on the protocol is told to pause, and down to which it has to be sent then."""
        if high is None:
            high = HIGH if low is None else 4 * low
        self._high = high
        self._low = high // 4 if low is None else low

    # within -----------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Watch for what is of interest now."""
        mask = 0
        if not self.gone:
            mask = (READABLE if self._reading and not self._waits else 0) | (WRITABLE if self._waiting else 0)
        if mask != self.mask:
            self._reactor.watch(self, mask)

    def _object(self) -> socket.socket:
        """The socket; an accepted one gets its object only where something asks for it."""
        if self._socket is None:
            self._socket = socket.socket(self._family, socket.SOCK_STREAM, 0, fileno=self.fd)
        return self._socket

    def _acknowledge(self) -> None:
        """Let the system acknowledge what was read, which it puts off for 40 ms where reads come late.

        A peer without TCP_NODELAY, as Mosquitto by default, sends its next small packet only then.
        """
        if QUICKACK[1] and self._family in FAMILIES and not self.gone:
            with suppress(OSError):  # the connection has ended, and nobody has told yet
                self._object().setsockopt(*QUICKACK)

    def _shut_down(self) -> None:
        try:
            self._object().shutdown(socket.SHUT_WR)
        except OSError as error:
            self._lose(error)

    def _fault(self, error: Exception, where: str) -> None:
        """The protocol has raised, which ends the connection and nothing else."""
        self._reactor.report(error, where, self._protocol)
        self._lose(error)

    def _break(self, error: Exception) -> None:
        """Nothing can be sent. What has come before is read first: it may say why, as DISCONNECT does."""
        if not self._reading:
            self._lose(error)
            return
        self._broken = True
        self._error = error
        self._unsent = None
        self._waiting = 0
        self._follow()

    def _lose(self, error: Exception | None) -> None:
        """The connection ends now; the protocol is told later in this turn."""
        if self.gone:
            return
        self.gone = self._closing = True
        self._reading = False
        self._error = error
        self._unsent = None
        self._waiting = 0
        self._follow()
        self._reactor.ended(self)
