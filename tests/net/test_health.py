"""Readiness while acknowledged messages cannot be kept."""

from __future__ import annotations

import pytest

from ildm.config import Address
from ildm.net.health import FULL_FOR, Health
from ildm.testing.virtual.world import World
from tests.support.memory_spool import MemorySpool
from tests.support.site import Site


def test_not_ready_while_clients_wait_for_neighbours() -> None:
    world = World()
    site = Site(world, "a", "sf", link={"wait_at_start": 30}, neighbors=("b",))
    health = Health(site.node)

    def problems() -> list[str]:
        found: list[list[str]] = []
        health.problems(found.append)
        return found[0]

    world.run(2)
    assert problems() == ["clients wait for the interest of b:2"]
    Site(world, "b", "sf")
    world.run(10)
    assert problems() == []


@pytest.mark.parametrize(("full", "words"), [("hold", "wait"), ("refuse", "are refused")])
def test_not_ready_while_publishers_wait_for_longer_than_a_moment(full: str, words: str) -> None:
    world, spool = World(), MemorySpool()
    site = Site(world, "a", "pf", spool=spool, spooling={"full": full})
    site.node.links.add(Address("b", 2), False)
    world.run(2)
    health = Health(site.node)

    def problems() -> list[str]:
        found: list[list[str]] = []
        health.problems(found.append)
        return found[0]

    assert problems() == []
    spool.limit = -1
    assert problems() == []
    world.run(FULL_FOR - 1)
    assert problems() == []
    world.run(1)
    where = site.node.config.spool_directory
    assert problems() == [f"spool {where}: no room; publishers of QoS 1 and 2 {words}"]
    spool.failure = "No space left on device"
    assert problems() == [f"spool {where}: No space left on device; publishers of QoS 1 and 2 {words}"]
    spool.failure = None
    spool.limit = 1 << 40
    spool.room()
    world.run(0.1)
    assert problems() == []
    spool.limit = -1
    world.run(FULL_FOR)
    assert problems() == []  # nobody had found it full before
