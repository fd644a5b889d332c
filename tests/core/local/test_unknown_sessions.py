"""Sessions that the broker has and the node has never seen: nobody knows their filters."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ildm.admin.families import FILTERS, SESSIONS, SESSIONS_UNKNOWN
from ildm.config import Address
from ildm.core.counters import Counters
from ildm.mqtt import Disconnect, Property, Publish, Subscribe, Subscription, Unsubscribe, Version
from ildm.net.figures import scrape
from ildm.net.view import LiveView
from ildm.testing.virtual.session import Session
from ildm.testing.virtual.world import World
from tests.support.site import Site, row

LONG = {Property.SESSION_EXPIRY_INTERVAL: 1000}


def older(site: Site, *client_ids: str) -> None:
    """The broker has had sessions of clients since before its node was there."""
    site.broker.sessions |= {client_id: Session(client_id) for client_id in client_ids}


def back(site: Site, version: Version, client_id: str = "old", **more: Any) -> Any:
    """A client that goes on with its session."""
    properties = LONG if version is Version.V5 else {}
    return site.client(client_id, clean_start=False, version=version, properties=properties, **more)


def heard(site: Site, other: Site) -> dict[str, int]:
    """What another site knows of the interest of a site."""
    return dict(other.node.links.links[site.name].interest)


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_a_session_older_than_the_node_gets_everything(world: World, version: Version) -> None:
    a, b = row(world, "ab", "sf")
    older(b, "old")
    back(b, version)
    world.run(1)
    assert heard(b, a) == {"#": 2}
    assert b.node.clients.unknown == 1
    a.client("pub").send(Publish(topic="m/1", payload=b"x", qos=1, packet_id=1))
    world.run(1)
    assert b.broker.topics() == ["m/1"]


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_it_holds_while_the_client_is_away_and_over_a_restart(world: World, version: Version) -> None:
    a, b = row(world, "ab", "sf")
    older(b, "old")
    back(b, version).transport.abort()
    world.run(1)
    b.crash()
    world.run(1)
    b.start(neighbors=("a",))
    world.run(3)
    assert heard(b, a) == {"#": 2}
    assert b.node.clients.unknown == 1


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_a_clean_session_ends_it(world: World, version: Version) -> None:
    a, b = row(world, "ab", "sf")
    older(b, "old")
    back(b, version).send(Disconnect())
    world.run(1)
    b.client("old", clean_start=True, version=version)
    world.run(1)
    assert heard(b, a) == {}
    assert b.node.clients.unknown == 0


def test_a_subscription_does_not_end_it(world: World) -> None:
    """Other filters may be there."""
    a, b = row(world, "ab", "sf")
    older(b, "old")
    back(b, Version.V311).send(Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter="t", qos=1)]))
    world.run(1)
    assert b.node.clients.unknown == 1
    assert heard(b, a)["#"] == 2


def test_in_mqtt_3_1_which_has_no_flag_the_first_subscription_ends_it(world: World) -> None:
    a, b = row(world, "ab", "sf")
    client = back(b, Version.V31)
    world.run(1)
    assert heard(b, a) == {"#": 2}
    client.send(Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter="t", qos=1)]))
    world.run(1)
    assert heard(b, a) == {"t": 1}
    assert b.node.clients.unknown == 0


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_a_session_that_begins_at_the_node_is_known(world: World, version: Version) -> None:
    a, b = row(world, "ab", "sf")
    back(b, version).transport.abort()  # the broker says: no session present
    world.run(1)
    older(b, "old")
    back(b, version)
    world.run(1)
    assert heard(b, a) == {}
    assert b.node.clients.unknown == 0


def test_a_session_that_ends_with_its_connection_takes_it_along(world: World) -> None:
    a, b = row(world, "ab", "sf")
    older(b, "old")
    client = b.client("old", clean_start=False, version=Version.V5)
    world.run(1)
    assert heard(b, a) == {"#": 2}
    client.transport.abort()
    world.run(1)
    assert heard(b, a) == {}


def test_it_can_be_switched_off(world: World) -> None:
    a = Site(world, "a", "sf")
    b = Site(world, "b", "sf", broker={"address": "b:3", "unknown_sessions": "ignore"})
    b.node.links.add(Address("a", 2), False)
    world.run(2)
    older(b, "old")
    back(b, Version.V311)
    world.run(1)
    assert heard(b, a) == {}
    assert b.node.clients.unknown == 0


def test_the_log_names_the_first_of_many(world: World) -> None:
    _, b = row(world, "ab", "sf")
    older(b, *(f"old{number}" for number in range(30)))
    for number in range(30):
        back(b, Version.V311, f"old{number}")
    world.run(1)
    assert b.node.clients.unknown == 30
    told = [each for each in b.node.driver.logged if "does not know" in each[1]]
    assert len(told) == 10


def counted(site: Site) -> tuple[int, int, int]:
    """What the registry keeps of its sessions, and it is what a look at each of them says."""
    clients = site.node.clients
    records = clients.records.values()
    kept = clients.unknown, clients.persistent, clients.filters
    assert kept == (
        sum(record.is_unknown for record in records),
        sum(record.expiry > 0 for record in records),
        sum(len(record.filters) for record in records),
    )
    return kept


def test_the_numbers_that_are_kept_are_right_in_every_life_of_a_session(world: World) -> None:
    _, b = row(world, "ab", "sf")
    assert counted(b) == (0, 0, 0)
    older(b, "old", "other")
    old = back(b, Version.V5)
    assert counted(b) == (1, 1, 1)
    old.send(
        Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter="t"), Subscription(topic_filter="u")])
    )
    world.run(2)
    assert counted(b) == (1, 1, 3)
    old.send(Subscribe(packet_id=2, subscriptions=[Subscription(topic_filter="t", qos=1)]))
    old.send(Unsubscribe(packet_id=3, topic_filters=["u", "never"]))
    world.run(2)
    assert counted(b) == (1, 1, 2)
    back(b, Version.V311, "other")
    b.client("clean", clean_start=True)
    assert counted(b) == (2, 2, 3)
    old.transport.abort()
    world.run(1)
    assert counted(b) == (2, 2, 3)
    b.crash()
    world.run(1)
    b.start(neighbors=("a",))
    world.run(1)
    assert counted(b) == (2, 2, 3)
    back(b, Version.V5)
    b.client("other", clean_start=True)
    world.run(1)
    assert counted(b) == (1, 1, 2)
    again = back(b, Version.V5)
    again.send(Disconnect(properties={Property.SESSION_EXPIRY_INTERVAL: 5}))
    world.run(1)
    assert counted(b) == (1, 1, 2)
    world.run(10)
    assert counted(b) == (0, 0, 0)


def test_in_mqtt_3_1_the_count_ends_with_the_first_subscription(world: World) -> None:
    _, b = row(world, "ab", "sf")
    client = b.client("old", clean_start=False, version=Version.V31)
    assert counted(b) == (1, 1, 1)
    client.send(Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter="t")]))
    world.run(2)
    assert counted(b) == (0, 1, 1)


def test_the_administrators_look_goes_through_no_session(world: World) -> None:
    """There may be a hundred thousand, at each scrape of the metrics."""

    class Unread(dict[str, Any]):
        def values(self) -> Any:
            raise AssertionError("all sessions were looked at")

        items = __iter__ = values

    _, b = row(world, "ab", "sf")
    older(b, "old")
    back(b, Version.V5)
    clients = b.node.clients
    clients.records = Unread(clients.records)
    assert (clients.unknown, clients.persistent, clients.filters) == (1, 1, 1)
    kept: Any = SimpleNamespace(waiting_rows=0, waiting_bytes=0, failure=None, counters=Counters())
    view = LiveView(b.node, kept, lambda: None)
    assert view.status()["sessions_unknown"] == 1
    found = {
        metric: [sample.value for sample in samples]
        for metric, samples in scrape(view, None, "1", True, True)
    }
    assert (found[SESSIONS], found[SESSIONS_UNKNOWN], found[FILTERS]) == ([1], [1], [1, 0])
