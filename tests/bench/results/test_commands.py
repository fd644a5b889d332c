"""The results: what is measured for each, and what their tables say; nothing is measured here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from ildm_bench.analysis.histogram import from_buckets, quantile
from ildm_bench.cli import app
from ildm_bench.load.scenario import Scenario
from ildm_bench.measure.figures import Comparison, Limit, RunFigures
from ildm_bench.report import markdown_table
from ildm_bench.results import latency, link, loaded, mixed, patterns, single
from ildm_bench.results.common import FULL, QUICK, Bench
from ildm_bench.results.tables import OF_LIMIT, Row, cells, table
from ildm_bench.testbed.spec import TestbedSpec
from ildm_bench.testbed.testbed import Testbed
from tests.bench.report.samples import limit as sample_limit
from tests.bench.report.samples import run as sample_run
from tests.support.brokers import require_broker


class Measured(Bench):
    """Notes what would be measured, and answers with limits made up."""

    def __init__(self, out: Path, profile: Any = QUICK) -> None:
        super().__init__(out, profile, Console(file=None, quiet=True))
        self.asked: dict[str, tuple[Scenario, TestbedSpec, dict[str, Any]]] = {}

    def limit(self, name: str, label: str, scenario: Scenario, spec: TestbedSpec, **options: Any) -> Limit:
        assert name not in self.asked
        self.asked[name] = (scenario, spec, options)
        return sample_limit(label, 2000.0 * len(self.asked))


@pytest.mark.parametrize("model", ["per-process", "shared"])
def test_patterns_compare_equal_quotas(tmp_path: Path, model: Any) -> None:
    bench = Measured(tmp_path)
    comparison = patterns.run(bench, model, sockets="nodelay")
    assert "set_tcp_nodelay true" in comparison.text
    specs = {name.removeprefix(f"{model}-"): spec for name, (_, spec, _) in bench.asked.items()}
    assert set(specs) == {
        "direct",
        "haproxy",
        "A-pf",
        "A-sf",
        *(f"{pattern}-{algorithm}" for pattern in ("none", "low", "high") for algorithm in patterns.TREES),
        "sum",
    }
    cores = {spec.quota.cores for name, spec in specs.items() if spec.quota and name != "sum"}
    assert len(cores) == 1
    total = specs["sum"].quota
    assert total is not None
    assert total.cores == pytest.approx(5 * cores.pop())
    assert {spec.quota.model for spec in specs.values() if spec.quota} == {model}
    for name in ("none", "low", "high"):
        for algorithm in patterns.TREES:
            spec = specs[f"{name}-{algorithm}"]
            assert (len(spec.brokers), spec.algorithm, spec.topology) == (5, algorithm, "row")
            assert bench.asked[f"{model}-{name}-{algorithm}"][0].name == f"pattern-{name}"
    assert [group.name for group in comparison.groups] == ["A", "none", "low", "high", "sum"]
    assert comparison.table[0] == table([], OF_LIMIT)[0]
    assert [row[0] for row in comparison.table[1:3]] == ["A: broker alone", "A: HAProxy"]
    assert [float(row[4]) for row in comparison.table[1:]] == pytest.approx(list(range(1, 12)), rel=0.05)


def test_both_sockets_have_rows(tmp_path: Path) -> None:
    bench = Measured(tmp_path)
    comparison = patterns.run(bench, algorithms=["sf"], patterns=["low"])
    settings = {name.removeprefix("per-process-"): spec.nodelay for name, (_, spec, _) in bench.asked.items()}
    assert settings == {
        "direct": True,
        "direct-default-sockets": False,
        "haproxy": True,
        "haproxy-default-sockets": False,
        "A-sf": True,
        "A-sf-default-sockets": False,
        "low-sf": True,
        "sum": True,
        "sum-default-sockets": False,
    }
    assert [row[0] for row in comparison.table[1:3]] == [
        "A: broker alone",
        "A: broker alone, default sockets",
    ]
    assert "set_tcp_nodelay true; *default sockets*: set_tcp_nodelay false" in comparison.text
    everything = Measured(tmp_path)
    patterns.run(everything, algorithms=["sf"], patterns=["low"], sockets="both")
    assert not everything.asked["per-process-low-sf-default-sockets"][1].nodelay


def test_the_setting_of_the_sockets_reaches_the_broker(tmp_path: Path) -> None:
    require_broker("mosquitto")
    for nodelay, last in ((True, "true"), (False, "false")):
        with Testbed(TestbedSpec(["mosquitto"], front="none", nodelay=nodelay), tmp_path / last) as bed:
            lines = (bed.servers[0].broker.directory / "mosquitto.conf").read_text().splitlines()
        assert [line for line in lines if "nodelay" in line][-1] == f"set_tcp_nodelay {last}"


def test_overlays_alone_have_one_broker_to_compare_with(tmp_path: Path) -> None:
    bench = Measured(tmp_path)
    comparison = patterns.run(bench, algorithms=patterns.OVERLAYS, patterns=["low"], sockets="nodelay")
    assert [name.removeprefix("per-process-") for name in bench.asked] == [
        "direct",
        *(f"low-{algorithm}" for algorithm in patterns.OVERLAYS),
    ]
    assert [row[0] for row in comparison.table[1:]] == [
        "A: broker alone",
        "low: SG-TBPS",
        "low: ATM-TBPS",
        "low: STLA",
    ]


def test_single_brokers_have_one_quota_and_no_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single, "broker_class", lambda make: type("B", (), {"available": lambda: None}))
    bench = Measured(tmp_path)
    comparison = single.run(bench)
    assert set(bench.asked) == {"mosquitto", "mosquitto-default-sockets", "activemq", "rabbitmq", "moquette"}
    assert {spec.front for _, spec, _ in bench.asked.values()} == {"none"}
    assert len({spec.quota for _, spec, _ in bench.asked.values()}) == 1
    assert len(comparison.table) == 6


def test_single_brokers_can_have_the_whole_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single, "broker_class", lambda make: type("B", (), {"available": lambda: None}))
    bench = Measured(tmp_path)
    comparison = single.run(bench, cores=None)
    assert {spec.quota for _, spec, _ in bench.asked.values()} == {None}
    assert "the whole machine" in comparison.text
    for wrong in ("nought", "0", "-1", "nan"):
        done = CliRunner().invoke(app, ["results", "single", f"--quota={wrong}"])
        assert done.exit_code == 2
        assert "neither a number of cores above 0 nor none" in " ".join(done.output.split())


def test_patterns_are_measured_at_a_part_of_their_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[tuple[str, float, bool]] = []

    def at_load(*given: Any) -> RunFigures | None:
        _, name, label, _, spec, limit, load = given
        loaded.append((label, load, spec.nodelay))
        assert name in bench.asked
        return (
            None if label == "A: HAProxy" else sample_run(label, 1000.0, interval_ms=limit.interval_ms / load)
        )

    monkeypatch.setattr(patterns, "at_load", at_load)
    bench = Measured(tmp_path)
    comparison = patterns.run(bench, load=0.9)
    assert {(load, nodelay) for _, load, nodelay in loaded} == {(0.9, True)}
    rows = {row[0]: row for row in comparison.table[1:]}
    assert list(rows) == [label for label, _, _ in loaded]
    assert {"A: broker alone", "A: PF", "none: SF", "high: PF", "sum: broker with 5 quotas"} <= set(rows)
    assert rows["A: HAProxy"][1] == "no interval under the limit"
    assert not comparison.groups
    assert [run.label for run in comparison.runs] == [label for label in rows if label != "A: HAProxy"]


def test_the_load_of_a_part_of_the_limit_is_its_interval_over_the_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Measured(tmp_path)
    intervals: list[float] = []

    def load(what: str, scenario: Scenario, target: Any, results: Path) -> str:
        intervals.append(scenario.interval)
        results.mkdir(parents=True, exist_ok=True)
        return what

    @contextmanager
    def testbed(*_: Any) -> Iterator[tuple[None, None]]:
        yield None, None

    monkeypatch.setattr(bench, "load", load)
    monkeypatch.setattr(loaded, "testbed", testbed)
    monkeypatch.setattr(loaded, "spark_session", lambda **_: None)
    monkeypatch.setattr(loaded, "analyse", lambda *given: [sample_run(name) for name in given[2]])
    spec, scenario = TestbedSpec(["mosquitto"]), bench.scenario("pattern-a")
    limit = sample_limit("SF", 2000.0)
    assert limit.interval_ms is not None
    found = loaded.at_load(bench, "A", "A: SF", scenario, spec, limit, 0.9)
    assert found is not None
    assert intervals == [pytest.approx(limit.interval_ms / 0.9)] * QUICK.rounds
    assert loaded.at_load(bench, "A", "A: SF", scenario, spec, limit, 0.9) == found
    assert len(intervals) == QUICK.rounds  # what was found is not measured again
    without = limit.model_copy(update={"interval_ms": None})
    assert loaded.at_load(bench, "B", "B: SF", scenario, spec, without, 0.9) is None


def test_four_makes_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixed, "broker_class", lambda make: type("B", (), {"available": lambda: None}))
    bench = Measured(tmp_path)
    comparison = mixed.run(bench, limit=True)
    (scenario, spec, _) = bench.asked["limit"]
    assert scenario.name == "heterogeneous"
    assert (list(spec.brokers), spec.algorithm) == (list(mixed.MAKES), "sf")
    cores = comparison.table[1][comparison.table[0].index("cores in use")]
    found = [float(part.rsplit(" ", 1)[1]) for part in cores.split(", ")]
    assert found == sorted(found, reverse=True)
    assert len(found) > 1


def test_single_names_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def of(make: str) -> Any:
        return type("B", (), {"available": lambda: f"no {make}" if make == "rabbitmq" else None})

    monkeypatch.setattr(single, "broker_class", of)
    bench = Measured(tmp_path)
    comparison = single.run(bench)
    assert "rabbitmq" not in bench.asked
    assert "Not measured: no rabbitmq" in comparison.text


@pytest.mark.parametrize("publishers", [1, 10])
def test_a_link_is_measured_as_the_bridge_is(tmp_path: Path, publishers: int) -> None:
    bench = Measured(tmp_path)
    comparison = link.run(bench, 1, publishers, sockets="nodelay")
    assert list(bench.asked) == ["bridge", "link-1", "link-2", "link-4", "through"]
    loads = {scenario.model_dump_json() for scenario, _, _ in bench.asked.values()}
    assert len(loads) == 1
    scenario, spec, options = bench.asked["link-2"]
    assert scenario.qos == 1
    assert scenario.counts(scenario.topics[0], "publishers") == [publishers, 0]
    assert (spec.sessions, spec.link_qos, options["beyond"]) == (2, 1, True)
    assert bench.asked["bridge"][1].bridge
    assert not bench.asked["through"][2]["beyond"]
    assert [float(row[3]) for row in comparison.table[1:]] == pytest.approx([1, 2, 3, 4, 5], rel=0.05)


def test_the_full_profile_is_the_papers(tmp_path: Path) -> None:
    bench = Measured(tmp_path, FULL)
    patterns.run(bench, pairs=False)
    scenario, *_ = bench.asked["per-process-direct"]
    assert (scenario.duration, scenario.warm_up, scenario.cool_down) == (80, 10, 10)


def test_rounds_of_one_way_are_merged() -> None:
    rounds = []
    for buckets in ({100: 5}, {100: 5, 900: 10}):
        figures = sample_run("way")
        histogram = from_buckets(buckets.items())
        histograms = {latency.KEY: histogram}
        part = figures.latency[latency.KEY].model_copy(update={"count": sum(histogram.counts), "max": 7.0})
        update = {"histograms": histograms, "latency": {latency.KEY: part}, "expected": 10, "missing": 1}
        rounds.append(figures.model_copy(update=update))
    merged = latency.merged(rounds)
    assert merged.latency[latency.KEY].count == 20
    assert merged.latency[latency.KEY].p50 == quantile(merged.histograms[latency.KEY], 0.5) / 1000
    assert merged.latency[latency.KEY].p99 is None
    assert len(merged.spread[f"{latency.KEY}.mean"]) == 2
    assert (merged.expected, merged.missing) == (20, 2)


def limit_row(found: Limit, reference: Limit | None = None) -> list[str]:
    return cells(Row.of_limit(found, reference), OF_LIMIT)


def test_a_row_says_where_no_limit_was_found() -> None:
    found = sample_limit("x", 5000.0)
    row = limit_row(found, sample_limit("y", 10_000.0))
    assert (row[0], row[3], row[4]) == ("x", "49,850", "0.50")
    assert isinstance(found.figures, RunFigures)
    assert "broker" in row[8]
    spread = {"interval_ms": [9.5, 10.5, 10.0], "egress": [49_000.0, 50_000.0], "cpu.broker": [1.0, 2.0]}
    again = limit_row(found.model_copy(update={"spread": spread}), sample_limit("y", 10_000.0))
    assert again[1].endswith("(9.5-10.5) ms")
    assert again[3] == "49,850 (49,000-50,000)"
    assert again[4] == "0.50 (0.49-0.50)"
    assert "(1.0-2.0)" in again[8]
    nothing = found.model_copy(update={"interval_ms": None, "figures": None})
    assert limit_row(nothing)[1] == "no interval under the limit"
    assert len(again) == len(limit_row(found)) == len(limit_row(nothing)) == len(table([], OF_LIMIT)[0])
    assert limit_row(found.model_copy(update={"bounded_by": "generator"}))[1].endswith("(generator's)")


def test_tables_are_markdown(tmp_path: Path) -> None:
    comparison: Comparison = link.run(Measured(tmp_path))
    assert len(comparison.table) == 11
    lines = markdown_table(comparison).splitlines()
    assert len([line for line in lines if line.startswith("|")]) == len(comparison.table) + 1


def test_each_result_has_its_command() -> None:
    listed = CliRunner().invoke(app, ["results", "--help"]).output
    for name in (
        "single",
        "patterns",
        "link",
        "latency",
        "mixed",
        "traffic",
        "overlay",
        "distance",
        "content",
        "slow-link",
    ):
        assert name in listed
