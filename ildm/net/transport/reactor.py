"""Plain connections, on an epoll of the node's own that the event loop watches.

Transports of uvloop are much of what a short connection costs a relay: handles, weak references, system
calls for addresses that nobody asks for. Here a connection is one object, and all that are ready are served
in one turn of the loop. What needs more than bytes (TLS) stays with the loop, as all does without epoll.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from ildm.net.transport.slots import Slots, Ticks
from ildm.net.transport.sockets import AT_ONCE, BACKLOG, EXHAUSTED, FAMILIES, PAUSE
from ildm.net.transport.stream import BROKEN, READABLE, WRITABLE, Asleep, Stream, Watched
from ildm.net.transport.turns import READ, SHARES, TURN, Turns

if TYPE_CHECKING:
    import asyncio

    from ildm.core.counters import Counters
    from ildm.net.transport.sockets import Place

    Made = Callable[[Stream | None, Exception | None], None]

EVENTS: Final = 256
"""Sockets served in one turn."""
NONBLOCKING: Final = int(socket.SOCK_STREAM) | getattr(socket, "SOCK_NONBLOCK", 0)
NODELAY: Final = (int(socket.IPPROTO_TCP), int(socket.TCP_NODELAY), 1)


class Reactor:
    """Watches sockets, and tells of what happens to them.

    A file descriptor is given back only after the turn in which its connection has ended, so that no event of
    that turn can be taken for one of its successor.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, turns: Turns, slots: Slots | None = None) -> None:
        """
        Args:
            turns: in which connections are read that cost much.
            slots: in which all are read under load; None: they are read as they come.
        """
        self.loop = loop
        self.turns = turns
        self.clock = self.turns.clock
        self.last_read = 0.0
        """When the last read has ended."""
        self.full_at = 0.0
        """From then on this turn reads light connections alone."""
        self._buffer = bytearray(READ)
        self.buffer = memoryview(self._buffer)
        """Where all read: what has come is taken out before the next one reads."""
        self.into = {share: [self.buffer[:share]] for share in SHARES}
        self.bytes_read = 0
        """Since the node has begun."""
        self._slots = slots
        self._ticks: Ticks | None = None
        self._epoll = select.epoll()
        self._poll = self._epoll.poll
        self._former: list[select.epoll] = []
        """Epolls that nobody asks any more; to close them takes as long as they are large."""
        self._in_slot = False
        """The event loop does not watch the epoll: this slot's end is waited for."""
        self.watched: dict[int, Watched] = {}
        """By file descriptor, also those of which nothing is of interest just now."""
        self._ended: list[Watched] = []
        self._ending = False
        """What has ended is going to be seen to, by this turn or one that is asked for."""
        self._closed = False
        loop.add_reader(self._epoll.fileno(), self.turn)
        if slots is not None:
            self._ticks = Ticks()
            loop.add_reader(self._ticks.fd, self._slot)

    def turn(self) -> None:
        """Some are ready: serve them now, or begin a slot."""
        ticks, slots = self._ticks, self._slots
        if ticks is None or slots is None:
            self._serve()
            return
        wait = slots.begin(self.clock())
        if wait:
            self.loop.remove_reader(self._epoll.fileno())
            self._in_slot = True
            ticks.start(wait, slots.length)
        else:
            before = self.bytes_read
            self._serve()
            slots.end(self.clock(), self.bytes_read - before)

    def _slot(self) -> None:
        """A slot has passed."""
        ticks, slots = self._ticks, self._slots
        if ticks is None or slots is None or not ticks.take():
            return
        before = self.bytes_read
        try:
            self._serve()
        finally:
            slots.end(self.clock(), self.bytes_read - before)
            if not slots.open and not self._closed:
                ticks.stop()
                self._in_slot = False
                self.loop.add_reader(self._epoll.fileno(), self.turn)

    def _serve(self) -> None:
        """Serve all that are ready."""
        self._ending = True
        watched = self.watched
        try:
            ready = self._poll(0, EVENTS)
            self.full_at = self.clock() + TURN
            for fd, events in ready:
                found = watched.get(fd)
                if found is not None and found.mask:  # an event before it may have ended it
                    found.ready(events)
        finally:
            self._see_to_ended()

    def watch(self, one: Watched, mask: int) -> None:
        """Watch for these events, of ``EPOLLIN`` and ``EPOLLOUT``; 0: for none."""
        former, one.mask = one.mask, mask
        if not mask:
            self._epoll.unregister(one.fd)
        elif former:
            self._epoll.modify(one.fd, mask)
        else:
            self._epoll.register(one.fd, mask)

    def watch_by(self, epoll: select.epoll) -> None:
        """Go on with another epoll, which may watch some sockets already, and watch all others by it, too."""
        former, self._epoll, self._poll = self._epoll, epoll, epoll.poll
        for fd, one in self.watched.items():
            if one.mask:
                epoll.register(fd, one.mask)
        if not self._in_slot:
            self.loop.remove_reader(former.fileno())
            self.loop.add_reader(epoll.fileno(), self.turn)
        self._former.append(former)

    def leave(self, all_these: Iterable[Watched]) -> None:
        """Watch these no more, without a system call for each: the others get an epoll of their own."""
        for one in all_these:
            one.mask = 0
        self.watch_by(select.epoll())

    def ended(self, one: Watched) -> None:
        """It is to be told its end, soon and not within this call."""
        self._ended.append(one)
        if not self._ending:
            self._ending = True
            self.loop.call_soon(self._see_to_ended)

    def _see_to_ended(self) -> None:
        while self._ended:  # the end of one may be that of others
            ended, self._ended = self._ended, []
            for one in ended:
                del self.watched[one.fd]
                one.end()
        self._ending = False

    def report(self, error: Exception, where: str, protocol: object) -> None:
        """A protocol has raised; the loop's handler of exceptions is told, as by its own transports."""
        context = {"message": f"{where} of {protocol!r} failed", "exception": error, "protocol": protocol}
        self.loop.call_exception_handler(context)

    def listen(self, listening: socket.socket, factory: Callable[[], Any], counters: Counters) -> Accepting:
        """Accept whoever connects to a socket that is bound, with a protocol of ``factory`` for each.

        Raises:
            OSError: as ``listen`` does.
        """
        return Accepting(self, listening, factory, counters)

    def dial(self, place: Place, protocol: Any, made: Made) -> Dialed:
        """Connect.

        Args:
            made: called when the protocol has been told of its connection, or with what went wrong.

        Raises:
            OSError, OverflowError: nobody can be connected to there.
        """
        return Dialed(self, place, protocol, made)

    def adopt(self, sock: socket.socket, protocol: Any) -> Stream:
        """A connection that was made elsewhere; it does not block, and is the reactor's from now on."""
        stream = Stream(self, sock.fileno(), protocol, int(sock.family), None, sock)
        stream.begin()
        return stream

    def expect(self, fd: int, wake: Callable[[], None], is_watched: bool = False) -> None:
        """A connection that another process has made: ``wake`` is called when something comes by it.

        ``is_watched``: the epoll of :meth:`watch_by` has it.
        """
        asleep = Asleep(self, fd, wake)
        self.watched[fd] = asleep
        if is_watched:
            asleep.mask = READABLE
        else:
            self.watch(asleep, READABLE)

    def take(self, fd: int, protocol: Any, family: int) -> Stream:
        """One that is expected goes on; its protocol knows it, and reads nothing yet."""
        stream = Stream(self, fd, protocol, family)
        stream.resume(self.watched[fd].mask)
        return stream

    def drop(self, fd: int) -> None:
        """One that is expected, or was, cannot go on."""
        one = self.watched.get(fd)
        if one is not None:
            one.abort()

    def close(self) -> None:
        """End all connections, and listen no more."""
        if self._closed:
            return
        self._closed = True
        for one in list(self.watched.values()):
            one.abort()
        self._see_to_ended()
        self.loop.remove_reader(self._epoll.fileno())
        if self._ticks is not None:
            self.loop.remove_reader(self._ticks.fd)
            self._ticks.close()
        for epoll in (self._epoll, *self._former):
            epoll.close()
        self._former.clear()


