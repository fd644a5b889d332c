"""Clocks that are wrong: the sites end alike, and both ends of a link tell of it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from ildm.config import Address
from ildm.core.link.clocks import TOLERATED, concerns, verdict
from ildm.core.link.control import CLOCK, send_control
from ildm.core.link.hello import Hello
from ildm.mqtt import Property, ProtocolViolation
from ildm.testing.virtual.world import World
from tests.support.retained import Memory, cut, set_value, value
from tests.support.site import Site

DAY = 86_400.0
NEVER_SET = 12.5 - 1_700_000_000.0
"""A clock that began in 1970 with the machine."""
WRONG = [-400 * DAY, 400 * DAY, -3 * 365 * DAY, 70 * 365 * DAY, NEVER_SET, -3600.0]


def sites(world: World, algorithm: str, *ahead: float, **settings: Any) -> list[Site]:
    """In a row, each so many seconds ahead."""
    made = [Site(world, name, algorithm, **settings) for name, _ in zip("abcd", ahead, strict=False)]
    for site, seconds in zip(made, ahead, strict=True):
        site.driver.clock = seconds
    for before, site in itertools.pairwise(made):
        site.node.links.add(Address(before.name, 2), False)
    world.run(2)
    return made


def alike(made: list[Site], topics: str = "2345") -> list[bytes | None]:
    """The values of some topics, which all sites have."""
    found = [[value(site, f"t/{topic}") for topic in topics] for site in made]
    assert all(each == found[0] for each in found), found
    assert len({site.node.retained.digest for site in made}) == 1
    return found[0]


# retained messages --------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["pf", "sf"])
@pytest.mark.parametrize("ahead", WRONG)
def test_values_and_deletions_reach_a_site_whose_clock_is_wrong(
    world: World, ahead: float, algorithm: str
) -> None:
    a, b = made = sites(world, algorithm, 0, ahead)
    set_value(b, "t/2", b"b1")
    set_value(b, "t/3", b"b3")
    world.run(1)
    set_value(a, "t/2", b"a2")
    set_value(a, "t/3", b"")
    set_value(a, "t/4", b"a4")
    world.run(2)
    assert alike(made) == [b"a2", None, b"a4", None]
    set_value(b, "t/2", b"b2")
    set_value(b, "t/4", b"")
    set_value(b, "t/5", b"b5")
    world.run(2)
    assert alike(made) == [b"b2", None, None, b"b5"]
    assert not a.node.counters["retained_refused_future"] + b.node.counters["retained_refused_future"]


@pytest.mark.parametrize("ahead", list(itertools.permutations([0.0, -400 * DAY, 400 * DAY])))
def test_no_two_clocks_in_a_row_of_sites_agree(world: World, ahead: tuple[float, ...]) -> None:
    made = sites(world, "sf", *ahead)
    for number, site in enumerate([*made, *reversed(made), *made]):
        set_value(site, "t/2", b"%d" % number)
        world.run(1)
        assert value(made[0], "t/2") == value(made[-1], "t/2") == b"%d" % number
    for site in made:
        set_value(site, "t/2", b"")
        world.run(1)
        assert alike(made) == [None] * 4
        set_value(site, "t/2", b"again")
        world.run(1)
    assert alike(made) == [b"again", None, None, None]


@pytest.mark.parametrize("ahead", WRONG)
def test_what_was_set_while_the_sites_were_apart_is_as_old_as_it_is(world: World, ahead: float) -> None:
    """Once the sites have met their stamps follow one clock, which goes on while the link is down."""
    a, b = made = sites(world, "sf", 0, ahead)
    set_value(a, "t/2", b"known")
    set_value(b, "t/2", b"to both")
    world.run(1)
    b.node.links.remove("a")
    for first, second, topic in ((a, b, "t/3"), (b, a, "t/4")):
        for number in range(20):
            set_value(first, topic, b"%d" % number)
        world.run(60)
        set_value(second, topic, b"newest")
        world.run(1)
    b.node.links.add(Address("a", 2), False)
    world.run(5)
    assert alike(made) == [b"to both", b"newest", b"newest", None]


@pytest.mark.parametrize("ahead", WRONG)
@pytest.mark.parametrize("connected", [True, False])
def test_a_clock_is_set_right(world: World, ahead: float, connected: bool) -> None:
    a, b = made = sites(world, "sf", 0, ahead, link={"sync_interval": 20})
    set_value(b, "t/2", b"old")
    set_value(a, "t/3", b"old")
    world.run(1)
    if not connected:
        cut(b, "a")
    b.driver.clock = 0.0
    set_value(b, "t/2", b"b")
    set_value(b, "t/3", b"b")
    world.run(5)
    set_value(a, "t/3", b"")
    set_value(a, "t/4", b"a")
    world.run(40)
    assert alike(made) == [b"b", None, b"a", None]
    for site in made:
        set_value(site, "t/2", site.name.encode())
        world.run(1)
        assert alike(made)[0] == site.name.encode()


@pytest.mark.parametrize("ahead", [-400 * DAY, 400 * DAY])
def test_a_restart_with_another_clock_goes_on_from_what_is_remembered(ahead: float) -> None:
    memory = Memory()
    before = memory.set("t")
    memory.driver.clock = ahead
    memory.again()
    memory.world.run(60)
    after = memory.set("t")
    assert after.time >= before.time + 60_000, "it goes on with time, not only by one"
    memory.driver.clock = 0.0
    memory.again()
    assert memory.set("t") > after


def test_stamps_ahead_are_measured() -> None:
    memory = Memory()
    assert memory.retained.clock.ahead == pytest.approx(0, abs=0.01)
    memory.driver.clock = -400 * DAY
    assert memory.retained.clock.ahead == pytest.approx(400 * DAY, abs=0.01)


# telling ------------------------------------------------------------------------------------------


def said(site: Site) -> list[str]:
    """What status and readiness say."""
    return list(concerns(site.node.links.links.values(), site.node.config.limits.clock_skew))


def logged(site: Site) -> list[tuple[str, Any]]:
    return [
        (event, fields.get("seconds_ahead", fields.get("seconds_forward")))
        for _, event, fields in site.driver.logged
        if "clock" in event
    ]


def test_both_ends_tell_of_a_wrong_clock(world: World) -> None:
    a, b = sites(world, "sf", 0, -400 * DAY)
    for site, ahead in ((a, -400 * DAY), (b, 400 * DAY)):
        (link,) = site.node.links.links.values()
        assert link.clock.skew == pytest.approx(ahead, abs=1)
        (event,) = logged(site)
        assert event == (
            "the clocks of this node and a neighbour are apart",
            pytest.approx(ahead, abs=1),
        )
    assert said(a) == ["the clock of b is 400 d behind this node's; which of them is wrong is not known"]
    assert said(b) == ["the clock of a is 400 d ahead of this node's; which of them is wrong is not known"]


def test_clocks_that_agree_are_no_concern(world: World) -> None:
    made = sites(world, "sf", 0, TOLERATED / 2)
    world.run(30)
    for site in made:
        assert said(site) == []
        assert not [event for event, _ in logged(site) if "neighbour" in event]


def test_what_a_smaller_bound_refuses_is_told(world: World) -> None:
    a, b = sites(world, "sf", 0, -400 * DAY, limits={"clock_skew": DAY})
    set_value(a, "t/2", b"a2")
    world.run(1)
    assert value(b, "t/2") is None
    assert "its newer retained messages are refused here" in said(b)[0]
    assert "it refuses newer retained messages of this node" in said(a)[0]


@pytest.mark.parametrize("ahead", [-400 * DAY, 400 * DAY, NEVER_SET])
def test_a_clock_that_is_set_while_a_link_is_open_is_told(world: World, ahead: float) -> None:
    a, b = made = sites(world, "sf", 0, ahead)
    assert said(a)
    assert said(b)
    b.driver.clock = 0.0
    world.run(11)
    for site in made:
        (link,) = site.node.links.links.values()
        assert link.clock.skew == pytest.approx(0, abs=1)
        assert said(site) == []
        assert logged(site)[-1][0] == "the clock of a neighbour agrees again"
    before = [site.node.counters["clock_steps"] for site in made]
    a.driver.clock = ahead
    world.run(11)
    assert [site.node.counters["clock_steps"] for site in made] == [before[0] + 1, before[1]]
    assert logged(a)[-2:][0] == ("the clock was set while the node runs", round(ahead))
    assert said(a)
    assert said(b)


def test_nothing_is_known_of_a_neighbour_that_is_not_there(world: World) -> None:
    a, b = sites(world, "sf", 0, -400 * DAY)
    b.crash()
    world.run(1)
    assert [link.clock.skew for link in a.node.links.links.values()] == [None]
    assert said(a) == []


def test_the_majority_tells_which_clock_is_wrong(world: World) -> None:
    hub = Site(world, "hub", "sf")
    leaves = [Site(world, name, "sf") for name in ("one", "two", "odd")]
    leaves[-1].driver.clock = -400 * DAY
    for leaf in leaves:
        leaf.node.links.add(Address("hub", 2), False)
    world.run(2)
    assert said(hub) == ["the clock of odd is 400 d behind this node's"]
    leaves[-1].driver.clock = 0.0
    hub.driver.clock = 400 * DAY
    world.run(11)
    found = verdict(hub.node.links.links.values())
    assert found.behind == pytest.approx(-400 * DAY, abs=1)
    assert said(hub)[0] == "this node's clock is 400 d ahead, as most of 4 known clocks tell"
    assert len(said(hub)) == 4


def test_a_neighbour_that_tells_no_time_is_told_none(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node of an earlier version; it takes ``time`` for what it does not know."""
    properties, parse = Hello.properties, Hello.parse
    monkeypatch.setattr(Hello, "properties", lambda self: [p for p in properties(self) if p[0] != "time"])
    a, b = made = sites(world, "sf", 0, -400 * DAY)
    monkeypatch.undo()
    assert parse == Hello.parse
    a.driver.clock = DAY
    world.run(11)
    for site in made:
        assert site.node.counters["link_unknown_control"] == 0
        assert [link.clock.skew for link in site.node.links.links.values()] == [None]
        assert said(site) == []
    set_value(a, "t/2", b"a2")
    world.run(1)
    assert value(b, "t/2") == b"a2"


@pytest.mark.parametrize("time", ["-1", "x", "9" * 16, "9" * 5000])
def test_a_time_that_is_none_is_refused(time: str) -> None:
    hello = Hello(node="n", boot=1, algorithm="sf", sessions=1, index=0, token="t", time=7)
    assert Hello.parse({Property.USER_PROPERTY: hello.properties()}) == hello
    said = [(key, time if key == "time" else text) for key, text in hello.properties()]
    with pytest.raises(ProtocolViolation, match="hello"):
        Hello.parse({Property.USER_PROPERTY: said})


@pytest.mark.parametrize("payload", [b"", b"-1", b"x", b"9" * 16, b"9" * 100])
def test_a_told_clock_that_is_none_ends_the_session(world: World, payload: bytes) -> None:
    a, b = sites(world, "sf", 0, 0)
    send_control(a.node.links.links["b"], CLOCK, payload)
    world.run(1)
    assert b.node.counters["link_malformed"] == 1
