"""Custody of messages: what a node has acknowledged it gives to all who are to have it, in whatever life."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.config import Address
from ildm.core.spool import NEVER, Delivery, Identity, Record
from ildm.core.transfer.spooled_queue import SpooledQueue
from ildm.mqtt import Connect, Property, PubAck, PubComp, Publish, PubRel, Subscribe, Subscription, Version
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.world import World
from tests.support.memory_spool import MemorySpool, reborn, spool
from tests.support.site import Site


def sites(
    world: World, names: str, algorithm: str = "pf", power: bool = False, **settings: Any
) -> list[Site]:
    """Sites in a row, each with a spool."""
    made = [Site(world, name, algorithm, spool=MemorySpool(power), **settings) for name in names]
    for i, site in enumerate(made[1:]):
        site.node.links.add(Address(made[i].name, 2), False)
    world.run(2)
    return made


def publish(client: MiniClient, first: int, count: int, qos: int, topic: str = "t") -> None:
    for number in range(first, first + count):
        client.send(Publish(topic=topic, payload=b"%d" % number, qos=qos, packet_id=number + 1))


def payloads(site: Site) -> list[int]:
    """What the node has given to its broker, in order; with QoS 2 what a session repeats is left out."""
    return [
        int(packet.payload)
        for client_id, packet in site.broker.published
        if client_id == f"ildm-{site.name}-0"
    ]


def kept(site: Site) -> int:
    assert site.node.custody is not None
    return site.node.custody.report().messages


@pytest.mark.parametrize("qos", [1, 2])
def test_what_has_arrived_everywhere_is_kept_nowhere(world: World, qos: int) -> None:
    a, b, c = sites(world, "abc")
    publish(a.client("p"), 0, 50, qos)
    world.run(2)
    assert payloads(b) == payloads(c) == list(range(50))
    assert [kept(site) for site in (a, b, c)] == [0, 0, 0]
    assert not any(site.node.counters["link_repeated"] for site in (a, b, c))


@pytest.mark.parametrize("frames", [b"\x32", b"\x32\x05\0\x01t\0\x01\0\x32\x7f", b"\x32\x02\0\x01" * 2])
def test_a_record_whose_frames_are_no_messages_is_named_and_passed_over(world: World, frames: bytes) -> None:
    a, b = sites(world, "ab")
    b.kill()
    world.run(1)
    record = Record(frames, 2, Identity("a", 1), 0, NEVER, None, mixed=True)
    lsn = spool(a).append(record, [Delivery("link/b/0", 1, 0, held=False)])
    spool(a).sync()
    a.kill()
    a.spool = spool(a).next_life()
    a.start()
    b.start(("a",))
    world.run(5)
    publish(a.client("p"), 0, 3, 1)
    world.run(2)
    assert payloads(b) == [0, 1, 2]
    (said,) = a.logged("a record of the spool is no message")
    assert said["lsn"] == lsn
    assert (a.node.counters["spool_unreadable"], kept(a)) == (2, 0)


class Run:
    """Twelve messages, in chunks of three, through a row of three sites, and what comes of them."""

    def __init__(self, qos: int, killed: str = "", after: int = 0) -> None:
        self.world = world = World()
        self.row = sites(world, "abc")
        publisher = self.row[0].client("p")
        witnesses = [self._witness(site) for site in self.row[1:]]
        begun = world.events
        for first in range(0, 12, 3):
            for number in range(first, first + 3):
                packet = Publish(topic="t", payload=b"%d" % number, qos=qos, packet_id=number + 1)
                if not publisher.closed:
                    publisher.send(packet)
            world.run(0.002)
            if qos == 2 and not publisher.closed:
                for number in range(first, first + 3):
                    publisher.send(PubRel(packet_id=number + 1))
            self._step(begun, killed, after)
        self._step(begun, killed, after, 0.2)
        self.events = world.events - begun
        self.acknowledged = {p.packet_id - 1 for p in publisher.got(PubComp if qos == 2 else PubAck)}
        world.run(30)
        self.got = [[int(payload) for _, payload in witness.messages] for witness in witnesses]

    def _witness(self, site: Site) -> MiniClient:
        """A subscriber of the broker itself, which has what takes effect there."""
        client = MiniClient()
        self.world.connect(Address(site.name, 3), client)
        client.send(Connect(client_id="witness"))
        client.send(Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter="#")]))
        self.world.run(0.1)
        return client

    def _step(self, begun: int, killed: str, after: int, seconds: float = 0.003) -> None:
        end = self.world.time + seconds
        while self.world.time < end:
            left = begun + after - self.world.events
            if killed and left <= 0 and not hasattr(self, "dead"):
                self.dead = next(site for site in self.row if site.name == killed)
                reborn(self.dead, *("ab"["abc".index(killed) - 1 :][:1] if killed != "a" else ""))
            self.world.run(0.0005)


@pytest.mark.parametrize("killed", ["a", "b", "c"])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_node_killed_at_any_moment_loses_nothing_acknowledged(qos: int, killed: str) -> None:
    undisturbed = Run(qos)
    assert undisturbed.got == [list(range(12))] * 2
    for after in range(0, undisturbed.events, 3):
        run = Run(qos, killed, after)
        for got in run.got:
            assert run.acknowledged <= set(got), (after, run.acknowledged, got)
            first = list(dict.fromkeys(got))
            assert first == sorted(first), (after, got)
            if qos == 2:
                assert len(got) == len(set(got)), (after, got)


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("lives", [1, 2])
def test_an_absent_neighbour_gets_all_of_it_though_little_is_in_memory(
    world: World, qos: int, lives: int
) -> None:
    a, b = sites(world, "ab", spooling={"page_bytes": 1024})
    publisher = a.client("p")
    publish(publisher, 0, 1, qos)
    world.run(0.5)
    b.kill()
    world.run(1)
    for first in range(1, 2001, 50):
        publish(publisher, first, 50, qos)
        world.run(0.05)
        if qos == 2:
            for number in range(first, first + 50):
                publisher.send(PubRel(packet_id=number + 1))
    world.run(1)
    sender = a.node.links.links["b"].senders[0]
    assert sender.queued_messages + sender.inflight == 2000
    assert isinstance(sender.queue, SpooledQueue)
    assert sender.queue._near.bytes < 2048 + sender.queue._near.messages * 200
    for _ in range(lives - 1):
        reborn(a)
        world.run(1)
    b.spool = spool(b).next_life()
    b.start(("a",))
    world.run(30)
    assert payloads(b) == list(range(2001))
    assert kept(a) == kept(b) == 0


def test_nobody_is_told_that_a_message_was_taken_before_the_disk_has_it(world: World) -> None:
    a, b = sites(world, "ab", power=True)
    for site in (a, b):
        spool(site).sync()
    world.run(1)
    publisher = a.client("p")
    publish(publisher, 0, 3, 1)
    world.run(1)
    assert publisher.got(PubAck) == []
    sender = a.node.links.links["b"].senders[0]
    assert payloads(b) == [0, 1, 2]
    assert sender.inflight == 3
    spool(b).sync()
    world.run(1)
    assert sender.inflight == 0
    assert publisher.got(PubAck) == []
    spool(a).sync()
    world.run(1)
    assert len(publisher.got(PubAck)) == 3


def test_qos_2_is_not_even_sent_before_the_disk_has_it(world: World) -> None:
    """A node that has lost its power would give it another number, and it would come twice."""
    a, b = sites(world, "ab", power=True)
    publish(a.client("p"), 0, 3, 2)
    world.run(1)
    assert payloads(b) == []
    for _ in range(5):
        for site in (a, b):
            spool(site).sync()
        world.run(1)
    assert payloads(b) == [0, 1, 2]


def test_without_room_clients_wait_and_go_on_when_there_is_some(world: World) -> None:
    a, b = sites(world, "ab")
    spool(a).limit = 200
    b.kill()
    world.run(1)
    publisher = a.client("p")
    for number in range(100):
        publish(publisher, number, 1, 1)
        world.run(0.01)
    acknowledged = len(publisher.got(PubAck))
    assert 0 < acknowledged < 100
    assert not publisher.closed
    b.spool = spool(b).next_life()
    b.start(("a",))
    world.run(30)
    spool(a).room()
    world.run(1)
    assert payloads(b) == list(range(100))
    assert len(publisher.got(PubAck)) == 100


def test_two_nodes_full_of_messages_for_each_other_come_free(world: World) -> None:
    a, b = sites(world, "ab")
    publishers = [site.client("p") for site in (a, b)]
    for site in (a, b):
        spool(site).limit = 200
    session = a.node.links.links["b"].open_sessions[0]
    assert session.transport is not None
    session.transport.cut = True  # type: ignore[attr-defined]
    for number in range(60):
        for publisher in publishers:
            publish(publisher, number, 1, 1)
        world.run(0.01)
    assert all(spool(site).full for site in (a, b))
    session.abort()
    world.run(30)
    for site in (a, b):
        spool(site).room()
    world.run(5)
    assert payloads(a) == payloads(b) == list(range(60))
    assert [len(publisher.got(PubAck)) for publisher in publishers] == [60, 60]


def test_what_nothing_can_be_written_for_is_answered_once_all_have_it(world: World) -> None:
    a, b = sites(world, "ab")
    spool(b).failure = "no space left on device"
    publisher = a.client("p")
    publish(publisher, 0, 5, 1)
    world.run(1)
    assert payloads(b) == list(range(5))
    assert a.node.links.links["b"].idle
    assert len(publisher.got(PubAck)) == 5


@pytest.mark.parametrize("how", ["dropped", "removed"])
@pytest.mark.parametrize("qos", [1, 2])
def test_what_nothing_can_be_written_for_is_answered_once_it_is_thrown_away(
    world: World, how: str, qos: int
) -> None:
    """The one who is to have it is away, perhaps for good: no room comes, and nobody takes it."""
    a, b, c = sites(world, "abc")
    c.kill()
    world.run(1)
    spool(b).failure = "input/output error"
    publish(a.client("p"), 0, 5, qos)
    assert b.node.custody is not None
    world.run(1 if qos == 1 else b.node.custody.config.failure_wait + 1)
    assert payloads(b) == list(range(5))
    sender = a.node.links.links["b"].senders[0]
    assert sender.inflight == 5
    if how == "removed":
        b.node.links.remove("c")
    else:
        assert b.node.custody.drop(["link/c/0"]).messages == 5
    world.run(1)
    assert sender.idle


def test_a_neighbour_that_is_removed_leaves_nothing_behind(world: World) -> None:
    a, b = sites(world, "ab", spooling={"page_bytes": 1024})
    b.kill()
    world.run(1)
    publisher = a.client("p")
    publish(publisher, 0, 500, 1)
    world.run(1)
    assert kept(a) == 500
    a.node.links.remove("b")
    assert kept(a) == 0
    counters = a.node.counters
    dropped = counters["link_dropped_removed_qos1"] + counters["link_dropped_removed_spooled"]
    assert dropped == 500
    world.run(1)


def test_expired_messages_are_not_sent_after_a_restart(world: World) -> None:
    a, b = sites(world, "ab")
    b.kill()
    world.run(1)
    publisher = a.client("p", version=Version.V5)
    for number, expiry in enumerate((5, 3600)):
        properties = {Property.MESSAGE_EXPIRY_INTERVAL: expiry}
        publisher.send(
            Publish(topic="t", payload=b"%d" % number, qos=1, packet_id=number + 1, properties=properties)
        )
    world.run(1)
    assert len(publisher.got(PubAck)) == 2
    reborn(a)
    world.run(10)
    b.spool = spool(b).next_life()
    b.start(("a",))
    world.run(10)
    assert payloads(b) == [1]
    (packet,) = (packet for client_id, packet in b.broker.published if client_id == "ildm-b-0")
    assert packet.properties[Property.MESSAGE_EXPIRY_INTERVAL] < 3600
    assert a.node.counters["link_dropped_expired"] == 1
    assert kept(a) == 0
