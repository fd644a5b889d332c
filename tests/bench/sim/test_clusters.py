"""Places and latencies; trees from start nodes: golden cases, properties, and those of the plugins."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ildm.api import MessageTrace
from ildm_algorithms.sg_tbps import SgTbps
from ildm_algorithms.stla import Stla
from ildm_algorithms.stla.plugin import FromStart
from ildm_algorithms.stla.start import shared_layers
from ildm_algorithms.tbps.keys.encoding import Segment
from ildm_bench.sim.clusters import (
    Hierarchy,
    Route,
    Search,
    from_heads,
    from_publisher,
    from_start,
    graph_of,
    rank_of,
    routed,
    searched,
    start_of,
    summed,
)
from ildm_bench.sim.experiments.stla.places import PUBLISHER, TOPIC, fastest, world_of
from ildm_bench.sim.routing import spread
from ildm_bench.sim.tables import NONE, build, ideal_vectors, random_vectors

TWO = Hierarchy((2,), (20.0, 0.2))
WORLD = Hierarchy((3, 4), (100.0, 20.0, 2.0))


def means(route: Route, hierarchy: Hierarchy) -> list[float]:
    """When each message arrives where no hop takes more or less than its mean, by rank."""
    hops = np.asarray(hierarchy.latency)[hierarchy.deepest(route.sender, route.receiver)]
    times = summed(route, hops)
    return [round(float(time), 6) for time in times[np.argsort(route.ranks)]]


# places -------------------------------------------------------------------------------------------


def test_clusters_in_clusters() -> None:
    assert WORLD.layers == 3
    assert [WORLD.clusters(layer) for layer in range(3)] == [1, 3, 12]
    places = np.array([0, 3, 4, 11])
    assert WORLD.cluster(places, 0).tolist() == [0, 0, 0, 0]
    assert WORLD.cluster(places, 1).tolist() == [0, 0, 1, 2]
    assert WORLD.deepest(places, np.array([0, 0, 3, 11])).tolist() == [2, 1, 0, 2]


def test_numbers_of_places_are_paths_of_clusters() -> None:
    paths = [(str(place // 4), str(place % 4)) for place in range(12)]
    assert sorted(paths) == paths
    for one, other in product(range(12), repeat=2):
        layers = WORLD.deepest(np.array([one]), np.array([other]))
        assert layers.tolist() == [shared_layers(paths[one], paths[other])]


def test_uniform_and_zipf() -> None:
    generator = np.random.default_rng(1)
    uniform = np.bincount(WORLD.draw(generator, 60_000, "uniform"), minlength=12)
    assert uniform == pytest.approx(5_000, rel=0.1)
    zipf = WORLD.draw(generator, 60_000, "Zipf")
    regions = np.sort(np.bincount(WORLD.cluster(zipf, 1)))[::-1]
    assert regions / 60_000 == pytest.approx([6 / 11, 3 / 11, 2 / 11], rel=0.05)
    sites = np.bincount(zipf, minlength=12).reshape(3, 4)
    for region in sites:
        weights = np.array([12, 6, 4, 3]) / 25
        assert np.sort(region)[::-1] / region.sum() == pytest.approx(weights, rel=0.1)
    assert zipf.tolist() != WORLD.draw(np.random.default_rng(1), 60_000, "Zipf").tolist()


def test_latencies_are_gaussian_around_those_of_the_layer() -> None:
    generator = np.random.default_rng(2)
    near = TWO.hops(generator, np.zeros(10_000, np.int64), np.zeros(10_000, np.int64))
    far = TWO.hops(generator, np.zeros(10_000, np.int64), np.ones(10_000, np.int64))
    assert (near.mean(), far.mean()) == (pytest.approx(0.2, rel=0.01), pytest.approx(20.0, rel=0.01))
    assert far.std() == pytest.approx(2.0, rel=0.05)
    assert near.min() >= 0


# golden cases -------------------------------------------------------------------------------------


def test_a_message_from_the_start_node() -> None:
    """Ideal vectors, ranks 0-3 in one cluster, 4-7 in the other with the publisher, between 5 and 6."""
    places = np.repeat([0, 1], 4)
    route = routed(spread(build(np.arange(8), ideal_vectors(8)), 5, 0, 8, "sfb"), places, 1)
    senders = {
        int(rank): None if parent == NONE else int(route.ranks[parent])
        for rank, parent in zip(route.ranks, route.parent, strict=True)
    }
    assert senders == {5: None, 7: 5, 6: 5, 1: 5, 3: 5, 4: 5, 0: 1, 2: 3}
    arrivals = means(route, TWO)
    assert arrivals == [20.4, 20.2, 20.4, 20.2, 0.4, 0.2, 0.4, 0.4]
    assert sum(arrivals) / 8 == pytest.approx(10.325)
    assert route.layers(TWO).tolist() == [2, 6]
    assert route.ranks.size == 8


def test_the_same_without_places_in_keys() -> None:
    """ST: even ranks in one cluster, odd ones in the other with the publisher, whose key is behind them."""
    places = np.arange(8) % 2
    route = routed(spread(build(np.arange(9), ideal_vectors(9)), 8, 0, 8, "sfb"), places, 1)
    arrivals = means(route, TWO)
    assert arrivals == [20.0, 40.0, 20.2, 40.2, 20.2, 40.2, 20.4, 40.4]
    assert sum(arrivals) / 8 == pytest.approx(30.2)


@pytest.mark.parametrize(("start", "cut"), [(0, [3, 2, 2, 1, 2, 1, 1]), (5, [1, 1, 2, 2, 3, 2, 1])])
def test_lemma_1(start: int, cut: list[int]) -> None:
    """Messages over each gap between eight ideal keys: M/2 log2 M in all."""
    tree = spread(build(np.arange(8), ideal_vectors(8)), start, 0, 8, "sfb")
    over = [0] * 7
    for rank, parent in zip(tree.ranks.tolist(), tree.parent.tolist(), strict=True):
        if parent != NONE:
            low, high = sorted((rank, int(tree.ranks[parent])))
            for gap in range(low, high):
                over[gap] += 1
    assert over == cut
    assert sum(over) == 8 * log2(8) / 2


# properties ---------------------------------------------------------------------------------------


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Hierarchy, list[int], int, int]:
    """Any hierarchy, places of subscribers in order, a publisher's, and a seed."""
    children = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    hierarchy = Hierarchy(children, (1.0,) * (len(children) + 1))
    place = st.integers(0, hierarchy.clusters(len(children)) - 1)
    places = sorted(draw(st.lists(place, min_size=1, max_size=40)))
    return hierarchy, places, draw(place), draw(st.integers(0, 99))


