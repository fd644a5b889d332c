"""Short runs of real processes under faults, checked as all histories are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ildm_bench.chaos.drawing import Scale, draw, draw_setting
from ildm_bench.chaos.live import PATIENCE, patience
from ildm_bench.chaos.live_runs import Finished, LiveRuns, Planned
from ildm_bench.chaos.schedule import Fault
from tests.support.brokers import require_broker

pytestmark = pytest.mark.broker
SHORT = Scale(seconds=4, publications=80, faults=2, pause=2)
LONGER = Scale(seconds=8, publications=160, faults=2, pause=2)


def ran(directory: Path, fault: str, target: str = "ildm") -> Finished:
    require_broker("mosquitto")
    drawn = draw_setting(3, "sf", sites=3, rings=False)
    # at 16 kB/s these runs would last three times as long, for what tests in virtual time show
    setting = replace(drawn, options={"spool": drawn.options["spool"]})
    planned = Planned(fault, draw(3, "sf", fault=fault, scale=SHORT, setting=setting), target)
    (finished,) = LiveRuns(directory, 1).run([planned])
    assert not finished.wrong
    assert finished.complete
    return finished


@pytest.mark.parametrize("fault", ["none", "cut", "kill-all", "handover"])
def test_nothing_is_lost(tmp_path: Path, fault: str) -> None:
    finished = ran(tmp_path, fault)
    outcome = finished.outcome
    assert outcome is not None
    # "#" at QoS 2 goes amid what is published at QoS 2: where that takes long, some of it crosses at less
    assert [each for each in outcome.findings if (each.invariant, each.cause) != ("order", "quality")] == []
    (counted,) = outcome.counted
    assert counted.owed > 100
    assert counted.faults == 0 if fault == "none" else counted.faults > 0
    assert finished.kept is None
    assert (tmp_path / f"history-{fault}.parquet").exists()
    assert not (tmp_path / "work" / fault).exists()


def test_pairs_lose_nothing_and_repeat_nothing_when_owners_end_or_stand_still(tmp_path: Path) -> None:
    """Both members of site a own it in turn; that of site b stands still until it was ended."""
    require_broker("mosquitto")
    drawn = draw_setting(3, "sf", sites=2, rings=False)
    setting = replace(drawn, options={"spool": drawn.options["spool"]})
    schedule = draw(3, "sf", fault="none", scale=LONGER, setting=setting)
    faults = (
        Fault(3.5, "kill", ("node/a",), 0.2),
        Fault(4.5, "pause", ("node/b",), 10.0),
        Fault(5.5, "kill", ("node/a",), 0.2),
    )
    planned = Planned("pairs", replace(schedule, faults=faults), "pair")
    (finished,) = LiveRuns(tmp_path, 1).run([planned])
    outcome = finished.outcome
    assert not finished.wrong
    assert finished.complete
    assert outcome is not None
    assert [each for each in outcome.findings if each.cause == "ours"] == []
    (counted,) = outcome.counted
    assert counted.owed > 100
    assert counted.setting.target == "pair"


def test_a_run_over_slow_links_may_last_as_long_as_they_need() -> None:
    setting = replace(draw_setting(3, "sf"), options={"link": {"rate": {"in": 1000, "out": 4000}}})
    schedule = draw(3, "sf", fault="cut", scale=SHORT, setting=setting)
    published = [each for each in schedule.operations if each.do == "publish"]
    size = sum(size for each in published for _, size in each.messages())
    assert patience(schedule) == PATIENCE + size / 1000
    assert patience(replace(schedule, setting=replace(setting, options={}))) == PATIENCE


def test_bridges_run_and_are_checked_by_the_same_rules(tmp_path: Path) -> None:
    outcome = ran(tmp_path, "none", "bridge").outcome
    assert outcome is not None
    assert outcome.total("lost", target="bridge") == 0
    assert outcome.counted[0].setting.name == "bridge"
