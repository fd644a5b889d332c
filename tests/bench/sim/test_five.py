"""Five algorithms side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ildm_bench.sim.experiments import experiments
from ildm_bench.sim.experiments.beyond import five
from ildm_bench.sim.experiments.beyond.five_churn import Changing
from ildm_bench.sim.experiments.beyond.five_scribe import arrival
from ildm_bench.sim.experiments.beyond.five_sites import METHODS, NEAR, PROCESSING, SENDING, Sites
from ildm_bench.sim.experiments.framework import Setting, carry_out
from ildm_bench.sim.scribe import Scribe
from ildm_bench.sim.tables import random_vectors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = five.Size(9, (1, 4), 2, 1, 8, 5.0)
HOPS = {"SF, line": 8, "SF, star": 2, "SF, tree": 4, "ATM-TBPS": 1}
"""At most, among nine sites."""


def test_all_messages_arrive_over_as_many_hops_as_each_algorithm_allows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(five, "size", lambda scale: SMALL)
    setting = Setting("small", 1, tmp_path, "ildm-bench sim run five", "a machine", "2026-01-01")
    result = carry_out(experiments()["five"], setting, spark, lambda text: None)
    assert [line.quantity for line in result.lines if "NOT ALL" in line.why] == []
    assert {figure.name for figure in result.figures} == {
        "five_mean_ms",
        "five_worst_ms",
        "five_copies",
        "five_entries",
        "five_upkeep",
        "five_churn",
    }
    assert len(result.lines) == 2 * len(five.ALL) + len(five.ALL) + len(METHODS)


@pytest.mark.parametrize("method", HOPS)
def test_paths_are_as_long_as_the_shape_says(method: str) -> None:
    rows, site = five.measured(method, "three regions", SMALL, seed=2)
    assert max(row["hops"] for row in rows) <= HOPS[method]
    assert [row["delivered"] for row in rows] == [1.0, 1.0]
    assert all(row["messages"] >= row["subscribers"] for row in rows)
    assert all(row["crossing"] <= row["messages"] for row in rows)
    assert rows[-1]["crossing"] >= 1
    assert site["entries"] > 0


def test_with_stla_few_copies_cross_and_on_the_line_as_few_as_can() -> None:
    crossing = {
        method: five.measured(method, "three regions", five.Size(18, (17,), 2, 1, 0, 0.0), seed=2)[0][0][
            "crossing"
        ]
        for method in ("SF, line", "SG-TBPS", "STLA")
    }
    assert crossing["SF, line"] == 2 <= crossing["STLA"] < crossing["SG-TBPS"]


def test_the_sites_of_a_region_are_beside_each_other_on_the_line() -> None:
    sites = Sites("SF, line", "three regions", 9, seed=3)
    places = [sites.place(node.node_id) for node in sites.world.alive()]
    assert places == sorted(places)


def test_a_tree_without_its_middle_is_mended() -> None:
    sites = Sites("SF, star", "one place", 6, seed=4)
    middle, publisher, *others = sites.world.alive()
    for node in others:
        node.subscribe("t")
    sites.world.run(1.0)
    sites.world.kill(middle.node_id)
    sites.mend(middle.node_id)
    sites.world.run(20.0)
    publisher.publish("t")
    sites.world.run(1.0)
    assert [len(node.deliveries) for node in others] == [1] * 4


def test_the_same_changes_come_under_all_algorithms() -> None:
    found = [Changing(method, 8, seed=5, qos=0).run(5.0)["due"] for method in ("SF, line", "SG-TBPS")]
    assert found[0] == found[1] > 0


def test_scribe_messages_go_down_its_tree() -> None:
    generator = np.random.default_rng(6)
    scribe = Scribe(random_vectors(generator, 40))
    publisher, *subscribers = (int(one) for one in generator.choice(40, 21, replace=False))
    forest = scribe.forest(random_vectors(generator, 1), subscribers, np.zeros(20, np.int32))
    found = arrival(forest, publisher, [0] * 40, between=1.0)
    hops = np.bincount([found[node][1] for node in subscribers]).tolist()
    assert hops == forest.path_lengths([publisher], [0]).tolist()
    for node in subscribers:
        seconds, steps = found[node]
        assert steps * (NEAR + PROCESSING + SENDING) <= seconds + 1e-9
        assert seconds < steps * (NEAR + PROCESSING + 21 * SENDING) + 1e-9


@pytest.mark.parametrize("method", ["SF, line", "SF, star", "SF, tree"])
def test_trees_last_through_many_changes(method: str) -> None:
    found = Changing(method, 20, seed=6, qos=0).run(60.0)
    assert found["due"] > 500
    assert found["lost"] < 0.2
    assert found["twice"] == 0
