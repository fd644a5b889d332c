"""What is done to the files of a spool."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ildm_bench.chaos.live import name_of, possible
from ildm_bench.chaos.nemesis import flip, tear, written
from ildm_bench.chaos.schedule import Fault, Setting

SETTING = Setting("sf", ("a", "b"), (("b", "a"),), ("mosquitto", "mosquitto"))
ALL = ("node/a", "node/b")


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    for number, data in enumerate((b"older", b"newer")):
        path = tmp_path / f"{number}.seg"
        path.write_bytes(data.ljust(100, b"\0"))
        os.utime(path, (number, number))
    return tmp_path


def test_a_torn_record_stands_behind_the_newest_and_hurts_none(spool: Path) -> None:
    tear(spool, 3)
    assert (spool / "1.seg").read_bytes() == (b"newer" + b"\x7f" * 3).ljust(100, b"\0")
    assert written(spool / "0.seg") == 5


@pytest.mark.parametrize(
    ("where", "name", "place"), [(0.0, "0.seg", 0), (0.55, "1.seg", 0), (0.95, "1.seg", 4)]
)
def test_one_bit_is_changed_at_a_share_of_what_is_written(
    spool: Path, where: float, name: str, place: int
) -> None:
    before = {path.name: path.read_bytes() for path in spool.iterdir()}
    flip(spool, where)
    changed = [
        (path.name, at, old ^ new)
        for path in spool.iterdir()
        for at, (old, new) in enumerate(zip(before[path.name], path.read_bytes(), strict=True))
        if old != new
    ]
    assert changed == [(name, place, 0x10)]


def test_an_empty_spool_has_nothing_to_harm(tmp_path: Path) -> None:
    tear(tmp_path, 3)
    flip(tmp_path, 0.5)


def test_what_cannot_be_done_is_left_out_and_said() -> None:
    faults = [
        Fault(1, "clock", ("node/a",), 1),
        Fault(2, "kill", ("node/a",), 1),
        Fault(3, "cut", ("link/a/b",), 1),
    ]
    left, skipped = possible(faults, "ildm")
    assert [fault.kind for fault in left] == ["kill", "cut"]
    assert len(skipped) == 1
    left, skipped = possible(faults, "bridge")
    assert [fault.targets for fault in left] == [("broker/a",), ("link/a/b",)]


def test_killing_all_nodes_at_once_has_a_name_of_its_own() -> None:
    assert name_of([Fault(1, "kill", ALL, 1)], SETTING) == "kill-all"
    assert name_of([Fault(1, "kill", ALL[:1], 1), Fault(1, "cut", ("link/a/b",), 1)], SETTING) == "cut+kill"
    assert name_of([], SETTING) == "none"
