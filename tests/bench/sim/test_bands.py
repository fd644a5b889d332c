"""Bands, intervals and what stands over several seeds."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from ildm_bench.sim.experiments import verdicts
from ildm_bench.sim.experiments.framework import Line, Verdict
from ildm_bench.sim.experiments.report import verdict_words
from ildm_bench.sim.experiments.seeds import page


def line(**changes: Any) -> Line:
    return Line(**({"quantity": "q", "paper": "1", "ours": "2", "verdict": "agree", "band": "b"} | changes))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"band": ""}, "without a band"),
        ({"band": "", "verdict": "check"}, "without a band"),
        ({"verdict": "agrees under"}, "no reading"),
        ({"reading": "r"}, "number of readings"),
        ({"tried": 2}, "number of readings"),
    ],
)
def test_no_verdict_without_what_it_was_held_against(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(ValidationError, match=match):
        line(**changes)
    assert line(verdict="beyond", band="").verdict == "beyond"


@pytest.mark.parametrize(
    ("band", "low", "high"),
    [
        (verdicts.around(16), 14.4, 17.6),
        (verdicts.around(-10), -11.0, -9.0),
        (verdicts.change(-34), -42.5, -25.5),
        (verdicts.change(2), 1.0, 3.0),
        (verdicts.change(-0.8), -1.8, 0.2),
        (verdicts.ratio(0.58), 0.53, 0.63),
    ],
)
def test_bands_of_values_changes_and_ratios(band: verdicts.Band, low: float, high: float) -> None:
    assert band[:2] == pytest.approx((low, high))


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [((14.5, 17.5), "agree"), ((14.0, 15.0), "open"), ((17.0, 18.0), "open"), ((18.0, 19.0), "differs")],
)
def test_an_interval_is_in_a_band_beside_it_or_both(interval: verdicts.Interval, verdict: Verdict) -> None:
    assert verdicts.around(16).holds(interval) == verdict


def test_a_bound_has_one_side() -> None:
    assert verdicts.at_least(20).holds((20.0, 900.0)) == "agree"
    assert verdicts.at_most(20).holds((20.5, 900.0)) == "differs"


def test_an_interval_of_the_mean_holds_the_mean_as_often_as_it_says() -> None:
    generator = np.random.default_rng(1)
    held = 0
    for count in (3, 10, 60):
        for _ in range(1_000):
            low, high = verdicts.mean_interval(generator.normal(5, 2, count).tolist())
            held += low <= 5 <= high
    assert held / 3_000 == pytest.approx(0.95, abs=0.015)
    assert verdicts.mean_interval([3.0]) == (3.0, 3.0)


def test_pairs_leave_what_both_share_out() -> None:
    ones, others = [10.0, 20.0, 31.0], [9.0, 19.0, 29.0]
    low, high = verdicts.paired_interval(ones, others)
    assert (low + high) / 2 == pytest.approx(statistics.fmean([1, 1, 2]))
    assert low > -1
    with pytest.raises(ValueError, match="zip"):
        verdicts.paired_interval(ones, others[:2])


def test_one_run_of_the_paper_is_among_many_graphs_or_undecided() -> None:
    graphs = [float(number) for number in range(200)]
    assert verdicts.central(graphs) == (10.0, 189.0)
    assert [verdicts.among(theirs, graphs) for theirs in (10, 9, 189, 190)] == [
        "agree",
        "differs",
        "agree",
        "differs",
    ]
    assert verdicts.among(100, graphs[1:]) == "open"


class TestOverSeeds:
    def test_what_a_seed_flips_is_open(self) -> None:
        assert verdicts.over_seeds([line(), line()]) == "agree"
        assert verdicts.over_seeds([line(), line(verdict="differs")]) == "open"

    @pytest.mark.parametrize(("values", "verdict"), [((15, 16, 17), "open"), ((15.9, 16, 16.1), "agree")])
    def test_values_are_judged_by_the_interval_over_the_seeds(
        self, values: tuple[float, ...], verdict: Verdict
    ) -> None:
        words = {"quantity": "q", "paper": "16", "ours": "about that"}
        lines = [verdicts.judged(verdicts.around(16), [value - 2, value + 2], **words) for value in values]
        assert {one.verdict for one in lines} == {"open"}
        assert verdicts.over_seeds(lines) == verdict

    def test_graphs_of_all_seeds_are_put_together(self) -> None:
        words = {"quantity": "q", "paper": "50", "ours": "0 to 99", "reading": "r", "tried": 2}
        lines = [verdicts.one_run(50, [float(number) for number in range(100)], **words) for _ in range(2)]
        assert [one.verdict for one in lines] == ["open", "open"]
        assert verdicts.over_seeds(lines) == "agrees under"

    def test_differences_in_pairs_are_put_together(self) -> None:
        words = {"quantity": "q", "paper": "yes", "ours": "a little"}
        lines = [verdicts.paired([-1.0, 2.0], **words) for _ in range(20)]
        assert {one.verdict for one in lines} == {"open"}
        assert verdicts.over_seeds(lines) == "agree"
        assert verdicts.paired([-1.0, -2.0, -1.5], **words).verdict == "differs"

    def test_a_page_needs_the_same_experiments_of_each_seed(self) -> None:
        with pytest.raises(ValueError, match="same experiments"):
            page({})


def test_a_reading_says_how_many_were_tried() -> None:
    under = line(verdict="agrees under", reading="tree", tried=1)
    failed = line(verdict="differs", reading="tree", tried=4)
    assert verdict_words(under) == "agrees under “tree”; tried 1 reading"
    assert verdict_words(failed) == "differs, under “tree”; tried 4 readings"
    assert verdict_words(line()) == "agree"
