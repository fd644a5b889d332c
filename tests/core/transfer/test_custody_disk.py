"""Nodes whose spool is full, or thrown away, with the files of a real one."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest

from ildm.config import Address
from ildm.mqtt import PubAck, PubComp, Publish, PubRel
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.world import World
from tests.support.disk_spool import DiskSite

SMALL = {"bytes": 1 << 20, "segment_bytes": 64 << 10, "page_bytes": 16 << 10}
SIZE = 1000
CHUNK = 7


def sites(world: World, names: str, algorithm: str = "pf", **spooling: Any) -> list[DiskSite]:
    """Sites in a row, each with a small spool; what comes in one chunk is one record there."""
    link = {"transfer": "received"}
    made = [DiskSite(world, name, algorithm, {**SMALL, **spooling}, link=link) for name in names]
    for before, site in itertools.pairwise(made):
        site.node.links.add(Address(before.name, 2), False)
    world.run(2)
    return made


def publish(client: MiniClient, first: int, count: int, qos: int = 1) -> None:
    """Messages in chunks; of QoS 1 each chunk is a run."""
    world = client.transport.world
    for begin in range(first, first + count, CHUNK):
        numbers = range(begin, min(begin + CHUNK, first + count))
        packets = [
            Publish(topic="t", payload=b"%0*d" % (SIZE, number), qos=qos, packet_id=number + 1)
            for number in numbers
        ]
        client.transport.write(b"".join(packet.encode(client.version) for packet in packets))
        world.run(0.01)
        if qos == 2:
            for number in numbers:
                client.send(PubRel(packet_id=number + 1))
            world.run(0.01)


def payloads(site: DiskSite) -> list[int]:
    """What the node has given to its broker."""
    own = f"ildm-{site.name}-0"
    return [int(packet.payload) for client_id, packet in site.broker.published if client_id == own]


def cut(here: DiskSite, far: str) -> None:
    """What is sent to a neighbour is lost from now on, which nobody hears of."""
    for session in here.node.links.links[far].open_sessions:
        assert session.transport is not None
        session.transport.cut = True  # type: ignore[attr-defined]


def cut_off(here: DiskSite, far: str) -> None:
    """Now they do, and connect again."""
    for session in list(here.node.links.links[far].open_sessions):
        session.abort()


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("mode", ["process", "power"])
def test_the_oldest_for_a_neighbour_gives_way_whole_and_counted(world: World, qos: int, mode: str) -> None:
    """What is under way or in memory stays, what follows arrives, and of no run a part is missing."""
    a, b = sites(world, "ab", full="drop_oldest", mode=mode)
    publisher = a.client("p")
    publish(publisher, 0, 70, qos)
    world.run(1)
    cut(a, "b")
    publish(publisher, 70, 3500, qos)
    world.run(1)
    assert len(publisher.got(PubComp if qos == 2 else PubAck)) == 3570
    sender = a.node.links.links["b"].senders[0]
    under_way = sender.inflight
    assert under_way > 0
    dropped = a.disk_spool.counters["spool_dropped_full"]
    assert dropped > 1500
    assert a.kept == 3500 - dropped
    assert a.disk_spool.disk_bytes < 1 << 20
    assert a.kept * SIZE > 1 << 19
    cut_off(a, "b")
    world.run(30)
    got = payloads(b)
    assert len(got) == 3570 - dropped
    assert got == sorted(set(got))
    assert got[: 70 + under_way] == list(range(70 + under_way))
    if qos == 1:
        assert set(Counter(number // CHUNK for number in got).values()) == {CHUNK}
    assert a.kept == b.kept == 0


def test_the_oldest_gives_way_although_the_node_is_killed_amid_that(world: World) -> None:
    a, b = sites(world, "ab", full="drop_oldest")
    b.kill()
    publisher = a.client("p")
    publish(publisher, 0, 1050)
    world.run(1)  # it is written that they are dropped
    dropped = a.disk_spool.counters["spool_dropped_full"]
    assert dropped > 0
    a.reborn()
    publisher = a.client("p")
    publish(publisher, 1050, 1050)
    dropped += a.disk_spool.counters["spool_dropped_full"]
    kept = a.kept
    assert kept == 2100 - dropped
    b.start(("a",))
    world.run(30)
    got = payloads(b)
    assert len(got) == kept
    assert got == sorted(got)
    assert a.kept == b.kept == 0


@pytest.mark.parametrize("how", ["dropped", "removed"])
def test_what_was_thrown_away_is_gone_and_what_follows_arrives(world: World, how: str) -> None:
    a, b = sites(world, "ab")
    publisher = a.client("p")
    publish(publisher, 0, 7)
    b.kill()
    world.run(1)
    publish(publisher, 7, 98)
    assert a.kept == 98
    assert a.node.custody is not None
    if how == "dropped":
        assert a.node.custody.drop(["link/b/0"]).messages == 98
    else:
        a.node.links.remove("b")
        world.run(1)
    assert a.kept == 0
    b.start(("a",))
    world.run(10)
    publish(publisher, 105, 98)
    a.reborn()
    world.run(30)
    publisher = a.client("p")
    publish(publisher, 203, 98)
    world.run(30)
    assert payloads(b)[-196:] == list(range(105, 301))
    assert a.kept == b.kept == 0


def test_what_was_under_way_when_it_was_thrown_away_is_acknowledged_in_vain(world: World) -> None:
    a, b = sites(world, "ab")
    publisher = a.client("p")
    b.broker.takes = lambda _, packet: not isinstance(packet, Publish)
    publish(publisher, 0, 70)
    assert b.kept == 70
    assert b.node.custody is not None
    assert b.node.custody.drop(["injection/0"]).messages == 70
    sender = b.node.injector.senders[0]
    assert sender.inflight == 70
    b.broker.takes = lambda _, packet: True
    for connection in b.broker.connections:
        for packet in connection.received:
            if isinstance(packet, Publish) and packet.qos:
                connection.send(PubAck(packet_id=packet.packet_id))
    world.run(1)
    assert sender.inflight == 0
    publish(publisher, 70, 70)
    world.run(1)
    assert payloads(b) == list(range(70, 140))  # the broker took none of the others
    assert b.kept == 0


def test_those_who_wait_for_room_go_on_when_something_is_thrown_away(world: World) -> None:
    """A client and a neighbour have no answers, as all the room is taken by what nobody fetches."""
    a, b, c = sites(world, "abc")
    c.kill()
    world.run(1)
    local, far = b.client("local"), a.client("far")
    publish(far, 0, 350)
    publish(local, 0, 1050)
    publish(far, 350, 70)
    world.run(5)
    assert b.disk_spool.full
    assert 0 < len(local.got(PubAck)) < 1050
    sender = a.node.links.links["b"].senders[0]
    assert sender.inflight > 0
    assert b.node.custody is not None
    b.node.custody.drop(["link/c/0"])
    world.run(5)
    assert len(local.got(PubAck)) == 1050
    assert sender.inflight == 0
    assert sorted(payloads(b)) == list(range(420))


@pytest.mark.parametrize("damaged", [True, False])
def test_a_node_knows_whether_its_spool_has_lost_something(world: World, damaged: bool) -> None:
    a, b = sites(world, "ab")
    cut(a, "b")
    publish(a.client("p"), 0, 20)
    a.kill()
    if damaged:
        a.disk.flip(min(a.disk.files), 4000)
    a.start((b.name,))
    assert a.node.custody is not None
    assert a.node.custody.lacks is damaged
    world.run(60)
    assert (len(payloads(b)) < 20) is damaged
