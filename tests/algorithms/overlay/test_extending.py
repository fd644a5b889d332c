"""What an algorithm may hand in: a routing and messages of its own, and where a cast begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from pydantic import ValidationError

from ildm.api import Peer
from ildm_algorithms.overlay.casts.routing import Forward, Routing, View, dividing
from ildm_algorithms.overlay.config import OverlayConfig
from ildm_algorithms.overlay.graph import CastResult, SkipGraph
from ildm_algorithms.overlay.keys import EVERYTHING, Range, Ref
from ildm_algorithms.overlay.wire.codec import KEY, U16, U32, Codec, Format, OverlayError, many
from ildm_algorithms.overlay.wire.messages import PEER, Cast, decode, encode
from tests.algorithms.overlay.scheduler import Network, Node, union


def to_the_next(view: View, own: list[bytes], target: Range, visited: frozenset[bytes]) -> list[Forward]:
    """To the right neighbour, and to the left one, of the outermost own keys: for one key per node."""
    (left, right), *_ = view.neighbors(own[0])
    found = []
    if left is not None and left.key in target:
        found.append(Forward(left, target.below(own[0])))
    if right is not None and right.key in target:
        found.append(Forward(right, target.beyond(own[0])))
    return found


NEXT = Routing("next", 64, dividing(to_the_next))


class Count(NamedTuple):
    """A message of an algorithm's own."""

    origin: Peer
    number: int
    keys: tuple[bytes, ...]


class Uncounted(NamedTuple):
    number: int


COUNT = Format(64, Count, (PEER, U32, many(*KEY)))


def grown(network: Network, count: int = 10, **options: Any) -> list[Node]:
    nodes: list[Node] = []
    for number in range(count):
        node = network.add(f"n{number}", **options).start(10 * number)
        if nodes:
            node.graph.join(nodes[0].peer)
        nodes.append(node)
        network.run(1)
    network.settle()
    return nodes


def received(nodes: list[Node]) -> list[bytes]:
    return sorted(key for node in nodes for arrival in node.arrivals for key in arrival.keys)


def ref(node: Node) -> Ref:
    (key,) = node.graph.keys()
    return Ref(key, node.peer, node.graph.vector)


# routings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("reliable", [False, True])
def test_a_cast_takes_the_routing_of_an_algorithm(reliable: bool) -> None:
    network = Network()
    network.parts = lambda node: {"routings": (NEXT,)}
    nodes = grown(network)
    done: list[CastResult] = []
    nodes[4].graph.cast(
        EVERYTHING, b"x", routing=NEXT, reliable=reliable, done=done.append if reliable else None
    )
    network.run(5)
    assert received(nodes) == union(nodes)
    assert [node.arrivals[0].depth for node in nodes] == [4, 3, 2, 1, 0, 1, 2, 3, 4, 5]
    assert [result.complete for result in done] == [True] * reliable


def test_a_routing_the_graph_was_not_made_with_is_refused() -> None:
    network = Network()
    nodes = grown(network, 2)
    with pytest.raises(OverlayError, match="next"):
        nodes[1].graph.cast(EVERYTHING, b"x", routing=NEXT)
    carry = network.carry

    def other_way(sender: str, to: str, data: bytes) -> None:
        message = decode(data)
        carry(sender, to, encode(message._replace(routing=64)) if isinstance(message, Cast) else data)

    network.carry = other_way  # type: ignore[method-assign]
    nodes[0].graph.cast(EVERYTHING, b"x")
    network.run(2)
    assert nodes[1].arrivals == []
    assert nodes[1].counters["malformed"] == 1


@pytest.mark.parametrize("code", [-1, 0, 4, 256])
def test_a_number_of_a_routing_that_is_taken_or_none_is_refused(code: int) -> None:
    node = Network().add("n0")
    with pytest.raises(OverlayError, match="next"):
        SkipGraph(node, node, routings=(Routing("next", code, NEXT.split),))


def test_a_default_routing_that_is_none_is_refused() -> None:
    assert OverlayConfig(routing="mrf").routing == "mrf"
    with pytest.raises(ValidationError, match="one of sfb, mrf, broadcast"):
        OverlayConfig(routing="far")


# messages -----------------------------------------------------------------------------------------


