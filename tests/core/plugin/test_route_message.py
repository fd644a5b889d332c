"""An algorithm that decides on each message: whose they are, what is owed for them, what goes with them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from ildm.api import Link, NodeApi, PluginConfig, Route, Stamp, TreeAlgorithm, Via
from ildm.config import Address
from ildm.mqtt import Connect, Property, PubAck, PubComp, Publish, PubRec, PubRel, Version, Will
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.world import World
from ildm_algorithms.pf import PublicationFlooding
from tests.support.rings import Publisher, cut, ring
from tests.support.site import Site, plugin, row


class Selective(TreeAlgorithm):
    """Keeps local what says so; notes what it was asked."""

    def __init__(self, api: NodeApi, config: PluginConfig) -> None:
        super().__init__(api, config)
        self.asked: list[tuple[str, bytes, str | None, int]] = []
        self.messages: list[Publish] = []
        self.stingy = False

    def route_message(self, message: Publish, source: Link | None, turn: int) -> Route:
        near = None if source is None else source.node_id
        self.asked.append((message.topic, message.payload, near, turn))
        self.messages.append(message)
        if message.payload == b"fail":
            raise RuntimeError("no idea")
        if self.stingy or message.payload.startswith(b"local"):
            return ()
        return [Via(link, priority=len(message.payload) % 8) for link in self.api.links]


class Fallback(PublicationFlooding):
    """Decides on each message and on topics."""

    def __init__(self, api: NodeApi, config: PluginConfig) -> None:
        super().__init__(api, config)
        self.asked: Counter[str] = Counter()

    def route_message(self, message: Publish, source: Link | None, turn: int) -> Route:
        if source is None:
            self.asked[message.topic] += 1
        return [Via(*way, priority=3) for way in self.route(message.topic, message.retain, source)]


class Bare(Selective):
    """Decides on messages only."""


def injected(site: Site) -> list[bytes]:
    return [p.payload for client, p in site.broker.published if client.startswith("ildm-")]


def at_once(client: MiniClient, messages: list[Publish]) -> None:
    client.transport.write(b"".join(message.encode(client.version) for message in messages))


@pytest.mark.parametrize("transfer", ["acknowledged", "received"])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", list(Version))
def test_each_message_of_a_chunk_is_decided_on(
    world: World, version: Version, qos: int, transfer: str
) -> None:
    """In order, at each node on the way; the broker has them all, and the client its acknowledgements."""
    a, b, c = row(world, "abc", Selective, link={"transfer": transfer})
    client = a.client("p", version=version)
    payloads = [b"local %d" % i if i % 3 == 0 else b"x%05d" % i for i in range(60)]
    at_once(
        client,
        [
            Publish(topic="t", payload=payload, qos=qos, packet_id=i + 1 if qos else None)
            for i, payload in enumerate(payloads)
        ],
    )
    world.run(1)
    if qos == 2:
        at_once(client, [PubRel(packet_id=i + 1) for i in range(60)])  # type: ignore[misc]
        world.run(1)
    assert [p.payload for client_id, p in a.broker.published if client_id == "p"] == payloads
    crossed = [payload for payload in payloads if payload.startswith(b"x")]
    assert injected(b) == injected(c) == crossed
    assert [(payload, near) for _, payload, near, _ in plugin(a).asked] == [(p, None) for p in payloads]
    assert [(payload, near) for _, payload, near, _ in plugin(b).asked] == [(p, "a") for p in crossed]
    assert len({turn for *_, turn in plugin(a).asked}) == 1
    answers = client.got(PubAck if qos == 1 else PubComp)
    assert [packet.packet_id for packet in answers] == (list(range(1, 61)) if qos else [])


def test_aliases_are_resolved_and_properties_are_there(world: World) -> None:
    a, b = row(world, "ab", Selective)
    client = a.client("p", version=Version.V5)
    properties: dict[Property, Any] = {Property.TOPIC_ALIAS: 3, Property.CONTENT_TYPE: "text"}
    client.send(Publish(topic="t", payload=b"1", properties=properties))
    client.send(Publish(topic="", payload=b"2", properties={Property.TOPIC_ALIAS: 3}))
    world.run(1)
    assert [(topic, payload) for topic, payload, *_ in plugin(a).asked] == [("t", b"1"), ("t", b"2")]
    assert [message.properties for message in plugin(a).messages] == [{Property.CONTENT_TYPE: "text"}, {}]
    assert b.broker.topics() == ["t", "t"]


@pytest.mark.parametrize("payload", [b"local", b"gone"])
def test_wills_are_decided_on(world: World, payload: bytes) -> None:
    a, b = row(world, "ab", Selective)
    client = a.client(connect=Connect(client_id="w", will=Will(topic="will", payload=payload, qos=1)))
    client.transport.abort()
    world.run(1)
    assert [(topic, asked) for topic, asked, *_ in plugin(a).asked] == [("will", payload)]
    assert injected(b) == ([] if payload == b"local" else [payload])


def test_retained_messages_are_decided_on_with_their_stamp(world: World) -> None:
    """At each node on the way; what a neighbour had missed is told without asking, and is news there."""
    a, b = row(world, "ab", Selective)
    client = a.client("p")
    client.send(Publish(topic="r/1", payload=b"x", retain=True))
    client.send(Publish(topic="r/2", payload=b"local", retain=True))
    world.run(1)
    assert [Stamp.of(message) is not None for message in plugin(a).messages] == [True, True]
    assert set(b.broker.retained) == {"r/1"}
    c = Site(world, "c", Selective)
    c.node.links.add(Address("b", 2), False)
    world.run(10)
    assert set(c.broker.retained) >= {"r/1"}
    assert [topic for topic, *_ in plugin(b).asked] == ["r/1"] * len(plugin(b).asked)
    assert [near for topic, _, near, _ in plugin(c).asked if topic == "r/1"] == ["b"]


@pytest.mark.parametrize("qos", [1, 2])
def test_what_stays_local_is_acknowledged_when_the_broker_has_it(world: World, qos: int) -> None:
    """Neither lost nor acknowledged before: a neighbour keeps it until then."""
    a, b, c = row(world, "abc", Selective)
    plugin(b).stingy = True
    b.broker_down()
    world.run(1)
    client = a.client("p")
    for i in range(20):
        client.send(Publish(topic="t", payload=b"x", qos=qos, packet_id=i + 1))
    world.run(1)
    assert len(client.got(PubAck if qos == 1 else PubRec)) == 20
    sender = a.node.links.links["b"].senders[0]
    assert sender.inflight == 20
    b.broker_up()
    world.run(30)
    assert len(injected(b)) == 20
    assert injected(c) == []
    assert sender.idle


def test_a_decision_that_fails_keeps_the_message_local(world: World) -> None:
    a, b = row(world, "ab", Selective)
    client = a.client("p")
    for payload in (b"1", b"fail", b"2"):
        client.send(Publish(topic="t", payload=payload, qos=1, packet_id=len(payload)))
        world.run(0.1)
    assert injected(b) == [b"1", b"2"]
    assert a.node.counters["plugin_errors"] == 1
    (loaded,) = a.node.dispatch.loaded
    assert loaded.errors == 1


def test_message_expiry_goes_with_it(world: World) -> None:
    """What waited too long for a neighbour is dropped there, and what is left of its time is told."""
    a, b = row(world, "ab", Selective)
    b.kill()
    world.run(1)
    client = a.client("p", version=Version.V5)
    for seconds in (2, 100):
        expiry: dict[Property, Any] = {Property.MESSAGE_EXPIRY_INTERVAL: seconds}
        client.send(Publish(topic="t", payload=b"%03d" % seconds, properties=expiry))
    world.run(5)
    b.start(("a",))
    world.run(30)
    (message,) = [p for client_id, p in b.broker.published if client_id.startswith("ildm-")]
    assert message.payload == b"100"
    assert 50 < message.properties[Property.MESSAGE_EXPIRY_INTERVAL] < 97
    assert a.node.counters["link_dropped_expired"] == 1


@pytest.mark.parametrize("algorithm", [Fallback, Bare])
def test_what_waited_for_a_link_that_left_is_not_decided_on_again(
    world: World, algorithm: type[TreeAlgorithm]
) -> None:
    """An algorithm may have counted it, or kept it; it goes by the new path all the same."""
    sites = ring(world, "abc", algorithm)
    a, b, c = sites
    publisher = Publisher(a, 1)
    world.listeners.pop(Address("a", 2))
    cut(a, b, dark=True)
    for _ in range(30):
        publisher.send(1)
    world.run(120)
    for site in (b, c):
        assert set(publisher.topics) <= set(site.broker.topics())
    if algorithm is Fallback:
        assert plugin(a).asked == Counter(publisher.topics)
    else:
        own = [topic for topic, _, near, _ in plugin(a).asked if near is None]
        assert own == publisher.topics
    assert a.node.counters["link_rerouted"] > 0


class Discreet(Selective):
    """Says of each message again whether it may leave its site."""

    def reroute_message(self, message: Publish, source: Link | None) -> Route:
        return () if message.payload.startswith(b"inner") else [(link, 2) for link in self.api.links]


def test_without_a_spool_what_waited_for_a_link_that_left_goes_where_its_payload_may(world: World) -> None:
    a, b, c = ring(world, "abc", Discreet)
    client = a.client("p")
    world.listeners.pop(Address("a", 2))
    cut(a, b, dark=True)
    for number in range(10):
        payload = b"inner %d" % number if number % 2 else b"outer %d" % number
        client.send(Publish(topic="t", payload=payload, qos=1, packet_id=number + 1))
    world.run(120)
    for site in (b, c):
        assert {payload[:5] for payload in injected(site)} == {b"outer"}
        assert len(set(injected(site))) == 5
