"""Messages that find the spool full, where they are refused: MQTT 5 has a reason for it, MQTT 3 waits."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.config import Address
from ildm.mqtt import (
    ConnAck,
    Connect,
    Property,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    ReasonCode,
    Version,
)
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.world import World
from tests.support.memory_spool import MemorySpool
from tests.support.site import Site

FULL = int(ReasonCode.QUOTA_EXCEEDED)


class Pair:
    """Two sites; the spool of the first has room or not."""

    def __init__(self, full: str = "refuse", **settings: Any) -> None:
        self.world = World()
        self.spool = MemorySpool()
        self.a = Site(self.world, "a", "pf", spool=self.spool, spooling={"full": full}, **settings)
        self.b = Site(self.world, "b", "pf", spool=MemorySpool(), **settings)
        self.b.node.links.add(Address("a", 2), False)
        self.world.run(2)

    def fill(self) -> None:
        self.spool.limit = -1

    def make_room(self) -> None:
        self.spool.limit = 1 << 40
        self.spool.room()
        self.world.run(0.1)

    def client(self, version: Version = Version.V5, client_id: str = "c", **fields: Any) -> MiniClient:
        return self.a.client(connect=Connect(client_id=client_id, version=version, **fields))

    def send(self, client: MiniClient, *packets: Any) -> None:
        client.transport.write(b"".join(packet.encode(client.version) for packet in packets))
        self.world.run(0.2)

    def taken(self, site: Site) -> list[bytes]:
        return [packet.payload for _, packet in site.broker.published]


def message(number: int, qos: int = 1, topic: str = "t", alias: int = 0, **fields: Any) -> Publish:
    properties = {Property.TOPIC_ALIAS: alias} if alias else {}
    return Publish(
        topic=topic, payload=b"%d" % number, qos=qos, packet_id=number, properties=properties, **fields
    )


def answers(client: MiniClient, type: type) -> list[tuple[int, int]]:
    return [(packet.packet_id, packet.reason_code) for packet in client.got(type)]


def test_without_room_a_message_of_mqtt_5_is_refused_and_nobody_has_it() -> None:
    pair = Pair()
    client = pair.client()
    pair.send(client, message(1))
    pair.fill()
    pair.send(client, *[message(number) for number in range(2, 10)], message(10, qos=2))
    assert answers(client, PubAck) == [(1, 0), *((number, FULL) for number in range(2, 10))]
    assert answers(client, PubRec) == [(10, FULL)]
    assert pair.a.node.counters["spool_refused"] == 9
    pair.make_room()
    pair.send(client, message(11))
    assert answers(client, PubAck)[-1] == (11, 0)
    assert pair.taken(pair.a) == pair.taken(pair.b) == [b"1", b"11"]


def test_what_needs_no_room_goes_on() -> None:
    """QoS 0, what stays at this site, and what has been transferred already."""
    pair = Pair(publish=[{"deny": ["here/#"]}])
    client = pair.client(properties={Property.SESSION_EXPIRY_INTERVAL: 60})
    pair.send(client, message(7, qos=2))
    pair.fill()
    pair.send(client, message(7, qos=2, dup=True), PubRel(packet_id=7))
    pair.send(client, Publish(topic="t", payload=b"0"), message(1, topic="here/t"), message(2, topic="$t"))
    assert answers(client, PubRec) == [(7, 0), (7, 0)]
    assert answers(client, PubComp) == [(7, 0)]
    assert answers(client, PubAck) == [(1, 0), (2, 0)]
    assert pair.taken(pair.a) == [b"7", b"0", b"1", b"2"]
    assert pair.taken(pair.b) == [b"7", b"0"]


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
@pytest.mark.parametrize("full", ["refuse", "hold"])
def test_others_wait_for_room(version: Version, full: str) -> None:
    pair = Pair(full)
    client = pair.client(version)
    pair.fill()
    pair.send(client, message(1))
    refused = version is Version.V5 and full == "refuse"
    assert answers(client, PubAck) == ([(1, FULL)] if refused else [])
    pair.make_room()
    assert answers(client, PubAck) == [(1, FULL if refused else 0)]


def test_what_was_with_the_broker_when_the_room_ended_is_acknowledged() -> None:
    """It is kept all the same: the client could not be told anything else."""
    pair = Pair()
    client = pair.client()
    pair.a.broker.answer_delay = 0.1
    client.send(message(1))
    pair.world.run(0.05)
    pair.fill()
    pair.world.run(0.3)
    assert answers(client, PubAck) == [(1, 0)]
    assert pair.taken(pair.b) == [b"1"]


def test_an_alias_that_was_set_by_a_refused_message_is_made_known_to_the_broker() -> None:
    pair = Pair()
    client = pair.client()
    assert client.got(ConnAck)[0].properties[Property.TOPIC_ALIAS_MAXIMUM]
    pair.fill()
    pair.send(client, message(1, topic="one", alias=1), message(2, topic="two", alias=2))
    pair.send(client, message(3, topic="", alias=1))
    assert answers(client, PubAck) == [(1, FULL), (2, FULL), (3, FULL)]
    pair.make_room()
    pair.send(client, message(4, topic="", alias=1), message(5, topic="other", alias=2))
    pair.send(client, message(6, topic="", alias=1), message(7, topic="", alias=2))
    assert answers(client, PubAck)[3:] == [(4, 0), (5, 0), (6, 0), (7, 0)]
    relayed = [packet for client_id, packet in pair.a.broker.published if client_id == "c"]
    assert [(packet.topic, packet.properties) for packet in relayed] == [
        ("one", {Property.TOPIC_ALIAS: 1}),
        ("other", {Property.TOPIC_ALIAS: 2}),
        ("", {Property.TOPIC_ALIAS: 1}),
        ("", {Property.TOPIC_ALIAS: 2}),
    ]
    assert pair.b.broker.topics() == ["one", "other", "one", "other"]


def test_a_large_message_is_refused_when_it_is_whole() -> None:
    pair = Pair()
    client = pair.client()
    pair.fill()
    frame = Publish(topic="t", payload=bytes(100_000), qos=1, packet_id=1).encode(Version.V5)
    for start in range(0, len(frame), 10_000):
        client.transport.write(frame[start : start + 10_000])
        pair.world.run(0.01)
    pair.world.run(0.1)
    assert answers(client, PubAck) == [(1, FULL)]
    assert pair.taken(pair.a) == []


def test_what_is_refused_is_not_under_way_for_a_client_that_waits_for_a_link() -> None:
    pair = Pair(link={"inflight": 10})
    pair.a.broker.connack[Property.RECEIVE_MAXIMUM] = 5
    client = pair.client()
    (session,) = (session for session in pair.a.node.sessions if session.client_id == "c")
    session.acks.hold("a link is full")
    pair.fill()
    pair.send(client, *[message(number, qos=1 + number % 2) for number in range(1, 26)])
    assert len(answers(client, PubAck) + answers(client, PubRec)) == 25
    assert not session.paused
    assert not client.closed


def test_clients_that_have_gone_are_not_remembered() -> None:
    pair = Pair()
    pair.fill()
    for version in (Version.V311, Version.V5):
        client = pair.client(version)
        pair.send(client, message(1))
        client.transport.abort()
        pair.world.run(0.1)
    assert pair.a.node.custody is not None
    assert not pair.a.node.custody._held