def test_messages_of_an_algorithm_reach_its_handler() -> None:
    network = Network()
    heard: list[tuple[str, Count]] = []
    network.parts = lambda node: {"messages": ((COUNT, lambda m: heard.append((node.node_id, m))),)}
    one, two = grown(network, 2)
    message = Count(one.peer, 7, (b"a", b"", b"c" * 300))
    one.graph.send(two.peer, message)
    one.graph.send(one.peer, message)
    network.run(1)
    assert sorted(heard) == [("n0", message), ("n1", message)]


def test_messages_the_graph_was_not_made_with_are_refused_at_both_ends() -> None:
    network = Network()
    network.parts = lambda node: {"messages": ((COUNT, lambda m: None),)} if node.node_id == "n0" else {}
    one, two = (network.add(f"n{number}").start(number) for number in range(2))
    with pytest.raises(OverlayError, match="Uncounted"):
        one.graph.send(two.peer, Uncounted(1))
    with pytest.raises(OverlayError, match="Count"):
        two.graph.send(two.peer, Count(two.peer, 1, ()))
    one.graph.send(two.peer, Count(one.peer, 7, ()))
    network.run(1)
    assert two.counters["malformed"] == 1
    with pytest.raises(OverlayError, match="Count"):
        encode(Count(one.peer, 7, ()))


@pytest.mark.parametrize(
    "format", [Format(0, Uncounted, (U16,)), Format(64, Uncounted, (U16,)), Format(65, Count, (U16,))]
)
def test_a_number_or_a_type_of_a_message_that_is_taken_is_refused(format: Format) -> None:
    with pytest.raises(OverlayError, match=format.kind.__name__):
        Codec((COUNT, format))


# entries ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reliable", [False, True])
def test_a_cast_begins_at_the_entry_it_is_given(reliable: bool) -> None:
    network = Network()
    nodes = grown(network)
    done: list[CastResult] = []
    nodes[2].graph.cast(
        EVERYTHING, b"x", reliable=reliable, entry=ref(nodes[7]), done=done.append if reliable else None
    )
    network.run(5)
    assert received(nodes) == union(nodes)
    assert nodes[7].arrivals[0].depth == 1
    assert min(node.arrivals[0].depth for node in nodes if node is not nodes[7]) == 2
    assert [(result.complete, result.keys) for result in done] == [(True, 10)] * reliable


def test_a_trace_shows_the_entry() -> None:
    network = Network()
    nodes = grown(network)
    done: list[CastResult] = []
    nodes[2].graph.cast(Range(b"\0", b"\xfe"), b"", trace=True, entry=ref(nodes[7]), done=done.append)
    network.run(5)
    (result,) = done
    assert (result.tree["node"], result.tree["keys"]) == ("n2", [])
    assert [child["node"] for child in result.tree["children"]] == ["n7"]
    assert result.keys == 10


@pytest.mark.parametrize("own", [True, False])
def test_an_entry_that_is_suspected_or_own_is_passed_over(own: bool) -> None:
    network = Network()
    nodes = grown(network)
    entry = ref(nodes[2 if own else 7])
    if not own:
        nodes[7].crash()
        nodes[2].graph.unreachable("n7")
        network.settle()
    nodes[2].graph.cast(EVERYTHING, b"x", entry=entry)
    network.run(5)
    assert received(nodes) == union([node for node in nodes if node.alive])
    assert nodes[2].arrivals[0].depth == 0


@pytest.mark.parametrize("resets", [True, False])
def test_a_reliable_cast_goes_around_an_entry_that_is_gone(resets: bool) -> None:
    """The own keys have not been served when the range is divided anew."""
    network = Network()
    network.resets = resets
    nodes = grown(network)
    entry = ref(nodes[7])
    nodes[7].crash()
    done: list[CastResult] = []
    nodes[2].graph.cast(EVERYTHING, b"x", reliable=True, entry=entry, done=done.append)
    network.run(40)
    assert [result.complete for result in done] == [True]
    assert received(nodes) == union([node for node in nodes if node.alive])


def test_an_entry_whose_key_has_left_passes_the_cast_on() -> None:
    network = Network()
    nodes = grown(network)
    entry = ref(nodes[7])
    nodes[7].insert(75)
    network.settle()
    nodes[7].remove(entry.key)
    network.settle()
    nodes[2].graph.cast(EVERYTHING, b"x", entry=entry)
    network.run(5)
    assert received(nodes) == union(nodes)


