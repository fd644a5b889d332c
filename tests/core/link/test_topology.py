"""The spanning tree: the same at every node, without cycles, and whole whenever the graph is."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ildm.core.link.topology import MAX_NUMBER, Advertisement, Topology, TopologyError

NAMES = [f"n{i}" for i in range(8)]
EDGES = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)).filter(lambda e: e[0] < e[1]),
    unique=True,
    max_size=20,
)


def flooded(edges: list[tuple[str, str]]) -> dict[str, Topology]:
    """Every node knows every advertisement; the age of an edge is its place in the list."""
    nodes = {name: Topology(name, 1, 100) for name in NAMES}
    for name, topology in nodes.items():
        topology.set_links({b if a == name else a: age for age, (a, b) in enumerate(edges) if name in (a, b)})
    for topology in nodes.values():
        for other in nodes.values():
            topology.receive(other.own)
    return nodes


def components(edges: set[tuple[str, str]]) -> list[set[str]]:
    groups = [{name} for name in NAMES]
    for a, b in edges:
        one, two = next(g for g in groups if a in g), next(g for g in groups if b in g)
        if one is not two:
            one |= two
            groups.remove(two)
    return groups


@settings(max_examples=200, deadline=None)
@given(EDGES)
def test_all_nodes_choose_one_forest_that_spans_the_graph(edges: list[tuple[str, str]]) -> None:
    nodes = flooded(edges)
    trees = {name: topology.tree() for name, topology in nodes.items()}
    chosen = {(min(a, b), max(a, b)) for a, neighbors in trees.items() for b in neighbors}
    for a, b in chosen:
        assert b in trees[a]
        assert a in trees[b]  # both ends agree
    assert chosen <= set(edges)
    assert sorted(map(sorted, components(chosen))) == sorted(map(sorted, components(set(edges))))
    assert len(chosen) == len(NAMES) - len(components(set(edges)))  # no cycle


def test_the_youngest_link_of_a_cycle_is_left_out() -> None:
    nodes = flooded([("n0", "n1"), ("n1", "n2"), ("n0", "n2")])
    assert nodes["n0"].tree() == {"n1"}
    assert nodes["n2"].tree() == {"n1"}


def test_a_link_counts_only_when_both_ends_advertise_it_with_one_age() -> None:
    one = Topology("a", 1, 10)
    one.set_links({"b": 1})
    assert one.tree() == set()
    one.receive(Advertisement("b", 1, 1, {"a": 2}))
    assert one.tree() == set()
    one.receive(Advertisement("b", 1, 2, {"a": 1}))
    assert one.tree() == {"b"}


def test_old_advertisements_are_ignored_and_a_restart_is_newer() -> None:
    one = Topology("a", 1, 10)
    assert one.receive(Advertisement("b", 5, 3, {})) is not None
    assert one.receive(Advertisement("b", 5, 3, {})) is None
    assert one.receive(Advertisement("b", 5, 3, {"x": 1})) is not None  # of two that no one node makes, one
    assert one.receive(Advertisement("b", 5, 3, {})) is None
    assert one.receive(Advertisement("b", 5, 2, {"x": 1})) is None
    assert one.receive(Advertisement("b", 6, 0, {"x": 1})) is not None


def test_what_an_earlier_life_said_is_overruled() -> None:
    one = Topology("a", 5, 10)
    one.set_links({"b": 1})
    answer = one.receive(Advertisement("a", 9, 7, {"ghost": 1}))
    assert answer == Advertisement("a", 9, 8, {"b": 1})
    assert one.own == answer


def test_the_number_of_nodes_is_bounded() -> None:
    one = Topology("a", 1, 3)
    one.set_links({"b": 1})
    one.receive(Advertisement("b", 1, 1, {"a": 1, "c": 2}))
    one.receive(Advertisement("c", 1, 1, {"b": 2, "d": 3}))
    with pytest.raises(TopologyError, match="max_nodes"):
        one.receive(Advertisement("d", 1, 1, {"c": 3}))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[1,2,3,4]",
        b'["a",1,1,{"b":"x"}]',
        b"\xff",
        b'["a",1,1]',
        b'["a",1,1,{"":1}]',
        b'["' + b"a" * 65 + b'",1,1,{}]',
        b'["a",-1,1,{}]',
        b'["a",1,9007199254740992,{}]',
        b'["a",1,1,{"b":9007199254740992}]',
        b'["a",1,1,{"b":1}' + b" " * (1 << 20) + b"]",
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
def test_malformed_advertisements_are_named(data: bytes) -> None:
    with pytest.raises(TopologyError, match="malformed topology advertisement"):
        Advertisement.decode(data)


def test_encoding_round_trip() -> None:
    one = Advertisement("a", 17, 4, {"b": 1, "c": 9})
    assert Advertisement.decode(one.encode()) == one


def test_numbers_at_their_bound_are_gone_beyond_and_never_said() -> None:
    one = Topology("a", 1, 10)
    answer = one.receive(Advertisement("a", 9, MAX_NUMBER - 1, {}))
    assert answer == Advertisement("a", 10, 0, {})
    assert one.receive(Advertisement("a", MAX_NUMBER - 1, 1, {})) is None
    changed = one.set_links({"b": 1})
    assert changed is not None
    assert Advertisement.decode(changed.encode()) == changed
    one.receive(Advertisement("b", 1, 1, {"a": MAX_NUMBER - 1}))
    assert one.next_age() < MAX_NUMBER


class Flooded:
    """Nodes in a row, which flood as the tree does: news at once, what has returned once all is read."""

    def __init__(self, names: str) -> None:
        self.nodes = {name: Topology(name, 1, 100) for name in names}
        self.links: set[frozenset[str]] = set()
        for a, b in pairwise(names):
            self.connect(a, b)

    def connect(self, a: str, b: str) -> None:
        self.links.add(frozenset((a, b)))
        told = [(far, each) for near, far in ((a, b), (b, a)) for each in self.nodes[near].advertisements()]
        self._deliver(told + self._set_links(a) + self._set_links(b))

    def cut(self, a: str, b: str) -> None:
        self.links.remove(frozenset((a, b)))
        self._deliver(self._set_links(a) + self._set_links(b))

    def _neighbors(self, name: str) -> list[str]:
        return sorted(other for link in self.links if name in link for other in link - {name})

    def _set_links(self, name: str) -> list[tuple[str, Advertisement]]:
        changed = self.nodes[name].set_links(dict.fromkeys(self._neighbors(name), 1))
        return self._to_neighbors(name, changed)

    def _to_neighbors(self, name: str, news: Advertisement | None) -> list[tuple[str, Advertisement]]:
        return [] if news is None else [(far, news) for far in self._neighbors(name)]

    def _deliver(self, under_way: list[tuple[str, Advertisement]]) -> None:
        while under_way:
            for name, advertisement in under_way:
                under_way = under_way[1:]
                under_way += self._to_neighbors(name, self.nodes[name].receive(advertisement))
            if not under_way:
                for name, node in self.nodes.items():
                    for each in node.returned():
                        under_way += self._to_neighbors(name, each)


def test_a_node_that_has_forgotten_others_is_told_of_them_once_there_is_a_path_again() -> None:
    """Its neighbour has kept what it has forgotten, so that it is no news there."""
    row = Flooded("wxybaz")
    row.cut("x", "y")
    row.cut("a", "z")  # a forgets w and x, which b still knows
    assert not row.nodes["a"].reaches("w")
    row.connect("x", "y")
    assert row.nodes["a"].reaches("w")
    row.connect("a", "z")
    assert all(set(node.reachable()) == set("wxybaz") for node in row.nodes.values())
