"""The five steps of thesis 5.5.5: properties of the search against oracles with a known limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ildm_bench.load.scenario import Scenario, Topic
from ildm_bench.measure.figures import Limit, Point
from ildm_bench.measure.procedure import (
    Search,
    SearchConfig,
    SearchError,
    SearchHeader,
    limit_point,
    standing_of,
)

Oracle = Callable[[float], str]

SCENARIO = Scenario(name="small", topics=[Topic(name="t", publishers=1, subscribers=2)])
FIRST = [0.1, 0.125, 0.3, 1.0, 1.7]


def search_of(**config: object) -> Search:
    return Search(SearchHeader.of(SCENARIO, ["127.0.0.1:1883"], SearchConfig(**config), "x"))


def point_of(interval: float, kind: str) -> Point:
    verdict = kind if kind in {"void", "refused"} else "ok"
    ratio = 1.0 if kind == "under" else 0.5
    rate = 1000 / interval
    return Point(
        interval_ms=interval,
        ingress=rate,
        egress=rate * 2 * ratio,
        ratio=ratio,
        verdict=verdict,
        under_limit=kind == "under",
    )


def above(limit: float) -> Oracle:
    return lambda interval: "under" if interval >= limit else "over"


def conduct(search: Search, oracle: Oracle) -> Limit:
    while (interval := search.next()) is not None:
        assert search.outcome is None
        search.record(point_of(interval, oracle(interval)))
    assert search.outcome is not None
    return search.outcome


def measured(limit: Limit) -> list[float]:
    return [point.interval_ms for point in limit.points]


def ladder(first: float, largest: float) -> list[Fraction]:
    rungs = [Fraction(str(first))]
    while rungs[-1] * 2 <= Fraction(str(largest)):
        rungs.append(rungs[-1] * 2)
    return rungs


def grid(first: float, largest: float, divisions: int = 20) -> list[float]:
    """All intervals that Steps 1 and 4 can come to, computed another way than the search does."""
    rungs = ladder(first, largest)
    every = {
        float(low + low * Fraction(part, divisions)) for low in rungs[:-1] for part in range(divisions + 1)
    }
    return sorted(every | {float(rung) for rung in rungs})


@st.composite
def monotone(draw: st.DrawFn) -> tuple[dict[str, float], float]:
    """Bounds of a search, and a hidden limit within, below or above them, also exactly on the grid."""
    first = draw(st.sampled_from(FIRST))
    largest = first * draw(st.sampled_from([1, 2, 3, 16, 1024]))
    free = st.floats(first / 4, largest * 4, allow_nan=False)
    limit = draw(st.one_of(free, st.sampled_from(grid(first, largest))))
    return {"first_ms": first, "largest_ms": largest}, limit


def test_thesis_example() -> None:
    limit = conduct(search_of(full=True, largest_ms=16), above(2.35))
    halves = [f"{2 + part / 10:.1f}" for part in range(1, 20)]
    assert [f"{at:.1f}" for at in measured(limit)] == ["1.0", "2.0", "4.0", *halves]
    assert measured(limit)[3:] == [float(text) for text in halves], "decimals without drift"
    assert limit.interval_ms == 2.4
    assert [point.step for point in limit.points] == [1] * 3 + [4] * 19
    assert (limit.bounded_by, limit.notes, limit.label, limit.scenario) == ("target", [], "x", "small")


def test_bisection_measures_a_quarter() -> None:
    limit = conduct(search_of(largest_ms=16), above(2.35))
    assert measured(limit) == [1, 2, 4, 3, 2.5, 2.2, 2.3, 2.4]
    assert limit.interval_ms == 2.4


@given(monotone(), st.floats(1e-3, 1e6))
def test_quick_is_full_from_any_guess(case: tuple[dict[str, float], float], guess: float) -> None:
    bounds, true = case
    full = conduct(search_of(**bounds, full=True, start_ms=guess), above(true))
    quick = conduct(search_of(**bounds), above(true))
    guessed = conduct(search_of(**bounds, start_ms=guess), above(true))
    for other in (quick, guessed):
        assert (other.interval_ms, other.bounded_by) == (full.interval_ms, full.bounded_by)
        assert len(other.points) <= len(full.points) or not any(p.step == 4 for p in full.points)
        assert len(set(measured(other))) == len(other.points)


@given(monotone(), st.booleans())
def test_answer_is_the_smallest_on_the_grid_within_five_percent(
    case: tuple[dict[str, float], float], full: bool
) -> None:
    bounds, true = case
    limit = conduct(search_of(**bounds, full=full), above(true))
    every = grid(bounds["first_ms"], bounds["largest_ms"])
    holding = [at for at in every if at >= true]
    assert limit.interval_ms == (holding[0] if holding else None)
    if limit.interval_ms is None:
        assert limit.bounded_by == "target"
        assert limit_point(limit) is None
    elif limit.interval_ms == every[0]:
        assert limit.bounded_by == "schedule"
    else:
        assert limit.bounded_by == "target"
        smaller = every[every.index(limit.interval_ms) - 1]
        assert smaller in measured(limit)
        assert smaller < true <= limit.interval_ms
        # Rates are inverse to intervals: true limit over found limit.
        assert limit.interval_ms / true <= 1.05 * (1 + 1e-12)


@given(st.integers(2, 50), st.floats(1.001, 900))
def test_error_bound_is_one_division(divisions: int, true: float) -> None:
    limit = conduct(search_of(divisions=divisions), above(true))
    assert limit.interval_ms is not None
    assert limit.interval_ms / true <= 1 + 1 / divisions + 1e-12


@given(monotone(), st.one_of(st.none(), st.floats(1e-2, 1e4)))
def test_quick_number_of_measurements(case: tuple[dict[str, float], float], guess: float | None) -> None:
    bounds, true = case
    limit = conduct(search_of(**bounds, start_ms=guess), above(true))
    steps = Counter(point.step for point in limit.points)
    assert steps[1] <= len(ladder(bounds["first_ms"], bounds["largest_ms"]))
    assert steps[4] in ((4, 5) if limit.bounded_by == "target" and limit.interval_ms else (0,))


@given(monotone(), st.booleans(), st.integers(1, 4), st.one_of(st.none(), st.floats(1e-2, 1e4)))
def test_remaining_bounds_what_comes(
    case: tuple[dict[str, float], float], full: bool, repeat: int, guess: float | None
) -> None:
    bounds, true = case
    search = search_of(**bounds, full=full, repeat=repeat, start_ms=guess)
    bars = []
    while (interval := search.next()) is not None:
        bars.append(search.remaining)
        search.record(point_of(interval, above(true)(interval)))
    assert search.remaining == (0, 0)
    for left, (least, most) in zip(range(len(bars), 0, -1), bars, strict=True):
        assert 1 <= least <= left <= most
    assert all(later[1] < sooner[1] and later[0] >= sooner[0] - 1 for sooner, later in pairwise(bars))


@given(st.data(), st.booleans(), st.integers(1, 3))
def test_remaining_of_any_oracle(data: st.DataObject, full: bool, repeat: int) -> None:
    """Whatever is measured the bounds hold, but for a quick search with repeats that disagree."""
    search = search_of(largest_ms=16, full=full, repeat=repeat if full else 1)
    bars = []
    while (interval := search.next()) is not None:
        bars.append(search.remaining)
        search.record(point_of(interval, data.draw(st.sampled_from(["under", "over", "void", "refused"]))))
    for left, (least, most) in zip(range(len(bars), 0, -1), bars, strict=True):
        assert 1 <= least <= left <= most


@given(st.randoms(use_true_random=False))
def test_full_takes_step_five_literally(random: object) -> None:
    kinds: dict[float, str] = {}

    def oracle(interval: float) -> str:
        return kinds.setdefault(interval, random.choice(["under", "over", "void"]))  # type: ignore[attr-defined]

    limit = conduct(search_of(largest_ms=64, full=True), oracle)
    rungs = [at for at in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0) if kinds.get(at) == "under"]
    assert len(rungs) <= 1, "Step 1 ends at the first that holds"
    if not rungs or rungs == [1.0]:
        assert limit.interval_ms == (rungs[0] if rungs else None)
        return
    parts = [float(Fraction(rungs[0]) * (20 + part) / 40) for part in range(21)]
    assert set(parts) <= set(measured(limit))
    best = min(at for at in parts if kinds[at] == "under")
    assert limit.interval_ms == best
    before = kinds[parts[parts.index(best) - 1]]
    assert limit.bounded_by == ("generator" if before == "void" else "target")
    contradicted = any(kinds[at] == "over" for at in parts if at > best)
    assert any("not monotone" in note for note in limit.notes) == contradicted


@given(monotone(), st.floats(0.05, 4000), st.booleans(), st.one_of(st.none(), st.floats(1e-2, 1e4)))
def test_generator_too_slow(
    case: tuple[dict[str, float], float], slow: float, full: bool, guess: float | None
) -> None:
    bounds, true = case

    def oracle(interval: float) -> str:
        return "void" if interval < slow else above(true)(interval)

    limit = conduct(search_of(**bounds, full=full, start_ms=guess), oracle)
    every = grid(bounds["first_ms"], bounds["largest_ms"])
    holding = [at for at in every if oracle(at) == "under"]
    assert limit.interval_ms == (holding[0] if holding else None)
    before = every[every.index(holding[0]) - 1] if holding else every[-1]
    if holding[:1] == every[:1]:
        assert limit.bounded_by == "schedule"
    else:
        assert limit.bounded_by == ("generator" if oracle(before) == "void" else "target")
        assert any("generator missed" in note for note in limit.notes) == (oracle(before) == "void")


def test_void_that_would_hold_does_not_count() -> None:
    search = search_of()
    lucky = point_of(1.0, "under").model_copy(update={"verdict": "void"})
    assert standing_of(lucky) == "void"
    search.record(lucky)
    assert search.next() == 2.0


def test_refused_is_over() -> None:
    refused = point_of(1.0, "under").model_copy(update={"verdict": "refused"})
    assert standing_of(refused) == "over"
    limit = conduct(search_of(largest_ms=8), lambda at: "under" if at >= 4 else "refused")
    assert (limit.interval_ms, limit.bounded_by) == (4.0, "target")


@given(st.data(), st.integers(1, 7), st.booleans(), st.floats(0.5, 20))
def test_noise(data: st.DataObject, repeat: int, full: bool, guess: float) -> None:
    """Whatever the repeats say: the answer holds by majority and its smaller neighbour does not."""
    search = search_of(largest_ms=8, repeat=repeat, full=full, start_ms=guess)
    seen: dict[float, list[bool]] = {}
    while (interval := search.next()) is not None:
        held = data.draw(st.booleans())
        seen.setdefault(interval, []).append(held)
        search.record(point_of(interval, "under" if held else "over"))
    limit = search.outcome
    assert limit is not None
    assert max(map(len, seen.values())) <= repeat
    every = grid(1.0, 8)
    if limit.interval_ms is None:
        assert sum(not held for held in seen[8.0]) * 2 >= repeat
    else:
        held_at = seen[limit.interval_ms]
        assert sum(held_at) * 2 > repeat
        point = limit_point(limit)
        assert point is not None
        assert point.under_limit
        assert point.interval_ms == limit.interval_ms
    if limit.interval_ms not in (None, 1.0):
        smaller = seen[every[every.index(limit.interval_ms) - 1]]
        assert sum(not held for held in smaller) * 2 >= repeat
    split = {at for at, outcomes in seen.items() if len(set(outcomes)) > 1}
    assert len([note for note in limit.notes if note.startswith("repeats")]) == len(split)


def test_repeats_outvote_one_lucky_measurement() -> None:
    """The limit is 5 ms, and the first measurement at 4 ms holds by luck."""
    tries: Counter[float] = Counter()

    def oracle(interval: float) -> str:
        tries[interval] += 1
        return "under" if interval >= 5 or (interval, tries[interval]) == (4.0, 1) else "over"

    limit = conduct(search_of(repeat=3), oracle)
    assert limit.interval_ms == 5.0
    assert tries[4.0] == 3
    assert tries[8.0] == 1, "only what decides is repeated"
    assert tries[5.0] == 2
    assert limit.notes == ["repeats at 4 ms differ: under 1, over 2"]


def test_repeats_void_and_over_together_are_no_verdict_on_the_target() -> None:
    kinds = {1.0: iter(["void", "over"])}
    limit = conduct(search_of(largest_ms=1, repeat=3), lambda at: next(kinds[at]))
    assert (limit.interval_ms, limit.bounded_by) == (None, "generator")
    assert limit.notes[0] == "no interval up to 1 ms is under the limit"


def test_run_at_the_limit_is_the_median_of_those_that_held() -> None:
    search = search_of(largest_ms=1, repeat=5)
    for number, egress in enumerate([10.0, 30.0, 20.0]):
        search.record(point_of(1.0, "under").model_copy(update={"egress": egress, "run": f"r{number}"}))
    limit = search.outcome
    assert limit is not None
    assert limit.bounded_by == "schedule"
    chosen = limit_point(limit)
    assert chosen is not None
    assert chosen.run == "r2"


@given(monotone(), st.booleans(), st.integers(1, 3), st.data())
def test_points_of_any_prefix_continue(
    case: tuple[dict[str, float], float], full: bool, repeat: int, data: st.DataObject
) -> None:
    bounds, true = case
    config = {**bounds, "full": full, "repeat": repeat}
    whole = conduct(search_of(**config), above(true))
    cut = data.draw(st.integers(0, len(whole.points)))
    resumed = search_of(**config)
    for point in whole.points[:cut]:
        # Through JSON, as the journal does it.
        resumed.record(Point.model_validate_json(point.model_dump_json()))
    assert conduct(resumed, above(true)) == whole


def test_only_what_is_due_is_recorded() -> None:
    search = search_of(largest_ms=1)
    with pytest.raises(SearchError, match=r"at 3 ms: 1 ms is due"):
        search.record(point_of(3.0, "under"))
    assert search.points == ()
    search.record(point_of(1.0, "under"))
    with pytest.raises(SearchError, match="none is due"):
        search.record(point_of(1.0, "under"))


@pytest.mark.parametrize(
    "config",
    [
        {"first_ms": 0},
        {"first_ms": 4, "largest_ms": 2},
        {"largest_ms": float("inf")},
        {"divisions": 1},
        {"repeat": 0},
        {"start_ms": -1},
        {"steps": 3},
    ],
)
def test_config_that_makes_no_search_is_refused(config: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        SearchConfig(**config)


def test_header_tells_loads_apart() -> None:
    header = SearchHeader.of(SCENARIO, ["a:1"])
    same = SCENARIO.model_copy(update={"interval": 7.0, "description": "other words"})
    assert SearchHeader.of(same, ["a:1"], label="renamed").differences(header) == []
    longer = SearchHeader.of(SCENARIO.shortened(10), ["a:2"], SearchConfig(full=True))
    assert [line.split(":")[0] for line in longer.differences(header)] == [
        "scenario_hash",
        "targets",
        "config.full",
    ]


def test_full_search_ignores_the_guess() -> None:
    limit = conduct(search_of(full=True, start_ms=64, largest_ms=64), above(2.35))
    assert measured(limit)[:3] == [1.0, 2.0, 4.0]


def test_walk_down_ends_at_what_the_generator_cannot_send() -> None:
    limit = conduct(search_of(start_ms=17), lambda at: "under" if at >= 3 else "void")
    assert measured(limit) == [16, 8, 4, 2, 3, 2.5, 2.7, 2.8, 2.9]
    assert (limit.interval_ms, limit.bounded_by) == (3.0, "generator")
    assert limit.notes == ["the load generator missed its target at 2.9 ms: the limit may be higher"]
