"""Verdicts of experiments are no kinder than the figures; of summaries made by hand, without a simulation."""

from __future__ import annotations

from typing import Any

import pytest

from ildm_bench.report.style import drawing
from ildm_bench.sim.experiments.atm_tbps import a11, a12
from ildm_bench.sim.experiments.atm_tbps.topic import ATM, METHODS
from ildm_bench.sim.experiments.framework import Line, Summary
from ildm_bench.sim.experiments.stla import s8, s13, thm4
from ildm_bench.sim.experiments.stla.scenarios import ST, STLA, WITHOUT
from ildm_bench.sim.experiments.thesis import t3_10, t3_11
from ildm_bench.sim.experiments.thesis.paths import PATTERNS, sizes
from ildm_bench.sim.experiments.topics import SCRIBE, SG


def row(mean: float, smallest: float | None = None, largest: float | None = None, **group: Any) -> Any:
    low, high = mean if smallest is None else smallest, mean if largest is None else largest
    return {"mean": mean, "smallest": low, "largest": high, **group}


def verdicts(lines: list[Line]) -> dict[str, str]:
    return {line.quantity: line.verdict for line in lines}


class TestWorstCases:
    """S8."""

    def summary(self, smallest: float, largest: float) -> Summary:
        ways = {ST: (2_200.0, 2_400.0), STLA: (smallest, largest), WITHOUT: (700.0, 900.0)}
        return {
            "worst": [
                row((low + high) / 2, low, high, method=method, distribution=distribution)
                for method, (low, high) in ways.items()
                for distribution in ("uniform", "Zipf")
            ],
            "flat": [{"repeat": repeat, ST: 2_300.0, STLA: smallest} for repeat in range(200)],
        }

    @pytest.mark.parametrize(
        ("span", "verdict"), [((551, 769), "differs"), ((551, 801), "agree"), ((810, 900), "differs")]
    )
    def test_agree_within_the_span_of_the_graphs_alone(self, span: tuple[int, int], verdict: str) -> None:
        lines = s8.compare(self.summary(*span), "full")
        assert verdicts(lines)["worst case of STLA, Zipf"] == verdict
        assert verdicts(lines)["worst case of ST, Zipf"] == "agree"
        assert all(line.why for line in lines if line.verdict == "differs")


class TestThreeSites:
    """S13."""

    def lines(self, stla: float, graphs: int = 200) -> list[Line]:
        ways = ((ST, 100.0), (STLA, stla))
        rows = [
            row(value, value - 5, value + 5, source=source, method=method, distribution=distribution)
            for source in (s13.TABLES, s13.PLUGIN)
            for method, value in ways
            for distribution in s13.SUBSCRIBERS
        ]
        each = [
            {
                "reading": reading.name,
                "method": method,
                "distribution": distribution,
                "completion": value + (repeat % 21 - 10) + (distribution == "uniform"),
            }
            for reading in s13.READINGS
            for method, value in ways
            for distribution in s13.SUBSCRIBERS
            for repeat in range(graphs)
        ]
        return s13.compare({"completion": rows, "each": each}, "full")

    @pytest.mark.parametrize(("stla", "verdict"), [(20.0, "differs"), (59.0, "agree"), (80.0, "differs")])
    def test_a_ratio_far_from_the_papers_differs_to_either_side(self, stla: float, verdict: str) -> None:
        found = verdicts(self.lines(stla))
        for distribution in s13.SUBSCRIBERS:
            name = f"completion of STLA over that of ST, {distribution}, "
            assert found[name + "as stated"] == verdict
            assert found[name + "A"] == {"agree": "agrees under"}.get(verdict, verdict)
            assert found[f"completion of STLA, {distribution}, B"] == found[name + "B"]

    def test_few_graphs_do_not_decide_about_one_run(self) -> None:
        found = verdicts(self.lines(59.0, graphs=199))
        assert found["completion of STLA, Zipf, A"] == "open"
        assert found["STLA: completion with Zipf before that with uniform, reading A"] == "agrees under"

    def test_the_panels_stand_in_the_order_of_the_other_figures(self) -> None:
        groups = [
            {"source": source, "method": method, "distribution": distribution}
            for source in (s13.TABLES, s13.PLUGIN)
            for method in s13.METHODS
            for distribution in s13.SUBSCRIBERS
        ]
        summary = {
            "completion": [row(20.0, **group) for group in groups],
            "latencies": [{"bucket": bucket, "count": 1, **group} for group in groups for bucket in (3, 9)],
        }
        with drawing():
            (picture,) = s13.draw(summary)
        assert [axes.get_title("left") for axes in picture.figure.axes] == ["uniform", "Zipf"]


