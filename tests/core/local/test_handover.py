"""A session goes on in another object graph at every byte of a packet, in both directions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ildm.config import Address
from ildm.core.local.handover import Restored, exported, fixed, kept, release, unsettled
from ildm.mqtt import (
    PingReq,
    PingResp,
    Property,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Version,
    Will,
)
from ildm.testing.virtual.world import World
from tests.support.odd_brokers import Answers
from tests.support.site import Site

LARGE = bytes(range(256)) * 40
VERSIONS = [Version.V311, Version.V5]


class Pair:
    """A site whose clients go on at another node before the same broker; each has a neighbour."""

    def __init__(self, world: World, **settings: Any) -> None:
        self.world = world
        self.old = Site(world, "a", "pf", **settings)
        self.new = Site(world, "b", "pf", broker={"address": "a:3"}, **settings)
        self.far = [Site(world, name, "pf") for name in "cd"]
        for near, far in zip((self.old, self.new), self.far, strict=True):
            near.node.links.add(Address(far.name, 2), False)
        world.run(2)

    def hand_over(self, client_id: str) -> None:
        """Move one client."""
        (session,) = [each for each in self.old.node.sessions if each.client_id == client_id]
        paired: Any = session.paired
        pipes: list[Any] = [session.transport, paired.transport]
        assert unsettled(session) is None
        release(session)
        told = json.loads(json.dumps([fixed(session), kept(session), exported(session)]))
        self.old.node.sessions.discard(session)
        record = self.new.node.client_comes(*told[1])
        state = told[0] | told[2]
        restored = Restored(self.new.node.local, state, None)
        for pipe, one in zip(pipes, (restored.session, restored.broker), strict=True):
            pipe.endpoint = one
        restored.begin(pipes[0], pipes[1], record)
        self.world.run(0.01)
        restored.serve_broker()
        restored.serve_client()

    def crossed(self, topic: str) -> list[bytes]:
        """What the neighbours of both have got."""
        published = [each for far in self.far for each in far.broker.published]
        return [packet.payload for _, packet in published if packet.topic == topic]


@pytest.fixture
def pair(world: World) -> Pair:
    return Pair(world)


def stream(topic: str, version: Version) -> bytes:
    """What a client sends: a message of each QoS, one in parts, a subscription."""
    alias = {Property.TOPIC_ALIAS: 1} if version is Version.V5 else {}
    packets = [
        Publish(topic=topic, payload=b"0", properties=dict(alias)),
        Publish(topic="" if alias else topic, payload=b"1", qos=1, packet_id=1, properties=dict(alias)),
        Publish(topic=topic, payload=b"2", qos=2, packet_id=2),
        PubRel(packet_id=2),
        Subscribe(packet_id=3, subscriptions=[Subscription(topic_filter=f"{topic}/back", qos=1)]),
        PingReq(),
        Publish(topic=topic, payload=LARGE, qos=1, packet_id=4),
        Unsubscribe(packet_id=5, topic_filters=[f"{topic}/back"]),
        Publish(topic=topic, payload=b"3", qos=1, packet_id=6, retain=True),
    ]
    return b"".join(packet.encode(version) for packet in packets)


def offsets(data: bytes) -> list[int]:
    """Every byte, but within the large message."""
    begin = data.index(LARGE)
    middle = range(begin + 10, begin + len(LARGE) - 10)
    return [at for at in range(len(data) + 1) if at not in middle or at % 1009 == 0]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_client_sends_goes_on_at_every_byte(pair: Pair, version: Version) -> None:
    world = pair.world
    for at in offsets(stream("t/000", version)):
        name, topic = f"c{at}", f"t/{at:03}"
        data = stream(topic, version)
        client = pair.old.client(name, version=version, will=Will(topic="will", payload=b"gone"))
        client.transport.write(data[:at])
        world.run(0.05)
        pair.hand_over(name)
        client.transport.write(data[at:])
        world.run(0.3)
        sent = [packet.payload for who, packet in pair.old.broker.published if who == name]
        assert sent == [b"0", b"1", b"2", LARGE, b"3"], at
        assert pair.crossed(topic) == sent, at
        assert [packet.packet_id for packet in client.got(PubAck)] == [1, 4, 6], at
        assert [len(client.got(kind)) for kind in (PubRec, PubComp, SubAck, PingResp, UnsubAck)] == [1] * 5, (
            at
        )
        client.transport.abort()
        world.run(0.05)
        assert name not in pair.new.node.clients.records
    pair.new.node.clients.check()
    assert pair.new.node.partials.bytes == pair.old.node.partials.bytes == 0
    assert pair.crossed("will") == [b"gone"] * len(offsets(stream("t/000", version)))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("watching", [False, True])
def test_what_the_broker_sends_goes_on_at_every_byte(pair: Pair, version: Version, watching: bool) -> None:
    """``watching``: acknowledgements are expected, so that packets do not go on as they come."""
    world = pair.world
    packets: list[Any] = [
        Publish(topic="t", payload=b"first"),
        SubAck(packet_id=9, reason_codes=[0]),
        Publish(topic="t", payload=LARGE[:300], qos=1, packet_id=7),
        PubAck(packet_id=8),
        PingResp(),
        Publish(topic="t", payload=b"last"),
    ]
    data = b"".join(packet.encode(version) for packet in packets)
    for at in range(len(data) + 1):
        name = f"c{at}"
        client = pair.old.client(name, version=version)
        pair.world.run(0.05)
        del client.packets[:]
        if watching:
            (session,) = [each for each in pair.old.node.sessions if each.client_id == name]
            session.wire.watching = True
        broker = pair.old.broker.of(name).transport
        broker.write(data[:at])
        world.run(0.05)
        pair.hand_over(name)
        broker.write(data[at:])
        world.run(0.05)
        assert [type(packet) for packet in client.packets] == [type(packet) for packet in packets], at
        assert client.messages == [("t", b"first"), ("t", LARGE[:300]), ("t", b"last")], at
        client.transport.abort()
        world.run(0.05)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("answers_before", [0, 3, 7])
def test_messages_cross_once_that_the_broker_answers_later(
    world: World, version: Version, answers_before: int
) -> None:
    pair = Pair(world)
    answers = Answers(pair.old)
    answers.keep = True
    client = pair.old.client("c", version=version)
    payloads = [b"%d" % number for number in range(10)]
    for number, payload in enumerate(payloads, 1):
        client.send(Publish(topic="t", payload=payload, qos=1, packet_id=number))
    world.run(0.1)
    if answers_before:
        answers.let_go(*range(1, answers_before + 1))
    world.run(0.1)
    pair.hand_over("c")
    answers.let_go()
    world.run(0.5)
    assert pair.crossed("t") == payloads
    assert [packet.packet_id for packet in client.got(PubAck)] == list(range(1, 11))
