"""Clocks that are set throw nothing away that a node keeps, while it runs or between two of its lives."""

from __future__ import annotations

import pytest

from ildm.config import Address
from ildm.core.calendar import AWAY, Calendar
from ildm.core.local.bans import Ban
from ildm.core.tables import SESSIONS
from ildm.mqtt import ConnAck, Connect, Property, PubAck, Publish, Version, Will
from ildm.testing.virtual.driver import WorldDriver
from ildm.testing.virtual.store import MemoryStore
from ildm.testing.virtual.world import World
from tests.support.disk_spool import DiskSite
from tests.support.retained import Memory, set_value, value

DAY = 86_400.0
HOUR = 3600.0
UNSET = 12.5 - 1_700_000_000.0
"""A clock that begins in 1970 with the machine."""
JUMPS = [400 * DAY, -400 * DAY, UNSET]


# the two readings ---------------------------------------------------------------------------------


class Machine:
    """The machine of a node, which starts over and over."""

    def __init__(self) -> None:
        self.world = World()
        self.store = MemoryStore()
        self.driver: WorldDriver
        self.begin()

    def begin(self, clock: float = 0.0, away: float = 0.0) -> None:
        self.world.run(away)
        self.world.clocks["n"] = clock
        self.driver = WorldDriver(self.world, "n")
        self.calendar = Calendar(self.driver, self.store)
        self.calendar.start()

    def end(self, crash: bool = False) -> tuple[float, float]:
        """Both readings at the end."""
        if not crash:
            self.calendar.stop()
        self.world.kill(self.driver)
        return self.readings

    @property
    def readings(self) -> tuple[float, float]:
        return self.calendar.date(), self.calendar.cautious()


def test_without_jumps_it_is_unix_time() -> None:
    machine = Machine()
    for away in (10.0, 20 * HOUR):
        machine.world.run(100)
        machine.end()
        machine.begin(away=away)
        assert machine.readings == pytest.approx((machine.driver.wall(), machine.driver.wall()))


@pytest.mark.parametrize("jump", JUMPS)
@pytest.mark.parametrize("crash", [True, False])
def test_a_jump_in_a_life_is_none_in_this_one_nor_the_next(jump: float, crash: bool) -> None:
    machine = Machine()
    before = machine.readings
    machine.driver.clock = jump
    machine.world.run(100)
    after = machine.end(crash)
    assert after == pytest.approx(tuple(each + 100 for each in before))
    machine.begin(clock=jump, away=HOUR)
    assert machine.readings == pytest.approx(tuple(each + HOUR for each in after))
    assert machine.calendar.shown(machine.calendar.date()) == pytest.approx(machine.driver.wall())


def test_an_absence_that_the_clock_tells_counts_but_only_a_day_where_nothing_must_be_lost() -> None:
    machine = Machine()
    date, cautious = machine.end()
    machine.begin(clock=400 * DAY, away=10)
    assert machine.readings == pytest.approx((date + 400 * DAY + 10, cautious + AWAY))
    date, cautious = machine.end()
    machine.begin(clock=400 * DAY, away=10)
    assert machine.readings == pytest.approx((date + 10, cautious + 10))


def test_a_clock_that_begins_in_1970_with_each_life_lets_no_life_be_before_the_last() -> None:
    machine = Machine()
    for _ in range(5):
        machine.world.run(30 * HOUR)
        ended = machine.end(crash=True)
        machine.begin(clock=UNSET - machine.world.time, away=HOUR)
        begun = machine.readings
        machine.world.run(100)
        machine.driver.clock = 0.0
        machine.world.run(100)
        assert [now - then for now, then in zip(machine.readings, begun, strict=True)] == [
            pytest.approx(200)
        ] * 2
        assert all(0 <= then - now <= 601 for now, then in zip(begun, ended, strict=True))


# what is kept -------------------------------------------------------------------------------------


def set_clock(site: DiskSite, ahead: float) -> None:
    site.world.clocks[site.name] = ahead
    for driver in (site.spool_driver, site.node.driver):
        assert isinstance(driver, WorldDriver)
        driver.clock = ahead


def pair(world: World, **link: object) -> tuple[DiskSite, DiskSite]:
    a, b = (DiskSite(world, name, "sf", {"mode": "process"}, link=link) for name in "ab")
    b.node.links.add(Address("a", 2), False)
    b.subscriber("t/#", "s", 1)
    world.run(2)
    return a, b


CASES = [
    (jump, when, expiry)
    for jump in JUMPS
    for when in ("running", "away", "both")
    for expiry in (None, int(HOUR))
    # nobody knows that the node was not away for so long
    if expiry is None or when == "running" or jump < 0
]


