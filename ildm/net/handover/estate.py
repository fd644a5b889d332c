"""What one process leaves to the next: the clients with both connections, and the sockets that listen."""

from __future__ import annotations

import asyncio
import json
import os
import select
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ildm.core.local.client_state import RELAYING
from ildm.core.local.handover import Kept, Restored, State, exported, fixed, kept, release, unsettled
from ildm.log import get_logger
from ildm.mqtt import MqttError
from ildm.net.transport.arrival import Arrival
from ildm.net.transport.stream import READABLE, Stream
from ildm.net.transport.websocket import FIXED_HEADER, WebSocket, WebSocketOptions, WebSocketRules

if TYPE_CHECKING:
    from ildm.core.local.client_session import ClientSession
    from ildm.core.local.record import ClientRecord
    from ildm.net.handover.ports import Host
    from ildm.net.transport.reactor import Reactor

FAULTS = (ValueError, KeyError, TypeError, AttributeError, IndexError, MqttError)
"""What a description raises that makes no sense."""
TURN = 0.002
"""Seconds in each turn of the loop for clients from which nothing has come."""


class Half(NamedTuple):
    """One connection: descriptor, family, what waits to be sent, and the place in a frame of a WebSocket."""

    descriptor: int
    family: int
    unsent: bytes
    frames: list[Any] | None = None


class Left(NamedTuple):
    """A client that is handed over."""

    fixed: str
    """JSON of what never changes."""
    kept: Kept
    state: State
    client: Half
    broker: Half
    number: int | None = None
    """By which the next process knows ``fixed`` already; None: it does not."""

    @property
    def row(self) -> list[Any]:
        """All but the descriptors, of JSON's types."""
        halves = (self.client, self.broker)
        told = [
            [half.family, half.unsent.decode("latin-1")] + ([] if half.frames is None else [half.frames])
            for half in halves
        ]
        return [self.fixed if self.number is None else self.number, self.kept, self.state, *told]

    @classmethod
    def of(cls, row: list[Any], descriptors: tuple[int, int], known: Mapping[int, str]) -> Left:
        """Raises: KeyError, nobody has told what never changes of it."""
        fixed, kept, state, *told = row
        if isinstance(fixed, int):
            fixed = known[fixed]
        halves = [
            Half(fd, family, unsent.encode("latin-1"), *frames)
            for fd, (family, unsent, *frames) in zip(descriptors, told, strict=True)
        ]
        return cls(fixed, kept, state, halves[0], halves[1])


class Sleeping:
    """A client whose session is made when something comes from it or for it, or when its turn is."""

    __slots__ = ("_estate", "left", "record")

    def __init__(self, estate: Estate, left: Left, record: ClientRecord) -> None:
        self._estate = estate
        self.left = left
        self.record = record

    def wake(self) -> None:
        """Make the session, once."""
        self._estate.wake(self)


