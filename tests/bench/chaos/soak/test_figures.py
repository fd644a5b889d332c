"""What a soak finds wrong, and what it does not."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ildm_bench.chaos.report.soak import write_soak
from ildm_bench.chaos.soak.figures import GAUGES, Sample, Soak, theil_sen
from tests.bench.report.pages import Page


def soak(
    grows: float = 0.0, gauge: str = "rss_bytes", noise: int = 0, kills: int = 0, **columns: object
) -> Soak:
    """Ten million events in 100 samples of a node that grows by so much an event."""
    chance, samples = random.Random(7), []
    for place in range(100):
        life = place * (kills + 1) // 100
        values = {"rss_bytes": 60 << 20, "objects": 200_000, "entries": 90_000}
        values |= {"descriptors": 40, "tasks": 12, "timers": 30}
        values[gauge] += int(grows * (place % (100 // (kills + 1))) * 100_000) + chance.randint(0, noise)
        sample = {"t": 5.0 * place, "events": 100_000 * place, "node": "a", "life": life}
        samples.append(Sample.model_validate(sample | values))
    known: dict[str, object] = {
        "title": "t",
        "machine": "m",
        "seconds": 500,
        "messages": 9_900_000,
        "received": 1,
    }
    known |= {"connects": 1, "cuts": 1, "kills": kills, "samples": samples, "quiet": True}
    classes = {"a": {"ildm.x.Entry": 10}}
    return Soak.model_validate(known | {"first": classes, "last": classes} | columns)


def test_what_stays_as_it_is_passes() -> None:
    assert soak().problems() == []


@pytest.mark.parametrize("gauge", GAUGES)
def test_what_grows_with_the_events_is_found(gauge: str) -> None:
    allowed, _ = GAUGES[gauge]
    (problem,) = soak(allowed * 3, gauge).problems()
    assert problem.startswith(f"node a: {gauge} grows by ")
    assert soak(allowed * 0.9, gauge).problems() == []


def test_noise_is_no_growth_but_does_not_hide_it() -> None:
    assert soak(noise=8 << 20).problems() == []
    assert len(soak(2.0, noise=2 << 20).problems()) == 1


def test_few_events_say_nothing_of_what_is_small() -> None:
    short = soak(2.0)
    few = [sample.model_copy(update={"events": sample.events // 1000}) for sample in soak(0.5).samples]
    assert short.growing()
    assert short.model_copy(update={"samples": few, "last": short.first}).slope(
        "a", "rss_bytes"
    ) == pytest.approx(500)
    quiet = [each.model_copy(update={"rss_bytes": (60 << 20) + each.events * 3}) for each in few]
    assert short.model_copy(update={"samples": quiet}).growing() == []


def test_a_node_that_is_killed_is_judged_by_its_last_life() -> None:
    assert len(soak(2.0, kills=3).life("a")) == 25
    assert soak(0.9, kills=3).growing() == []
    assert soak(20.0, kills=3).growing()
    assert soak(20.0, kills=30).slope("a", "rss_bytes") is None


def test_what_is_left_after_quiet_is_found() -> None:
    last = {"a": {"ildm.x.Entry": 200, "weakref.ReferenceType": 999}}
    assert soak(last=last).problems() == ["node a: 200 ildm.x.Entry are left, 10 were there before"]
    assert soak(last={"a": {"ildm.x.Entry": 32}}).problems() == []
    assert soak(last=last, kills=1).left() == []
    assert soak(last={"a": {"entries of x.y": 4_000}}).left() == []
    assert soak(last={"a": {"entries of x.y": 6_000}}).left() != []


def test_what_never_came_to_rest_and_what_went_wrong_is_told() -> None:
    assert soak(quiet=False, wrong=["broker/a ended by itself"]).problems() == [
        "something still waited after quiet",
        "broker/a ended by itself",
    ]


@given(st.floats(-5, 5), st.lists(st.integers(0, 1000), min_size=3, max_size=30, unique=True))
def test_theil_sen_is_the_slope_of_a_line_and_not_moved_by_a_few_points(slope: float, x: list[int]) -> None:
    y = [slope * each + 3 for each in x]
    assert theil_sen(x, y) == pytest.approx(slope, abs=1e-9)
    y[: len(y) // 5] = [1e9] * (len(y) // 5)
    assert theil_sen(x, y) == pytest.approx(slope, abs=1e-6)


def test_without_events_there_is_no_slope() -> None:
    assert theil_sen([5, 5], [1, 2]) == 0


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    made = soak(2.0, kills=2)
    assert Soak.read(made.write(tmp_path)) == made


@pytest.mark.parametrize(
    ("grows", "verdict"), [(0.0, "Nothing grows, nothing is left."), (2.0, "Something grows")]
)
def test_the_page(grows: float, verdict: str, tmp_path: Path) -> None:
    page = Page(write_soak(soak(grows), tmp_path, "ildm-bench soak").read_text(encoding="utf-8"))
    words = " ".join(text for _, text in page.words)
    assert verdict in words
    assert "Entries of tables" in words
    assert sum(tag == "svg" for tag, _ in page.elements) == 1
