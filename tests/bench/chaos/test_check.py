"""The command, and outcomes that are added up."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ildm_bench.analysis.errors import CorruptLog, MissingLog
from ildm_bench.chaos.check import check_histories, checked
from ildm_bench.chaos.history import History
from ildm_bench.chaos.outcome import KEPT, OUTCOME, Outcome, added
from ildm_bench.cli import app
from tests.bench.chaos import making
from tests.bench.chaos.making import BASE, fault, got, history, published


def write(directory: Path, made: History) -> None:
    with History(made.run, directory) as copy:
        for event in made.events:
            copy.add(event)
        assert made.about is not None
        copy.finish(made.about)


WHOLE = history([*BASE, published(2.0), got(2.1)])
BROKEN = history([*BASE, published(2.0)], "2", seed=42)


def test_what_holds_ends_with_0(tmp_path: Path) -> None:
    write(tmp_path, WHOLE)
    done = CliRunner().invoke(app, ["chaos", "check", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "ildm: lost 0, twice 0" in done.output
    assert Outcome.read(tmp_path / OUTCOME).holds()


def test_what_does_not_hold_ends_with_1_and_names_the_message(tmp_path: Path) -> None:
    write(tmp_path / "x", WHOLE)
    write(tmp_path / "y", BROKEN)
    out = tmp_path / "out"
    done = CliRunner().invoke(
        app, ["chaos", "check", str(tmp_path / "x"), str(tmp_path / "y"), "--out", str(out)]
    )
    assert done.exit_code == 1
    assert "run 2 lost p/0 t at s/0 t=2.000 (seed 42)" in done.output
    assert "does not hold" in done.output
    assert Outcome.read(out / OUTCOME).runs == 2


def test_losses_of_a_bridge_do_not_count_against_us(tmp_path: Path) -> None:
    write(tmp_path, history([*BASE, published(2.0)], target="bridge"))
    done = CliRunner().invoke(app, ["chaos", "check", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "bridge: lost 1" in done.output


def test_earlier_outcomes_are_added(tmp_path: Path) -> None:
    write(tmp_path / "x", WHOLE)
    path = check_histories([BROKEN]).write(tmp_path / "z")
    outcome = checked([tmp_path / "x", path], "python", "", lambda _: None)
    assert (outcome.runs, outcome.total("lost")) == (2, 1)


def test_a_file_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    (bad := tmp_path / "bad.json").write_text("{}}")
    with pytest.raises(CorruptLog, match=r"bad\.json"):
        checked([bad], "python", "", lambda _: None)
    with pytest.raises(MissingLog, match=r"none\.json"):
        checked([tmp_path / "none.json"], "python", "", lambda _: None)


def test_adding_up_is_checking_together() -> None:
    made = [
        history(
            making.random_history(seed),
            f"r{seed}",
            engine="live",
            fault=random.Random(seed).choice(["kill", "none"]),
        )
        for seed in range(12)
    ]
    together = check_histories(made)
    parts = added(check_histories(made[first : first + 4]) for first in (0, 4, 8))
    for name in ("counted", "found", "findings", "durations"):
        assert sorted(map(plain, getattr(parts, name))) == sorted(map(plain, getattr(together, name)))
    assert parts.counters == together.counters
    assert len(parts.courses) == len(together.courses) == 1


def plain(part: object) -> str:
    """With sums rounded: their order may differ; counts by bucket in one order."""
    dumped = part.model_dump()  # type: ignore[attr-defined]
    if "counts" in dumped:
        dumped["counts"] = sorted(dumped["counts"].items())
    return str({key: round(value, 6) if isinstance(value, float) else value for key, value in dumped.items()})


def test_findings_are_bounded_counts_are_not() -> None:
    many = history([*BASE, *(published(2.0, seq) for seq in range(KEPT + 50))])
    outcome = check_histories([many])
    assert outcome.total("lost") == KEPT + 50
    assert sum(one.invariant == "lost" for one in outcome.findings) == KEPT
    twice = added([outcome, check_histories([BROKEN])])
    assert sum(one.invariant == "lost" for one in twice.findings) == KEPT


def test_time_to_recover_is_from_the_end_of_a_fault_to_the_first_message_across() -> None:
    rows = [
        *BASE,
        *fault(2.0, 3.0, "cut", "link/a/b"),
        *fault(2.0, 3.0, "pause", "node/c", "1"),
        *(row for seq, t in enumerate((1.5, 2.5, 4.0)) for row in published(t, seq)),
        got(1.6, 0),
        got(5.0, 1),
        got(5.1, 2),
    ]
    outcome = check_histories([history(rows)])
    (recovery,) = [each for each in outcome.durations if each.kind == "recovery"]
    assert (recovery.fault, recovery.messages, recovery.longest) == ("cut", 1, pytest.approx(2.0))
    assert recovery.quantile(0.5) == pytest.approx(2.0, rel=0.05)
    (latency,) = [each for each in outcome.durations if each.kind == "latency"]
    assert (latency.messages, latency.longest) == (3, pytest.approx(2.5))


def test_what_local_subscribers_get_says_nothing_about_latency_across() -> None:
    rows = [
        making.connected(0.0, site="a"),
        making.subscribed(0.1, site="a"),
        published(2.0),
        got(2.1, site="a"),
    ]
    assert check_histories([history(rows)]).durations == []


def test_the_course_of_the_live_run_with_the_most_faults() -> None:
    calm = history([*BASE, published(2.0), got(2.1)], "calm", engine="live")
    rows = [*BASE, published(2.0), got(2.5), *fault(3.0, 4.0), *fault(5.0, None, "cut", "link/a/b", "1")]
    rough = history(rows, "rough", engine="live", fault="cut+kill")
    outcome = check_histories([calm, rough, WHOLE])
    (course,) = outcome.courses
    assert (course.run, course.name, len(course.moments)) == ("rough", "pf", 1)
    assert course.moments[0].p50 == pytest.approx(0.5)
    assert [(each.kind, each.begins, each.ends) for each in course.troubles] == [
        ("kill", 3.0, 4.0),
        ("cut", 5.0, None),
    ]
