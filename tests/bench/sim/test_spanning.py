"""Trees over delays: their paths, and which is better than which."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ildm_bench.sim.experiments.beyond import trees
from ildm_bench.sim.spanning import (
    Delays,
    Edges,
    along,
    between_cities,
    chosen,
    from_median,
    improved,
    paths,
    shortest,
)

SQUARE = np.asarray([[0, 1, 9, 4], [1, 0, 2, 9], [9, 2, 0, 3], [4, 9, 3, 0]], np.float64)


@pytest.fixture(params=range(5))
def delays(request: pytest.FixtureRequest) -> Delays:
    return between_cities(np.random.default_rng(request.param), 7)


def every_tree(count: int) -> list[Edges]:
    """By their Pruefer sequences."""
    found = []
    for sequence in itertools.product(range(count), repeat=count - 2):
        degrees = [1 + sequence.count(site) for site in range(count)]
        edges = []
        for site in sequence:
            leaf = degrees.index(1)
            edges.append((leaf, site))
            degrees[leaf] -= 1
            degrees[site] -= 1
        edges.append(tuple(site for site in range(count) if degrees[site] == 1))
        found.append(edges)
    return found


def test_delays_along_a_tree_are_sums() -> None:
    assert along(SQUARE, [(0, 1), (1, 2)]).tolist() == [
        [0, 1, 3, np.inf],
        [1, 0, 2, np.inf],
        [3, 2, 0, np.inf],
        [np.inf, np.inf, np.inf, 0],
    ]
    found = paths(SQUARE, [(1, 2), (0, 1), (2, 3)])
    assert found == (pytest.approx((1 + 3 + 6 + 2 + 5 + 3) / 6), 6, pytest.approx(10 / 6), 2)


def test_the_tree_of_least_delay_has_the_least_sum(delays: Delays) -> None:
    ages = np.random.default_rng(1).random(delays.shape)
    least = min(sum(delays[edge] for edge in tree) for tree in every_tree(7))
    found = sum(delays[edge] for edge in chosen(delays, ages, by_delay=True))
    assert least - 1e-9 <= found <= least * 2**0.25, "within a step"
    oldest = chosen(delays, ages, by_delay=False)
    order = np.triu(ages.T, 1)  # of a pair that of its larger site
    assert sum(order[min(e), max(e)] for e in oldest) == pytest.approx(
        min(sum(order[min(e), max(e)] for e in tree) for tree in every_tree(7))
    )


def test_the_best_tree_found_is_near_the_best_there_is(delays: Delays) -> None:
    best = min(paths(delays, tree).mean for tree in every_tree(7))
    found = paths(delays, improved(delays, from_median(delays))).mean
    assert best - 1e-9 <= found <= 1.05 * best


def test_no_path_from_the_median_is_longer_than_the_shortest(delays: Delays) -> None:
    tree = from_median(delays)
    root = int(shortest(delays).sum(axis=1).argmin())
    assert along(delays, tree)[root] == pytest.approx(shortest(delays)[root])


def test_the_tree_of_least_delay_is_no_worse_than_half_again_the_median_s() -> None:
    rows = {}
    for row in trees.run("small", 1, lambda text: None)["rows"].to_pylist():
        rows.setdefault((row["world"], row["method"]), []).append(row["mean"])
    for world in (trees.TWELVE, trees.REGIONS):
        mean = {method: np.mean(rows[world, method]) for method in trees.METHODS}
        assert mean[trees.MESH] < mean[trees.BEST] <= mean[trees.DELAY] < mean[trees.AGE]
        assert mean[trees.DELAY] < 1.5 * mean[trees.MEDIAN]
