"""Churn on a network that loses, doubles and reorders messages, small."""

from __future__ import annotations

import pytest

from ildm_bench.sim.storm import Storm


@pytest.mark.parametrize("seed", [4, 6, 13])
def test_traffic_stays_in_proportion_and_falls_back(seed: int) -> None:
    """Of the large one, figures stand in algorithms/ildm_algorithms/overlay/README.md."""
    storm = Storm(40, 40, 1, seed, loss=0.1, duplicate=0.05, publishes=4)
    storm.run(
        20.0, after=40.0
    )  # nodes that come back without state ask for what they had not got, for a while
    faulty, calm = storm.windows[:4], storm.windows[-1]
    assert sum(w.casts for w in faulty) <= 3 * sum(w.needed for w in faulty)
    assert calm.casts <= 1.1 * calm.perfect
    # where graphs have become one all ask what they have missed, up to five times
    assert calm.casts <= 2 * calm.needed
    assert storm.world.counters()["merges_told"] <= 3
    assert calm.parts <= storm.nodes
    due, got, twice = storm.due()
    assert got >= 0.99 * due > 0
    assert twice == 0
    gone, wrong = storm.suspicions()
    assert wrong <= 10
    assert gone > 0
