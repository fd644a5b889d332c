"""A start without state: the broker may have sessions whose clients are away."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.config import Address
from ildm.config.broker import BrokerConfig
from ildm.core.broker.older_sessions import TOPIC
from ildm.core.tables import SESSIONS, SUBSCRIPTIONS
from ildm.mqtt import Publish, Version
from ildm.testing.virtual.session import Session
from ildm.testing.virtual.world import World
from tests.support.site import Site

NEW = "the state is new"
AWAY = "the broker has sessions whose clients are away"


def two(world: World, seconds: float = 100.0, **more: Any) -> tuple[Site, Site]:
    """The second is new, and its broker has a session of a client that is away."""
    a = Site(world, "a", "sf")
    broker = {"address": "b:3", "adopt_sessions": seconds, **more}
    b = Site(world, "b", "sf", broker=broker, neighbors=("a",), new_state=True)
    b.broker.sessions["old"] = Session("old")
    world.run(2)
    return a, b


def heard(site: Site, other: Site) -> dict[str, int]:
    return dict(other.node.links.links[site.name].interest)


def said(site: Site, event: str) -> list[tuple[str, dict[str, object]]]:
    return [(level, fields) for level, text, fields in site.driver.logged if text.startswith(event)]


def test_a_site_gets_everything_for_clients_that_are_away(world: World) -> None:
    a, b = two(world)
    assert heard(b, a) == {"#": 2}
    assert 90 < b.node.clients.adopts_for <= 98
    assert said(b, NEW)[0][1]["seconds"] == 100
    a.client("pub").send(Publish(topic="m/1", payload=b"x", qos=1, packet_id=1))
    world.run(1)
    assert b.broker.topics() == ["m/1"]
    b.node.clients.check()


def test_the_time_ends(world: World) -> None:
    a, b = two(world)
    world.run(100)
    assert heard(b, a) == {}
    assert b.node.clients.adopts_for == 0
    assert (b.store.rows(SESSIONS), b.store.rows(SUBSCRIPTIONS)) == ({}, {})


def test_clients_that_are_back_by_then_go_on_to_get_everything(world: World) -> None:
    a, b = two(world)
    b.client("old", clean_start=False, version=Version.V311)
    world.run(100)
    assert heard(b, a) == {"#": 2}
    b.node.clients.check()


def test_an_administrator_ends_it(world: World) -> None:
    a, b = two(world)
    assert b.node.clients.end_adoption()
    world.run(1)
    assert heard(b, a) == {}
    b.node.clients.check()
    assert not b.node.clients.end_adoption()
    world.run(200)
    b.node.clients.check()


def test_it_goes_on_after_a_restart_up_to_its_time(world: World) -> None:
    a, b = two(world)
    world.run(50)
    b.crash()
    b.start(neighbors=("a",))
    world.run(10)
    assert heard(b, a) == {"#": 2}
    world.run(60)
    assert heard(b, a) == {}


def test_a_later_start_does_not_begin_it(world: World) -> None:
    a = Site(world, "a", "sf")
    b = Site(world, "b", "sf", broker={"address": "b:3", "adopt_sessions": 100}, neighbors=("a",))
    world.run(2)
    assert heard(b, a) == {}
    assert said(b, NEW) == []


def test_without_it_the_start_says_what_to_do(world: World) -> None:
    a, b = two(world, 0.0)
    assert heard(b, a) == {}
    [(level, fields)] = said(b, NEW)
    assert level == "info"
    assert "ildm sessions import" in str(fields["remedy"])


@pytest.mark.parametrize(("payload", "told"), [(b"2", 2), (b"0", None), (b"two", None), (None, None)])
@pytest.mark.parametrize("new", [True, False])
def test_sessions_of_which_the_broker_tells_are_warned_of(
    world: World, payload: bytes | None, told: int | None, new: bool
) -> None:
    b = Site(world, "b", "sf", new_state=new)
    if payload is not None:
        b.broker.retained[TOPIC] = Publish(topic=TOPIC, payload=payload, retain=True)
    world.run(60)
    assert said(b, AWAY) == ([] if told is None or not new else [("warning", said(b, AWAY)[0][1])])
    assert [fields["sessions"] for _, fields in said(b, AWAY)] == ([told] if told and new else [])
    assert not [each for each in b.broker.connections if "older" in each.client_id], "it asks once"


def test_a_node_that_only_relays_says_nothing(world: World) -> None:
    b = Site(world, "b", None, broker={"address": "b:3", "adopt_sessions": 100}, new_state=True)
    world.run(2)
    assert said(b, NEW) == []
    assert b.node.clients.adopts_for == 0


def test_what_contradicts_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="adopt_sessions: needs unknown_sessions: everything"):
        BrokerConfig(address=Address("b", 3), adopt_sessions=5, unknown_sessions="ignore")
