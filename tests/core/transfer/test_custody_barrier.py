"""What waits until the spool has it: in order, and never called back at once."""

from __future__ import annotations

from ildm.config import SpoolConfig
from ildm.core.counters import Counters
from ildm.core.spool import Delivery, Record
from ildm.core.transfer.custody import Custody
from ildm.testing.virtual.driver import WorldDriver
from ildm.testing.virtual.world import World
from tests.support.memory_spool import MemorySpool

RECORD = Record(b"\x32\x06\x00\x01t\x00\x01\x00", 1, None)


def make(power: bool) -> tuple[World, MemorySpool, Custody]:
    world, spool = World(), MemorySpool(power)
    return world, spool, Custody(WorldDriver(world, "n"), spool, Counters(), SpoolConfig(), "n")


def append(spool: MemorySpool) -> int:
    return spool.append(RECORD, [Delivery("o", 1)])


def test_one_write_makes_all_that_was_appended_durable() -> None:
    _, spool, custody = make(power=False)
    first, second = append(spool), append(spool)
    assert spool.durable < first
    assert custody.covers(first)
    assert custody.covers(second)
    assert spool.commits == 1
    assert custody.last == second


def test_nothing_is_written_where_nothing_was_appended() -> None:
    _, spool, custody = make(power=False)
    custody.flush()
    assert custody.covers(custody.last)
    assert spool.commits == 0


def test_with_power_it_is_durable_once_the_disk_has_it() -> None:
    world, spool, custody = make(power=True)
    told: list[str] = []
    first = append(spool)
    assert not custody.covers(first)
    custody.when(first, lambda: told.append("first"))
    custody.when(append(spool), lambda: told.append("second"))
    world.run(1)
    assert told == []
    spool.sync()
    assert told == []
    world.run(1)
    assert told == ["first", "second"]
    assert custody.covers(custody.last)


def test_who_asks_for_what_is_durable_is_called_back_later() -> None:
    world, spool, custody = make(power=False)
    told: list[str] = []
    custody.when(append(spool), lambda: told.append("once"))
    assert told == []
    world.run(1)
    assert told == ["once"]


def test_while_nothing_can_be_written_nothing_is_durable() -> None:
    world, spool, custody = make(power=False)
    told: list[str] = []
    spool.failure = "no space left on device"
    lsn = append(spool)
    custody.when(lsn, lambda: told.append("at last"))
    assert not custody.covers(lsn)
    world.run(1)
    assert told == []
    spool.failure = None
    custody.flush()
    world.run(1)
    assert told == ["at last"]