class Accepting(Watched):
    """A socket that is listened on."""

    def __init__(
        self, reactor: Reactor, listening: socket.socket, factory: Callable[[], Any], counters: Counters
    ) -> None:
        """Raises: OSError."""
        super().__init__(listening.fileno())
        self._reactor = reactor
        self._socket = listening
        self._accept: Callable[[], tuple[int, Any]] = listening._accept  # type: ignore[attr-defined]
        """``accept`` makes an object of the descriptor, which takes longer than all the rest."""
        self._factory = factory
        self._counters = counters
        self._family = int(listening.family)
        self._resume: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        if self._family in FAMILIES:
            listening.setsockopt(*NODELAY)  # those that are accepted have it, too
        listening.listen(BACKLOG)
        reactor.watched[self.fd] = self
        reactor.watch(self, READABLE)

    def ready(self, events: int) -> None:
        for _ in range(AT_ONCE):
            try:
                fd, peer = self._accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in EXHAUSTED:
                    self._counters["accept_failures"] += 1
                    self._reactor.watch(self, 0)
                    self._resume = self._reactor.loop.call_later(PAUSE, self._go_on)
                    return
                continue  # that connection has ended meanwhile (accept(2))
            os.set_blocking(fd, False)
            try:
                protocol = self._factory()
            except Exception as error:
                self._reactor.report(error, "the beginning", self._factory)
                os.close(fd)
                continue
            Stream(self._reactor, fd, protocol, self._family, peer).begin()

    def _go_on(self) -> None:
        self._resume = None
        self._reactor.watch(self, READABLE)

    def hold(self) -> None:
        """Accept nobody until :meth:`go_on`: who connects waits."""
        if self._resume is not None:
            self._resume.cancel()
            self._resume = None
        if not self.gone and self.mask:
            self._reactor.watch(self, 0)

    def close(self) -> None:
        """Accept nobody more; whoever was accepted stays."""
        self.abort()

    def abort(self) -> None:
        if self.gone:
            return
        self.gone = True
        if self._resume is not None:
            self._resume.cancel()
        if self.mask:
            self._reactor.watch(self, 0)
        del self._reactor.watched[self.fd]
        self.end()  # at once: who connects from now on is to be refused

    def end(self) -> None:
        self._socket.close()


