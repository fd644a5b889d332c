"""What a broker sends: to a client through the node, and to the node's own session."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from ildm.core.local.wire import ANSWERS
from ildm.mqtt import Connect, PingReq, Publish, Subscribe, Subscription
from ildm.testing.virtual import broker as virtual
from tests.fuzz.engine import Target
from tests.fuzz.mutator import mutate_stream
from tests.fuzz.stage import Stage, align, same, same_but_late
from tests.fuzz.streams import Case
from tests.fuzz.targets.client import connect, parted
from tests.fuzz.targets.codec import frames_of

OWN = "ildm-a-0"
"""Client identifier of the node's own session."""
AT_REST = 5.0
"""Seconds within which the node has nothing left for a broker that behaves again."""


class Fickle(virtual.Broker):
    """A broker that is right, but for one client."""

    def __init__(self) -> None:
        super().__init__()
        self.against: str | None = None
        """The client it is wrong to."""
        self.refuses = False
        """It does not even answer its CONNECT."""
        self.silent = False
        """It answers nothing of it but its CONNECT."""
        self.takes = self._takes

    def _takes(self, connection: virtual.Connection, packet: Any) -> bool:
        wrong = self.refuses if type(packet) is Connect else self.silent
        return not (wrong and connection.client_id == self.against)

    def newest(self, client_id: str) -> virtual.Connection | None:
        """The newest connection of a client."""
        found = [one for one in self.connections if one.client_id == client_id]
        return found[-1] if found else None


class Broker(Target):
    """Setup: version of the client and what it asked for (bits 0 to 3, as in the target ``client``), the
    stream comes in the place of CONNACK (4), nothing else is answered (5), it is for the node's own session
    (6), it is the broker that ends the client's connection (7).
    """

    name = "broker"
    mutate = staticmethod(mutate_stream)
    inputs_of_a_life = 50

    durable = False
    """Whether the nodes have a spool."""

    def __init__(self) -> None:
        self.stages: list[Stage] = []

    def fresh(self) -> None:
        for stage in self.stages:
            stage.check_memory()
            if self.durable:
                stage.restart()
                stage.check_spool()
        self.stages = [Stage("w", Fickle(), durable=self.durable) for _ in range(2)]

    def take(self, data: bytes) -> Iterable[Hashable]:
        case = Case.parse(data)
        whole, cut = self.stages
        play = to_the_node if case.setup & 0x40 else to_a_client
        first = play(whole, case, [case.stream])
        second = play(cut, case, case.pieces())
        found = whole.seen()
        for stage in self.stages:
            stage.check()
            stage.check_spool()
        align(self.stages)
        # a packet that breaks the protocol ends the session only if the node looks at it, which it does in a
        # chunk as long as it expects an answer; of a chunk with one nothing is relayed, of its parts some
        one, other = first["client"], second["client"]
        # of a chunk that answers out of order all acknowledgements wait, of its parts only later ones
        late = self.durable or first["late"] or second["late"]
        if first["ended"] or second["ended"]:
            if not late:
                same("client", one[: len(other)], other[: len(one)])
        else:
            (same_but_late if late else same)("client", one, other)
            same("neighbour", first["neighbour"], second["neighbour"])
        if parted(first, second):
            self.fresh()
        return found


def begin(stage: Stage, case: Case, against: str) -> Fickle:
    """The broker is wrong from here on."""
    broker = stage.broker
    assert isinstance(broker, Fickle)
    broker.against = against
    broker.silent = bool(case.setup & 0x20)
    broker.published.clear()
    stage.neighbors[0].messages.clear()
    return broker


def end(stage: Stage, broker: Fickle, size: int) -> None:
    """The broker is right again, and gets what is there for it."""
    against, broker.against = broker.against, None
    broker.refuses = broker.silent = False
    swallowed = [one for one in broker.connections if one.client_id == against]
    for connection in swallowed:
        connection.transport.abort()
    stage.run(0.02, size)
    injector = stage.node.injector
    # without the broker it is idle although something waits, which would come amid the next input
    at_rest = stage.world.run_until(lambda: injector.connected and injector.idle, AT_REST)
    assert at_rest, "messages are stuck"


def to_a_client(stage: Stage, case: Case, pieces: list[bytes]) -> dict[str, Any]:
    """A client that has asked for this and that gets an answer; what it gets, and what crosses."""
    size = len(case.stream)
    broker = begin(stage, case, "c")
    broker.refuses = bool(case.setup & 0x10)
    before = stage.node.counters["answers_out_of_order"]
    client = stage.client()
    packet, version = connect(case.setup)
    client.transport.write(packet)
    stage.run(0.01)
    wanted = [Subscription(topic_filter="t/#", qos=1), Subscription(topic_filter="$share/g/x", qos=0)]
    client.send(
        Subscribe(packet_id=1, subscriptions=wanted),
        Publish(topic="t/1", payload=b"x", qos=1, packet_id=2),
        Publish(topic="t/1", payload=b"y", qos=1, packet_id=3),
        Publish(topic="r/1", payload=b"z", qos=2, packet_id=4, retain=True),
        PingReq(),
        version=version,
    )
    stage.run(0.01)
    connection = broker.newest("c")
    assert connection is not None
    for piece in pieces:
        connection.transport.write(piece)
    stage.run(0.02, size)
    ended = client.closed
    (connection if case.setup & 0x80 else client).transport.close()
    stage.run(0.06, size)
    client.transport.close()
    gone = stage.world.run_until(lambda: not stage.node.sessions, ANSWERS + AT_REST)  # CONNACK, too
    assert gone, "a session outlives its connection"
    end(stage, broker, size)
    # of a packet that is incomplete the client may have a part, as it would without the node
    frames, _ = frames_of([bytes(client.got)])
    crossed, counters = list(stage.neighbors[0].messages), dict(stage.node.counters)
    late = stage.node.counters["answers_out_of_order"] > before
    return {"ended": ended, "late": late, "client": frames, "neighbour": crossed, "all": counters}


def to_the_node(stage: Stage, case: Case, pieces: list[bytes]) -> dict[str, Any]:
    """The node's own session, which has messages under way."""
    size = len(case.stream)
    broker = begin(stage, case, OWN)
    if case.setup & 0x10:
        broker.refuses = True
        connection = broker.newest(OWN)
        if connection is not None:
            connection.transport.abort()
        stage.run(0.2)
    (neighbor,) = stage.neighbors
    neighbor.send(
        *[Publish(topic="t/1", payload=b"%d" % n, qos=1, packet_id=n) for n in range(1, 6)],
        *[Publish(topic="t/2", payload=b"%d" % n, qos=2, packet_id=n) for n in range(6, 9)],
        Publish(topic="t/3", payload=b"", retain=True),
    )
    stage.run(0.01)
    connection = broker.newest(OWN)
    ended = True
    if connection is not None:
        for piece in pieces:
            connection.transport.write(piece)
        stage.run(0.02, size)
        ended = connection.transport.is_closing()
    end(stage, broker, size)
    counters = dict(stage.node.counters)
    return {
        "ended": ended,
        "late": False,
        "client": [],
        "neighbour": list(neighbor.messages),
        "all": counters,
    }


class DurableBroker(Broker):
    """The same for nodes with a spool, which has nothing left when all has gone where it was to go.

    At the end of their lives they are killed, and start again.
    """

    name = "durable-broker"
    corpus = "broker"
    durable = True
