"""What a neighbour sends to a node: in the handshake, and once its link is part of the cooperation."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from tests.fuzz.engine import Target
from tests.fuzz.mutator import mutate_stream
from tests.fuzz.stage import LINKS, Stage, align, same, written
from tests.fuzz.streams import Case, reuses_ids, split

RETURN = 5.0
"""Seconds within which a neighbour whose link was broken is part of the cooperation again."""


class Link(Target):
    """A link that works until a stream comes over it; beside it is one that has nothing to do with it.

    Setup: the neighbour goes on answering (bit 0), the connection ends after the stream (1), the stream is
    sent twice with time between (2).
    """

    name = "link"
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
        self.stages = [Stage("nw", durable=self.durable) for _ in range(2)]

    def take(self, data: bytes) -> Iterable[Hashable]:
        case = Case.parse(data)
        whole, cut = self.stages
        first = play(whole, case, [case.stream])
        second = play(cut, case, case.pieces())
        # an identifier that is used again is in use or not, by what was answered meanwhile
        in_use = reuses_ids(case.stream)
        ended = first["ended"] or second["ended"]
        assert in_use or ended == second["ended"] == first["ended"], "the cuts decide whether a session ends"
        parted = first["all"] != second["all"]
        for name in ("broker", "neighbour", "answer"):
            one, other = first[name], second[name]
            if ended:  # of a run that breaks the protocol nothing is taken, of its parts some
                if name == "answer" or in_use:
                    continue
                one, other = one[: len(other)], other[: len(one)]
            same(name, one, other)
        found = whole.seen()
        for stage in self.stages:
            stage.check()
            stage.check_spool()
        align(self.stages)
        if parted or not whole.joined:
            # who lies about the topology may be left out for a while, and so may its neighbours
            self.fresh()
            found.add("left out")
        return found


def play(stage: Stage, case: Case, pieces: list[bytes]) -> dict[str, Any]:
    """A stream over a link that is there; answers what came of it, by names."""
    size = len(case.stream)
    hostile, witness = stage.neighbors
    witness.messages.clear()
    stage.broker.published.clear()
    hostile.answers = bool(case.setup & 1)
    link = hostile.transport
    written(link.other)
    for piece in pieces:
        link.write(piece)
    stage.run(0.03, size)
    if case.setup & 4:
        for piece in pieces:
            link.write(piece)
        stage.run(0.03, size)
    answer = written(link.other)
    ended = hostile.closed
    if case.setup & 2 and not ended:
        link.abort()
    hostile.answers = True
    stage.run(0.02, size)
    if hostile.closed:
        hostile.dial()
        stage.world.run_until(lambda: stage.joined, RETURN)
    stage.run(0.02, size)
    return {
        "ended": ended,
        "answer": sorted(split(answer)),  # QoS 1 and 2 are answered when they are disposed of
        "broker": [packet for _, packet in stage.broker.published],
        "neighbour": list(witness.messages),
        "all": dict(stage.node.counters),
    }


class Handshake(Target):
    """Whoever connects to where neighbours do. Setup: the end of the connection (bits 0, 1)."""

    name = "handshake"
    mutate = staticmethod(mutate_stream)
    inputs_of_a_life = 100

    def __init__(self) -> None:
        self.stages: list[Stage] = []

    def fresh(self) -> None:
        for stage in self.stages:
            stage.check_memory()
        self.stages = [Stage("w"), Stage("w")]

    def take(self, data: bytes) -> Iterable[Hashable]:
        case = Case.parse(data)
        whole, cut = self.stages
        first = shake(whole, case, [case.stream])
        second = shake(cut, case, case.pieces())
        assert first == second, f"{first!r} whole, {second!r} in pieces"
        found = whole.seen()
        for stage in self.stages:
            stage.check()
            assert len(stage.node.links.links) <= LINKS_AT_MOST
        if not whole.joined:
            self.fresh()
            found.add("left out")
        return found


LINKS_AT_MOST = 150
"""More than inputs of a life can make."""


def shake(stage: Stage, case: Case, pieces: list[bytes]) -> tuple[bytes, bool]:
    """A connection to the link's listener: what is answered, and whether it is ended."""
    peer = stage.client(LINKS)
    for piece in pieces:
        peer.transport.write(piece)
    stage.run(0.03, len(case.stream))
    answer, ended = bytes(peer.got), peer.closed
    if case.setup & 1:
        peer.transport.abort()
    else:
        peer.transport.close()
    stage.run(0.02, len(case.stream))
    return answer, ended


class DurableLink(Link):
    """The same for nodes with a spool, which has nothing left when all has gone where it was to go.

    At the end of their lives they are killed, and start again.
    """

    name = "durable-link"
    corpus = "link"
    durable = True
