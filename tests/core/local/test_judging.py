"""Who judges a packet: the broker what is between it and its client, the node what it must understand itself.

A message is relayed as it came, with an algorithm and without one; what cannot be read does not cross.
"""

from __future__ import annotations

from typing import Any

import pytest

from ildm.config import Address
from ildm.mqtt import (
    ConnAck,
    Connect,
    Disconnect,
    Property,
    Publish,
    Subscribe,
    Subscription,
    Unsubscribe,
    Version,
    Will,
)
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.world import World
from tests.support.odd_brokers import keeper_at
from tests.support.site import Site, row


def raw_client(world: World, name: str, data: bytes, version: Version = Version.V311) -> MiniClient:
    client = MiniClient(version)
    world.connect(Address(name, 1), client)
    client.transport.write(data)
    world.run(1)
    return client


# messages ---------------------------------------------------------------------------------------

TOO_MANY = {Property.USER_PROPERTY: [("", "")] * 1001}
TOO_LONG = {Property.USER_PROPERTY: [("k", "v" * 65535)]}
UNUSABLE = [
    (Version.V311, b"\x30\x05\x00\x03a/#", "a wildcard in the topic"),
    (Version.V311, b"\x30\x04\x00\x02\xc3\x28", "a topic that is not UTF-8"),
    (Version.V311, b"\x30\x02\x00\x09", "a topic beyond the end"),
    (Version.V311, b"\x32\x05\x00\x01t\x00\x00", "packet identifier 0"),
    (Version.V5, b"\x30\x06\x00\x01t\x02\x01\x07", "payload format indicator 7"),
    (Version.V5, b"\x30\x06\x00\x01t\x02\x0b\x01", "a subscription identifier"),
    (Version.V5, b"\x30\x06\x00\x00\x03\x23\x00\x05", "an alias that was not set"),
    (Version.V5, b"\x30\x07\x00\x01t\x03\x23\x00\xff", "an alias above the maximum"),
    (Version.V5, Publish(topic="t", properties=TOO_MANY).encode(Version.V5), "too many properties"),
    (Version.V5, Publish(topic="t", properties=TOO_LONG).encode(Version.V5), "too long properties"),
    (Version.V5, Publish(topic="t", retain=True, properties=TOO_MANY).encode(Version.V5), "a retained one"),
]


@pytest.mark.parametrize("algorithm", [None, "pf", "sf"])
@pytest.mark.parametrize(("version", "bad"), [case[:2] for case in UNUSABLE], ids=[c[2] for c in UNUSABLE])
def test_a_message_that_cannot_be_read_is_relayed_and_does_not_cross(
    world: World, algorithm: str | None, version: Version, bad: bytes
) -> None:
    if algorithm is None:
        a = Site(world, "a", None)
    else:
        a, b = row(world, "ab", algorithm)
        b.subscriber("#")
    keeper = keeper_at(a)
    client = a.client("c", version=version)
    good = Publish(topic="good", payload=b"x").encode(version)
    client.transport.write(good + bad + bad + good)
    world.run(1)
    assert keeper.raw["c"] == good + bad + bad + good
    assert not client.closed
    if algorithm is not None:
        assert b.broker.topics() == ["good", "good"]
        assert a.node.counters["transfer_dropped_unusable"] == 2
        warnings = [event for level, event, _ in a.node.driver.logged if level == "warning"]
        assert warnings == ["message relayed that cannot cross"]


def test_an_alias_is_forgotten_with_a_message_that_might_have_changed_it(world: World) -> None:
    """Later messages would go out under the topic the alias had before."""
    a, b = row(world, "ab", "pf")
    keeper_at(a)
    client = a.client("c", version=Version.V5)
    alias = {Property.TOPIC_ALIAS: 1}

    def send(topic: str, properties: dict[Property, Any]) -> None:
        client.send(Publish(topic=topic, properties=properties))
        world.run(1)

    send("one", alias)
    send("", alias)
    send("two", {**alias, **TOO_MANY})
    send("", alias)
    assert b.broker.topics() == ["one", "one"]
    send("three", alias)
    send("", alias)
    assert b.broker.topics() == ["one", "one", "three", "three"]
    assert a.node.counters["transfer_dropped_unusable"] == 2