@pytest.mark.parametrize(("jump", "when", "expiry"), CASES)
def test_a_jump_throws_away_nothing_of_the_spool(
    world: World, jump: float, when: str, expiry: int | None
) -> None:
    a, b = pair(world)
    b.kill()
    world.run(1)
    publisher = a.client("p", version=Version.V5)
    properties = {} if expiry is None else {Property.MESSAGE_EXPIRY_INTERVAL: expiry}
    for number in range(10):
        publisher.send(
            Publish(topic=f"t/{number}", payload=b"x", qos=1, packet_id=number + 1, properties=properties)
        )
    world.run(1)
    assert len(publisher.got(PubAck)) == 10
    waiting = a.kept
    assert waiting >= 10
    if when != "away":
        set_clock(a, jump)
        world.run(200)
        report = a.node.custody.report()  # type: ignore[union-attr]
        assert report.oldest == pytest.approx(a.node.driver.wall() - 201, abs=2)
    a.kill()
    if when != "running":
        a.world.clocks["a"] = jump * (2 if when == "both" and jump != UNSET else 1)
    a.store = a.store.copy()
    a.start()
    world.run(200)
    assert a.kept == waiting
    assert not a.node.counters["spool_dropped_age"]
    b.store = b.store.copy()
    b.start(("a",))
    world.run(20)
    assert {f"t/{number}" for number in range(10)} <= set(b.broker.topics())


def test_the_spool_still_grows_old(world: World) -> None:
    a, b = pair(world, expiry=600)
    b.kill()
    world.run(1)
    a.client("p").send(Publish(topic="t/1", payload=b"x", qos=1, packet_id=1))
    world.run(1)
    set_clock(a, 400 * DAY)
    world.run(100)
    # what is in hand stays, so the node begins anew: then it is beyond
    a.reborn()
    world.run(400)
    assert not a.node.counters["spool_dropped_age"]
    world.run(200)
    assert a.node.counters["spool_dropped_age"] == 1
    assert a.kept == 0


@pytest.mark.parametrize("jump", JUMPS)
def test_a_jump_ends_no_session(world: World, jump: float) -> None:
    a, _ = pair(world)
    properties = {Property.SESSION_EXPIRY_INTERVAL: int(2 * DAY)}
    client = a.subscriber("far", "c", 1, version=Version.V5, clean_start=False, properties=properties)
    client.transport.close()
    world.run(1)
    set_clock(a, jump)
    world.run(100)
    for _ in range(2):
        a.reborn()
        world.run(1)
        assert ("c",) in a.store.rows(SESSIONS)
        assert "far" in a.node.clients.interest.maximum
    a.kill()
    world.clocks["a"] = 2 * jump
    a.start()
    world.run(1)
    assert "far" in a.node.clients.interest.maximum
    (record,) = [each for each in a.node.clients.records.values() if each.key == "c"]
    assert record.expires_at is not None
    assert record.expires_at - a.node.calendar.cautious() <= 2 * DAY


@pytest.mark.parametrize("jump", JUMPS)
def test_a_jump_forgets_no_deletion_and_ends_no_value(world: World, jump: float) -> None:
    a, _ = pair(world)
    properties = {Property.MESSAGE_EXPIRY_INTERVAL: 400}
    client = a.client("setter", version=Version.V5)
    client.send(Publish(topic="v", payload=b"1", qos=1, packet_id=1, retain=True, properties=properties))
    set_value(a, "gone", b"1")
    set_value(a, "gone", b"")
    world.run(1)
    set_clock(a, jump)
    world.run(100)
    a.reborn()
    world.run(1)
    retained = a.node.retained
    assert set(retained.values) == {"v"}
    assert "gone" in retained.deletions
    world.run(400)
    assert "v" not in retained.values
    assert value(a, "gone") is None


@pytest.mark.parametrize("jump", [400 * DAY, -400 * DAY])
def test_a_deletion_outlives_an_absence_that_was_none(jump: float) -> None:
    memory = Memory()
    memory.retained.calendar = Calendar(memory.driver, memory.store)
    memory.retained.calendar.start()
    memory.set("gone", b"")
    memory.retained.calendar.stop()
    memory.driver.clock = jump
    memory.again(Calendar(memory.driver, memory.store))
    assert "gone" in memory.retained.deletions


@pytest.mark.parametrize("jump", JUMPS)
def test_a_ban_lasts_as_long_as_it_was_made_for(world: World, jump: float) -> None:
    a, _ = pair(world)
    a.node.bans.add(Ban("client", "c", a.node.calendar.date() + 400))
    set_clock(a, jump)
    world.run(100)
    for _ in range(2):
        assert [packet.reason_code for packet in a.client("c").got(ConnAck)] == [5]
        a.reborn()
        world.run(1)
    world.run(400)
    assert [packet.reason_code for packet in a.client("c").got(ConnAck)] == [0]


@pytest.mark.parametrize("jump", JUMPS)
def test_a_delayed_will_is_sent_when_it_is_due(world: World, jump: float) -> None:
    a, b = pair(world)
    delay = {Property.WILL_DELAY_INTERVAL: 1000}
    will = Will(topic="t/will", payload=b"gone", qos=1, properties=delay)
    session = {Property.SESSION_EXPIRY_INTERVAL: int(DAY)}
    client = a.client(connect=Connect(client_id="w", version=Version.V5, will=will, properties=session))
    client.transport.abort()
    world.run(1)
    set_clock(a, jump)
    world.run(100)
    a.reborn()
    world.run(800)
    assert "t/will" not in b.broker.topics()
    world.run(200)
    assert "t/will" in b.broker.topics()
