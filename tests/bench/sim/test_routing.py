"""Queries over converged tables in arrays against the decisions of the live nodes, key by key."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ildm_bench.sim.routing import Routing, Tree, spread, spread_many
from ildm_bench.sim.tables import NONE, build, ideal_vectors, random_vectors
from tests.bench.sim.views import Layout, Walk, arrays, layouts, walk

ROUTINGS: list[Routing] = ["sfb", "mrf"]


@st.composite
def queries(draw: st.DrawFn, most: int) -> tuple[Layout, int, int, int]:
    layout = draw(layouts(most=most))
    count = len(layout.owner)
    start = draw(st.integers(0, count - 1))
    low, high = sorted((draw(st.integers(0, count)), draw(st.integers(0, count))))
    return layout, start, low, high


def as_walk(tree: Tree) -> Walk:
    ranks = tree.ranks.tolist()
    return Walk(
        dict(zip(ranks, tree.depth.tolist(), strict=True)),
        {r: None if p == NONE else ranks[p] for r, p in zip(ranks, tree.parent.tolist(), strict=True)},
        tree.messages,
    )


@pytest.mark.parametrize("routing", ROUTINGS)
@settings(deadline=None)
@given(query=queries(most=1))
def test_one_key_per_node_as_live(routing: Routing, query: tuple[Layout, int, int, int]) -> None:
    layout, start, low, high = query
    tree = spread(build(*arrays(layout)), start, low, high, routing)
    assert sorted(tree.ranks.tolist()) == list(range(low, high))
    assert as_walk(tree) == walk(layout, start, low, high, routing)


@pytest.mark.parametrize("routing", ROUTINGS)
@settings(deadline=None, max_examples=200)
@given(query=queries(most=4))
def test_several_keys_per_node_as_live(routing: Routing, query: tuple[Layout, int, int, int]) -> None:
    layout, start, low, high = query
    tree = spread(build(*arrays(layout)), start, low, high, routing)
    assert sorted(tree.ranks.tolist()) == list(range(low, high))
    assert as_walk(tree) == walk(layout, start, low, high, routing)


@pytest.mark.parametrize("exponent", [0, 1, 5, 10])
def test_ideal_vectors_give_the_depths_of_the_thesis(exponent: int) -> None:
    """Thesis 4.1.3: binomial coefficients for SFB, powers of two for MRF."""
    count = 1 << exponent
    graph = build(np.arange(count), ideal_vectors(count))
    sfb, mrf = (spread(graph, 0, 0, count, routing) for routing in ROUTINGS)
    assert np.bincount(sfb.depth).tolist() == [comb(exponent, k) for k in range(exponent + 1)]
    assert np.bincount(mrf.depth).tolist() == [1, *(1 << k for k in range(exponent))]
    assert sfb.depth.sum() * 2 == exponent * count
    assert mrf.depth.sum() == (exponent - 1) * count + 1
    assert sfb.messages == mrf.messages == count - 1


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize("nodes", [400, 60])
def test_many_queries_as_one_by_one(routing: Routing, nodes: int) -> None:
    generator = np.random.default_rng(11)
    owner = np.append(generator.permutation(nodes), generator.integers(0, nodes, 400 - nodes))
    graph = build(owner, random_vectors(generator, nodes))
    bounds = np.sort(generator.integers(0, 401, (60, 2)), axis=1)
    starts = generator.integers(0, 400, 60)
    many = spread_many(graph, starts, bounds[:, 0], bounds[:, 1], routing)
    lengths: list[int] = []
    for number, (start, (low, high)) in enumerate(zip(starts.tolist(), bounds.tolist(), strict=True)):
        tree = spread(graph, start, low, high, routing)
        assert many.messages[number] == tree.messages
        lengths += tree.depth.tolist()
        if low == high:
            assert many.tree[number] == many.entry[number] == NONE
            continue
        member = many.member == many.tree[number]
        hops = many.hops[number]
        found = dict(zip(many.ranks[member].tolist(), (many.depth[member] + hops).tolist(), strict=True))
        assert found == dict(zip(tree.ranks.tolist(), tree.depth.tolist(), strict=True))
        assert found[int(many.entry[number])] == hops
    assert many.path_lengths().tolist() == np.bincount(lengths).tolist()


def test_queries_that_enter_at_one_key_share_a_tree() -> None:
    graph = build(np.arange(64), ideal_vectors(64))
    many = spread_many(graph, np.arange(64), 10, 30, "mrf")
    assert many.forwards.size == np.unique(many.entry).size < 64
    assert set(many.forwards.tolist()) == {19}
    assert int(many.children(64).max()) <= 2 * many.forwards.size


def test_mrf_forwards_at_most_twice() -> None:
    """Thesis 3.4.3: the paths are incomplete binary trees."""
    generator = np.random.default_rng(2)
    graph = build(np.arange(3000), random_vectors(generator, 3000))
    many = spread_many(graph, [1500], 0, 3000, "mrf")
    children = many.children(3000)
    assert children.max() == 2
    assert children.sum() == 2999


def test_no_queries() -> None:
    graph = build(np.arange(4), ideal_vectors(4))
    many = spread_many(graph, [], [], [], "sfb")
    assert many.messages.size == many.ranks.size == 0
    assert many.path_lengths().tolist() == [0]


@pytest.mark.parametrize(("start", "low", "high"), [(4, 0, 1), (-1, 0, 1), (0, -1, 1), (0, 2, 1), (0, 0, 5)])
def test_queries_outside_the_graph_are_refused(start: int, low: int, high: int) -> None:
    graph = build(np.arange(4), ideal_vectors(4))
    with pytest.raises(ValueError, match=r"ranks|range"):
        spread(graph, start, low, high, "sfb")