def test_limits_are_those_of_the_configuration(world: World) -> None:
    a, b = row(world, "ab", "pf", limits={"properties": 3, "properties_bytes": 2000, "filters_per_packet": 2})
    client = a.client("c", version=Version.V5)
    for count in (3, 4):
        properties = {Property.USER_PROPERTY: [("k", "v")] * count}
        client.send(Publish(topic=f"number {count}", properties=properties))
    for size in (1990, 2000):
        properties = {Property.USER_PROPERTY: [("k", "v" * size)]}
        client.send(Publish(topic=f"size {size}", properties=properties))
    world.run(1)
    assert b.broker.topics() == ["number 3", "size 1990"]
    assert len(a.broker.published) == 4


# what the node must understand --------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [None, "pf"])
@pytest.mark.parametrize("version", [Version.V311, Version.V5])
@pytest.mark.parametrize("unsubscribe", [False, True])
def test_too_many_filters_in_a_packet_end_the_connection(
    world: World, algorithm: str | None, version: Version, unsubscribe: bool
) -> None:
    """Refused before the rest is read, and before the broker gets it."""
    site = Site(world, "a", algorithm)
    keeper = keeper_at(site)
    client = site.client("c", version=version)
    names = [f"f/{i}" for i in range(2001)]
    packet: Subscribe | Unsubscribe
    if unsubscribe:
        packet = Unsubscribe(packet_id=1, topic_filters=names)
    else:
        packet = Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter=name) for name in names])
    client.send(packet)
    world.run(1)
    assert client.closed
    assert keeper.raw["c"] == b""
    assert [end.reason_code for end in client.got(Disconnect)] == ([0x97] if version is Version.V5 else [])
    assert site.node.counters["packets_over_limit"] == 1
    assert site.node.counters["malformed"] == 0


@pytest.mark.parametrize("where", ["CONNECT", "will"])
def test_too_many_properties_in_a_connect_are_refused(world: World, where: str) -> None:
    site = Site(world, "a", None)
    will = Will(topic="t", properties=TOO_MANY if where == "will" else {})
    properties = TOO_MANY if where == "CONNECT" else {}
    client = site.client(connect=Connect(client_id="c", version=Version.V5, will=will, properties=properties))
    world.run(1)
    assert client.closed
    assert [packet.reason_code for packet in client.got(ConnAck)] == [0x97]
    assert site.node.counters["packets_over_limit"] == 1


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        ("100C00044D5154540400000A0000", "20020002"),
        ("100E00064D514973647003020 00A0000".replace(" ", ""), "20020002"),
        ("100C00044D5154540902000A0000", "20020001"),
        ("100C00044D5154540403000A0000", ""),
    ],
    ids=["no id, no clean session", "no id in 3.1", "level 9", "reserved flag"],
)
def test_a_connect_is_refused_in_the_words_of_the_standard(world: World, data: str, answer: str) -> None:
    """MQTT-3.1.3-8 and MQTT-3.1.2-2 of 3.1.1 ask for a CONNACK before the connection is closed."""
    site = Site(world, "a", None)
    client = raw_client(world, "a", bytes.fromhex(data))
    assert client.closed
    assert client.transport.other.written.hex() == answer
    assert site.node.counters["malformed"] == 1


def test_a_connect_of_3_1_may_have_any_flags(world: World) -> None:
    """MQTT 3.1 does not use them (3.1); all bytes are relayed as they came."""
    site = Site(world, "a", None)
    keeper = keeper_at(site)
    data = Connect(client_id="c", version=Version.V31).encode()
    client = raw_client(world, "a", b"\x14" + data[1:])
    assert [packet.reason_code for packet in client.got(ConnAck)] == [0]
    assert keeper.raw["c"] == b""
    later = Connect(client_id="c", version=Version.V311).encode()
    assert raw_client(world, "a", b"\x14" + later[1:]).closed
    assert site.node.counters["malformed"] == 1