def is_run(clusters: list[int]) -> bool:
    """Whoever leaves a cluster does not come back."""
    changes = [at for at in range(1, len(clusters)) if clusters[at] != clusters[at - 1]]
    return len(changes) + 1 == len(set(clusters))


def check_paths(route: Route, hierarchy: Hierarchy, publisher: int | None) -> None:
    """Each subscriber once; on every path each cluster of each layer is one run."""
    assert sorted(route.ranks.tolist()) == list(range(route.ranks.size))
    for end in range(route.ranks.size):
        path, at = [], end
        while at != NONE:
            path.append(int(route.receiver[at]))
            at = int(route.parent[at])
        if publisher is not None:
            path.append(publisher)
        for layer in range(hierarchy.layers):
            assert is_run(hierarchy.cluster(np.array(path), layer).tolist())


@settings(max_examples=30, deadline=None)
@given(scenes())
def test_no_path_enters_a_cluster_twice(scene: tuple[Hierarchy, list[int], int, int]) -> None:
    hierarchy, places, publisher, seed = scene
    generator = np.random.default_rng(seed)
    check_paths(from_start(generator, hierarchy, np.array(places), publisher), hierarchy, publisher)
    # without a start node, and with one that others have come closer than
    check_paths(from_publisher(generator, np.array(places), publisher), hierarchy, None)
    graph = build(np.arange(len(places)), random_vectors(generator, len(places)))
    stale = spread(graph, seed % len(places), 0, len(places), "sfb")
    check_paths(routed(stale, np.array(places), publisher), hierarchy, None)


@settings(max_examples=60, deadline=None)
@given(scenes())
def test_a_search_leads_to_the_key_before_the_publishers_and_back(
    scene: tuple[Hierarchy, list[int], int, int],
) -> None:
    hierarchy, places, publisher, seed = scene
    generator = np.random.default_rng(seed)
    before = rank_of(places, publisher, generator)
    graph = graph_of(generator, len(places))
    senders, receivers = searched(graph, np.array(places), publisher, before)
    assert senders[0] == receivers[-1] == publisher
    assert senders[-1] == places[max(before - 1, 0)]
    assert senders[1:].tolist() == receivers[:-1].tolist()
    assert len(senders) <= len(places) + 1
    quick = from_start(generator, hierarchy, np.array(places), publisher, graph, before=before)
    slow = replace(quick, search=Search(senders, receivers))
    one, other = (route.times(hierarchy, np.random.default_rng(seed)) for route in (quick, slow))
    assert np.ptp(other - one) < 1e-6
    assert (other >= one).all()


