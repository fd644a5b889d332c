"""A broker that deals with a chunk in two parts acknowledges some messages of a batch before the others."""

from __future__ import annotations

import pytest

from ildm.config import Address
from ildm.mqtt import Disconnect, PubAck
from ildm.testing.virtual.world import World
from tests.support.memory_spool import MemorySpool, reborn, spool
from tests.support.mixed import chunk, mixed_shares, numbers
from tests.support.site import Site

COUNT = 20


@pytest.fixture
def sites(world: World) -> tuple[Site, Site]:
    """Two sites. The broker of the second one pauses amid what it reads, and has one part of a batch."""
    a, b = (Site(world, name, "pf", spool=MemorySpool()) for name in "ab")
    b.node.links.add(Address("a", 2), False)
    world.run(2)
    b.broker.pause = 0.5
    a.client("p").transport.write(chunk(0, COUNT)[0])
    world.run(0.3)
    ((count, left),) = mixed_shares(b, "injection/0")
    assert 0 < left < count == COUNT
    assert numbers(b) == list(range(COUNT - left))
    return a, b


def test_the_rest_of_a_batch_is_freed_when_the_broker_has_it(world: World, sites: tuple[Site, Site]) -> None:
    _, b = sites
    world.run(1)
    assert numbers(b) == list(range(COUNT))
    assert spool(b).bytes == 0


def test_a_node_and_a_broker_that_end_meanwhile_lose_nothing(world: World, sites: tuple[Site, Site]) -> None:
    _, b = sites
    b.broker_down()
    reborn(b, "a")
    world.run(0.3)
    b.broker_up()
    world.run(20)
    assert numbers(b) == list(range(COUNT))
    assert spool(b).bytes == 0


def test_a_broker_deals_with_all_that_came_before_the_end_of_a_connection(world: World) -> None:
    site = Site(world, "a", None)
    site.broker.pause = 0.5
    client = site.client("p")
    world.run(1)
    client.transport.write(chunk(0, COUNT)[0] + Disconnect().encode(client.version))
    world.run(0.1)
    assert 0 < len(site.broker.published) < COUNT
    assert len(client.got(PubAck)) < COUNT
    client.transport.close()
    world.run(0.1)
    assert len(site.broker.published) == COUNT