class Estate:
    """All of it.

    Args:
        since: monotonic time from which on nobody is served.
        sent_away: clients that could not be handed over.
    """

    def __init__(self, since: float, sent_away: int = 0) -> None:
        self.since = since
        self.sent_away = sent_away
        self.clients: list[Left] = []
        self.listening: list[socket.socket] = []
        self.failed = False
        """The next process could not take it, so it comes back."""
        self.took: Callable[[], None] = lambda: None
        """To be called when all that can fail is done: from then on the clients are this process's alone."""
        self.served: Callable[[], None] = lambda: None
        """To be called when all clients have their sessions."""
        self._epoll: select.epoll | None = None
        """Watches the clients that have come from another process."""
        self._server: Host | None = None
        self._rules: WebSocketRules | None = None
        """Of the WebSockets among them."""
        self._sleeping: dict[Sleeping, None] = {}

    def close_listening(self) -> None:
        """Give back the sockets that nobody listens on any more."""
        for sock in self.listening:
            sock.close()
        self.listening.clear()

    def find(self, place: object) -> socket.socket | None:
        """Take the one that is bound to a place."""
        for sock in self.listening:
            name = sock.getsockname()
            if (name[:2] if isinstance(name, tuple) else os.fsdecode(name)) == place:
                self.listening.remove(sock)
                return sock
        return None

    # taking -------------------------------------------------------------------------------------

    def take(self, clients: Iterable[Left]) -> None:
        """Some have come from the other process: watch them by an epoll, which nobody asks yet."""
        if self._epoll is None:
            self._epoll = select.epoll()
        for left in clients:
            self.clients.append(left)
            for half in (left.client, left.broker):
                self._epoll.register(half.descriptor, READABLE)

    def restore(self, server: Host) -> None:
        """Take up what the clients want, and watch for what comes; nobody is served yet."""
        self._server = server
        reactor, node = server.reactor, server.node
        assert reactor is not None
        largest = node.limits.packet_size + FIXED_HEADER
        options = WebSocketOptions(None, None, largest, node.limits.connect_timeout)
        epoll, self._epoll = self._epoll, None
        if epoll is not None:
            reactor.watch_by(epoll)
        self._rules = WebSocketRules(lambda _: None, node.counters, options)
        node.counters["clients_sent_away"] += self.sent_away
        if self.failed:
            node.counters["handover_failed"] += 1
        for left in self.clients:
            try:
                record = node.client_comes(*left.kept)
            except FAULTS as error:
                self._cannot_serve(left, error)
                for half in (left.client, left.broker):
                    if epoll is not None:
                        epoll.unregister(half.descriptor)  # the process before has a copy of it, as yet
                    os.close(half.descriptor)
                continue
            one = Sleeping(self, left, record)
            self._sleeping[one] = None
            reactor.expect(left.client.descriptor, one.wake, epoll is not None)
            reactor.expect(left.broker.descriptor, one.wake, epoll is not None)
        self.clients.clear()

    def go_on(self, server: Host) -> None:
        """From now on, a client is served when something comes from it or for it."""
        pause = time.monotonic() - self.since
        server.node.timings.handover.observe(pause)
        get_logger("ildm").info(
            "clients of the process before are served",
            clients=len(self._sleeping),
            sent_away=self.sent_away,
            pause=round(pause, 3),
        )

    async def wake_all(self) -> None:
        """Make the sessions of the others, a few in each turn of the loop."""
        while self._sleeping:
            end = time.perf_counter() + TURN
            while self._sleeping and time.perf_counter() < end:
                self.wake(next(iter(self._sleeping)))
            await asyncio.sleep(0)
        self.served()

    def wake(self, one: Sleeping) -> None:
        """Make a session: what waits to be sent goes first, then what was read and not passed on."""
        if one not in self._sleeping:
            return  # the other connection has woken it, in the same turn
        del self._sleeping[one]
        server = self._server
        assert server is not None
        assert server.reactor is not None
        try:
            self._go_on(server, server.reactor, one)
        except FAULTS as error:
            self._cannot_serve(one.left, error)
            for half in (one.left.client, one.left.broker):
                server.reactor.drop(half.descriptor)
            if one.record.session is None:
                server.node.clients.comes_not(one.record)

    def _go_on(self, server: Host, reactor: Reactor, one: Sleeping) -> None:
        left = one.left
        assert server.for_clients is not None
        state = {**json.loads(left.fixed), **left.state}
        origin = Arrival(server.for_clients.gate, state["listener"])
        restored = Restored(server.node.local, state, origin)
        frames = left.client.frames
        web = None if frames is None or self._rules is None else WebSocket(self._rules, origin)
        client = reactor.take(left.client.descriptor, web or restored.session, left.client.family)
        if web is not None and frames is not None:
            web.go_on(restored.session, client, frames)
        broker = reactor.take(left.broker.descriptor, restored.broker, left.broker.family)
        broker.answers(client.pace)
        origin.resume(client)
        restored.begin(web or client, broker, one.record)
        client.write(left.client.unsent)
        broker.write(left.broker.unsent)
        restored.serve_broker()
        gate = server.node.links.start_gate
        if gate.closed:
            gate.hold(restored.session, restored.serve_client)
        else:
            restored.serve_client()
        client.follow()
        broker.follow()

    def _cannot_serve(self, left: Left, error: Exception) -> None:
        assert self._server is not None
        self._server.node.counters["clients_sent_away"] += 1
        get_logger("ildm").warning(
            "a client of the process before cannot be served: its connection is closed",
            client=left.fixed[:200],
            error=f"{type(error).__name__}: {error}",
        )


# giving -----------------------------------------------------------------------------------------


def obstacle(session: ClientSession) -> str | None:
    """Why a client can never be handed over; None: it can, once it is settled."""
    for one in (session, session.paired):
        transport = None if one is None else one.transport
        if transport is not None and _stream(transport) is None:
            return "TLS or PROXY protocol"
    return None


def _stream(transport: object) -> Stream | None:
    """The plain connection that a session writes to, or its WebSocket; None: it has none."""
    below = transport.below if isinstance(transport, WebSocket) else transport
    return below if isinstance(below, Stream) else None


def _is_whole(transport: object) -> bool:
    stream = _stream(transport)
    framed = not isinstance(transport, WebSocket) or transport.is_whole
    return framed and stream is not None and stream.is_whole


def _half(transport: object) -> Half:
    """Take a connection from its session, which hears nothing of that."""
    stream = _stream(transport)
    assert stream is not None
    descriptor, family, unsent = stream.part()
    if not isinstance(transport, WebSocket):
        return Half(descriptor, family, unsent)
    last, frames = transport.part()
    return Half(descriptor, family, unsent + last, frames)


def busy(session: ClientSession) -> str | None:
    """Why a client cannot be handed over just now."""
    why = unsettled(session)
    if why is not None:
        return why
    assert session.paired is not None
    for one in (session, session.paired):
        if not _is_whole(one.transport):
            return "a connection is ending"
    return None


def described(session: ClientSession) -> str | None:
    """JSON of what never changes of a client; None: it is not served by the broker yet."""
    return json.dumps(fixed(session)) if session.state is RELAYING and session.paired is not None else None


def streams(sessions: Iterable[ClientSession]) -> Iterator[Stream]:
    """The plain connections of clients, and of those to the broker."""
    for session in sessions:
        for one in (session, session.paired):
            stream = None if one is None else _stream(one.transport)
            if stream is not None and not stream.gone:
                yield stream


def take_apart(
    sessions: Iterable[ClientSession], estate: Estate, known: Mapping[int, str]
) -> list[ClientSession]:
    """Describe all that can be, with their sockets; those who cannot are answered.

    Args:
        known: what the next process was told of them before, by their session's id.
    """
    others: list[ClientSession] = []
    for session in sessions:
        if session.acks._gate is not None and busy(session) is None:
            release(session)
        if busy(session) is not None:
            others.append(session)
            continue
        paired = session.paired
        assert paired is not None
        client, broker = session.transport, paired.transport
        number = session.id if session.id in known else None
        fixed = described(session) if number is None else known[number]
        assert fixed is not None
        left = Left(fixed, kept(session), exported(session), _half(client), _half(broker), number)
        estate.clients.append(left)
    return others
