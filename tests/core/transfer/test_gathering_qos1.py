"""Messages of QoS 1 on many topics in one chunk: one record, and what becomes of each is as if alone."""

from __future__ import annotations

import itertools

import pytest

from ildm.config import Address
from ildm.mqtt import Publish, Subscribe, Subscription, Version
from ildm.testing.virtual.world import World
from tests.support.memory_spool import MemorySpool, reborn, spool
from tests.support.site import Site, row

COUNT = 40


def chunk(prefixes: list[str], version: Version = Version.V311) -> tuple[bytes, list[bytes]]:
    """Topics in turn, lengths on both sides of 128 bytes."""
    sent = [
        Publish(
            topic=f"{prefixes[n % len(prefixes)]}/{n % 7}",
            payload=b"%04d" % n + bytes(n % 5 * 40),
            qos=1,
            packet_id=n + 1,
        )
        for n in range(COUNT)
    ]
    return b"".join(message.encode(version) for message in sent), [message.payload for message in sent]


def sites(names: str) -> tuple[World, list[Site]]:
    """Sites in a row, each with a spool."""
    world = World()
    made = [Site(world, name, "sf", spool=MemorySpool()) for name in names]
    for before, site in itertools.pairwise(made):
        site.node.links.add(Address(before.name, 2), False)
    world.run(2)
    return world, made


def wants(world: World, site: Site, *filters: str, qos: int = 1) -> None:
    for topic_filter in filters:
        subscriber = site.client(f"s-{topic_filter}")
        subscriber.send(
            Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter=topic_filter, qos=qos)])
        )
    world.run(1)


def injected(site: Site) -> list[bytes]:
    return [packet.payload for name, packet in site.broker.published if name.startswith("ildm-")]


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_a_chunk_is_one_record(version: Version) -> None:
    world, (a, b) = sites("ab")
    wants(world, b, "m/#")
    client = a.client("p", version=version)
    data, payloads = chunk(["m"], version=version)
    before = spool(a).last
    client.transport.write(data)
    world.run(2)
    assert injected(b) == payloads
    assert spool(a).last == before + 1
    assert a.node.links.idle
    assert spool(a).bytes == spool(b).bytes == 0


def test_topics_that_go_different_ways_are_records_of_their_own() -> None:
    world = World()
    b, a, c = row(world, "bac", "sf")
    for site, filters in ((b, ("x/#", "y/#")), (c, ("y/#", "z/#"))):
        wants(world, site, *filters)
    data, _ = chunk(["x", "y", "z", "none"])
    a.client("p").transport.write(data)
    world.run(2)
    for site, found in ((b, "xy"), (c, "yz")):
        expected = [b"%04d" % n for n in range(COUNT) if "xyz-"[n % 4] in found]
        assert [payload[:4] for payload in injected(site)] == expected


def test_what_waits_for_a_neighbour_outlives_the_node() -> None:
    world, (a, b) = sites("ab")
    wants(world, b, "m/#")
    b.kill()
    b.spool = spool(b).next_life()
    world.run(1)
    data, payloads = chunk(["m"])
    a.client("p").transport.write(data)
    world.run(1)
    reborn(a, "b")
    b.start(("a",))
    world.run(60)
    assert sorted(injected(b)) == sorted(payloads)


def test_one_topic_under_another_name_divides_a_chunk() -> None:
    rules = [{"allow": ["#"], "local": "x/", "remote": "there/x/"}, {"allow": ["y/#"]}]
    world = World()
    a = Site(world, "a", "pf", link={"rules": rules}, spool=MemorySpool())
    b = Site(world, "b", "pf", spool=MemorySpool())
    a.node.links.add(Address("b", 2), False)
    world.run(2)
    data, _ = chunk(["x", "y"])
    a.client("p").transport.write(data)
    world.run(2)
    came = [packet for name, packet in b.broker.published if name.startswith("ildm-")]
    assert {packet.topic.rpartition("/")[0] for packet in came} == {"there/x", "y"}
    assert len(injected(b)) == COUNT


def test_interest_at_qos_0_takes_a_chunk_at_qos_0() -> None:
    world, (a, b) = sites("ab")
    wants(world, b, "m/#", qos=0)
    data, payloads = chunk(["m"])
    a.client("p").transport.write(data)
    world.run(2)
    assert injected(b) == payloads
    assert {packet.qos for name, packet in b.broker.published if name.startswith("ildm-")} == {0}
