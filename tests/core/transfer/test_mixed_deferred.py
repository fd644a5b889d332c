"""Batches of several topics that find a spool full are not answered before somebody has custody of them."""

from __future__ import annotations

import itertools

import pytest

from ildm.config import Address
from ildm.core.spool import Identity
from ildm.mqtt import PubAck
from ildm.testing.virtual.world import World
from tests.support.memory_spool import MemorySpool, reborn, spool
from tests.support.mixed import chunk, mixed_shares, numbers, send
from tests.support.site import Site

COUNT = 20
FULL = -1
"""Bytes: even a spool with nothing in it is full."""


def sites(world: World, names: str) -> list[Site]:
    """Sites in a row, each with a spool, between which seven messages may be under way."""
    made = [Site(world, name, "pf", spool=MemorySpool(), link={"inflight": 7}) for name in names]
    for before, site in itertools.pairwise(made):
        site.node.links.add(Address(before.name, 2), False)
    world.run(2)
    return made


@pytest.fixture(params=[1, 2])
def row(world: World, request: pytest.FixtureRequest) -> list[Site]:
    """Three sites. The node in the middle has a batch and a full spool, and the last one is down."""
    a, b, c = sites(world, "abc")
    c.kill()
    c.spool = spool(c).next_life()
    world.run(1)
    spool(b).limit = FULL
    send(a.client("p"), 0, COUNT, qos=request.param)
    world.run(1)
    return [a, b, c]


def unacknowledged(site: Site) -> int:
    """Messages of batches that a node keeps for ``b``."""
    return sum(left for _, left in mixed_shares(site, "link/b/0"))


def test_what_is_taken_by_one_receiver_alone_is_not_acknowledged(world: World, row: list[Site]) -> None:
    a, b, _ = row
    assert numbers(b) == list(range(7))
    assert unacknowledged(a) == COUNT
    assert a.node.links.links["b"].senders[0].inflight == 7
    world.run(60)
    assert (numbers(b), unacknowledged(a)) == (list(range(7)), COUNT)


def test_it_is_acknowledged_as_soon_as_there_is_room(world: World, row: list[Site]) -> None:
    a, b, c = row
    spool(b).limit = 1 << 20
    spool(b).room()
    world.run(1)
    assert unacknowledged(a) == 0
    assert numbers(b) == list(range(COUNT))
    c.start(("b",))
    world.run(30)
    assert numbers(c) == list(range(COUNT))
    assert spool(b).bytes == 0


def test_it_is_acknowledged_once_all_receivers_have_it(world: World, row: list[Site]) -> None:
    a, b, c = row
    c.start(("b",))
    world.run(30)
    assert numbers(b) == numbers(c) == list(range(COUNT))
    assert [spool(site).bytes for site in row] == [0, 0, 0]
    assert a.node.links.idle


def test_a_newer_record_is_durable_before_the_neighbour_is_answered(world: World, row: list[Site]) -> None:
    """A reroute frees what was read. A node that is killed now would have neither record."""
    a, b, _ = row
    spool(b).power = True
    rerouting = b.node.links.cooperation.rerouting
    rerouting._send_page(b.node.links.links["c"].senders[0].spooled, 0, None, spool(b).last)
    assert b.node.counters["link_rerouted"] == 7
    world.run(5)
    assert unacknowledged(a) == COUNT
    spool(b).sync()
    world.run(0.1)
    assert unacknowledged(a) == COUNT - 7


@pytest.mark.parametrize("receivers", ["broker", "neighbour"])
def test_one_receiver_of_two_is_not_enough(world: World, receivers: str) -> None:
    """Nothing can be written: what both of them have is all that is acknowledged."""
    a, b, c = sites(world, "abc")
    if receivers == "broker":
        c.kill()
    else:
        b.broker_down()
    world.run(1)
    spool(b).failure = "no space left on device"
    a.client("p").transport.write(chunk(0, COUNT)[0])
    world.run(5)
    assert len(numbers(b if receivers == "broker" else c)) == 7
    assert unacknowledged(a) == COUNT
    if receivers == "broker":
        c.start(("b",))
    else:
        b.broker_up()
    world.run(60)
    assert numbers(b) == numbers(c) == list(range(COUNT))
    assert unacknowledged(a) == 0


@pytest.mark.parametrize("room", [True, False])
def test_a_node_that_is_killed_before_gets_it_again(world: World, row: list[Site], room: bool) -> None:
    a, b, c = row
    reborn(b, "a")
    if room:
        spool(b).limit = 1 << 20
    world.run(30)
    c.start(("b",))
    world.run(60)
    assert sorted(set(numbers(b))) == sorted(set(numbers(c))) == list(range(COUNT))
    assert len(numbers(c)) == COUNT
    assert unacknowledged(a) == 0


def test_of_a_batch_those_that_have_come_before_are_answered_at_once(world: World) -> None:
    a, b, c = sites(world, "abc")
    c.kill()
    world.run(1)
    spool(b).limit = FULL
    assert a.node.custody is not None
    assert b.node.custody is not None
    first = a.node.custody.number(1).number + 1
    assert b.node.custody.come(Identity("a", first + 2))
    assert b.node.custody.come(Identity("a", first + 3))
    a.client("p").transport.write(chunk(0, COUNT)[0])
    world.run(1)
    # the two that are answered have opened the window for two more
    assert numbers(b) == [0, 1, 4, 5, 6, 7, 8]
    assert unacknowledged(a) == COUNT - 2
    assert a.node.links.links["b"].senders[0].inflight == 7


def test_a_client_waits_until_there_is_room(world: World) -> None:
    a, b = sites(world, "ab")
    b.kill()
    world.run(1)
    spool(a).limit = 1000
    publisher = a.client("p")
    for first in range(0, 200, COUNT):
        publisher.transport.write(chunk(first, COUNT)[0])
        world.run(0.05)
    world.run(5)
    acknowledged = publisher.got(PubAck)
    taken = sum(left for _, left in mixed_shares(a, "link/b/0"))
    assert 0 < taken < 200
    assert acknowledged == []
    assert not publisher.closed
    b.spool = spool(b).next_life()
    b.start(("a",))
    world.run(30)
    spool(a).limit = 1 << 20
    spool(a).room()
    world.run(1)
    assert numbers(b) == list(range(200))
    assert len(publisher.got(PubAck)) == 200
