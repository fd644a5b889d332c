"""Sites in a ring whose nodes keep a spool."""

from __future__ import annotations

from typing import Any

from ildm.config import Address
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
