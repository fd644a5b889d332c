"""Verdicts on live results: bands over rounds, models of quotas, what is missing, the table in a page."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from ildm_bench.cli import app
from ildm_bench.measure.figures import Comparison, Group, Limit
from ildm_bench.measure.quiet import Busy, Disturbance
from ildm_bench.report import ReportError
from ildm_bench.report.verdicts import (
    STATEMENTS,
    Judged,
    Statement,
    fill_in,
    judge,
    markdown,
    read_all,
    verdicts,
)
from ildm_bench.results.suite import SUITE
from tests.bench.report import samples

ALONE = [1000.0, 1010.0, 990.0]
TIMES = {("A", "PF"): 0.9, ("A", "SF"): 0.91, ("none", "PF"): 3.0, ("none", "SF"): 3.1, ("low", "PF"): 3.3}
TIMES |= {("low", "SF"): 3.5, ("high", "PF"): 3.9, ("high", "SF"): 4.2, ("sum", "broker with 5 quotas"): 4.9}


def limit(label: str, egress: list[float]) -> Limit:
    return samples.limit(label, 2000.0).model_copy(update={"spread": {"egress": egress}})


def patterns(**changed: float) -> Comparison:
    """Egress in three rounds, as multiples of the broker alone; ``changed`` by ``GROUP_LABEL``."""
    groups = [Group(name="A", limits=[limit("broker alone", ALONE)])]
    for (group, label), times in TIMES.items():
        factor = changed.get(f"{group}_{label}", times)
        groups.append(Group(name=group, limits=[limit(label, [factor * each for each in ALONE])]))
    return Comparison(title="T", groups=groups)


def found(words: str) -> Statement:
    (statement,) = (each for each in STATEMENTS if words in each.words)
    return statement


def of(words: str, **comparisons: Comparison) -> Judged:
    return judge(found(words), {name.replace("_", "-"): each for name, each in comparisons.items()})


def both(words: str, one: Comparison, other: Comparison) -> str:
    return of(words, patterns=one, patterns_shared=other).verdict


def test_a_value_is_judged_by_the_interval_over_the_rounds() -> None:
    assert of("10 % throughput, PF", patterns=patterns()).verdict == "agree"
    assert of("10 % throughput, PF", patterns=patterns(A_PF=0.7)).verdict == "differs"
    swinging = patterns()
    swinging.groups[1] = Group(name="A", limits=[limit("PF", [700.0, 900.0, 1100.0])])
    assert of("10 % throughput, PF", patterns=swinging).verdict == "open"
    line = of("10 % throughput, PF", patterns=patterns())
    assert line.ours == "-10.0 % [-10.0, -10.0]"
    assert line.band.startswith("-12.5 to -7.5 %")


def test_models_of_quotas_that_disagree_leave_a_line_open() -> None:
    slow = patterns(high_SF=1.5)
    assert both("at least 2 times one broker, high", patterns(), patterns()) == "agree"
    assert both("at least 2 times one broker, high", patterns(), slow) == "open"
    assert both("at most 4.3", patterns(), patterns()) == "agree"
    assert both("at most 4.3", patterns(high_SF=6), patterns(high_SF=6)) == "differs"
    assert both("more than PF, high", patterns(), slow) == "open"
    assert both("more than PF, high", slow, slow) == "differs"


def test_one_model_alone_decides_nothing() -> None:
    line = of("at least 2 times one broker, high", patterns=patterns())
    assert line.verdict == "open"
    assert "patterns-shared: not measured" in line.ours
    assert of("at least 2 times one broker, high").verdict == "\N{EN DASH}"


def test_loss_is_no_matter_of_bands() -> None:
    lossless = patterns()
    runs = [each.figures for group in lossless.groups for each in group.limits]
    lost = sum(run.missing for run in runs if run is not None)
    line = of("nothing is lost", patterns=lossless, patterns_shared=lossless)
    assert line.verdict == ("agree" if not lost else "differs")
    assert f"{lost} lost" in line.ours
    run = samples.run("x", missing=3)
    lossy = lossless.model_copy(update={"runs": [run]})
    assert of("nothing is lost", patterns=lossy, patterns_shared=lossy).verdict == "differs"


def test_values_on_both_sides_of_a_band_are_open() -> None:
    def makes(own: float, default: float) -> Comparison:
        each = {"mosquitto": own, "mosquitto, default sockets": default, "activemq": 1.0}
        groups = [
            Group(name=name.partition(",")[0], limits=[limit(name, [factor * rate for rate in ALONE])])
            for name, factor in each.items()
        ]
        return Comparison(title="T", groups=groups)

    assert of("nearly as much", single=makes(0.7, 1.3)).verdict == "open"
    assert of("nearly as much", single=makes(0.7, 0.6)).verdict == "differs"
    assert of("nearly as much", single=makes(1.0, 1.02)).verdict == "agree"


def test_latency_at_a_part_of_the_limit_is_that_of_its_runs() -> None:
    def at(ms: dict[str, float]) -> Comparison:
        runs = [
            samples.run(label, spread={"latency.sent.mean": [1000 * value, 1010 * value, 990 * value]})
            for label, value in ms.items()
        ]
        return Comparison(title="T", runs=runs)

    quick = at({"A: PF": 10, "A: SF": 30, "low: PF": 9, "low: SF": 4})
    given = {"patterns_load": quick, "patterns_shared_load": quick}
    assert of("about 10 ms at 90 % of the limit, PF", **given).verdict == "agree"
    assert of("about 10 ms at 90 % of the limit, SF", **given).verdict == "differs"
    assert of("latency, low: PF above SF", **given).verdict == "agree"
    line = of("latency, high: PF above SF", **given)
    assert (line.verdict, "not measured (high: PF)" in line.ours) == ("\N{EN DASH}", True)


def test_what_others_disturbed_has_no_verdict() -> None:
    noise = Disturbance(others=0.9, who=[Busy(name="pytest", pid=7, cores=0.8)])
    void = patterns().model_copy(update={"runs": [samples.run("x", disturbance=noise)]})
    line = of("10 % throughput, PF", patterns=void)
    assert line == line._replace(verdict="\N{EN DASH}", ours="void: others disturbed it")


def test_each_statement_is_about_a_result_of_the_suite() -> None:
    known = {result.name for result in SUITE}
    assert {source for each in STATEMENTS for source in each.sources} <= known
    assert len({each.words for each in STATEMENTS}) == len(STATEMENTS)
    assert all(each.band.words for each in STATEMENTS)


def test_the_table_goes_into_its_place(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="has none of the results"):
        verdicts(tmp_path)
    (tmp_path / "patterns").mkdir()
    path = tmp_path / "patterns/comparison.json"
    path.write_text(patterns().model_dump_json())
    assert list(read_all(tmp_path)) == ["patterns"]
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- table: verdicts -->\nold\n<!-- end -->\nb\n")
    done = CliRunner().invoke(app, ["results", "verdicts", str(tmp_path), "--page", str(page)])
    assert done.exit_code == 0, done.output
    lines = verdicts(tmp_path)
    assert done.output == markdown(lines)
    assert page.read_text() == f"a\n<!-- table: verdicts -->\n{markdown(lines)}<!-- end -->\nb\n"
    assert len(lines) == len(STATEMENTS)
    page.write_text("nothing")
    with pytest.raises(ReportError, match="has no place for the verdicts"):
        fill_in(page, lines)
    path.write_text(samples.run("x").model_dump_json())
    with pytest.raises(ReportError, match="is no comparison"):
        verdicts(tmp_path)
