"""Schedules are data: drawn from seeds alike, kept in files, refused where they make no sense."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ildm.core.local import relay
from ildm.mqtt import topic_matches
from ildm_bench.chaos.cli import app
from ildm_bench.chaos.drawing import SHARED, draw
from ildm_bench.chaos.schedule import Schedule, ScheduleError


def test_a_seed_gives_one_schedule() -> None:
    assert [draw(seed, "sf") for seed in range(20)] == [draw(seed, "sf") for seed in range(20)]
    assert draw(1, "sf") != draw(2, "sf")


def test_neighbouring_seeds_share_a_setting() -> None:
    assert len({draw(seed, "sf").setting.seed for seed in range(2 * SHARED)}) == 2


@pytest.mark.parametrize(
    "fault", ["mixed", "none", "kill-all", "flip", "power", "hold-one-way", "hold-session"]
)
@pytest.mark.parametrize("algorithm", ["sf", "sg_tbps"])
def test_what_is_drawn_makes_sense_and_survives_a_file(algorithm: str, fault: str, tmp_path: Path) -> None:
    for seed in range(50):
        schedule = draw(seed, algorithm, fault=fault)
        assert schedule.problem() is None
        assert bool(schedule.faults) is (fault != "none")
        schedule.save(tmp_path / "x.json")
        assert Schedule.load(tmp_path / "x.json") == schedule


def test_filters_of_a_client_do_not_overlap() -> None:
    for seed in range(200):
        schedule = draw(seed, "sf")
        for client in schedule.clients:
            filters = [
                operation.topic
                for operation in schedule.operations
                if operation.client == client.name and operation.do == "subscribe"
            ]
            for topic in ("t/0", "t/1", "t/2", "u/0", "t/w", "r/p5", "r/all"):
                assert sum(topic_matches(each, topic) for each in filters) <= 1


def test_where_links_have_several_sessions_one_of_them_may_be_held_alone() -> None:
    held = set()
    for seed in range(400):
        schedule = draw(seed, "sf")
        sessions = schedule.setting.options.get("link", {}).get("sessions", 1)
        held |= {(sessions, fault.value) for fault in schedule.faults if fault.kind == "hold-session"}
    assert held == {(2, 0.0), (2, 1.0)}


def test_kill_all_is_every_node_at_once() -> None:
    schedule = draw(3, "sf", fault="kill-all")
    (fault,) = schedule.faults
    assert sorted(fault.targets) == [f"node/{site}" for site in schedule.setting.sites]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "Invalid JSON"),
        ("{}", "setting: Field required"),
    ],
)
def test_a_file_that_is_none_is_refused(text: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ScheduleError, match=problem):
        Schedule.load(tmp_path / "x.json")


def test_parts_that_do_not_fit_are_named() -> None:
    schedule = draw(3, "sf", fault="kill")
    fault = schedule.faults[0]
    assert "no client" in (replace(schedule, clients=()).problem() or "")
    wrong = replace(schedule, faults=(replace(fault, targets=("node/z",)),))
    assert wrong.problem() == f"fault at {fault.at}: there is no 'node/z'"
    wrong = replace(schedule, faults=(replace(fault, kind="cut", targets=("node/a",)),))
    assert wrong.problem() == f"fault at {fault.at}: cut does not happen to 'node/a'"


def test_a_fault_that_there_is_not_is_refused() -> None:
    """It would be a run without any."""
    done = CliRunner().invoke(app, ["run", "--virtual", "--fault", "refuse"])
    assert done.exit_code == 2
    assert "'refuse' is none of kill, power" in " ".join(done.output.split())


def test_some_clients_publish_more_at_once_than_a_node_deals_with_in_one_loop_iteration() -> None:
    drawn = [draw(seed, "sf") for seed in range(400)]
    floods = [each.count for schedule in drawn for each in schedule.operations if each.count > relay.AT_ONCE]
    assert 10 < len(floods) < 100


def test_brokers_of_half_of_the_schedules_deal_with_chunks_in_parts() -> None:
    pausing = sum(draw(seed, "sf").pause > 0 for seed in range(400))
    assert 150 < pausing < 250
