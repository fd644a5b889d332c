"""Messages of QoS 1 in chunks, through whole nodes: the bytes, cut links, brokers of both versions."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ildm.mqtt import Property, PubAck, Publish, Subscribe, Subscription, Version
from ildm.testing.virtual.world import World
from tests.support.odd_brokers import before_brokers
from tests.support.senders import like
from tests.support.site import Site, row


def chunk(topic: str, first: int, count: int, version: Version = Version.V311, **fields: Any) -> bytes:
    """Messages numbered from ``first`` on, as one write of a client."""
    messages = [
        Publish(topic=topic, payload=b"%05d" % i, qos=1, packet_id=i % 65_535 + 1, **fields)
        for i in range(first, first + count)
    ]
    return b"".join(message.encode(version) for message in messages)


def injected(site: Site, topic: str) -> list[int]:
    """Numbers of the messages which the node of a site has published into its broker."""
    return [
        int(packet.payload)
        for client_id, packet in site.broker.published
        if client_id.startswith("ildm-") and packet.topic == topic
    ]


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_the_bytes_of_a_chunk_on_its_way(world: World, version: Version) -> None:
    a, b = row(world, "ab", "pf")
    client = a.client("p", version=version)
    there: Any = a.node.links.links["b"].control.transport  # type: ignore[union-attr]
    back: Any = b.node.links.links["a"].control.transport  # type: ignore[union-attr]
    broker: Any = b.node.injector.sessions[0].transport
    marks = [len(pipe.written) for pipe in (there, back, broker)]
    a.node.links.links["b"].senders[0]._window.last_id = 100
    client.transport.write(chunk("t", 0, 5, version))
    world.run(0.1)
    written = [bytes(pipe.written[mark:]) for pipe, mark in zip((there, back, broker), marks, strict=True)]
    expected = [Publish(topic="t", payload=b"%05d" % i, qos=1, packet_id=101 + i) for i in range(5)]
    assert written[0] == b"".join(message.encode(Version.V5) for message in expected)
    assert written[1] == b"".join(PubAck(packet_id=101 + i).encode(Version.V5) for i in range(5))
    for message in expected:
        assert message.packet_id is not None
        message.packet_id -= 100
    assert written[2] == b"".join(message.encode(Version.V5) for message in expected)
    assert [packet.packet_id for packet in client.got(PubAck)] == [1, 2, 3, 4, 5]
    counters = (a.node.counters["transferred_out"], b.node.counters["transferred_in"])
    assert (*counters, b.node.counters["injected"]) == (5, 5, 5)
    assert a.node.links.idle
    assert b.node.injector.idle


@pytest.mark.parametrize("speaks_5", [True, False])
def test_runs_and_single_messages_keep_their_order(world: World, speaks_5: bool) -> None:
    a, _, c = before_brokers(world, "abc", speaks_5, link={"inflight": 7})
    version = Version.V5 if speaks_5 else Version.V311
    reader = c.client("reader", version=version)
    wanted = Subscription(topic_filter="t", qos=2)
    reader.send(Subscribe(packet_id=1, subscriptions=[wanted]))
    world.run(1)
    client = a.client("p", version=version)
    data = b""
    for i in range(0, 120, 12):
        data += chunk("t", i, 6, version)
        data += chunk("t", i + 6, 2, version, retain=i % 24 == 0)
        if speaks_5:
            data += chunk("t", i + 8, 2, version, properties={Property.CONTENT_TYPE: "x"})
        else:
            data += chunk("t", i + 8, 2, version, dup=True)
        data += b"".join(
            Publish(topic="t", payload=b"%05d" % j, qos=2, packet_id=j + 1).encode(version)
            for j in (i + 10, i + 11)
        )
    client.transport.write(data)
    world.run(3)
    assert injected(c, "t") == list(range(120))
    assert {packet.qos for client_id, packet in c.broker.published if client_id != "p"} == {1, 2}


def test_interest_of_qos_0_takes_runs_of_qos_0(world: World) -> None:
    a, b = row(world, "ab", "sf")
    b.subscriber("t", qos=0)
    world.run(1)
    a.client("p").transport.write(chunk("t", 0, 9))
    world.run(1)
    assert injected(b, "t") == list(range(9))
    assert {packet.qos for client_id, packet in b.broker.published if client_id != "p"} == {0}
    assert a.node.links.links["b"].senders[0].inflight == 0


@pytest.mark.parametrize("seed", range(12))
def test_chunks_arrive_once_and_in_order_over_links_that_are_cut(seed: int) -> None:
    world, random = World(seed), Random(seed)
    link = {"sessions": random.choice([1, 2]), "inflight": random.choice([5, 40, 1000])}
    sites = row(world, "abc", "pf", link=link)
    a, b, c = sites
    publishers = {f"p{i}": a.client(f"p{i}", version=random.choice(list(Version)[1:])) for i in range(3)}
    sent = dict.fromkeys(publishers, 0)
    for _ in range(60):
        name = random.choice(list(publishers))
        count = random.randint(1, 30)
        client = publishers[name]
        client.transport.write(chunk(name, sent[name], count, client.version))
        sent[name] += count
        world.run(random.choice([0, 0, 0.0005, 0.003, 0.02]))
        if random.random() < 0.15:
            near, far = random.choice([(a, "b"), (b, "c"), (c, "b")])
            for session in list(near.node.links.links[far].open_sessions):
                pipe: Any = session.transport
                if pipe is not None and random.random() < 0.7:
                    pipe.abort()
    world.run(60)
    for name, count in sent.items():
        assert injected(b, name) == list(range(count))
        assert injected(c, name) == list(range(count))
    for site in sites:
        assert site.node.links.idle
        assert not any(key for key in site.node.counters if "dropped" in key)


@pytest.mark.parametrize("seed", range(6))
def test_chunks_arrive_at_least_once_and_in_order_over_a_broker_that_fails(seed: int) -> None:
    """The broker has forgotten the node's session each time: what it had not acknowledged comes again."""
    world, random = World(seed), Random(seed)
    a, b = row(world, "ab", "pf", link={"inflight": random.choice([5, 1000])})
    client = a.client("p")
    sent = 0
    for _ in range(40):
        count = random.randint(1, 30)
        client.transport.write(chunk("t", sent, count))
        sent += count
        world.run(random.choice([0, 0.0005, 0.0015, 0.01]))
        if random.random() < 0.2:
            b.broker.crash()
    world.run(120)
    found = injected(b, "t")
    assert list(dict.fromkeys(found)) == list(range(sent))
    assert b.node.injector.idle
    assert b.node.injector.senders[0].inflight == 0