@pytest.mark.parametrize(
    ("hops", "clusters", "digits", "verdict"),
    [(1.7, 7, 16.6, "check"), (8.8, 2_800, 16.6, "agree"), (17.0, 2_800, 16.6, "differs")],
)
def test_a_bound_that_no_path_can_pass_is_no_finding(
    hops: float, clusters: int, digits: float, verdict: str
) -> None:
    assert thm4.bounded(hops, clusters, digits) == verdict


def test_that_a_maximum_is_above_the_mean_is_no_finding() -> None:
    means = [row(1.0, method=method, subscribers=10) for method in METHODS]
    longer = [row(share, method=method, count=4) for method, share in ((SG, 1.0), (SCRIBE, 0.5))]
    found = verdicts(a11.compare({"means": means, "longer": longer}, "full"))
    assert found["SG-TBPS: the longest path is longer than the mean"] == "check"
    assert found["Scribe: the longest path is longer than the mean"] == "open"


@pytest.mark.parametrize(
    ("latency", "verdict"), [(100.0, "agree"), (40.0, "open"), (120.0, "differs"), (95.0, "agree")]
)
def test_faster_is_not_the_same_as_comparable(latency: float, verdict: str) -> None:
    found = {160: row(latency)}
    line = a12.for_many([found] * len(ATM), [{80: row(10.0), 160: row(100.0)}])
    assert line.verdict == verdict


@pytest.mark.parametrize(
    ("hops", "verdict"),
    [(16.7, "agrees under"), (18.7, "differs"), (15.3, "differs"), (15.5, "agrees under")],
)
def test_hops_of_scribe_are_those_of_the_tree(hops: float, verdict: str) -> None:
    rows = [
        row(mean, method=method, pattern=pattern.name, nodes=nodes)
        for method, mean in ((SCRIBE, hops), (t3_10.TREE, hops - 1), ("MRF", 3.0))
        for pattern in PATTERNS
        for nodes in sizes("full")
    ]
    (line,) = (line for line in t3_10.compare({"hops": rows}, "full") if line.paper == str(t3_10.PAPER))
    assert line.verdict == verdict
    assert line.why


def test_curves_are_compared_at_the_hops_where_they_are_farthest_apart() -> None:
    shares = {SG: [0.0, 0.5, 1.0], SCRIBE: [0.1, 0.2, 1.0], t3_11.TREE: [0.2, 0.4, 1.0]}
    assert t3_11.distance(shares) == pytest.approx(0.3)
    assert t3_11.distance(shares, t3_11.TREE) == pytest.approx(0.2)
    assert t3_11.below(shares) == pytest.approx(0.1)


@pytest.mark.parametrize(("farther", "verdict"), [(10, "agrees under"), (20, "differs")])
def test_curves_of_one_n_are_alike_and_those_of_the_others_apart(farther: int, verdict: str) -> None:
    """Of 100 pairs so many have more hops with Scribe at N = 10,000, and 30 at the others."""
    rows = []
    for nodes in sizes("full"):
        more = farther if nodes == 10_000 else 30
        for method in t3_11.METHODS:
            ends = ((5, 100 - more), (9, more)) if method == SCRIBE else ((5, 100),)
            of = {"nodes": nodes, "method": method}
            rows += [{**of, "bucket": bucket, "count": count} for bucket, count in ends]
    hops = [{"nodes": row["nodes"], "method": row["method"], "mean": 5.0} for row in rows]
    found = verdicts(t3_11.compare({"buckets": rows, "hops": hops}, "full"))
    assert found["the two curves"] == verdict
