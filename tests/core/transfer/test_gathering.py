"""Messages of QoS 0 on many topics in one chunk: what becomes of each is as if it had come alone."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ildm.api import Peer
from ildm.core.frames import runs_of
from ildm.core.link.control import ALGORITHM
from ildm.core.transfer.batch import Batch, batch_of
from ildm.mqtt import Publish, Subscribe, Subscription, Version
from ildm.testing.virtual.world import World
from ildm_algorithms.pf import PublicationFlooding
from tests.support.odd_brokers import before_brokers
from tests.support.senders import make, opened
from tests.support.site import row


def chunk(messages: list[Publish], version: Version = Version.V311) -> bytes:
    return b"".join(message.encode(version) for message in messages)


def mixture(count: int, topics: int = 7) -> list[Publish]:
    """Topics in turn and in runs, sizes on both sides of 128 bytes, all else now and then."""
    random = Random(count)
    made: list[Publish] = []
    for number in range(count):
        topic = f"m/{random.randrange(topics)}" if number % 5 else made[-1].topic if made else "m/0"
        qos = 1 if number % 17 == 9 else 0
        made.append(
            Publish(
                topic=topic,
                payload=b"%06d" % number + bytes(random.randrange(0, 300, 50)),
                qos=qos,
                packet_id=number % 60_000 + 1 if qos else None,
                retain=number % 23 == 11,
            )
        )
    return made


def by_publish_order(messages: list[Publish], qos: int, retain: bool) -> list[tuple[str, bytes]]:
    return [(m.topic, m.payload) for m in messages if (m.qos, m.retain) == (qos, retain)]


@given(st.lists(st.tuples(st.sampled_from("tu"), st.sampled_from([0, 1, 122, 123, 20_000])), max_size=20))
def test_runs_are_cut_where_topic_or_size_change(messages: list[tuple[str, int]]) -> None:
    runs = [
        (b"".join(alike), len(alike[0]))
        for _, group in itertools.groupby(messages)
        if (alike := [Publish(topic=topic, payload=bytes(size)).encode(Version.V5) for topic, size in group])
    ]
    assert runs_of(b"".join(frames for frames, _ in runs)) == runs


@pytest.mark.parametrize(
    ("version", "speaks_5"), [(Version.V311, True), (Version.V311, False), (Version.V5, True)]
)
@pytest.mark.parametrize("names", ["ab", "abc"])
def test_all_of_a_chunk_arrives_at_every_site_in_order(names: str, speaks_5: bool, version: Version) -> None:
    world = World()
    sites = before_brokers(world, names, speaks_5)
    for site in sites[1:]:
        subscriber = site.client("s")
        subscriber.send(Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter="m/#", qos=1)]))
    world.run(1)
    client = sites[0].client("p", version=version)
    sent = mixture(300)
    data = chunk(sent, version)
    cuts = sorted(Random(4).sample(range(len(data)), 6))
    for begin, end in itertools.pairwise([0, *cuts, len(data)]):
        client.transport.write(data[begin:end])
        world.run(0.05)
    world.run(2)
    for site in sites[1:]:
        came = [packet for client_id, packet in site.broker.published if client_id.startswith("ildm-")]
        for topic in {message.topic for message in sent}:
            own = [m for m in sent if m.topic == topic]
            got = [packet for packet in came if packet.topic == topic]
            assert by_publish_order(got, 0, False) == by_publish_order(own, 0, False)
            assert by_publish_order(got, 1, False) == by_publish_order(own, 1, False)
        assert site.node.counters["transferred_in"] == len(sent)
    assert sites[0].node.counters["transferred_out"] == len(sent)


def test_topics_that_go_different_ways() -> None:
    """Some of a chunk go over one link, some over both, some over none."""
    world = World()
    b, a, c = row(world, "bac", "sf")
    for site, topic_filter in ((b, "only-b/#"), (c, "only-c/#"), (b, "both"), (c, "both")):
        subscriber = site.client(f"s-{topic_filter}")
        subscriber.send(
            Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter=topic_filter, qos=0)])
        )
    world.run(1)
    topics = ["only-b/1", "only-b/2", "both", "none", "only-c/1", "both", "only-b/1", "only-c/2", "only-c/3"]
    sent = [Publish(topic=topic, payload=b"%d" % n) for n, topic in enumerate(topics * 3)]
    a.client("p").transport.write(chunk(sent))
    world.run(1)
    for site, prefix in ((b, "only-b"), (c, "only-c")):
        expected = [(m.topic, m.payload) for m in sent if m.topic == "both" or m.topic.startswith(prefix)]
        assert [(p.topic, p.payload) for _, p in site.broker.published] == expected


class Echoing(PublicationFlooding):
    """Publishes what it is told by a neighbour's algorithm."""

    def on_message(self, sender: Peer, data: bytes, turn: int) -> None:
        self.api.inject(Publish(topic="told", payload=data))


def test_what_an_algorithm_does_about_a_later_packet_of_the_chunk_comes_later() -> None:
    world = World()
    _, b = row(world, "ab", Echoing)
    (session,) = b.node.links.links["a"].open_sessions
    told = Publish(topic=ALGORITHM, payload=b"3")
    messages = [Publish(topic="t/1", payload=b"1"), Publish(topic="t/2", payload=b"2"), told]
    session.data_received(chunk([*messages, Publish(topic="t/4", payload=b"4")], Version.V5))
    world.run(1)
    assert b.broker.topics() == ["t/1", "t/2", "told", "t/4"]


def batch(*sizes: int, qos: int = 0) -> Batch:
    packet_id = 1 if qos else None
    made = [
        Publish(topic=f"t/{n}", payload=bytes(size), qos=qos, packet_id=packet_id).encode(Version.V5)
        for n, size in enumerate(sizes)
    ]
    return batch_of(b"".join(made), len(made))


def test_what_cannot_go_at_once_waits_message_by_message() -> None:
    world = World()
    sender, counters = make(world, messages=3)
    sender.send(batch(10, 20, 30, 40, 50))
    assert sender.queue.messages == 3
    assert counters["link_dropped_overflow_qos0"] == 2
    sink = opened(sender)
    world.run(0)
    assert [len(packet.payload) for packet in sink.packets()] == [30, 40, 50]
    assert sender.sent == 3


def test_one_that_is_too_large_does_not_take_others_with_it() -> None:
    world = World()
    sender, counters = make(world)
    sink = opened(sender, max_packet_size=150)
    sender.send(batch(10, 200, 20))
    sender.send(batch(30, 140))
    world.run(0)
    assert [len(packet.payload) for packet in sink.packets()] == [10, 20, 30, 140]
    assert counters["link_dropped_too_large"] == 1


def test_a_run_that_cannot_go_at_once_waits_as_one() -> None:
    world = World()
    sender, _ = make(world)
    run = batch(10).frames
    sender.send(Batch(500 * run, 500, len(run)))
    assert len(sender.take_all()) == 1


@pytest.mark.parametrize("far", [{}, {"version": Version.V311}])
def test_what_goes_at_once_is_one_write_in_the_version_of_the_far_end(far: dict[str, Any]) -> None:
    world = World()
    sender, _ = make(world)
    sink = opened(sender, **far)
    sender.send(batch(10, 200, 20))
    world.run(0)
    assert len(sink.writes) == 1
    found = [(packet.topic, len(packet.payload)) for packet in sink.packets(sender.wire.version)]
    assert found == [("t/0", 10), ("t/1", 200), ("t/2", 20)]
    assert sender.sent == 3
