"""After a start clients wait for neighbours that nothing is known of, and for no others."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.config import Address, LookupConfig
from ildm.core.transfer.message_ids import NOBODY
from ildm.mqtt import ConnAck, Connect, IldmError, ProtocolViolation, Publish, PubRel, Version
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.store import MemoryStore
from ildm.testing.virtual.world import World
from tests.support.site import Site, session_of


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


def transit(world: World, algorithm: str, **link: Any) -> tuple[Site, Site, Site]:
    """``t`` between ``a`` and ``c`` has lost its state, is linked with ``a`` and has not met ``c`` again.

    ``c`` dials it, and wants what ``a`` publishes."""
    a, t, c = (Site(world, name, algorithm) for name in "atc")
    t.node.links.add(Address("a", 2), False)
    c.node.links.add(Address("t", 2), False)
    c.subscriber("t/#", qos=2, clean_start=False)
    world.run(3)
    assert set(t.links()) == {"a", "c"}
    t.kill()
    c.kill()
    t.store = MemoryStore()
    t.settings["link"] = {"wait_at_start": 60, **link}
    t.start(("a",))
    world.run(5)
    assert t.links() == {"a": "active"}
    return a, t, c


def sent(site: Site, *topics: str, qos: int = 2) -> None:
    client = site.client("p")
    for number, topic in enumerate(topics, 1):
        client.send(Publish(topic=topic, payload=b"x", qos=qos, packet_id=number))
        if qos == 2:
            client.send(PubRel(packet_id=number))


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("cut", [False, True])
def test_messages_of_one_neighbour_wait_for_another_that_dials(
    world: World, algorithm: str, qos: int, cut: bool
) -> None:
    a, t, c = transit(world, algorithm, wait_for=["t", "c"])
    assert t.node.links.start_gate.waiting_for == ["c"]
    topics = [f"t/{number % 3}" for number in range(20)]
    sent(a, *topics, qos=qos)
    world.run(2)
    assert t.node.counters["link_held_at_start"] == 20
    assert t.broker.topics() == []
    assert not a.node.links.idle
    if cut:
        session_of(t, "a").abort()
        world.run(5)
        assert t.node.counters["link_held_at_start"] == 40
    c.start(("t",))
    world.run(10)
    assert c.broker.topics() == topics
    assert t.node.links.start_gate.waiting_for == []
    sent(a, "t/later", qos=qos)
    world.run(2)
    assert c.broker.topics() == [*topics, "t/later"]
    assert t.node.counters["start_waits_expired"] == 0


def test_without_the_key_they_are_not_passed_on(world: World) -> None:
    a, t, c = transit(world, "sf")
    sent(a, "t/1")
    world.run(2)
    c.start(("t",))
    world.run(10)
    assert c.broker.topics() == []
    assert t.node.counters["link_held_at_start"] == 0


def test_messages_go_on_without_the_neighbour_when_the_time_is_over(world: World) -> None:
    a, t, _ = transit(world, "pf", wait_for=["c"])
    sent(a, "t/1", "t/2")
    world.run(2)
    assert t.broker.topics() == []
    world.run(60)
    assert t.broker.topics() == ["t/1", "t/2"]
    assert t.node.counters["start_waits_expired"] == 1


def test_what_waits_is_within_the_credit_of_the_neighbour(world: World) -> None:
    """One that sends more breaks the protocol; what tells identities counts for no message."""
    _, t, _ = transit(world, "pf", wait_for=["c"])
    inbound = t.node.links.links["a"].inbounds[0]
    held = t.node.links.start_gate.hold_back("a session", inbound, lambda: None)
    assert held is not None
    frame = Publish(topic="t", payload=b"x", qos=1, packet_id=1).encode(Version.V5)
    assert held.keeps(NOBODY, 0, 2, len(NOBODY))
    for _ in range(inbound.limit):
        assert held.keeps(frame, 0, 2, len(frame))
    assert not held.keeps(b"\x30\x03\x00\x01t", 0, 2, 5)  # QoS 0
    with pytest.raises(ProtocolViolation, match=r"MQTT-3\.3\.4-9"):
        held.keeps(frame, 0, 2, len(frame))


PEERS = LookupConfig(host="peers", port=2)
SECRET = "a secret of some length"


def discovering(world: World, answer: list[Address] | BaseException) -> Site:
    world.names = lambda who, question: answer
    link = {"wait_at_start": 60, "discover": [PEERS], "secret": SECRET, "discover_interval": 5}
    return started(world, "sf", link=link, secret=SECRET)


def test_neighbours_that_dns_names_first_are_waited_for_and_the_node_itself_is_not(world: World) -> None:
    b = Site(world, "b", "sf", secret=SECRET, link={"secret": SECRET})
    b.subscriber("t/#", qos=1)
    a = discovering(world, [Address("a", 2), Address("b", 2)])
    client = a.client("p")
    publish(client, "t/1")
    assert not client.got(ConnAck)
    world.run(5)
    assert client.got(ConnAck)
    assert b.broker.topics() == ["t/1"]
    assert a.node.counters["start_waits_expired"] == 0


def test_clients_wait_while_dns_does_not_answer(world: World) -> None:
    a = discovering(world, IldmError("no name server"))
    client = a.client("p")
    world.run(20)
    assert a.node.links.start_gate.waiting_for == ["peers:2"]
    assert not client.got(ConnAck)
    world.names = lambda who, question: []
    world.run(10)
    assert client.got(ConnAck)