@settings(max_examples=60, deadline=None)
@given(scenes())
def test_with_heads_each_cluster_gets_one_copy(scene: tuple[Hierarchy, list[int], int, int]) -> None:
    hierarchy, places, publisher, seed = scene
    generator = np.random.default_rng(seed)
    graph, before = graph_of(generator, len(places)), rank_of(places, publisher, generator)
    for layer in range(1, hierarchy.layers):
        route = from_heads(hierarchy, np.array(places), publisher, graph, before, layer)
        assert sorted(route.ranks.tolist()) == list(range(len(places)))
        assert (np.diff(route.depth) >= 0).all()
        inside = np.flatnonzero(route.parent != NONE)
        assert inside.size == len(places) - 1
        assert (route.depth[inside] == route.depth[route.parent[inside]] + 1).all()
        assert (route.receiver == np.array(places)[route.ranks]).all()
        assert (route.sender[inside] == route.receiver[route.parent[inside]]).all()
        one, other = (hierarchy.cluster(ends[inside], layer) for ends in (route.sender, route.receiver))
        assert int((one != other).sum()) == len(set(hierarchy.cluster(np.array(places), layer))) - 1


def test_places_follow_their_law_and_keep_the_order_of_draws() -> None:
    hierarchy = Hierarchy((3, 4), (100.0, 20.0, 2.0))
    draws = (np.arange(100_000) + 0.5) / 100_000
    even, flat = (hierarchy.places(draws, law) for law in ("uniform", "Zipf flat"))
    assert set(np.bincount(even).tolist()) == {8_333, 8_334}
    assert (np.diff(even) >= 0).all()
    assert (np.diff(flat) >= 0).all()
    weights = 1 / np.arange(1, 13)
    assert np.bincount(flat) == pytest.approx(100_000 * weights / weights.sum(), abs=1)
    assert hierarchy.places(np.array([np.nextafter(1.0, 0.0)]), "Zipf flat").tolist() == [11]


@settings(max_examples=60, deadline=None)
@given(scenes())
def test_no_subscriber_is_closer_than_the_start(scene: tuple[Hierarchy, list[int], int, int]) -> None:
    hierarchy, places, publisher, seed = scene
    start = start_of(hierarchy, np.array(places), publisher, np.random.default_rng(seed))
    shared = hierarchy.deepest(np.array(places), np.full(len(places), publisher))
    assert shared[start] == shared.max()


# the plugins --------------------------------------------------------------------------------------


def places_of(nodes: int, seed: int) -> dict[str, tuple[str, ...]]:
    """Names in any order, places drawn; the publisher among them."""
    generator = np.random.default_rng(seed)
    drawn = WORLD.draw(generator, nodes + 1, "Zipf").tolist()
    names = [PUBLISHER, *(f"n{number:02}" for number in generator.permutation(nodes))]
    return {name: (str(place // 4), str(place % 4)) for name, place in zip(names, drawn, strict=True)}


@pytest.mark.parametrize("algorithm", [Stla, SgTbps])
def test_trees_of_messages_are_those_of_tables(algorithm: type[Stla] | type[SgTbps]) -> None:
    """60 nodes that joined one by one; the tree as a trace has it, and as the arrays have it."""
    places = places_of(60, seed=4)
    world = world_of(algorithm, places, WORLD.latency, seed=4)
    segment = Segment.exact(TOPIC)
    locality = {name: place if algorithm is Stla else () for name, place in places.items()}
    order = sorted(
        (name for name in places if name != PUBLISHER),
        key=lambda name: segment.subscriber_key(name, locality[name]),
    )
    publisher = world[PUBLISHER].algorithm
    assert isinstance(publisher, Stla | SgTbps)
    vectors = np.array([world[name].algorithm.graph.vector for name in order], np.uint64)  # type: ignore[attr-defined]
    traces: list[MessageTrace] = []
    publisher.trace(TOPIC, traces.append)
    world.run(10.0)
    (trace,) = traces
    assert trace.trees[0].tree is not None
    below = [trace.trees[0].tree]
    found = {}
    for branch in below:
        below.extend(branch.children)
        found.update({child.node: branch.node for child in branch.children})
    # SG-TBPS's publisher has keys on both sides of the topic, so that it depends on chance where it enters
    (start,) = (order.index(name) for name, sender in found.items() if sender == PUBLISHER)
    if isinstance(publisher.spreading, FromStart):
        ref = publisher.spreading.starts[segment.code].ref
        assert ref is not None
        assert ref.peer.node_id == order[start]
        closest = max(shared_layers(places[PUBLISHER], places[name]) for name in order)
        assert shared_layers(places[PUBLISHER], places[order[start]]) == closest
    tree = spread(build(np.arange(60), vectors), start, 0, 60, "sfb")
    assert found == {
        order[rank]: PUBLISHER if parent == NONE else order[tree.ranks[parent]]
        for rank, parent in zip(tree.ranks.tolist(), tree.parent.tolist(), strict=True)
    }


def test_a_message_takes_the_time_of_its_hops() -> None:
    """Of the plugin, message by message: the least of a few is near the sum of the means."""
    places = places_of(12, seed=5)
    world = world_of(Stla, places, WORLD.latency, seed=5)
    found = fastest(world, 10)
    assert found.keys() == places.keys() - {PUBLISHER}
    near = min(found, key=lambda name: found[name])
    assert found[near] < 25  # in the publisher's region
    assert 80 < max(found.values()) < 500
