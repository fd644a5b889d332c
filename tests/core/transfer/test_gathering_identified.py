"""A chunk of messages of QoS 1 and 2 on many topics: one record, and what becomes of each is as if alone."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import pytest

from ildm.config import Address
from ildm.mqtt import Properties, Property, PubRel, Subscribe, Subscription, Version
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.world import World
from tests.support import mixed
from tests.support.memory_spool import MemorySpool, reborn, spool
from tests.support.mixed import injected
from tests.support.site import Site, row

COUNT = 40


USERS: Properties = {Property.CONTENT_TYPE: "text/plain", Property.USER_PROPERTY: [("a", "b")]}

EXPIRING: Properties = {**USERS, Property.MESSAGE_EXPIRY_INTERVAL: 3600}


chunk = partial(mixed.chunk, 0, COUNT)


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


KINDS = [
    (Version.V311, 1, None),
    (Version.V5, 1, None),
    (Version.V5, 1, USERS),
    (Version.V311, 2, None),
    (Version.V5, 2, USERS),
    (Version.V5, 1, EXPIRING),
    (Version.V5, 2, EXPIRING),
]


def release(client: MiniClient, count: int = COUNT) -> None:
    """PUBREL of all; raw messages are not the client's to release."""
    client.transport.write(b"".join(PubRel(packet_id=n + 1).encode(client.version) for n in range(count)))


@pytest.mark.parametrize(("version", "qos", "properties"), KINDS)
def test_a_chunk_is_one_record(version: Version, qos: int, properties: Properties | None) -> None:
    world, (a, b) = sites("ab")
    wants(world, b, "m/#", qos=2)
    client = a.client("p", version=version)
    data, payloads = chunk(["m"], version, qos, properties)
    before = spool(a).last, spool(b).last
    client.transport.write(data)
    world.run(1)
    if qos == 2:
        release(client)
    world.run(2)
    assert injected(b) == payloads
    notes = 2 if qos == 2 else 0  # how far the handshakes with the broker are
    assert (spool(a).last, spool(b).last) == (before[0] + 1, before[1] + 1 + notes)
    assert a.node.links.idle
    assert spool(a).bytes == spool(b).bytes == 0
    came = [packet for name, packet in b.broker.published if name.startswith("ildm-")]
    assert {packet.qos for packet in came} == {qos}
    if b.node.injector.version is Version.V5:
        assert [packet.properties for packet in came] == [
            (properties or {}) if n % 2 else {} for n in range(COUNT)
        ]


@pytest.mark.parametrize(("version", "qos", "properties"), KINDS)
def test_a_chunk_sent_again_is_one_record(version: Version, qos: int, properties: Properties | None) -> None:
    world, (a, b) = sites("ab")
    wants(world, b, "m/#", qos=2)
    client = a.client("p", version=version)
    data, payloads = chunk(["m"], version, qos, properties)
    before = spool(b).last
    session = a.node.links.links["b"].open_sessions[0]
    pipe: Any = session.transport
    pipe.latency = 10.0
    client.transport.write(data)
    world.run(1)
    assert a.node.links.links["b"].senders[0].inflight == COUNT
    session.abort()
    world.run(10)
    notes = 2 if qos == 2 else 0
    assert injected(b) == payloads
    assert spool(b).last == before + 1 + notes


@pytest.mark.parametrize("moment", [0.0, 0.005, 0.012, 0.018, 0.024, 0.031, 0.05])
@pytest.mark.parametrize("cut", ["link", "near", "far"])
def test_a_chunk_of_qos_2_comes_once_whatever_is_cut(moment: float, cut: str) -> None:
    """A link that ends, or a node that dies, amid the handshakes of a chunk."""
    world, (a, b) = sites("ab")
    wants(world, b, "m/#", qos=2)
    client = a.client("p", version=Version.V5)
    data, payloads = chunk(["m"], Version.V5, 2, USERS)
    client.transport.write(data)
    world.run(moment)
    if cut == "link":
        a.node.links.links["b"].open_sessions[0].abort()
    else:
        reborn(a if cut == "near" else b, "b" if cut == "near" else "a")
    world.run(60)
    came = injected(b)
    assert len(came) == len(set(came))
    if cut != "near":
        assert sorted(came) == sorted(payloads)


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


@pytest.mark.parametrize("expiry", [15, 3600])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("outlives", [False, True])
def test_of_a_chunk_that_waits_each_message_expires_on_its_own(expiry: int, qos: int, outlives: bool) -> None:
    world, (a, b) = sites("ab")
    wants(world, b, "m/#", qos=2)
    b.kill()
    b.spool = spool(b).next_life()
    world.run(1)
    client = a.client("p", version=Version.V5)
    data, payloads = chunk(["m"], Version.V5, qos, {Property.MESSAGE_EXPIRY_INTERVAL: expiry})
    before = spool(a).last
    client.transport.write(data)
    world.run(20)
    assert spool(a).last == before + 1
    if outlives:
        reborn(a, "b")
    b.start(("a",))
    world.run(20)
    came = [packet for name, packet in b.broker.published if name.startswith("ildm-")]
    lasting = expiry > 100
    assert sorted(packet.payload for packet in came) == (payloads if lasting else payloads[::2])
    assert a.node.counters["link_dropped_expired"] == (0 if lasting else COUNT // 2)
    left = {packet.properties[Property.MESSAGE_EXPIRY_INTERVAL] for packet in came if packet.properties}
    assert len(left) == lasting
    assert all(expiry - 40 < each <= expiry - 20 for each in left)
    assert spool(a).bytes == 0
    assert a.node.links.idle


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
