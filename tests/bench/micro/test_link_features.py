"""What features of a link cost is measured beside a release that runs from its wheel."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from ildm_bench.micro.corpora import messages
from ildm_bench.micro.link_features import CASES, RELEASE, UNSET, Cost, cost_of, opened, row_of, the_wheel
from tests.support.brokers import Mosquitto


def test_a_case_is_held_against_another_round_by_round() -> None:
    results = {UNSET: [Cost(1, 1), Cost(4, 4)], "deflate": [Cost(2, 1), Cost(4, 8)]}
    assert row_of("deflate", results) == [3, 4.5, 7.5, 1.5, f"/ {UNSET}"]
    assert row_of(UNSET, results)[3:] == [None, ""]
    assert row_of("deflate", {"deflate": results["deflate"]})[3:] == [None, ""]


def test_each_case_is_held_against_one_that_is_there() -> None:
    assert {case.to for case in CASES.values()} <= {*CASES, ""}
    assert all(case.interpreted is CASES[case.to].interpreted for name, case in CASES.items() if case.to)


@pytest.mark.broker
def test_the_release_runs_from_its_wheel_and_both_ends_compress(mosquitto: Mosquitto, tmp_path: Path) -> None:
    with zipfile.ZipFile(the_wheel()) as wheel:
        wheel.extractall(tmp_path)
    with opened(CASES[RELEASE], tmp_path) as (_, _, nodes):
        versions = {node.admin.status()["version"] for node in nodes}
    assert versions == {the_wheel().name.split("-")[1]}
    with opened(CASES["deflate"], None) as (here, _, _):
        (row,) = here.admin.neighbors().items
    assert row["compression"]["codec"] == "deflate"
    cost = cost_of(CASES[UNSET], None, messages("readings", 200), 2000, 1)
    assert min(cost) > 0
