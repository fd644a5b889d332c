"""What the node holds clients to, CONNACK has told them (MQTT 5, 3.2.2.3)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ildm.config import Address
from ildm.core.local.answers import LARGEST_PACKET, with_packet_size
from ildm.mqtt import (
    ConnAck,
    Connect,
    Disconnect,
    MalformedPacket,
    MqttError,
    Property,
    Publish,
    Version,
    decode,
)
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.world import World
from tests.support.site import Site

LIMIT = 4096
SIZE = Property.MAXIMUM_PACKET_SIZE
V5 = Version.V5


def connack(properties: bytes) -> bytes:
    assert len(properties) < 100
    return bytes((0x20, len(properties) + 3, 1, 0, len(properties))) + properties


# user properties on both sides of another: decoded and encoded again they would stand together
FIRST, KEEP_ALIVE, LAST = b"\x26\0\1a\0\1b", b"\x13\0\x0c", b"\x26\0\0\0\1c"
REST = b"\x21\0\5\x22\0\3\x24\1\x25\0\x12\0\2id\x1f\0\1r\x28\0\x29\0\x2a\0\x1a\0\1i\x1c\0\1s"


def size(limit: int) -> bytes:
    return bytes((SIZE,)) + limit.to_bytes(4, "big")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"", size(LIMIT)),
        (FIRST + KEEP_ALIVE + LAST, FIRST + KEEP_ALIVE + LAST + size(LIMIT)),
        (FIRST + KEEP_ALIVE + LAST + REST, FIRST + KEEP_ALIVE + LAST + REST + size(LIMIT)),
        (FIRST + size(LIMIT + 1) + REST + LAST, FIRST + size(LIMIT) + REST + LAST),
        (size(0xFFFFFFFF), size(LIMIT)),
        (FIRST + size(LIMIT) + LAST, FIRST + size(LIMIT) + LAST),
        (FIRST + size(LIMIT - 1) + LAST, FIRST + size(LIMIT - 1) + LAST),
        (size(1), size(1)),
    ],
)
def test_the_smaller_maximum_is_told_and_all_else_is_the_brokers(said: bytes, told: bytes) -> None:
    decode(connack(said), V5)
    assert with_packet_size(connack(said), LIMIT) == connack(told)


def test_what_no_packet_can_exceed_is_not_told() -> None:
    assert with_packet_size(connack(FIRST), LARGEST_PACKET) == connack(FIRST)
    assert with_packet_size(connack(FIRST), LARGEST_PACKET - 1) == connack(FIRST + size(LARGEST_PACKET - 1))


def test_the_lengths_of_a_long_connack_take_more_bytes() -> None:
    for length in range(100, 140):
        packet = ConnAck(properties={Property.REASON_STRING: "x" * length})
        amended = decode(with_packet_size(packet.encode(V5), LIMIT), V5)
        assert amended == ConnAck(properties={Property.REASON_STRING: "x" * length, SIZE: LIMIT})


def told(frame: bytes) -> Any:
    """What a client reads; an error, by its kind."""
    try:
        packet = decode(frame, V5)
    except MqttError as error:
        return type(error)
    assert isinstance(packet, ConnAck)
    return packet.session_present, packet.reason_code, {**packet.properties, SIZE: None}


@given(st.binary(max_size=40) | st.binary(max_size=40).map(lambda data: connack(data)[2:]))
def test_a_bad_connack_stays_as_bad(data: bytes) -> None:
    frame = bytes((0x20, len(data))) + data
    try:
        amended = with_packet_size(frame, LIMIT)
    except MalformedPacket:
        assert isinstance(told(frame), type)
        return
    assert told(amended) == told(frame)


def published(site: Site) -> list[str]:
    return [packet.topic for _, packet in site.broker.published]


def test_a_client_is_told_and_one_byte_more_is_refused(world: World) -> None:
    site = Site(world, "a", None, limits={"packet_size": LIMIT})
    client = site.client("c", version=V5)
    assert client.got(ConnAck)[0].properties[SIZE] == LIMIT
    packet = Publish(topic="t", payload=b"", qos=0)
    packet.payload = bytes(LIMIT - len(packet.encode(V5)) - 1)
    assert len(packet.encode(V5)) == LIMIT
    client.send(packet)
    world.run(1)
    assert published(site) == ["t"]
    assert not client.closed
    packet.payload += b"x"
    client.send(packet)
    world.run(1)
    assert [end.reason_code for end in client.got(Disconnect)] == [0x95]
    assert client.closed
    assert published(site) == ["t"]
    (said,) = [fields for _, event, fields in site.node.driver.logged if event == "client broke the protocol"]
    assert said["error"] == f"packet of {LIMIT + 1} bytes, limits.packet_size is {LIMIT} [MQTT-3.2.2-15]"
    assert said["clause"] == "MQTT-3.2.2-15"


@pytest.mark.parametrize("relayed", [False, True])
def test_a_packet_is_refused_by_its_header(world: World, relayed: bool) -> None:
    """Also one that comes before CONNACK, or after others in one chunk."""
    site = Site(world, "a", None, limits={"packet_size": LIMIT})
    client = MiniClient(V5)
    world.connect(Address("a", 1), client)
    packets = Connect(client_id="c", version=V5).encode()
    if relayed:
        packets += Publish(topic="t", payload=b"x").encode(V5)
    client.transport.write(packets + b"\x30\xfe\x1f")
    world.run(1)
    assert [end.reason_code for end in client.got(Disconnect)] == [0x95]
    assert published(site) == ["t"] * relayed


def test_what_the_broker_tells_is_told_beside_it(world: World) -> None:
    site = Site(world, "a", None, limits={"packet_size": LIMIT})
    site.broker.connack[Property.RECEIVE_MAXIMUM] = 5
    (connack,) = site.client("c", version=V5).got(ConnAck)
    assert connack.properties == {Property.TOPIC_ALIAS_MAXIMUM: 10, Property.RECEIVE_MAXIMUM: 5, SIZE: LIMIT}


def test_a_client_that_takes_no_more_gets_the_brokers_connack(world: World) -> None:
    """MQTT-3.1.2-24; what is left out goes unsaid rather than the connection unmade."""
    site = Site(world, "a", None, limits={"packet_size": LIMIT})
    (connack,) = site.client("c", version=V5, properties={SIZE: 12}).got(ConnAck)
    assert connack.properties == {Property.TOPIC_ALIAS_MAXIMUM: 10}


def test_a_client_of_an_older_version_gets_the_brokers_connack(world: World) -> None:
    site = Site(world, "a", None, limits={"packet_size": LIMIT})
    assert site.client("c").packets == [ConnAck()]
