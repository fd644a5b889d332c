"""Static flexible tables: against the live ones one by one, and against whole nodes in virtual time."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ildm.api import MessageTrace, Peer, TreeNode
from ildm_algorithms.atm_tbps.entries import Entries
from ildm_algorithms.atm_tbps.flexible import FlexibleGraph
from ildm_algorithms.overlay.keys import Ref
from ildm_algorithms.tbps.keys.encoding import Segment
from ildm_bench.sim.flexible import FlexibleTopic, shares
from ildm_bench.sim.tables import Graph, build, ideal_vectors, random_vectors
from tests.algorithms.tbps.world import Node, World


def refs_of(graph: Graph) -> list[Ref]:
    return [
        Ref(rank.to_bytes(2, "big"), Peer(str(owner), "x:1"), int(graph.vectors[owner]))
        for rank, owner in enumerate(graph.owner.tolist())
    ]


@pytest.mark.parametrize("seed", range(12))
def test_tables_are_those_that_learning_ends_with(seed: int) -> None:
    generator = np.random.default_rng(seed)
    nodes, low, high = 40, 30, 60
    owner = generator.integers(0, nodes, 100).astype(np.int32)
    owner[low : high + 1] = generator.permutation(nodes)[: high + 1 - low]
    graph = build(owner, random_vectors(generator, nodes))
    refs = refs_of(graph)
    for limit in (5, 14, 20, 27, 60):
        topic = FlexibleTopic(graph, low, high, limit)
        for rank in (low, low + 7, high - 1, high):
            sticky = {refs[other].key: refs[other] for other in topic.sticky(rank).tolist()}
            subscribers = refs[low:high]
            table = Entries(refs[rank], lambda key: True, limit, 2)
            Random(seed).shuffle(subscribers)
            for other in subscribers:
                if other.key not in sticky:
                    table.learn(other, sticky)
            inside = {other.key for other in subscribers if other.key in sticky}
            live = inside | {other.key for other in table.refs()}
            assert {refs[other].key for other in topic.entries(rank).tolist()} == live


LEVELS = st.lists(st.integers(0, 9), min_size=1, max_size=6)


@given(LEVELS, LEVELS, st.integers(0, 60))
def test_the_fullest_levels_give_first(fixed: list[int], wanted: list[int], room: int) -> None:
    levels = min(len(fixed), len(wanted))
    left = wanted[:levels]
    sizes = [fixed[level] + left[level] for level in range(levels)]
    while sum(left) > room:
        level = max((at for at in range(levels) if left[at]), key=lambda at: (sizes[at], -at))
        sizes[level] -= 1
        left[level] -= 1
    assert shares(np.array(fixed[:levels]), np.array(wanted[:levels]), room).tolist() == left


def test_a_publisher_right_of_eight_subscribers() -> None:
    graph = build(np.arange(9), ideal_vectors(9))
    tables = {limit: FlexibleTopic(graph, 0, 8, limit).entries(8).tolist() for limit in range(4, 9)}
    assert tables == {
        4: [0, 4, 6, 7],
        5: [0, 2, 4, 6, 7],
        6: [0, 2, 4, 5, 6, 7],
        7: [0, 2, 3, 4, 5, 6, 7],
        8: [*range(8)],
    }
    tree = FlexibleTopic(graph, 0, 8, 6).spread(8)
    assert {branch.rank: branch.depth for branch in tree} == {n: 2 if n in (1, 3) else 1 for n in range(8)}
    assert {branch.rank: branch.parent for branch in tree if branch.depth == 2} == {1: 2, 3: 4}


def everybody_knows(world: World, limit: int) -> dict[str, FlexibleGraph]:
    """Let each key hear of all subscribers of its topic."""
    graphs = {}
    for node in world.living.values():
        graph = node.algorithm.graph
        assert isinstance(graph, FlexibleGraph)
        graphs[node.node_id] = graph
    target = Segment.exact("t").subscribers
    refs = [
        Ref(key, graph.env.peer, graph.vector)
        for graph in graphs.values()
        for key in graph.keys()  # noqa: SIM118
        if key in target
    ]
    for graph in graphs.values():
        for key, entries in graph._known.tables.items():
            graph._known.tidy(key)
            for ref in refs:
                if entries.subscribes(ref.key):
                    graph._known.learn(key, ref)
            assert entries.size(graph._known.sticky(key)) <= max(limit, len(graph._known.sticky(key)))
    return graphs


def tree_of(world: World, publisher: Node) -> TreeNode:
    traces: list[MessageTrace] = []
    publisher.algorithm.trace("t", traces.append)
    world.run(1)
    (trace,) = traces
    assert trace.complete
    assert trace.trees[0].tree is not None
    return trace.trees[0].tree


def test_nodes_that_have_learned_all_spread_as_the_static_tables_do() -> None:
    """60 nodes, 50 of them subscribe; each node has one key of the topic and a default key at least."""
    limit = 18
    world = World("atm_tbps", 3, entries=limit, explore_interval=0.0)
    publisher, *others = world.start(*(f"n{number:02}" for number in range(60)))
    for node in others[:50]:
        node.subscribe("t")
    world.run(30)
    publisher.publish("t")
    world.run(30)
    graphs = everybody_knows(world, limit)
    owned = sorted((key, name) for name, graph in graphs.items() for key in graph.keys())  # noqa: SIM118
    names = sorted(graphs)
    static = build(
        np.array([names.index(name) for _, name in owned]),
        np.array([graphs[name].vector for name in names], np.uint64),
    )
    keys = [key for key, _ in owned]
    segment = Segment.exact("t")
    ranks = [rank for rank, key in enumerate(keys) if key in segment.subscribers]
    topic = FlexibleTopic(static, ranks[0], ranks[-1] + 1, limit)
    for rank in (*ranks, ranks[-1] + 1):
        graph = graphs[owned[rank][1]]
        known = {ref.key for ref in graph.learned(segment.subscribers)}
        known |= {key for key in graph._known.sticky(keys[rank]) if key in segment.subscribers}
        assert {keys[other] for other in topic.entries(rank).tolist()} == known
    tree = {branch.rank: branch for branch in topic.spread(ranks[-1] + 1)}
    waiting = [(tree_of(world, publisher), "")]
    found = {}
    for node, parent in waiting:
        found[node.node] = (parent, node.depth)
        waiting += [(child, node.node if node.depth else "") for child in node.children]
    assert found.pop(publisher.node_id) == ("", 0)
    assert found == {
        owned[rank][1]: (owned[branch.parent][1] if branch.parent >= 0 else "", branch.depth)
        for rank, branch in tree.items()
    }
    assert max(branch.depth for branch in tree.values()) > 1


def test_a_share_of_the_room_is_filled_by_subscribers_drawn_once() -> None:
    generator = np.random.default_rng(4)
    graph = build(np.arange(400), random_vectors(generator, 400))
    whole, half = FlexibleTopic(graph, 50, 250, 60), FlexibleTopic(graph, 50, 250, 60, learned=0.5, seed=3)
    for rank in (50, 149, 249):
        sticky = whole.sticky(rank)
        inside = ((sticky >= 50) & (sticky < 250)).sum()
        assert whole.entries(rank).size == inside + 60 - sticky.size
        assert half.entries(rank).size == inside + round(0.5 * (60 - sticky.size))
        assert half.entries(rank).tolist() == half.entries(rank).tolist()
    other = FlexibleTopic(graph, 50, 250, 60, learned=0.5, seed=4)
    assert any(half.entries(rank).tolist() != other.entries(rank).tolist() for rank in (50, 149, 249))
    assert sorted(branch.rank for branch in half.spread(250)) == list(range(50, 250))
