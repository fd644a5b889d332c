"""Schedules are data: drawn from seeds alike, kept in files, refused where they make no sense."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ildm.core.link.features import FEATURES
from ildm.core.link.versions import PROTOCOLS
from ildm.core.local import relay
from ildm.mqtt import topic_matches
from ildm_bench.chaos.cli import app
from ildm_bench.chaos.drawing import SECRET, SHARED, UNLIKE, draw
from ildm_bench.chaos.schedule import CHANGES, Fault, Schedule, ScheduleError, Variant


def test_a_seed_gives_one_schedule() -> None:
    assert [draw(seed, "sf") for seed in range(20)] == [draw(seed, "sf") for seed in range(20)]
    assert draw(1, "sf") != draw(2, "sf")


def test_neighbouring_seeds_share_a_setting() -> None:
    assert len({draw(seed, "sf").setting.seed for seed in range(2 * SHARED)}) == 2


@pytest.mark.parametrize(
    "fault",
    [
        "mixed",
        "none",
        "kill-all",
        "flip",
        "lose-state",
        "arrive",
        "pair",
        "deposed",
        "both",
        "power",
        "hold-one-way",
        "hold-session",
        "upgrade",
        "downgrade",
        "dns",
    ],
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


def test_some_settings_have_sites_of_several_releases_and_some_of_these_change() -> None:
    schedules = [draw(seed, "sf") for seed in range(40 * SHARED)]
    unequal = [schedule for schedule in schedules if schedule.setting.variants]
    assert len(schedules) / 4 < len(unequal) < len(schedules) * 3 / 4
    variants = {variant for schedule in unequal for variant in schedule.setting.variants.values()}
    assert {0, PROTOCOLS.low} == {variant.protocol for variant in variants}
    assert {name for variant in variants for name in variant.disabled} == {each.name for each in FEATURES}
    assert {"", "off", "deflate", "auto"} == {variant.compression for variant in variants}
    assert {False, True} == {variant.by_age for variant in variants}
    assert {key for variant in variants for key in variant.without} == set(UNLIKE)
    for schedule in unequal:
        link = schedule.setting.options.get("link", {})
        assert all(set(each.without) <= link.keys() for each in schedule.setting.variants.values())
        assert not [fault for fault in schedule.faults if "rate" in fault.variant.without]
    assert {"", SECRET} == {schedule.setting.secret for schedule in unequal}
    changed = [schedule for schedule in schedules if any(f.kind in CHANGES for f in schedule.faults)]
    assert len(unequal) / 4 < len(changed) < len(unequal) / 2
    assert all(schedule.setting.variants for schedule in changed)


def test_a_file_without_variants_is_of_nodes_that_have_all(tmp_path: Path) -> None:
    schedule = next(each for each in map(draw, range(99), ["sf"] * 99) if not each.setting.variants)
    schedule.save(tmp_path / "x.json")
    text = (tmp_path / "x.json").read_text()
    assert not {word for word in ("variant", "secret") if word in text}


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
    wrong = replace(schedule, setting=replace(schedule.setting, variants={"z": Variant()}))
    assert wrong.problem() == "setting.variants: there is no site 'z'"
    wrong = replace(schedule, faults=(Fault(5.0, "upgrade", ("node/a",), 1.0, 2.0),))
    assert wrong.problem() == "fault at 5.0: the node drains for longer than it is away"


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
