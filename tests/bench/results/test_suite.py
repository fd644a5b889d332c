"""All results in turn: quiet or void, resumed, summed up, and their tables in a page."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from ildm_bench.cli import app
from ildm_bench.measure.figures import Comparison
from ildm_bench.measure.quiet import TRIES, Busy, Disturbance, Gate, QuietError
from ildm_bench.report import ReportError
from ildm_bench.results import common, suite
from ildm_bench.results.common import QUICK, Bench, client_figures, sampled
from ildm_bench.results.suite import SUITE, Result, chosen_of, fill_in, produce, run_all, slug
from ildm_bench.testbed.spec import TestbedSpec
from tests.bench.report import samples
from tests.support.brokers import require_broker

NOISE = Disturbance(others=0.9, who=[Busy(name="pytest", pid=7, cores=0.8)])


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """No waiting for the machine that the tests run on; what it said."""
    said: list[str] = []
    monkeypatch.setattr("ildm_bench.measure.quiet.wait_until_quiet", lambda *_: said.append("waited"))
    return said


def bench_in(out: Path, noisy: bool = False) -> Bench:
    return Bench(out, QUICK, Console(quiet=True), Gate(lambda _: None, noisy=noisy))


def comparison(*runs: Any) -> Comparison:
    return Comparison(title="T", runs=list(runs), table=[["", "k/s"], ["way", "1"]])


def made(monkeypatch: pytest.MonkeyPatch, **results: Any) -> list[Result]:
    """A suite of results that are made up, or raise; counts how often each was measured."""

    def run(self: Result, bench: Bench, command: str) -> Comparison:
        measured.append(self.name)
        found = results[self.name]
        if isinstance(found, Exception):
            raise found
        assert isinstance(found, Comparison)
        return found.model_copy(update={"command": command})

    measured: list[str] = []
    monkeypatch.setattr(Result, "run", run)
    monkeypatch.setattr(suite, "measured", measured, raising=False)
    return [Result(name, name, 1, comparison) for name in results]


def test_a_disturbed_measurement_is_repeated(quiet: list[str]) -> None:
    found, said = iter([NOISE, NOISE, Disturbance(others=0.1)]), []
    gate = Gate(said.append)
    assert gate.measure("a way", lambda: next(found), lambda each: each).others == 0.1
    assert quiet == ["waited"] * 3
    assert len(said) == 2
    assert said[0].startswith("a way: void, other programs used 0.90")
    with pytest.raises(QuietError, match=rf"a way: void {TRIES} times, .*pytest \(7\)"):
        gate.measure("a way", lambda: NOISE, lambda each: each)
    hint = Gate(said.append, noisy=True)
    assert hint.measure("a way", lambda: NOISE, lambda each: each) is NOISE


def test_what_clients_of_this_process_use_is_not_anothers(quiet: list[str]) -> None:
    gate = Gate(lambda _: None, noisy=True)
    value, seen = gate.watched("clients", lambda: sum(range(100_000)))
    assert value == 4999950000
    assert os.getpid() not in [each.pid for each in seen.who]


def test_all_go_on_where_one_fails_or_is_void(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet: list[str]
) -> None:
    results = made(
        monkeypatch,
        good=comparison(samples.run("way")),
        noisy=comparison(samples.run("way", disturbance=NOISE)),
        broken=QuietError("the machine has not become quiet"),
        last=comparison(samples.run("way")),
    )
    bench = bench_in(tmp_path)
    summary = run_all(bench, results, full=False, again=False)
    states = {each.name: each.state for each in summary.outcomes}
    assert states == {"good": "valid", "noisy": "failed", "broken": "failed", "last": "valid"}
    assert not summary.valid
    assert "void" in summary.outcomes[1].reason
    assert [line.split()[:2] for line in summary.lines()][2] == ["broken", "failed"]
    stored = json.loads((tmp_path / "summary.json").read_text())
    assert [each["name"] for each in stored["outcomes"]] == list(states)
    assert (tmp_path / "good/report.html").exists()
    assert not (tmp_path / "noisy/report.html").exists()
    hint = run_all(bench_in(tmp_path / "hint", noisy=True), results[:2], full=False, again=False)
    assert [each.state for each in hint.outcomes] == ["valid", "void"]
    assert "Void: some of this" in (tmp_path / "hint/noisy/report.html").read_text()


def test_what_was_found_is_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (result,) = made(monkeypatch, good=comparison(samples.run("way")))
    for again in (False, False, True):
        found, page = produce(result, bench_in(tmp_path), full=True, again=again)
        assert found.command == "ildm-bench results good --full"
        assert page.exists()
    assert suite.measured == ["good", "good"]  # type: ignore[attr-defined]


def test_tables_go_between_their_marks(tmp_path: Path) -> None:
    results, page = tmp_path / "results", tmp_path / "reports" / "README.md"
    for name, runs in (("one", [samples.run("a")]), ("bad", [samples.run("b", disturbance=NOISE)])):
        (results / name).mkdir(parents=True)
        (results / name / "comparison.json").write_text(comparison(*runs).model_dump_json())
        (results / name / "report.html").write_text("page")
    before = "x\n<!-- table: one -->\nold\n<!-- end -->\ny\n<!-- table: bad -->\nold\n<!-- end -->\n"
    page.parent.mkdir()
    page.write_text(before)
    with pytest.raises(ReportError, match="b: other programs"):
        fill_in(page, results, ["one", "bad"])
    assert page.read_text() == before
    assert fill_in(page, results, ["one"]) == []
    table = "|  | k/s |\n| --- | ---: |\n| way | 1 |\n"
    assert page.read_text() == before.replace("old", table.rstrip(), 1)
    assert (page.parent / "one/report.html").read_text() == "page"
    fill_in(page, results, ["bad"], void=True)
    assert "<!-- table: bad -->\n**Void, no result.** b: other programs" in page.read_text()
    page.write_text("<!-- table: one -->\n<!-- table: bad -->\n<!-- end -->\n")
    with pytest.raises(ReportError, match="table one has no <!-- end -->"):
        fill_in(page, results, ["one"])
    page.write_text("nothing\n")
    assert fill_in(page, results, ["one"]) == ["one"]


def test_the_page_of_reports_has_place_and_command_of_each_result() -> None:
    page = (Path(__file__).parents[3] / "bench/reports/README.md").read_text()
    assert [result.name for result in SUITE if f"<!-- table: {result.name} -->\n" not in page] == []
    assert [result.name for result in SUITE if f"`ildm-bench results {result.command}`" not in page] == []
    assert page.count("<!-- table: ") == page.count("<!-- end -->")


def test_each_result_of_the_suite_can_be_had_alone() -> None:
    runner = CliRunner()
    for result in SUITE:
        done = runner.invoke(app, ["results", *result.command.split(), "--help"])
        assert done.exit_code == 0, done.output
    planned = runner.invoke(app, ["results", "all", "--plan", "--only", "mixed", "--only", "overlay"])
    assert planned.output.splitlines()[-1].split() == ["together", "11", "min"]
    assert [each.name for each in chosen_of(["single", "mixed"])] == ["mixed", "single"]
    with pytest.raises(ReportError, match="nonsense: no such result; there are content, "):
        chosen_of(["nonsense"])
    assert slug("patterns --quota-model shared") == "patterns-quota-model-shared"


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("command", dict.fromkeys(result.command.split()[0] for result in SUITE))
def test_commands_measure_as_their_options_say(
    command: str, full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Path, bool, bool, common.Profile, bool, float]] = []

    def produced(result: Result, bench: Bench, full: bool, again: bool) -> tuple[Comparison, Path]:
        assert result.command == f"{command} --noisy"
        gate = bench.gate
        asked.append((bench.out, full, again, bench.profile, gate.noisy, gate.patience))
        return comparison(samples.run("way")), bench.out

    monkeypatch.setattr(suite, "produce", produced)
    words = [command, "--out", str(tmp_path), "--again", "--noisy", "--patience", "3", *["--full"] * full]
    done = CliRunner().invoke(app, ["results", *words])
    if full and command in {"content", "slow-link", "distance"}:
        assert (done.exit_code, asked) == (2, [])
        return
    assert done.exit_code == 0, done.output
    profile = common.FULL if full else QUICK
    assert asked == [(tmp_path / f"{command}-noisy", full, True, profile, True, 3.0)]


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("patterns --no-pairs", "patterns --no-pairs"),
        ("patterns --sockets both --overlays", "patterns --overlays --sockets both"),
        ("link --publishers 10 --qos 0", "link --publishers 10"),
        ("traffic --kind fan-in --kind devices --qos 1", "traffic --qos 1 --kind fan-in --kind devices"),
        ("single --sockets both", "single"),
    ],
)
def test_a_command_is_named_by_what_differs_from_the_defaults(
    words: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []

    def produced(result: Result, bench: Bench, full: bool, again: bool) -> tuple[Comparison, Path]:
        asked.append((result.command, bench.out.name))
        return comparison(samples.run("way")), bench.out

    monkeypatch.setattr(suite, "produce", produced)
    done = CliRunner().invoke(app, ["results", *words.split(), "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert asked == [(command, slug(command))]


def test_l_clients_have_samples_enough_for_a_percentile() -> None:
    short = common.load_scenario(common.SCENARIOS / "pattern-a.yaml").shortened(8)
    found = sampled(short)
    (topic,) = [topic for topic in found.topics if topic.clients == "latency"]
    window = found.duration - found.warm_up - found.cool_down
    assert topic.interval is not None
    assert 1000 * window / topic.interval >= 100
    assert found.interval == short.interval
    often = common.load_scenario(common.SCENARIOS / "latency.yaml").shortened(8)
    assert sampled(often) == often


def test_figures_of_clients_have_their_rounds() -> None:
    figures = client_figures("x", [[1.0] * 60, [3.0] * 60], 120, 0, 10.0, NOISE, {"copies": [1.0, 2.0]})
    latency = figures.latency["latency.sent"]
    assert (latency.count, latency.mean, latency.p999) == (120, 2000.0, None)
    assert latency.p99 == pytest.approx(3000, rel=0.02)
    assert figures.spread["latency.sent.mean"] == [1000.0, 3000.0]
    assert figures.spread["copies"] == [1.0, 2.0]
    assert "latency.sent.p99" not in figures.spread
    assert figures.void


def test_rounds_on_a_testbed_are_kept(tmp_path: Path) -> None:
    require_broker("mosquitto")
    bench = bench_in(tmp_path, noisy=True)
    asked: list[str] = []

    async def work(bed: Any) -> dict[str, Any]:
        asked.append(bed.servers[0].address)
        return {"number": len(asked)}

    spec = TestbedSpec(["mosquitto"], front="none")
    for _ in range(2):
        rounds, _ = bench.client_rounds("it", "label", spec, work)
        assert [each["number"] for each in rounds] == [1, 2, 3]
    assert len(asked) == QUICK.rounds