class Dialed(Watched):
    """A connection that is being made."""

    def __init__(self, reactor: Reactor, place: Place, protocol: Any, made: Made) -> None:
        """Raises: OSError, OverflowError."""
        family, name = place
        self._socket = sock = socket.socket(family, NONBLOCKING)
        super().__init__(sock.fileno())
        self._reactor = reactor
        self._family = family
        self._protocol = protocol
        self._made = made
        try:
            if family in FAMILIES:
                sock.setsockopt(*NODELAY)
            failed = sock.connect_ex(name)
            if failed not in (0, errno.EINPROGRESS):
                raise OSError(failed, os.strerror(failed))
            reactor.watch(self, WRITABLE)
        except BaseException:
            sock.close()
            raise
        reactor.watched[self.fd] = self

    def ready(self, events: int) -> None:
        # each failure is told as one of these: nothing is asked of a connection that was made
        failed = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) if events & BROKEN else 0
        if failed:
            self.abort()
            self._made(None, OSError(failed, os.strerror(failed)))
            return
        stream = Stream(self._reactor, self.fd, self._protocol, self._family, None, self._socket)
        stream.mask = self.mask
        stream.begin()  # in place of this one
        self._made(stream, None)

    def abort(self) -> None:
        """Nobody is told."""
        if self.gone:
            return
        self.gone = True
        self._reactor.watch(self, 0)
        self._reactor.ended(self)

    def end(self) -> None:
        self._socket.close()
