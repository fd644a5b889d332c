"""With a spool, what waited for a link that left the tree goes by the new path: once into each broker, in
whatever life, and with little of it in memory."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.config import Address
from ildm.core.transfer.rerouting import REST
from ildm.mqtt import PubAck, PubComp, Publish, PubRel
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.world import World
from tests.support.memory_spool import MemorySpool
from tests.support.site import Site


def ring(world: World, names: str, algorithm: str = "pf", **settings: Any) -> list[Site]:
    """Sites in a ring, each with a spool; the link between the first and the last is a spare one."""
    little = {"page_bytes": 1024}
    made = [Site(world, n, algorithm, spool=MemorySpool(), spooling=little, **settings) for n in names]
    for i, site in enumerate(made[1:]):
        site.node.links.add(Address(made[i].name, 2), False)
    world.run(2)
    made[-1].node.links.add(Address(names[0], 2), False)
    world.run(5)
    assert made[-1].links()[names[0]] == "not"
    return made


def publish(client: MiniClient, first: int, count: int, qos: int) -> None:
    world = client.transport.world
    for number in range(first, first + count):
        client.send(Publish(topic="t", payload=b"%d" % number, qos=qos, packet_id=number + 1))
    world.run(0.1)
    if qos == 2:
        for number in range(first, first + count):
            client.send(PubRel(packet_id=number + 1))
    world.run(0.1)
    assert len(client.got(PubComp if qos == 2 else PubAck)) == first + count


def payloads(site: Site) -> list[int]:
    own = f"ildm-{site.name}-0"
    return [int(packet.payload) for client_id, packet in site.broker.published if client_id == own]


def cut(world: World, near: Site, far: Site) -> None:
    """The path between two sites is gone for good, which nobody hears of at once."""
    world.barred.add((far.name, Address(near.name, 2)))
    for session in list(near.node.links.links[far.name].open_sessions):
        assert session.transport is not None
        session.transport.cut = True  # type: ignore[attr-defined]


@pytest.mark.parametrize("algorithm", ["pf", "sf"])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("killed", [False, True])
def test_what_waited_goes_by_the_spare_link_and_comes_once(algorithm: str, qos: int, killed: bool) -> None:
    world = World()
    a, b, c, d = ring(world, "abcd", algorithm)
    for site in (b, c, d):
        site.subscriber("#", qos=qos)
    world.run(2)
    publisher = a.client("p")
    publish(publisher, 0, 50, qos)
    cut(world, a, b)
    for first in range(50, 1000, 50):
        publish(publisher, first, 50, qos)
    if killed:
        a.kill()
        assert isinstance(a.spool, MemorySpool)
        a.spool = a.spool.next_life()
        a.store = a.store.copy()
        a.start()
    world.run(120)
    for site in (b, c, d):
        assert sorted(payloads(site)) == list(range(1000))
        assert not any("_dropped" in name and n for name, n in site.node.counters.items())
    assert a.node.custody is not None
    assert a.node.custody.state().messages == 0
    assert a.node.counters["link_rerouted"] > 900


def test_what_finds_no_path_is_dropped_with_the_link_in_the_end_and_counted() -> None:
    world = World()
    a, b, c = ring(world, "abc", link={"expiry": 20})
    publisher = a.client("p")
    c.node.links.cooperation.offer = lambda link: None  # type: ignore[method-assign]
    cut(world, a, b)
    publish(publisher, 0, 500, 1)
    world.run(60 + 5 * REST)
    assert a.node.custody is not None
    assert a.node.custody.state().messages == 0
    dropped = {name: n for name, n in a.node.counters.items() if "_dropped" in name and n}
    assert sum(dropped.values()) == 500
    assert all(name.startswith("link_dropped_neighbor_expired_") for name in dropped)
