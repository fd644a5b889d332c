"""The ways of sending to a range that are there to compare with: T4.3."""

from __future__ import annotations

import numpy as np
import pytest

from ildm_bench.sim.experiments.thesis import t4_3
from ildm_bench.sim.tables import NONE, Graph, build, ideal_vectors, random_vectors


def graph_of(nodes: int, seed: int = 1) -> Graph:
    return build(np.arange(nodes), random_vectors(np.random.default_rng(seed), nodes))


def around(graph: Graph, rank: int) -> set[int]:
    return {int(side[rank]) for table in (graph.left, graph.right) for side in table} - {NONE}


def test_neighbours_are_those_of_the_tables_each_once() -> None:
    graph = graph_of(60)
    bounds, targets = t4_3.neighbours(graph)
    for rank in range(60):
        own = targets[bounds[rank] : bounds[rank + 1]].tolist()
        assert sorted(own) == sorted(around(graph, rank))


@pytest.mark.parametrize("start", [0, 17, 59])
def test_a_broadcast_takes_the_shortest_ways(start: int) -> None:
    graph = graph_of(60)
    depth, wave = {start: 0}, [start]
    for rank in wave:
        for near in sorted(around(graph, rank) - depth.keys()):
            depth[near] = depth[rank] + 1
            wave.append(near)
    found = t4_3.broadcast(graph, start)
    assert found.hops == pytest.approx(sum(depth.values()) / 60)
    assert found.most == max(depth.values())
    # Each node sends to all but the sender; the first has none.
    assert found.messages == sum(len(around(graph, rank)) for rank in range(60)) - 59


def test_lists_of_visited_nodes_save_messages_and_no_hops() -> None:
    graph = graph_of(200, seed=3)
    without, remembering = t4_3.broadcast(graph, 50), t4_3.remembering(graph, 50)
    assert (remembering.hops, remembering.most) == (without.hops, without.most)
    assert 199 < remembering.messages < without.messages


@pytest.mark.parametrize("way", t4_3.WAYS)
def test_two_nodes_take_one_message_whatever_the_way(way: str) -> None:
    graph = build(np.arange(2), ideal_vectors(2))
    assert t4_3.sent(graph, 1, way) == t4_3.Sent(0.5, 1, 1)


def test_the_sequential_way_goes_along_the_list_to_both_ends() -> None:
    assert t4_3.sequential(5, 1) == t4_3.Sent((1 + 0 + 1 + 2 + 3) / 5, 3, 4)