# notes --------------------------------------------------------------------------------------------


class Knowing(SkipGraph):
    """Its nodes know the keys they are told of, and take one from a note that counts."""

    known: tuple[Ref, ...]
    noted: list[tuple[int, Sequence[bytes]]]
    astray: list[bytes]
    gone: list[bytes]

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.known, self.noted, self.astray, self.gone = (), [], [], []

    def learned(self, target: Range) -> Sequence[Ref]:
        return [ref for ref in self.known if ref.key in target]

    def notes(
        self, message: Cast, own: Sequence[bytes], forwards: Sequence[Forward]
    ) -> Sequence[bytes | None]:
        left = message.note[0] - (message.depth > 0)
        self.noted.append((message.note[0], own))
        return [bytes([left])] * len(forwards) if left else [None] * len(forwards)

    def strayed(self, message: Cast) -> None:
        self.astray.append(message.at)

    def departing(self, key: bytes) -> None:
        assert key in self.keys()
        self.gone.append(key)


def to_all_known(view: View, own: list[bytes], target: Range, visited: frozenset[bytes]) -> list[Forward]:
    return [Forward(ref, Range(ref.key, ref.key + b"\0")) for ref in view.entries(target)]


KNOWN = Routing("known", 65, dividing(to_all_known))


def knowing(network: Network, count: int) -> tuple[list[Node], list[Knowing]]:
    network.graph = Knowing
    network.parts = lambda node: {"routings": (NEXT, KNOWN)}
    nodes = grown(network, count)
    graphs = [node.graph for node in nodes if isinstance(node.graph, Knowing)]
    assert len(graphs) == count
    return nodes, graphs


def test_a_routing_sees_what_a_node_has_learned_and_what_is_suspected_goes_by_others() -> None:
    network = Network()
    nodes, graphs = knowing(network, 6)
    graphs[0].known = tuple(map(ref, nodes[2:]))
    graphs[0].unreachable("n3")
    graphs[0].cast(EVERYTHING, b"x", routing=KNOWN)
    network.run(2)
    assert [len(node.arrivals) for node in nodes] == [1, 0, 1, 1, 1, 1]
    assert min(arrival.depth for arrival in nodes[3].arrivals) > 1
    assert "cast_parts_lost" not in nodes[0].counters


@pytest.mark.parametrize(("reliable", "deliver"), [(False, True), (True, True), (False, False)])
def test_a_note_is_divided_at_each_node_and_without_one_only_messages_go_on(
    reliable: bool, deliver: bool
) -> None:
    network = Network()
    nodes, graphs = knowing(network, 6)
    graphs[0].cast(EVERYTHING, b"x", routing=NEXT, reliable=reliable, deliver=deliver, note=b"\3")
    network.run(2)
    seen = [[number for number, own in graph.noted if list(own) == list(graph.keys())] for graph in graphs]
    assert seen == [[3], [3], [2], [1], [], []]
    assert [len(node.arrivals) for node in nodes] == [int(deliver)] * 6


def test_a_note_that_comes_again_comes_without_own_keys() -> None:
    network = Network()
    nodes, graphs = knowing(network, 2)
    network.duplicate = 1.0
    graphs[0].cast(EVERYTHING, b"x", routing=NEXT, note=b"\3")
    network.run(2)
    assert graphs[1].noted == [(3, list(graphs[1].keys())), (3, ())]
    assert len(nodes[1].arrivals) == 1


def test_a_copy_that_goes_astray_is_told_of_and_passed_on() -> None:
    network = Network()
    nodes, graphs = knowing(network, 4)
    entry = ref(nodes[2])
    nodes[2].insert(25)
    network.settle()
    nodes[2].remove(entry.key)
    assert graphs[2].gone == [entry.key]
    network.settle()
    graphs[0].cast(EVERYTHING, b"x", entry=entry)
    network.run(2)
    assert graphs[2].astray == [entry.key]
    assert received(nodes) == union(nodes)


def test_keys_of_a_node_that_stops_are_told_of_before_they_leave() -> None:
    network = Network()
    nodes, graphs = knowing(network, 3)
    nodes[1].insert(15)
    network.settle()
    keys = list(graphs[1].keys())
    graphs[1].stop(lambda: None)
    network.run(2)
    assert sorted(graphs[1].gone) == keys
