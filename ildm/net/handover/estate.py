"""What one process leaves to the next: the clients with both connections, and the sockets that listen."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from ildm.core.local.handover import Restored, exported, release, unsettled
from ildm.log import get_logger
from ildm.mqtt import MqttError
from ildm.net.transport.arrival import Arrival
from ildm.net.transport.stream import Stream

if TYPE_CHECKING:
    from ildm.core.local.client_session import ClientSession
    from ildm.net.handover.ports import Host

FAULTS = (ValueError, KeyError, TypeError, AttributeError, IndexError, MqttError)
"""What a description raises that makes no sense."""


class Half(NamedTuple):
    """One connection: its descriptor and family, and what waits to be sent."""

    descriptor: int
    family: int
    unsent: bytes


class Left(NamedTuple):
    """A client that is handed over."""

    state: dict[str, Any]
    client: Half
    broker: Half

    @property
    def row(self) -> list[Any]:
        """All but the descriptors, of JSON's types."""
        halves = (self.client, self.broker)
        return [self.state, *([half.family, half.unsent.decode("latin-1")] for half in halves)]

    @classmethod
    def of(cls, row: list[Any], descriptors: tuple[int, int]) -> Left:
        state, *told = row
        halves = [
            Half(fd, family, unsent.encode("latin-1"))
            for fd, (family, unsent) in zip(descriptors, told, strict=True)
        ]
        return cls(state, halves[0], halves[1])


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
        self._restored: list[tuple[Restored, Stream, Stream, Left]] = []

    def close(self) -> None:
        """Give back all descriptors."""
        for left in self.clients:
            os.close(left.client.descriptor)
            os.close(left.broker.descriptor)
        self.clients.clear()
        self.close_listening()

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

    def restore(self, server: Host) -> None:
        """Make the sessions anew; nothing is read or written yet."""
        counters = server.node.counters
        counters["clients_sent_away"] += self.sent_away
        if self.failed:
            counters["handover_failed"] += 1
        for left in self.clients:
            try:
                self._restore(server, left)
            except FAULTS as error:
                counters["clients_sent_away"] += 1
                get_logger("ildm").warning(
                    "a client of the process before cannot be served: its connection is closed",
                    client_id=left.state.get("client_id"),
                    error=f"{type(error).__name__}: {error}",
                )
                for half in (left.client, left.broker):
                    os.close(half.descriptor)
        self.clients.clear()

    def _restore(self, server: Host, left: Left) -> None:
        assert server.reactor is not None
        assert server.for_clients is not None
        origin = Arrival(server.for_clients.gate, left.state["listener"])
        restored = Restored(server.node.local, left.state, origin)
        client = server.reactor.take(left.client.descriptor, restored.session, left.client.family)
        broker = server.reactor.take(left.broker.descriptor, restored.broker, left.broker.family)
        broker.answers(client.pace)
        origin.resume(client)
        restored.begin(client, broker)
        self._restored.append((restored, client, broker, left))

    def go_on(self, server: Host) -> None:
        """Serve: what waits to be sent goes first, then what was read and not passed on."""
        restored, self._restored = self._restored, []
        gate = server.node.links.start_gate
        for one, client, broker, left in restored:
            client.write(left.client.unsent)
            broker.write(left.broker.unsent)
            one.serve_broker()
            if gate.closed:
                gate.hold(one.session, one.serve_client)
            else:
                one.serve_client()
        server.node.timings.handover.observe(time.monotonic() - self.since)
        get_logger("ildm").info(
            "clients of the process before are served",
            clients=len(restored),
            sent_away=self.sent_away,
            pause=round(time.monotonic() - self.since, 3),
        )


# giving -----------------------------------------------------------------------------------------


def obstacle(session: ClientSession) -> str | None:
    """Why a client can never be handed over; None: it can, once it is settled."""
    for one in (session, session.paired):
        transport = None if one is None else one.transport
        if transport is not None and not isinstance(transport, Stream):
            return "TLS, WebSocket or PROXY protocol"
    return None


def busy(session: ClientSession) -> str | None:
    """Why a client cannot be handed over just now."""
    why = unsettled(session)
    if why is not None:
        return why
    assert session.paired is not None
    for one in (session, session.paired):
        if not isinstance(one.transport, Stream) or not one.transport.is_whole:
            return "a connection is ending"
    return None


def take_apart(sessions: Iterable[ClientSession], estate: Estate) -> list[ClientSession]:
    """Describe all that can be, with their sockets; those who cannot are answered."""
    others: list[ClientSession] = []
    for session in sessions:
        if busy(session) is None:
            release(session)
        if busy(session) is not None:
            others.append(session)
            continue
        paired = session.paired
        assert paired is not None
        client, broker = session.transport, paired.transport
        assert isinstance(client, Stream)
        assert isinstance(broker, Stream)
        state = exported(session)
        estate.clients.append(Left(state, Half(*client.part()), Half(*broker.part())))
    return others
