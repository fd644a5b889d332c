"""The bare overlay as a plugin, and what its tables have to be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ildm.api import Link, NodeApi, OverlayAlgorithm, Peer, PluginConfig, Unreachable
from ildm_algorithms.overlay.graph import Arrival, OverlayConfig, SkipGraph
from ildm_algorithms.overlay.keys import Range, Ref
from ildm_algorithms.overlay.wire.messages import decode


class MemberConfig(PluginConfig):
    overlay: Mapping[str, Any] = {}
    """Options of :class:`OverlayConfig`."""


class Member(OverlayAlgorithm[MemberConfig]):
    """A node with one key, its id, in a Skip Graph, and whatever keys it is told to insert.

    Attributes:
        arrivals: casts that reached this node's keys.
        messages: what :meth:`SkipGraph.tell` brought.
    """

    def __init__(self, api: NodeApi, config: MemberConfig) -> None:
        super().__init__(api, config)
        self.arrivals: list[Arrival] = []
        self.messages: list[tuple[Peer, bytes]] = []
        self.graph = SkipGraph(api, self, OverlayConfig(**config.overlay))
        self.graph.start(api.node_id.encode())

    def on_message(self, sender: Peer, data: bytes, turn: int) -> None:
        self.graph.receive(sender.node_id, data)

    def on_unreachable(self, node_id: str, reason: Unreachable) -> None:
        self.graph.unreachable(node_id)

    def on_link_up(self, link: Link) -> None:
        if link.introducer:
            self.graph.join(link.peer)

    def on_ildm_stop(self) -> None:
        self.graph.stop(lambda: self.api.log("left"))

    def cast(self, low: bytes, high: bytes, payload: bytes, **options: Any) -> None:
        self.graph.cast(Range(low, high), payload, **options)

    # hooks of the graph -------------------------------------------------------------------------

    def delivered(self, arrival: Arrival) -> None:
        self.arrivals.append(arrival)

    def received(self, sender: Peer, payload: bytes) -> None:
        self.messages.append((sender, payload))

    def merging(self, others: bool, since: float | None) -> None:
        """Nothing hangs on it here."""

    def passed_over(self, since: float) -> None:
        """Nor on this."""

    def neighbors_changed(self, key: bytes) -> None:
        """Of no interest here."""

    def status_for(self, key: bytes, joining: Ref) -> bytes:
        return b""

    def joined(self, key: bytes, left: Ref | None, status: bytes) -> None:
        """Of no interest here."""

    def left(self, key: bytes) -> None:
        """Of no interest here."""


def expected_tables(
    keys: Mapping[bytes, int], base: int = 2
) -> dict[bytes, list[tuple[bytes | None, bytes | None]]]:
    """Neighbours of each key per level, up to the last level where it has any.

    Args:
        keys: key -> membership vector of its node.
    """
    tables: dict[bytes, list[tuple[bytes | None, bytes | None]]] = {key: [] for key in keys}
    waiting = [(0, sorted(keys))]
    while waiting:
        level, members = waiting.pop()
        if len(members) < 2:
            continue
        for left, key, right in zip([None, *members], members, [*members[1:], None], strict=False):
            tables[key].append((left, right))
        if len({keys[key] for key in members}) == 1:
            continue  # of one node, whose lists above hold the same keys
        digits: dict[int, list[bytes]] = {}
        for key in members:
            digits.setdefault((keys[key] * base ** (level + 1)) >> 64, []).append(key)
        waiting.extend((level + 1, part) for part in digits.values())
    return tables


def wrong_links(graphs: Iterable[SkipGraph], base: int = 2) -> list[str]:
    """What is not as it must be in the tables of all living nodes; empty when all is right."""
    owned = [(key, graph) for graph in graphs for key in list(graph.keys())]
    vectors = {key: graph.vector for key, graph in owned}
    expected = expected_tables(vectors, base)
    wrong = []
    for key, graph in owned:
        found = [tuple(None if ref is None else ref.key for ref in pair) for pair in graph.neighbors(key)]
        wanted: Sequence[tuple[bytes | None, bytes | None]] = expected[key]
        for level in range(max(len(found), len(wanted))):
            here = found[level] if level < len(found) else (None, None)
            right = wanted[level] if level < len(wanted) else (None, None)
            if here != right and not (level >= len(wanted) and _own(here, key, vectors)):
                wrong.append(f"{key!r} level {level}: {here}, not {right}")
    return wrong


def _own(pair: Sequence[bytes | None], key: bytes, vectors: Mapping[bytes, int]) -> bool:
    """Levels above the last shared one may still list the node's own keys."""
    return all(other is None or vectors.get(other) == vectors[key] for other in pair)


def overlay_kinds() -> Callable[[bytes], str]:
    """For :attr:`Network.classify`: the name of an overlay message's type."""
    names: dict[int, str] = {}

    def classify(data: bytes) -> str:
        name = names.get(data[0])
        if name is None:
            name = names[data[0]] = type(decode(data)).__name__
        return name

    return classify
