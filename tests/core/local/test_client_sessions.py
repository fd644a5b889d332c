"""Clients that misbehave, brokers that keep silent, and the state that clients leave behind."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.config import Address
from ildm.core.local import broker_session
from ildm.core.local.client_session import MAX_CONNECT
from ildm.core.tables import SESSIONS, SUBSCRIPTIONS
from ildm.core.transfer.routes import MAX_CACHED_TOPIC
from ildm.mqtt import ConnAck, Connect, Disconnect, MalformedPacket, Property, Publish, Version, Will, decode
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.world import World
from tests.support.site import Site, row


def will(client_id: str = "c", delay: int = 0, **fields: Any) -> Connect:
    properties = {Property.WILL_DELAY_INTERVAL: delay} if delay else {}
    return Connect(
        client_id=client_id,
        version=Version.V5,
        will=Will(topic="will", payload=b"gone", properties=properties),
        **fields,
    )


# CONNECT --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "code"), [(Version.V311, 3), (Version.V5, 0x88)])
def test_a_client_does_not_wait_for_ever_for_a_silent_broker(
    world: World, version: Version, code: int
) -> None:
    site = Site(world, "a", None, broker={"address": "a:3", "connack_timeout": 20})
    site.broker.takes = lambda *_: False
    client = site.client("c", version=version)
    world.run(19)
    assert not client.packets
    world.run(2)
    assert [packet.reason_code for packet in client.got(ConnAck)] == [code]
    assert client.closed
    assert not site.node.sessions
    assert not site.broker.connections
    assert site.node.counters["connack_timeouts"] == 1


def test_an_accepted_client_may_be_silent_for_longer_than_the_broker_had_to_answer(world: World) -> None:
    site = Site(world, "a", None, broker={"address": "a:3", "connack_timeout": 20})
    client = site.client("c")
    world.run(100)
    assert not client.closed


def test_a_connect_is_refused_by_its_header_when_it_is_too_large(world: World) -> None:
    site = Site(world, "a", None)
    client = MiniClient()
    world.connect(Address("a", 1), client)
    client.transport.write(b"\x10\x80\x80\xc0\x01")  # 3 MiB are to follow
    world.run(1)
    assert client.closed
    assert site.node.counters["malformed"] == 1


def test_a_large_connect_in_small_pieces(world: World) -> None:
    site = Site(world, "a", None)
    properties = {Property.USER_PROPERTY: [("k", "v" * 60000)]}
    packet = Connect(
        client_id="c" * 60000,
        version=Version.V5,
        properties=properties,
        will=Will(topic="t" * 60000, payload=bytes(60000), properties=properties),
        username="u" * 60000,
        password=b"p" * 60000,
    )
    data = packet.encode(Version.V5)
    assert 7 * 60000 < len(data) < MAX_CONNECT
    client = MiniClient(Version.V5)
    world.connect(Address("a", 1), client)
    for start in range(0, len(data), 1460):
        client.transport.write(data[start : start + 1460])
    world.run(1)
    assert client.got(ConnAck)[0].reason_code == 0
    assert site.broker.connections[-1].received[0] == packet


@pytest.mark.parametrize(("version", "code"), [(Version.V311, 2), (Version.V5, 0x85)])
def test_a_client_cannot_take_over_the_nodes_own_session(world: World, version: Version, code: int) -> None:
    a, b = row(world, "ab", "pf", link={"sessions": 2})
    for client_id in ("ildm-a-0", "ildm-a-1"):
        client = a.client(client_id, version=version)
        world.run(1)
        assert [packet.reason_code for packet in client.got(ConnAck)] == [code]
        assert client.closed
    assert sorted(one.client_id for one in a.broker.connections) == ["ildm-a-0", "ildm-a-1", "ildm-a-same"]
    assert not a.client("ildm-a-2", version=version).closed
    b.client("p").send(Publish(topic="t", payload=b"x"))
    world.run(1)
    assert a.broker.topics() == ["t"]


def test_a_node_that_only_relays_has_no_ids_of_its_own(world: World) -> None:
    site = Site(world, "a", None)
    assert site.client("ildm-a-0").got(ConnAck)[0].reason_code == 0


# topics ---------------------------------------------------------------------------------------


def test_routes_of_long_topics_are_not_remembered(world: World) -> None:
    a, b = row(world, "ab", "pf")
    client = a.client("c")
    short, long = "s" * MAX_CACHED_TOPIC, "l" * (MAX_CACHED_TOPIC + 1)
    for topic in (short, long, long):
        client.send(Publish(topic=topic, payload=b"x"))
    world.run(1)
    assert b.broker.topics() == [short, long, long]
    assert list(a.node.router.routes.local) == [short.encode()]
    assert list(b.node.router.routes.cache_of(b.node.links.links["a"])) == [short.encode()]


# the end of connections -------------------------------------------------------------------------


def test_a_disconnect_that_is_a_protocol_error_does_not_discard_the_will(world: World) -> None:
    """MQTT-3.14.2-2: no session expiry where CONNECT had none."""
    a, b = row(world, "ab", "pf")
    client = a.client(connect=will())
    client.send(Disconnect(properties={Property.SESSION_EXPIRY_INTERVAL: 5}))
    world.run(2)
    assert [packet.reason_code for packet in client.got(Disconnect)] == [0x82]
    assert b.broker.topics() == ["will"]
    assert a.node.clients.records == {}


@pytest.mark.parametrize(("clean", "expected"), [(False, []), (True, ["will"])])
def test_who_takes_a_session_over_cancels_its_delayed_will_but_not_by_a_clean_start(
    world: World, clean: bool, expected: list[str]
) -> None:
    """MQTT-3.1.3-9; here the old connection ends after the new one was accepted."""
    a, b = row(world, "ab", "pf")
    long = {Property.SESSION_EXPIRY_INTERVAL: 600}
    old = a.client(connect=will(delay=300, clean_start=False, properties=long))
    a.client(connect=Connect(client_id="c", version=Version.V5, clean_start=clean, properties=long))
    old.transport.abort()
    world.run(5)
    assert b.broker.topics() == expected


def test_a_session_with_a_finite_expiry_expires_although_the_node_has_crashed(world: World) -> None:
    a, b = row(world, "ab", "sf")
    properties = {Property.SESSION_EXPIRY_INTERVAL: 60}
    a.subscriber("t", "s", version=Version.V5, clean_start=False, properties=properties)
    saved = a.store.copy()
    a.crash()
    world.run(1)
    a.store = saved  # what a node that was killed has left on disk
    a.start(("b",))
    world.run(50)
    assert b.node.links.links["a"].interest == {"t": 0}
    world.run(20)
    assert b.node.links.links["a"].interest == {}
    assert a.node.clients.records == {}
    assert a.store.rows(SESSIONS) == a.store.rows(SUBSCRIPTIONS) == {}


@pytest.mark.parametrize("version", [Version.V31, Version.V311])
def test_the_plain_connack_says_what_the_node_takes_it_to_say(version: Version) -> None:
    """It is known by its bytes, and not decoded."""
    assert decode(broker_session._PLAIN, version) == broker_session._ACCEPTED == ConnAck()


def test_the_plain_connack_is_none_of_mqtt_5() -> None:
    with pytest.raises(MalformedPacket):
        decode(broker_session._PLAIN, Version.V5)
