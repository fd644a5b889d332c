"""Range queries and lookups walked over whole graphs, whose tables are built naively from the definition."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import comb
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ildm.api import Peer
from ildm_algorithms.overlay.casts.routing import (
    BROADCAST,
    BROADCAST_MEMORY,
    MRF,
    ROUTINGS,
    SEQUENTIAL,
    SFB,
    Forward,
    Levels,
    Routing,
    next_hop,
)
from ildm_algorithms.overlay.keys import EVERYTHING, VECTOR_BITS, Range, Ref, prefix
from tests.support.transcripts import check_transcript

ONCE: tuple[Routing, ...] = (SFB, MRF, SEQUENTIAL)
"""Routings that reach each key exactly once."""
ALL: tuple[Routing, ...] = tuple(ROUTINGS.values())


class Table:
    """View of one physical node."""

    def __init__(self, node_id: str) -> None:
        self.node_id = node_id
        self.rows: dict[bytes, list[tuple[Ref | None, Ref | None]]] = {}

    def keys(self) -> list[bytes]:
        return sorted(self.rows)

    def neighbors(self, key: bytes) -> Levels:
        return self.rows[key]

    def entries(self, target: Range) -> list[Ref]:
        return []


class Graph:
    """Converged tables; ``nodes``: node id -> (membership vector, keys)."""

    def __init__(
        self, nodes: Mapping[str, tuple[int, Iterable[bytes]]], base: int = 2, levels: int = VECTOR_BITS
    ) -> None:
        self.tables = {node_id: Table(node_id) for node_id in nodes}
        self.refs = sorted(
            Ref(key, Peer(node_id, f"{node_id}:1"), vector)
            for node_id, (vector, keys) in nodes.items()
            for key in keys
        )
        self.keys = [ref.key for ref in self.refs]
        self.owner = {ref.key: ref.peer.node_id for ref in self.refs}
        for ref in self.refs:
            self.tables[ref.peer.node_id].rows[ref.key] = []
        lists = [self.refs]
        for level in range(levels):
            lists = [members for members in lists if len({ref.peer for ref in members}) > 1]
            if not lists:
                return
            for members in lists:
                for left, ref, right in zip([None, *members], members, [*members[1:], None], strict=False):
                    self.tables[ref.peer.node_id].rows[ref.key].append((left, right))
            classes: dict[int, list[Ref]] = {}
            for members in lists:
                for ref in members:
                    classes.setdefault(prefix(ref.vector, level + 1, base), []).append(ref)
            lists = list(classes.values())

    def forget(self, hidden: set[tuple[bytes, int, int]]) -> None:
        """Make tables incomplete: entries given as (key, level, side)."""
        for table in self.tables.values():
            for key, row in table.rows.items():
                row[:] = [
                    (None if (key, i, 0) in hidden else left, None if (key, i, 1) in hidden else right)
                    for i, (left, right) in enumerate(row)
                ]


@dataclass
class Walk:
    """What one query did; the issuer is at depth 0."""

    depth: dict[bytes, int] = field(default_factory=dict)
    reached: Counter[bytes] = field(default_factory=Counter)
    received: Counter[str] = field(default_factory=Counter)
    sent: Counter[str] = field(default_factory=Counter)
    path: list[str] = field(default_factory=list)
    """Nodes outside the range that handed the query on."""
    messages: list[tuple[int, str, Forward]] = field(default_factory=list)
    """Depth of the receiver, sender, copy."""


def walk(graph: Graph, start: str, target: Range, routing: Routing) -> Walk:
    """Run a query to its end; nodes stop at a query they have already, as live nodes do."""
    result = Walk()
    waiting = deque([(start, target, 0, frozenset[bytes]())])
    while waiting:
        node_id, part, depth, visited = waiting.popleft()
        step = routing.split(graph.tables[node_id], part, visited)
        if not step.own and step.forwards:
            result.path.append(node_id)
            assert [forward.target for forward in step.forwards] == [part]
        repeated = bool(step.own) and all(key in result.depth for key in step.own)
        for key in step.own:
            result.reached[key] += 1
            result.depth.setdefault(key, depth)
        if repeated:
            continue
        for forward in step.forwards:
            assert forward.to.peer.node_id != node_id
            result.messages.append((depth + 1, node_id, forward))
            assert len(result.messages) <= 4 * len(graph.keys) ** 2, "the query does not come to rest"
            result.received[forward.to.peer.node_id] += 1
            result.sent[node_id] += 1
            waiting.append((forward.to.peer.node_id, forward.target, depth + 1, frozenset(forward.extra)))
    return result


# random graphs ------------------------------------------------------------------------------------

vectors = st.integers(0, 2**VECTOR_BITS - 1)
bounds = st.one_of(st.just(b""), st.just(EVERYTHING.high), st.binary(max_size=3))


@st.composite
def graphs(draw: st.DrawFn, max_keys: int = 3) -> Graph:
    """1-14 nodes with 1-3 keys each; upper levels may be missing."""
    numbers = draw(st.lists(st.integers(1, max_keys), min_size=1, max_size=14))
    keys = draw(st.lists(st.binary(max_size=3), min_size=sum(numbers), max_size=sum(numbers), unique=True))
    nodes = {}
    for number, count in enumerate(numbers):
        nodes[f"n{number}"] = (draw(vectors), [keys.pop() for _ in range(count)])
    return Graph(nodes, base=draw(st.sampled_from([2, 3, 4])), levels=draw(st.sampled_from([1, 2, 64])))


@st.composite
def queries(draw: st.DrawFn, max_keys: int = 3) -> tuple[Graph, str, Range]:
    graph = draw(graphs(max_keys))
    start = draw(st.sampled_from(sorted(graph.tables)))
    bound = st.one_of(bounds, st.sampled_from(graph.keys))
    return graph, start, Range(draw(bound), draw(bound))


def inside(graph: Graph, target: Range) -> list[bytes]:
    return [key for key in graph.keys if key in target]


@given(queries(), st.sampled_from(ONCE))
def test_every_key_in_the_range_is_reached_exactly_once(
    query: tuple[Graph, str, Range], routing: Routing
) -> None:
    graph, start, target = query
    result = walk(graph, start, target, routing)
    assert result.reached == Counter(inside(graph, target))


@given(queries(), st.sampled_from(ONCE))
def test_the_parts_of_one_step_divide_the_target(query: tuple[Graph, str, Range], routing: Routing) -> None:
    graph, start, target = query
    step = routing.split(graph.tables[start], target)
    assert step.own == [key for key in inside(graph, target) if graph.owner[key] == start]
    parts = sorted(forward.target for forward in step.forwards)
    assert all(a.high <= b.low for a, b in pairwise(parts))
    for forward in step.forwards:
        assert forward.to.key in forward.target or not step.own
        assert target.low <= forward.target.low < forward.target.high <= target.high
        assert not any(key in forward.target for key in step.own)
    for key in inside(graph, target):
        assert not step.own or (key in step.own) + sum(key in part for part in parts) == 1


@given(queries(), st.sampled_from([BROADCAST, BROADCAST_MEMORY]))
def test_a_broadcast_reaches_every_key_in_the_range(
    query: tuple[Graph, str, Range], routing: Routing
) -> None:
    graph, start, target = query
    result = walk(graph, start, target, routing)
    assert set(result.reached) == set(inside(graph, target))


@given(queries())
def test_a_broadcast_with_memory_sends_no_more_than_one_without(query: tuple[Graph, str, Range]) -> None:
    with_memory = walk(*query, BROADCAST_MEMORY)
    assert len(with_memory.messages) <= len(walk(*query, BROADCAST).messages)
    for _, _, forward in with_memory.messages:
        assert forward.to.key in forward.extra or not forward.extra
        assert list(forward.extra) == sorted(set(forward.extra))


@given(queries(max_keys=1), st.sampled_from(ONCE))
def test_with_one_key_per_node_each_node_receives_once(
    query: tuple[Graph, str, Range], routing: Routing
) -> None:
    graph, start, target = query
    result = walk(graph, start, target, routing)
    assert all(number == 1 for number in result.received.values())
    if routing in (MRF, SEQUENTIAL):
        assert all(number <= 2 for number in result.sent.values())


@given(queries(), st.sampled_from(ONCE))
def test_no_node_receives_more_often_than_it_has_keys_to_reach(
    query: tuple[Graph, str, Range], routing: Routing
) -> None:
    graph, start, target = query
    result = walk(graph, start, target, routing)
    wanted = Counter(graph.owner[key] for key in inside(graph, target))
    for node_id, number in result.received.items():
        assert number <= max(wanted[node_id], 1)
        assert wanted[node_id] or node_id in result.path or not inside(graph, target)


@given(queries(), st.data())
def test_upper_levels_may_be_wrong_by_omission(query: tuple[Graph, str, Range], data: st.DataObject) -> None:
    graph, start, target = query
    entry = st.tuples(st.sampled_from(graph.keys), st.integers(1, 6), st.integers(0, 1))
    graph.forget(data.draw(st.sets(entry, max_size=20)))
    for routing in ONCE:
        assert walk(graph, start, target, routing).reached == Counter(inside(graph, target))


@given(queries(), st.data())
def test_with_any_entry_missing_queries_come_to_rest_and_reach_no_key_twice(
    query: tuple[Graph, str, Range], data: st.DataObject
) -> None:
    graph, start, target = query
    entry = st.tuples(st.sampled_from(graph.keys), st.integers(0, 3), st.integers(0, 1))
    graph.forget(data.draw(st.sets(entry, max_size=30)))
    for routing in ALL:
        result = walk(graph, start, target, routing)
        assert set(result.reached) <= set(inside(graph, target))
        assert routing not in ONCE or set(result.reached.values()) <= {1}


@given(graphs(), st.data())
def test_a_lookup_ends_at_the_predecessor(graph: Graph, data: st.DataObject) -> None:
    node_id = data.draw(st.sampled_from(sorted(graph.tables)))
    key = data.draw(st.one_of(st.binary(max_size=3), st.sampled_from(graph.keys)))
    before = [own for own in graph.keys if own <= key]
    hops = 0
    while (ref := next_hop(graph.tables[node_id], key)) is not None:
        node_id = ref.peer.node_id
        hops += 1
        assert hops <= len(graph.keys)
    assert graph.owner[before[-1] if before else graph.keys[0]] == node_id


@given(graphs(), st.data())
def test_a_lookup_comes_to_rest_with_any_entry_missing(graph: Graph, data: st.DataObject) -> None:
    entry = st.tuples(st.sampled_from(graph.keys), st.integers(0, 3), st.integers(0, 1))
    graph.forget(data.draw(st.sets(entry, max_size=30)))
    node_id = data.draw(st.sampled_from(sorted(graph.tables)))
    key = data.draw(st.binary(max_size=3))
    for _ in graph.keys:
        if (ref := next_hop(graph.tables[node_id], key)) is None:
            return
        node_id = ref.peer.node_id
    assert next_hop(graph.tables[node_id], key) is None


# cases --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("routing", ALL, ids=str)
def test_a_node_without_keys_in_the_graph_knows_nothing(routing: Routing) -> None:
    assert routing.split(Table("A"), EVERYTHING) == ([], [])
    assert next_hop(Table("A"), b"a") is None


@pytest.mark.parametrize("routing", ALL, ids=str)
@pytest.mark.parametrize("start", ["A", "B"])
def test_neighbours_beyond_the_range_prove_it_empty(routing: Routing, start: str) -> None:
    graph = Graph({"A": (0, [b"1", b"7"]), "B": (1 << 63, [b"3", b"9"])})
    assert walk(graph, start, Range(b"4", b"6"), routing).messages == []
    assert walk(graph, start, Range(b"6", b"4"), routing).messages == []


def line(vector_digits: Iterable[str]) -> Graph:
    """Nodes a, b, ... with one key each, of the same name, and vectors given by their first digits."""
    return Graph(
        {
            chr(97 + i): (int(digits, 2) << (VECTOR_BITS - len(digits)), [bytes([97 + i])])
            for i, digits in enumerate(vector_digits)
        }
    )


@pytest.mark.parametrize("routing", ALL, ids=str)
def test_a_range_is_entered_at_the_farthest_neighbour_in_it(routing: Routing) -> None:
    graph = line(["000", "100", "010", "110", "001", "101", "011", "111"])  # level 1 of a: c, level 2: e
    for target, entry in (("bf", "e"), ("be", "c"), ("bc", "b"), ("dh", "e"), ("fh", "e")):
        step = routing.split(graph.tables["a"], Range(*(bytes([ord(c)]) for c in target)))
        assert [forward.to.peer.node_id for forward in step.forwards] == [entry]
    step = routing.split(graph.tables["h"], Range(b"b", b"e"))  # level 1 of h: f, level 2: d
    assert [forward.to.peer.node_id for forward in step.forwards] == ["d"]


@pytest.mark.parametrize("size", [1, 2, 3, 6, 10])
def test_shape_of_the_trees_over_ideal_vectors(size: int) -> None:
    """Thesis 4.1.3: binomial coefficients and H = log2(N)/2; powers of two and H = log2(N)-1+1/N."""
    count = 2**size
    graph = Graph(
        {
            f"n{i}": (int(f"{i:0{size}b}"[::-1], 2) << (VECTOR_BITS - size), [b"%04d" % i])
            for i in range(count)
        }
    )
    sfb = walk(graph, "n0", EVERYTHING, SFB)
    assert Counter(sfb.depth.values()) == {k: comb(size, k) for k in range(size + 1)}
    assert sum(sfb.depth.values()) * 2 == size * count
    mrf = walk(graph, "n0", EVERYTHING, MRF)
    assert Counter(mrf.depth.values()) == {0: 1} | {k + 1: 2**k for k in range(size)}
    assert sum(mrf.depth.values()) == (size - 1) * count + 1
    sequential = walk(graph, "n0", EVERYTHING, SEQUENTIAL)
    assert sorted(sequential.depth.values()) == list(range(count))
    for result in (sfb, mrf, sequential):
        assert len(result.messages) == count - 1


def test_a_broadcast_is_no_deeper_than_the_graph_has_levels() -> None:
    graph = line(f"{i:03b}"[::-1] for i in range(8))
    for routing in (BROADCAST, BROADCAST_MEMORY):
        assert max(walk(graph, "a", EVERYTHING, routing).depth.values()) == 3


def test_a_gap_between_own_keys_is_served_from_both_sides() -> None:
    graph = Graph(
        {
            "A": (0, [b"1", b"9"]),
            "B": (1 << 63, [b"2"]),
            "C": (1 << 61, [b"4"]),
            "D": (1 << 60, [b"6"]),
            "E": (1 << 63, [b"8"]),
        }
    )
    step = SFB.split(graph.tables["A"], Range(b"0", b":"))
    assert step.own == [b"1", b"9"]
    assert [(forward.to.key, *forward.target) for forward in step.forwards] == [
        (b"6", b"6", b"8"),
        (b"8", b"8", b"8\0"),
        (b"4", b"4", b"6"),
        (b"2", b"2", b"4"),
    ]


def test_one_node_on_both_sides_of_a_gap_gets_one_copy() -> None:
    graph = Graph({"A": (0, [b"1", b"9"]), "B": (1, [b"3", b"7"]), "C": (1 << 63, [b"5"])})
    assert [
        (forward.to.key, *forward.target) for forward in SFB.split(graph.tables["A"], EVERYTHING).forwards
    ] == [(b"3", b"3", b"7\0")]
    assert [
        (forward.to.key, *forward.target) for forward in MRF.split(graph.tables["A"], EVERYTHING).forwards
    ] == [(b"3", b"1\0", b"9")]


# the example of thesis 4.1.2, Fig. 4.1 --------------------------------------------------------------

FIGURE_4_1 = {
    "X": (0b011, b"-5"),
    "Y": (0b010, b"03"),
    "Z": (0b110, b"08"),
    "A": (0b000, b"13"),
    "B": (0b100, b"21"),
    "C": (0b010, b"27"),
    "D": (0b110, b"31"),
    "E": (0b001, b"36"),
    "F": (0b101, b"41"),
    "G": (0b011, b"45"),
    "H": (0b111, b"50"),
    "I": (0b000, b"58"),
}
"""The text gives R = 0..50, E = 36 at level 2 of A, C = 27 at level 1, B at level 0, G and F right of E."""


@pytest.mark.parametrize("routing", ALL, ids=str)
def test_example_of_figure_4_1(routing: Routing) -> None:
    graph = Graph({name: (digits << 61, [key]) for name, (digits, key) in FIGURE_4_1.items()})
    target = Range(b"00", b"50\0")
    lines = []
    for start in ("A", "I"):
        lines.append(f"{start} queries 0 <= key <= 50")
        for depth, sender, forward in walk(graph, start, target, routing).messages:
            low, high = (bound.decode() for bound in forward.target)
            lines.append(
                f"  {depth}  {sender} -> {forward.to.peer.node_id}  "
                f"{low.rstrip(chr(0))} {'<' if low.endswith(chr(0)) else '<='} key "
                f"{'<=' if high.endswith(chr(0)) else '<'} {high.rstrip(chr(0))}"
                + (f"  not {' '.join(key.decode() for key in forward.extra)}" if forward.extra else "")
            )
    check_transcript(f"routing_{routing}", lines)


@pytest.mark.parametrize("seed", range(40))
def test_nodes_with_keys_on_both_sides_do_not_hand_a_query_to_and_fro(seed: int) -> None:
    """As publishers have them: prefix segments lie before a topic's subscribers, the topic's own behind."""
    chance = Random(seed)
    outside, inside = chance.randrange(4, 30), chance.randrange(1, 10)
    nodes: dict[str, tuple[int, list[bytes]]] = {}
    for number in range(outside):
        keys = [b"a%02d" % number, b"c%02d" % number]
        nodes[f"both{number}"] = chance.getrandbits(VECTOR_BITS), keys
    for number in range(inside):
        nodes[f"in{number}"] = chance.getrandbits(VECTOR_BITS), [b"b%02d" % number]
    graph = Graph(nodes)
    wanted = {b"b%02d" % number for number in range(inside)}
    for number in range(outside):
        for routing in ONCE:
            result = walk(graph, f"both{number}", Range(b"b", b"c"), routing)
            assert set(result.depth) == wanted
            assert len(result.path) == len(set(result.path))


def test_the_numbers_of_the_routings_are_those_that_all_nodes_know() -> None:
    names = ["sfb", "mrf", "sequential", "broadcast", "broadcast_memory"]
    assert [(routing.code, name) for name, routing in ROUTINGS.items()] == [*enumerate(names)]
    assert [*map(str, ROUTINGS.values())] == names
