"""After a start clients wait for neighbours that nothing is known of, and for no others."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.config import Address
from ildm.mqtt import ConnAck, Connect, Publish
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.store import MemoryStore
from ildm.testing.virtual.world import World
from tests.support.site import Site


def started(world: World, algorithm: str, *neighbors: str, **settings: Any) -> Site:
    """A site whose node has just been started for the first time."""
    settings.setdefault("link", {"wait_at_start": 5})
    site = Site(world, "a", algorithm, **settings)
    site.kill()
    site.store = MemoryStore()
    site.start(neighbors)
    return site


def served_at(site: Site, client: MiniClient) -> float:
    """The time at which a client gets CONNACK."""
    for _ in range(1000):
        if client.got(ConnAck):
            return site.node.driver.now()
        site.world.run(0.01)
    raise AssertionError("no CONNACK")


def publish(client: MiniClient, *topics: str) -> None:
    for number, topic in enumerate(topics, 1):
        client.send(Publish(topic=topic, payload=b"x", qos=1, packet_id=number))


@pytest.mark.parametrize("dialed_too", [False, True])
def test_what_is_published_right_after_the_first_start_crosses(
    world: World, algorithm: str, dialed_too: bool
) -> None:
    b = Site(world, "b", algorithm)
    b.subscriber("t/#", qos=1)
    if dialed_too:
        b.node.links.add(Address("a", 2), False)
    world.run(1)
    a = started(world, algorithm, "b")
    client = a.client("p")
    publish(client, "t/1", "t/2")  # before CONNACK, as the standard allows
    assert not client.got(ConnAck)
    assert a.broker.topics() == []
    assert served_at(a, client) < 3
    world.run(1)
    assert b.broker.topics() == ["t/1", "t/2"]
    assert a.node.counters["start_waits_expired"] == 0


def test_a_neighbour_that_is_remembered_is_not_waited_for(world: World, algorithm: str) -> None:
    b = Site(world, "b", algorithm)
    b.subscriber("t/#", qos=1)
    a = started(world, algorithm, "b")
    world.run(3)
    a.store = a.store.copy()
    a.kill()
    b.kill()
    a.start(("b",))
    client = a.client("p")
    assert client.got(ConnAck)
    publish(client, "t/1")
    world.run(1)
    b.start()
    world.run(60)
    assert b.broker.topics() == ["t/1"]
    assert a.node.counters["start_waits_expired"] == 0


def test_a_neighbour_out_of_reach_is_waited_for_until_the_time_is_over(world: World, algorithm: str) -> None:
    a = started(world, algorithm, "nowhere", link={"wait_at_start": 3})
    begin = a.node.driver.now()
    client = a.client("p")
    assert a.node.links.start_gate.waiting_for == ["nowhere:2"]
    assert 3 <= served_at(a, client) - begin < 3.2
    assert a.node.counters["start_waits_expired"] == 1
    assert a.node.links.start_gate.waiting_for == []
    assert a.client("late").got(ConnAck)


def test_with_a_long_time_nothing_is_taken_before_the_neighbour_is_met(world: World, algorithm: str) -> None:
    """What the node does not take it need not keep for a neighbour of which it knows nothing."""
    a = started(world, algorithm, "b", link={"wait_at_start": 86400})
    client = a.client("p")
    publish(client, "t/1", "t/2")
    world.run(3600)
    assert not client.got(ConnAck)
    assert a.broker.topics() == []
    b = Site(world, "b", algorithm)
    b.subscriber("t/#", qos=1)
    world.run(60)
    assert client.got(ConnAck)
    assert b.broker.topics() == ["t/1", "t/2"]
    assert a.node.counters["start_waits_expired"] == 0


def test_many_that_wait_are_all_served(world: World) -> None:
    a = started(world, "sf", "nowhere")
    for number in range(250):
        client = MiniClient()
        world.connect(Address("a", 1), client)
        client.send(Connect(client_id=f"c{number}"))
    world.run(1)
    assert a.node.counters["clients_connected"] == 0
    world.run(5)
    assert a.node.counters["clients_connected"] == 250


def test_a_client_that_gives_up_meanwhile_is_not_brought_to_the_broker(world: World, algorithm: str) -> None:
    a = started(world, algorithm, "nowhere")
    gone, stays = a.client("gone"), a.client("stays")
    gone.transport.abort()
    world.run(0.1)
    assert len(a.node.sessions) == 1
    world.run(6)
    assert stays.got(ConnAck)
    assert a.node.counters["clients_connected"] == 1


@pytest.mark.parametrize("waits", [0, 5])
def test_nobody_waits_without_the_key_or_without_a_neighbour(
    world: World, algorithm: str, waits: float
) -> None:
    neighbors = () if waits else ("nowhere",)
    a = started(world, algorithm, *neighbors, link={"wait_at_start": waits})
    assert a.client("p").got(ConnAck)
    world.run(10)
    assert a.node.counters["start_waits_expired"] == 0


def test_a_neighbour_that_is_removed_is_not_waited_for(world: World, algorithm: str) -> None:
    a = started(world, algorithm, "nowhere")
    client = a.client("p")
    assert not client.got(ConnAck)
    a.node.links.remove("nowhere:2")
    world.run(0.1)
    assert client.got(ConnAck)
    assert a.node.counters["start_waits_expired"] == 0


def test_a_node_that_its_own_configuration_names_is_not_waited_for(world: World, algorithm: str) -> None:
    a = started(world, algorithm, "a")
    client = a.client("p")
    assert served_at(a, client) < 1
    assert a.node.counters["start_waits_expired"] == 0


def test_two_addresses_of_one_node_are_known_together(world: World, algorithm: str) -> None:
    b = Site(world, "b", algorithm)
    world.listen(Address("other", 2), world.listeners[Address("b", 2)])
    a = started(world, algorithm, "b", "other")
    assert served_at(a, a.client("p")) < 3
    assert a.node.counters["start_waits_expired"] == 0
    assert b.links() == {"a": "active"}


def test_a_link_that_would_close_a_cycle_is_not_waited_for(world: World, algorithm: str) -> None:
    c = Site(world, "c", algorithm)
    b = Site(world, "b", algorithm)
    b.node.links.add(Address("c", 2), False)
    c.subscriber("t/#", qos=1)
    world.run(3)
    a = started(world, algorithm, "b", "c")
    client = a.client("p")
    publish(client, "t/1")
    assert served_at(a, client) < 7
    world.run(1)
    assert c.broker.topics() == ["t/1"]
    assert a.node.counters["start_waits_expired"] == 0


def test_what_ends_while_clients_wait_ends_them(world: World) -> None:
    a = started(world, "sf", "nowhere")
    a.client("p")
    ended: list[bool] = []
    a.node.drain(lambda: ended.append(True))
    world.run(3)
    assert ended
    assert not a.node.sessions
