"""The limit found again from where it was, the spread of several, and when a load is under the limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from ildm_bench.measure.figures import Limit, Point, RunFigures, bears, percentile
from ildm_bench.measure.limit_search import run_search
from ildm_bench.measure.next_limit import FURTHEST, NextLimit, intervals
from ildm_bench.measure.procedure import SearchConfig, SearchError, SearchHeader
from ildm_bench.measure.progress import Progress
from ildm_bench.measure.spread import middle_of, rounds_of, words
from tests.bench.measure.test_procedure import SCENARIO, above, point_of
from tests.bench.measure.test_procedure_run import Bench, console_of
from tests.bench.report import samples


def again(start: float, **config: object) -> NextLimit:
    found = SearchConfig.model_validate({"start_ms": start, "largest_ms": 64.0, **config})
    return NextLimit(SearchHeader.of(SCENARIO, ["127.0.0.1:1883"], found, "x"))


def conduct(search: NextLimit, kind: str, limit: float) -> tuple[Limit, list[float]]:
    asked = []
    while (interval := search.next()) is not None:
        asked.append(interval)
        search.record(point_of(interval, above(limit)(interval) if kind == "target" else kind))
    found = search.outcome
    assert found is not None
    return found, asked


@pytest.mark.parametrize(
    ("start", "limit", "found", "asked"),
    [
        (2.4, 2.35, 2.4, [2.4, 2.3]),
        (2.4, 2.15, 2.2, [2.4, 2.3, 2.2, 2.1]),
        (2.2, 2.35, 2.4, [2.2, 2.3, 2.4]),
        (2.0, 1.93, 1.95, [2.0, 1.95, 1.9]),
        (4.0, 4.15, 4.2, [4.0, 4.2]),
    ],
)
def test_neighbours_are_measured_until_one_holds_and_the_next_does_not(
    start: float, limit: float, found: float, asked: list[float]
) -> None:
    outcome, measured = conduct(again(start), "target", limit)
    assert measured == pytest.approx(asked)
    assert outcome.interval_ms == pytest.approx(found)
    assert outcome.bounded_by == "target"


def test_it_ends_where_nothing_holds_or_all_does() -> None:
    nothing, asked = conduct(again(2.0), "over", 0)
    assert (nothing.interval_ms, len(asked)) == (None, FURTHEST)
    assert nothing.notes
    everything, _ = conduct(again(1.1), "under", 0)
    assert (everything.interval_ms, everything.bounded_by) == (1.0, "schedule")
    search = again(2.0)
    search.record(point_of(2.0, "under"))
    search.record(point_of(1.95, "void"))
    assert search.outcome is not None
    assert search.outcome.bounded_by == "generator"


def test_only_what_is_due_is_taken() -> None:
    search = again(2.0)
    assert search.remaining == (1, FURTHEST)
    with pytest.raises(SearchError, match="at 7 ms: 2 ms is due"):
        search.record(point_of(7.0, "under"))
    assert conduct(search, "target", 1.97)[0].interval_ms == 2.0
    with pytest.raises(SearchError, match="none is due"):
        search.record(point_of(2.0, "under"))
    with pytest.raises(SearchError, match="from one that was found"):
        NextLimit(SearchHeader.of(SCENARIO, ["a:1"], SearchConfig()))


def test_its_intervals_are_those_of_a_search() -> None:
    found = [float(each) for each in intervals(SearchConfig(first_ms=0.5, largest_ms=2.0, divisions=4))]
    assert found == [0.5, 0.625, 0.75, 0.875, 1.0, 1.25, 1.5, 1.75, 2.0]


def test_it_goes_on_from_its_journal(tmp_path: Path) -> None:
    path, stopped, bench = tmp_path / "search-2.jsonl", Bench(2.15, stop_after=2), Bench(2.15)
    with pytest.raises(KeyboardInterrupt):
        run_search(again(2.4), stopped.measure, path, Progress(console_of()))
    limit = run_search(again(2.4), bench.measure, path, Progress(console_of()))
    assert stopped.asked + bench.asked == pytest.approx([2.4, 2.3, 2.2, 2.1])
    assert limit.interval_ms == 2.2


@pytest.mark.parametrize(
    ("ratio", "queued_seconds", "under"),
    [
        (1.0, 0.0, True),
        (0.99, 0.2, True),
        (0.9899, 0.0, False),
        (1.01, 0.0, True),
        (1.019, 0.0, False),  # a queue from before the window is worked off
        (1.0, 0.3, False),  # as long at its end as at its beginning
    ],
)
def test_a_backlog_is_not_taken_for_throughput(ratio: float, queued_seconds: float, under: bool) -> None:
    assert bears(ratio, queued_seconds) is under


@pytest.mark.parametrize(("share", "least"), [(0.5, 2), (0.95, 20), (0.99, 100), (0.999, 1000)])
def test_no_percentile_without_samples(share: float, least: int) -> None:
    assert percentile(share, least, 7.0) == 7.0
    assert percentile(share, least - 1, 7.0) is None


def limits(*intervals_ms: float | None) -> list[Limit]:
    def figures(place: int) -> RunFigures:
        return samples.run(f"round {place}", 1000.0 + place, 1)

    points = [Point(interval_ms=1, ingress=1, egress=1, ratio=1, verdict="ok", under_limit=True)]
    return [
        Limit(
            label="x",
            scenario="s",
            interval_ms=interval,
            bounded_by="target",
            points=points,
            figures=figures(place) if interval else None,
        )
        for place, interval in enumerate(intervals_ms)
    ]


def test_of_several_limits_the_one_in_the_middle_counts() -> None:
    found = middle_of(limits(2.4, 2.2, 2.3))
    assert found.interval_ms == 2.3
    assert found.figures is not None
    assert found.figures.label == "round 2"
    assert found.spread["interval_ms"] == [2.4, 2.2, 2.3]
    assert found.spread["ingress"] == [1000.0, 1001.0, 1002.0]
    assert len(found.spread["cpu.broker"]) == len(found.spread["latency.sent.p99"]) == 3
    assert len(found.points) == 3
    assert middle_of(limits(2.4)).spread == {}
    assert middle_of(limits(None)).interval_ms is None
    assert middle_of(limits(2.4, None, 2.2)).interval_ms == 2.2


def test_a_figure_that_a_round_lacks_has_no_spread() -> None:
    first = samples.run("a")
    latency = first.latency["latency.sent"].model_copy(update={"p999": None})
    second = first.model_copy(update={"latency": {**first.latency, "latency.sent": latency}})
    spread = rounds_of([first, second])
    assert "latency.sent.p999" not in spread
    assert len(spread["latency.sent.p99"]) == 2
    assert rounds_of([]) == {}


def test_spread_in_words() -> None:
    assert words(5.1, [4.9, 5.3, 5.1]) == "5.10 (4.90-5.30)"
    assert words(5100.0, [4900.0, 5300.0], ".1f", 1e-3) == "5.1 (4.9-5.3)"
    assert words(5.1, [5.1]) == words(5.1) == "5.10"
    assert words(None, [1.0, 2.0]) == ""
