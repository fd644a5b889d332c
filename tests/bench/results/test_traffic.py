"""Mixed traffic: what is measured over which way; nothing is measured here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from ildm_bench.cli import app
from ildm_bench.load.scenario import Scenario, load_scenario
from ildm_bench.measure.figures import RunFigures
from ildm_bench.results import traffic
from ildm_bench.results.common import FULL, QUICK, SCENARIOS, Bench, Profile
from ildm_bench.testbed.spec import TestbedSpec
from tests.bench.report.samples import run as sample_run

Asked = list[tuple[Scenario, dict[str, TestbedSpec]]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What would be measured; figures are made up."""
    found: Asked = []

    def measure(_: Bench, scenario: Scenario, ways: dict[str, TestbedSpec]) -> Sequence[RunFigures]:
        found.append((scenario, ways))
        return [sample_run(way) for way in ways]

    monkeypatch.setattr(traffic, "measure_in_turn", measure)
    return found


def per_second(scenario: Scenario) -> float:
    """Messages of t-publishers."""
    topics = scenario.throughput_topics
    return sum(sum(scenario.counts(t, "publishers")) for t in topics) * 1000 / scenario.interval


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("profile", [QUICK, FULL])
def test_every_kind_goes_over_relays_and_over_a_link(
    asked: Asked, tmp_path: Path, qos: int, profile: Profile
) -> None:
    bench = Bench(tmp_path, profile, Console(file=None, quiet=True))
    comparison = traffic.run(bench, qos)
    assert len(asked) == 2 * len(traffic.KINDS)
    for kind, (alone, relays), (linked, links) in zip(traffic.KINDS, asked[::2], asked[1::2], strict=True):
        assert set(relays) == {"broker alone", "HAProxy", "node", "node, SF"}
        assert set(links) == {"bridge", "link, SF"}
        assert {spec.link_qos for spec in links.values()} == {qos}
        assert links["bridge"].bridge
        assert (alone.sites, linked.sites, alone.qos, linked.qos) == (1, 2, qos, qos)
        assert per_second(alone) == pytest.approx(per_second(linked))
        assert alone.sp_ratio == linked.sp_ratio
        assert alone.duration == (profile.seconds or 80)
        assert Scenario.model_validate(alone.model_dump()) == alone
        rows = [row for row in comparison.table if row[0].startswith(f"{kind}: ")]
        assert len(rows) == len(relays) + len(links)
    assert len({name for scenario, _ in asked for name in [scenario.name]}) == len(asked)
    assert {len(row) for row in comparison.table} == {len(comparison.table[0])}


def test_kinds_can_be_chosen(asked: Asked, tmp_path: Path) -> None:
    traffic.run(Bench(tmp_path, QUICK, Console(file=None, quiet=True)), 0, ["fan-in"])
    assert [scenario.name for scenario, _ in asked] == ["fan-in-qos-0-one-site", "fan-in-qos-0"]
    done = CliRunner().invoke(app, ["results", "traffic", "--kind", "bursts"])
    assert done.exit_code == 2
    assert "bursts" in done.output


def test_devices_are_as_many_as_open_files_allow() -> None:
    devices = load_scenario(SCENARIOS / "devices.yaml")
    assert traffic.within_files(devices, 65_536) == (devices, "")
    fewer, note = traffic.within_files(devices, 10_500)
    assert fewer.counts(fewer.topics[0], "publishers") == [5000, 0]
    assert fewer.counts(fewer.topics[1], "publishers") == [2, 0]
    assert "5,000 instead of 10,000" in note
