"""Converged tables of ildm_bench.sim.tables against the definition of a multi-key Skip Graph."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from ildm_bench.sim.tables import (
    NONE,
    Graph,
    build,
    distinct,
    ideal_vectors,
    level_count,
    neighbor_counts,
    random_vectors,
    table_sizes,
)
from tests.bench.sim.views import Layout, arrays, layouts, neighbors


def shown(graph: Graph) -> list[list[tuple[int, int]]]:
    rows = zip(graph.left.tolist(), graph.right.tolist(), strict=True)
    return [list(zip(left, right, strict=True)) for left, right in rows]


@given(layouts(most=1))
def test_one_key_per_node_as_defined(layout: Layout) -> None:
    graph = build(*arrays(layout))
    assert graph.single
    assert shown(graph) == neighbors(layout)


@given(layouts())
def test_several_keys_per_node_as_defined(layout: Layout) -> None:
    assert shown(build(*arrays(layout))) == neighbors(layout)


@given(layouts())
def test_table_sizes_leave_own_keys_out(layout: Layout) -> None:
    graph = build(*arrays(layout))
    entries = [0] * graph.nodes
    nodes: list[set[int]] = [set() for _ in range(graph.nodes)]
    for side in (graph.left, graph.right):
        for rank, other in ((r, int(o)) for row in side for r, o in enumerate(row) if o != NONE):
            mine, theirs = layout.owner[rank], layout.owner[other]
            if mine != theirs:
                entries[mine] += 1
                nodes[mine].add(theirs)
    assert table_sizes(graph).tolist() == entries
    assert neighbor_counts(graph).tolist() == [len(found) for found in nodes]


def test_neighbor_counts_in_several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(3)
    graph = build(generator.integers(0, 60, 300), random_vectors(generator, 60))
    whole = neighbor_counts(graph)
    monkeypatch.setattr("ildm_bench.sim.tables.CHUNK", 200)
    assert neighbor_counts(graph).tolist() == whole.tolist()


def test_lists_of_ideal_vectors_are_evenly_spaced() -> None:
    graph = build(np.arange(64), ideal_vectors(64))
    assert graph.levels == 6
    for level in range(6):
        ranks = np.arange(64)
        assert graph.right[level].tolist() == [r + 2**level if r + 2**level < 64 else NONE for r in ranks]
        assert graph.left[level].tolist() == [r - 2**level if r >= 2**level else NONE for r in ranks]


def test_equal_vectors_end_the_levels_at_the_last_digit() -> None:
    graph = build([0, 1, 2], np.array([5, 5, 2**63], np.uint64))
    assert graph.levels == 65
    assert graph.right[64].tolist() == [1, NONE, NONE]


def test_levels_can_be_limited() -> None:
    generator = np.random.default_rng(5)
    vectors = random_vectors(generator, 500)
    whole, low = build(np.arange(500), vectors), build(np.arange(500), vectors, max_levels=4)
    assert low.levels == 4
    assert (low.right == whole.right[:4]).all()
    assert (low.left == whole.left[:4]).all()


def test_keys_of_a_node_ascend() -> None:
    graph = build([2, 0, 2, 1, 2], np.array([1, 2, 3], np.uint64))
    assert graph.keys_of(2).tolist() == [0, 2, 4]
    assert graph.keys_of(0).tolist() == [1]
    assert not graph.single


@pytest.mark.parametrize(
    ("owner", "vectors"), [([0, 3], [1, 2]), ([-1], [1]), ([[0]], [1]), ([0], [[1]])], ids=str
)
def test_wrong_shapes_are_refused(owner: object, vectors: object) -> None:
    with pytest.raises(ValueError, match="owner"):
        build(owner, vectors)  # type: ignore[arg-type]


def test_no_levels_are_refused() -> None:
    with pytest.raises(ValueError, match="max_levels"):
        build([0], [1], max_levels=0)


def test_without_keys() -> None:
    graph = build([], random_vectors(np.random.default_rng(0), 3))
    assert (graph.levels, graph.keys, graph.nodes) == (1, 0, 3)
    assert table_sizes(graph).tolist() == [0, 0, 0]
    assert neighbor_counts(graph).tolist() == [0, 0, 0]
    assert level_count(graph.owner, graph.vectors) == 1


def test_distinct() -> None:
    assert distinct(np.array([3, 1, 3, 2, 1])).tolist() == [1, 2, 3]
    assert distinct(np.array([], np.int64)).tolist() == []
