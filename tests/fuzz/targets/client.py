"""What a client sends to a node: the broker, the client and the neighbours get the same however it is cut."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from ildm.mqtt import Connect, Property, Version, Will
from tests.fuzz.engine import Target
from tests.fuzz.mutator import mutate_stream
from tests.fuzz.stage import Stage, align, same, same_but_late
from tests.fuzz.streams import Case, reuses_ids, says_goodbye, split

VERSIONS = (Version.V311, Version.V5, Version.V31, Version.V5)
COUNTED = ("clients_connected", "malformed", "messages_in", "packets_over_limit", "transferred_out", "wills")
"""What does not depend on the chunks, as for instance the messages that a broker still sends do to a client
that has just gone."""


class Client(Target):
    """Two nodes with the same past get the same stream, one of them in pieces.

    Setup: version (bits 0, 1), session kept (2), will (3), the stream begins with CONNECT itself (4), how the
    connection ends (5, 6).
    """

    name = "client"
    mutate = staticmethod(mutate_stream)
    inputs_of_a_life = 100

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
        self.stages = [Stage("w", durable=self.durable) for _ in range(2)]

    def take(self, data: bytes) -> Iterable[Hashable]:
        case = Case.parse(data)
        whole, cut = self.stages
        first = play(whole, case, [case.stream])
        second = play(cut, case, case.pieces())
        reused = reuses_ids(case.stream)  # what crosses then depends on the answers that come between
        same("broker", first["broker"], second["broker"])
        if not self.durable:
            one, other = first["client"], second["client"]
            if says_goodbye(
                case.stream
            ):  # how much of its answers it still gets depends on when it is answered
                one, other = one[: len(other)], other[: len(one)]
            # answers to a run wait together for those that one of them has overtaken
            (same_but_late if reused else same)("client", one, other)
        elif not first["ended"]:
            same_but_late("client", first["client"], second["client"])
        if not reused:
            same("neighbour", first["neighbour"], second["neighbour"])
            same("counters", first["counters"], second["counters"])
        found = whole.seen()
        for stage in self.stages:
            stage.check()
            stage.check_spool()
        align(self.stages)
        if parted(first, second):
            self.fresh()
        return found


def parted(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Whether what follows may be different, too: not by how much a client that is gone has still got."""
    return any(first[name] != second[name] for name in first if name != "client")


def connect(setup: int) -> tuple[bytes, Version]:
    """The CONNECT by which a connection begins."""
    version = VERSIONS[setup & 3]
    v5 = version is Version.V5
    clean = not setup & 4
    will = Will(topic="t/will", payload=b"gone", qos=1, retain=bool(setup & 1)) if setup & 8 else None
    packet = Connect(
        client_id="c",
        version=version,
        clean_start=clean,
        keep_alive=0,
        will=will,
        properties={Property.SESSION_EXPIRY_INTERVAL: 100} if v5 and not clean else {},
    )
    return packet.encode(version), version


def play(stage: Stage, case: Case, pieces: list[bytes]) -> dict[str, Any]:
    """A connection from its beginning to its end; answers what came of it, by names."""
    size = len(case.stream)
    client = stage.client()
    (witness,) = stage.neighbors
    witness.messages.clear()
    stage.broker.published.clear()
    before = dict(stage.node.counters)
    if not case.setup & 0x10:
        client.transport.write(connect(case.setup)[0])
        stage.run(0.01)
    for piece in pieces:
        client.transport.write(piece)
    stage.run(0.02, size)
    ended = client.closed
    match case.setup >> 5 & 3:
        case 0:
            client.transport.close()
        case 1:
            client.transport.abort()
        case 2:
            client.transport.write_eof()
            stage.run(0.01, size)
            client.transport.close()
        case _:
            if not client.closed:
                client.transport.reset()
    stage.run(0.03, size)
    assert not stage.node.sessions, "a session outlives its connection"
    counters = {name: stage.node.counters[name] - before.get(name, 0) for name in COUNTED}
    return {
        "client": split(bytes(client.got)),
        "broker": [(name, packet) for name, packet in stage.broker.published],
        "neighbour": list(witness.messages),
        "counters": counters,
        "ended": ended,
        "all": dict(stage.node.counters),
    }


class DurableClient(Client):
    """The same for nodes with a spool, which has nothing left when all has gone where it was to go.

    At the end of their lives they are killed, and start again.
    """

    name = "durable-client"
    corpus = "client"
    durable = True
