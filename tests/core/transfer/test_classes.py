"""Classes of messages on a link: what goes first, what is counted late, what is let go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ildm.config import Address, LinkClass
from ildm.core.counters import Counters
from ildm.core.transfer.classes import REMEMBERED, LinkClasses, priority_of
from ildm.mqtt import Publish
from ildm.testing.virtual.world import World
from tests.support.disk_spool import DiskSite
from tests.support.ruled_links import injected, publish
from tests.support.site import Site

ALARM = {"topics": ["alarm/#"], "priority": 7, "deadline": 5}
STATE = {"topics": ["state/+"], "priority": 2}
LOG = {"topics": ["log/#"], "priority": -8, "expire": 60}


def classes(*given: dict[str, Any], former: LinkClasses | None = None) -> LinkClasses:
    return LinkClasses([LinkClass.model_validate(each) for each in given], former)


SPOOLS = [None, {"mode": "process"}]


def pair(world: World, *given: dict[str, Any], **fields: Any) -> tuple[Site, Site]:
    """Sites a, whose link has the classes, and b, which wants all."""
    spooling = fields.pop("spooling", None)
    spooled_b = fields.pop("spooled_b", False)
    link = {"classes": list(given), "reconnect_min": 0.5, "reconnect_max": 1.0, **fields}
    a = DiskSite(world, "a", "sf", spooling, link=link) if spooling else Site(world, "a", "sf", link=link)
    b = DiskSite(world, "b", "sf", spooling) if spooled_b else Site(world, "b", "sf")
    b.subscriber("#", "s", 2)
    a.node.links.add(Address("b", 2), False)
    world.run(2)
    return a, b


@contextmanager
def away(world: World, site: Site, other: str = "b") -> Iterator[None]:
    """The neighbour cannot be reached meanwhile, and is back then."""
    listener = world.listeners.pop(Address(other, 2))
    control = site.node.links.links[other].control
    assert control is not None
    control.abort()
    yield
    world.listeners[Address(other, 2)] = listener
    world.run(5)


def topics(site: Site) -> list[str]:
    return [topic for topic, _, _ in injected(site)]


# ranks ------------------------------------------------------------------------------------------


def test_the_first_class_that_matches_decides_and_its_rank_has_the_priority() -> None:
    found = classes(ALARM, STATE, {"topics": ["#"]})
    assert [priority_of(found.rank(topic, 3)) for topic in (b"alarm", b"state/a", b"x")] == [7, 2, 3]
    assert len({found.rank(topic, 2) for topic in (b"alarm/a", b"alarm/b", b"state/x", b"x")}) == 3
    assert [priority_of(priority) for priority in range(-8, 8)] == list(range(-8, 8))
    for priority in range(-8, 8):
        rank = found.rank(b"x", priority)
        assert priority_of(rank) == priority
        assert found.of(rank) is found.rows[2]
        assert found.of(priority) is None


def test_ranks_of_former_classes_keep_their_priority_alone() -> None:
    former = classes(ALARM, STATE)
    later = classes(STATE, former=former)
    rank = former.rank(b"alarm", 0)
    assert later.of(rank) is None
    assert priority_of(rank) == 7
    assert later.of(later.rank(b"state/x", 0)) is later.rows[0]


def test_topics_are_remembered_within_a_bound() -> None:
    counters = Counters()
    found = LinkClasses([LinkClass.model_validate(STATE)], None, counters)
    for number in range(REMEMBERED + 1):
        found.rank(b"state/%d" % number, 0)
    assert counters["link_classes_flushes"] == 1
    assert found.rank(b"\xff" * 9, 1) == 1
    assert found.rank(b"state/" + b"x" * 600, 1) == found.rank(b"state/1", 1)


# on a link --------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("spooling", SPOOLS)
def test_what_waited_goes_by_class_and_each_class_keeps_its_order(
    world: World, qos: int, spooling: dict[str, Any] | None
) -> None:
    a, b = pair(world, ALARM, STATE, LOG, spooling=spooling)
    publish(world, a, "log/1", "x/1", "state/1", "alarm/1", qos=qos)
    assert topics(b) == ["log/1", "x/1", "state/1", "alarm/1"]  # nothing waited
    with away(world, a):
        publish(world, a, "log/2", "log/3", "x/2", "state/2", "x/3", "alarm/2", "state/3", "alarm/3", qos=qos)
    waited = ["alarm/2", "alarm/3", "state/2", "state/3", "x/2", "x/3", "log/2", "log/3"]
    assert topics(b)[4:] == waited


def test_what_leaves_after_its_deadline_is_counted(world: World) -> None:
    a, b = pair(world, ALARM)
    with away(world, a):
        publish(world, a, "alarm/1", "alarm/2", "x")
        world.run(5)
    publish(world, a, "alarm/3")
    assert topics(b) == ["alarm/1", "alarm/2", "x", "alarm/3"]
    assert a.node.counters["link_deadline_missed"] == 2
    found = a.node.links.links["b"].classes
    assert found is not None
    assert [row.late for row in found.rows] == [2]


@pytest.mark.parametrize("spooling", SPOOLS)
@pytest.mark.parametrize("acknowledged", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_has_waited_for_too_long_is_let_go(
    world: World, qos: int, acknowledged: bool, spooling: dict[str, Any] | None
) -> None:
    given = {**LOG, "expire_acknowledged": acknowledged}
    a, b = pair(world, given, spooling=spooling)
    with away(world, a):
        publish(world, a, "log/1", "x/1", qos=qos)
        world.run(60)
        publish(world, a, "log/2", "log/2", qos=qos)
    gone = not qos or acknowledged
    assert topics(b) == (["x/1", "log/2", "log/2"] if gone else ["x/1", "log/1", "log/2", "log/2"])
    assert a.node.counters["link_dropped_aged"] == gone
    link = a.node.links.links["b"]
    assert link.idle
    assert link.classes is not None
    assert [row.expired for row in link.classes.rows] == [int(gone)]


def test_a_retained_value_that_is_let_go_is_told(world: World) -> None:
    a, _ = pair(world, {**LOG, "expire_acknowledged": True})
    told: list[str] = []
    (sender,) = a.node.links.links["b"].senders
    sender.pressure.lost = told.append
    with away(world, a):
        publish(world, a, "log/1", "x/1", retain=True)
        publish(world, a, "log/2")
        world.run(61)
    assert a.node.counters["link_dropped_aged"] == 2
    assert told == ["log/1"]


def test_other_classes_hold_for_what_comes_from_then_on(world: World) -> None:
    a, b = pair(world, ALARM)
    urgent = LinkClass.model_validate({"topics": ["x/#"], "priority": 7})
    with away(world, a):
        publish(world, a, "x/1", "alarm/1")
        a.node.config.link.__dict__["classes"] = [urgent]
        a.node.settings_changed()
        publish(world, a, "x/2", "alarm/2")
        a.node.config.link.__dict__["classes"] = []
        a.node.settings_changed()
        publish(world, a, "x/3")
    assert topics(b) == ["alarm/1", "x/2", "x/1", "alarm/2", "x/3"]
    publish(world, a, "x/4")
    assert topics(b)[-1] == "x/4"


def test_a_client_s_chunk_is_divided_where_classes_differ(world: World) -> None:
    a, b = pair(world, ALARM, STATE)
    with away(world, a):
        client = a.client("pub")
        named = [Publish(topic=topic, payload=b"x") for topic in ("x", "y", "state/1", "state/2", "z")]
        client.transport.write(b"".join(message.encode(client.version) for message in named))
        world.run(1)
        (sender,) = a.node.links.links["b"].senders
        waiting = sender.queue.take_all()
        sender.adopt(waiting)
        assert [entry.count for entry in waiting] == [2, 2, 1]
    assert topics(b) == ["state/1", "state/2", "x", "y", "z"]


def test_what_waits_on_the_disk_alone_has_its_class_again(world: World) -> None:
    given = {**LOG, "expire_acknowledged": True}
    a, b = pair(world, ALARM, given, spooling={"mode": "process", "page_bytes": 1024})
    with away(world, a):
        publish(world, a, *(f"log/{number}" for number in range(60)), qos=1)
        publish(world, a, *(f"x/{number}" for number in range(60)), qos=1)
        publish(world, a, "alarm/1", "alarm/2", qos=1)
        world.run(60)
        publish(world, a, "log/last", "x/last", qos=1)
    expected = ["alarm/1", "alarm/2", *(f"x/{number}" for number in range(60)), "x/last", "log/last"]
    assert sorted(topics(b)) == sorted(expected)
    assert topics(b)[:2] == ["alarm/1", "alarm/2"]
    assert [topic for topic in topics(b) if topic in expected[2:-1]] == expected[2:-1]
    assert a.node.counters["link_dropped_aged"] == 60
