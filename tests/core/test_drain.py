"""The orderly end of a node: what it has taken it tries to hand on, and says what it could not."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.config import Address
from ildm.mqtt import Publish
from ildm.testing.virtual.world import World
from tests.support.publishing import TOPICS, publish
from tests.support.senders import inject
from tests.support.site import Site, row


def drain(site: Site) -> list[float]:
    """When the node has ended."""
    ended: list[float] = []
    site.node.drain(lambda: ended.append(site.world.time))
    return ended


def warnings(site: Site) -> list[dict[str, Any]]:
    return [fields for _, event, fields in site.driver.logged if "messages lost" in event]


@pytest.mark.parametrize("qos", [1, 2])
def test_it_waits_for_a_neighbour_that_is_away_and_comes_back(world: World, qos: int) -> None:
    a, b = row(world, "ab", "pf")
    listener = world.listeners.pop(Address("a", 2))
    a.node.links.links["b"].open_sessions[0].abort()
    world.run(0.1)
    publish(a.client("p"), TOPICS, qos)
    started = world.time
    ended = drain(a)
    world.run(1)
    assert ended == []
    world.listen(Address("a", 2), listener)
    world.run(9)
    assert b.broker.topics() == TOPICS
    assert ended
    assert ended[0] - started < a.node.config.limits.drain_timeout
    assert warnings(a) == []


def test_what_it_gives_up_is_counted_and_logged_for_each_neighbour(world: World) -> None:
    a, b = row(world, "ab", "pf")
    b.kill()
    world.run(1)
    publisher = a.client("p")
    publish(publisher, TOPICS, 1)
    publisher.send(Publish(topic="t", payload=b"x"))
    world.run(1)
    started = world.time
    ended = drain(a)
    world.run(60)
    assert ended == [pytest.approx(started + a.node.config.limits.drain_timeout, abs=0.1)]
    assert a.node.counters["link_dropped_shutdown_qos1"] == 50
    assert a.node.counters["link_dropped_shutdown_qos0"] == 1
    assert warnings(a) == [{"messages": 51, "neighbor": "b"}]


def test_it_waits_for_the_broker_with_messages_of_its_own(world: World) -> None:
    _, b = row(world, "ab", "pf")
    b.broker_down()
    world.run(1)
    for topic in TOPICS:
        inject(b.node, Publish(topic=topic, payload=b"x", qos=1))
    ended = drain(b)
    world.run(1)
    assert ended == []
    b.broker_up()
    world.run(9)
    assert b.broker.topics() == TOPICS
    assert ended
    assert warnings(b) == []


def test_messages_that_a_neighbour_still_has_keep_nobody_waiting(world: World) -> None:
    """They are neither lost nor counted so: they come again when the node is back."""
    a, b = row(world, "ab", "pf")
    b.broker_down()
    world.run(1)
    publish(a.client("p"), TOPICS, 1)
    started = world.time
    ended = drain(b)
    world.run(1)
    assert ended == [started]
    assert warnings(b) == []
    assert not any("shutdown" in name for name in b.node.counters)
    assert a.node.links.links["b"].senders[0].inflight == 50
    b.broker_up()
    b.start(("a",))
    world.run(30)
    assert b.broker.topics() == TOPICS


def test_clients_are_sent_away_at_a_rate_and_the_time_for_queues_begins_after_the_last(world: World) -> None:
    site = Site(world, "a", None, limits={"drain_rate": 20, "drain_timeout": 5})
    clients = [site.client(f"c{number}") for number in range(10)]
    ended = drain(site)
    left = []
    for _ in range(6):
        world.run(0.05)
        left.append(sum(client.closed for client in clients))
    assert left == [2, 2, 4, 4, 6, 6]
    assert not ended
    world.run(5)
    assert all(client.closed for client in clients)
    assert ended


@pytest.mark.parametrize("rate", [3, 5, 16, 25])
def test_the_rate_is_kept_also_where_it_is_no_multiple_of_the_turns(world: World, rate: int) -> None:
    site = Site(world, "a", None, limits={"drain_rate": rate})
    clients = [site.client(f"c{number}") for number in range(3 * rate)]
    drain(site)
    world.run(1.95)
    assert abs(sum(client.closed for client in clients) - 2 * rate) <= 2


def test_who_is_in_a_hurry_waits_for_no_rate(world: World) -> None:
    site = Site(world, "a", None, limits={"drain_rate": 1})
    clients = [site.client(f"c{number}") for number in range(10)]
    ended = drain(site)
    site.node.drain_deadline = 0
    world.run(0.1)
    assert all(client.closed for client in clients)
    assert ended
