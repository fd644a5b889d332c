"""Tables that nodes with several keys have grown by messages are those of the builder, as are its trees."""

from __future__ import annotations

import numpy as np

from ildm_bench.sim.several import compare, grow_several, independent
from ildm_bench.sim.tables import build, random_vectors


def test_grown_tables_of_nodes_with_several_keys_are_the_builders() -> None:
    graphs = grow_several(nodes=60, keys=4, seed=3)
    comparison = compare(graphs)
    assert comparison.keys == 60 * 5
    assert comparison.links > 4_000
    assert comparison.different == []


def test_the_builder_and_an_independent_one_agree_on_ten_thousand_keys() -> None:
    generator = np.random.default_rng(1)
    for per_node in (1, 5):
        nodes = 10_000 // per_node
        graph = build(generator.integers(0, nodes, 10_000), random_vectors(generator, nodes))
        for level, (left, right) in enumerate(independent(graph)):
            assert np.array_equal(graph.left[level], left)
            assert np.array_equal(graph.right[level], right)