@pytest.mark.parametrize("cut", range(1, 8))
@pytest.mark.parametrize("speaks_5", [True, False])
def test_acknowledgements_of_the_broker_cut_anywhere(world: World, cut: int, speaks_5: bool) -> None:
    (site,) = before_brokers(world, "a", speaks_5)
    session, sender = site.node.injector.sessions[0], site.node.injector.senders[0]
    assert session.version is (Version.V5 if speaks_5 else Version.V311)
    frames = chunk("t", 0, 40, Version.V5)
    session.transport.other.endpoint.data_received = lambda data: None  # type: ignore[union-attr]
    site.node.injector.send(like(frames, len(frames) // 40), 0, None)
    world.run(0)
    first = min(sender._window._items)
    form = b"\x40\x03%b\x10" if speaks_5 and cut % 2 else b"\x40\x02%b"
    answers = b"".join(form % (first + i).to_bytes(2, "big") for i in range(40)) + b"\xd0\x00"
    for pos in range(0, len(answers), cut):
        session.data_received(answers[pos : pos + cut])
    assert sender.idle
    assert session.is_open


@pytest.mark.parametrize("delay", [0.0, 0.05])
def test_link_delay_is_how_much_longer_a_message_and_its_acknowledgement_take(
    world: World, delay: float
) -> None:
    a, b = row(world, "ab", "pf", link={"delay": delay})
    publisher = a.client("p")
    sender = a.node.links.links["b"].senders[0]
    world.run(1)
    publisher.transport.write(chunk("t", 0, 3))
    world.run(0.04)
    assert injected(b, "t") == ([] if delay else [0, 1, 2])
    world.run(0.04)
    assert injected(b, "t") == [0, 1, 2]
    assert sender.inflight == (3 if delay else 0)
    world.run(0.05)
    assert sender.inflight == 0
