"""Whatever one neighbour sends or does not read, a node serves its clients and its other neighbours."""

from __future__ import annotations

from random import Random

import pytest

from ildm.config import Address
from ildm.testing.virtual.store import MemoryStore
from tests.hostile.arena import LIMITS, LINK, Arena
from tests.hostile.neighbours import ACTS, Evil
from tests.support.site import Site


@pytest.mark.parametrize("algorithm", ["pf", "sf"])
@pytest.mark.parametrize("act", ACTS)
def test_one_hostile_neighbour_and_the_innocent(act: str, algorithm: str) -> None:
    """It is joined to the site in the middle, which all messages between the innocent cross."""
    arena = Arena(algorithm)
    evil = Evil(arena, arena.sites[1], algorithm)
    arena.probe()
    for seed in range(3):
        with arena.bounded_work():
            ACTS[act](arena, evil, Random(seed))
        arena.probe()
        arena.keeps_its_bounds()
    arena.world.run(1)
    arena.probe()
    arena.newcomer()
    with arena.bounded_work():
        arena.world.run(60)
    arena.probe()
    arena.keeps_its_bounds()
    arena.nothing_lost()


@pytest.mark.parametrize("algorithm", ["pf", "sf"])
@pytest.mark.parametrize("silent", [True, False])
def test_a_neighbour_that_is_killed_and_starts_again_over_and_over(algorithm: str, silent: bool) -> None:
    """With its store or without; ``silent``: its machine has gone, nobody hears of that."""
    arena = Arena(algorithm)
    middle = Address(arena.sites[1].name, 2)
    leaf = Site(arena.world, "leaf", algorithm, link=dict(LINK), limits=dict(LIMITS))
    leaf.node.links.add(middle, False)
    arena.world.run(1)
    assert leaf.links() == {arena.sites[1].name: "active"}
    leaf.subscriber("innocent/#", "s", 1, clean_start=False)
    for number in range(8):
        leaf.kill(silent)
        arena.world.run(0.3 * number)
        arena.probe()
        if number % 2:
            leaf.store = MemoryStore()
        leaf.start()
        leaf.node.links.add(middle, False)
        arena.world.run((0.002, 0.05, 1.0)[number % 3])
        arena.probe()
    with arena.bounded_work():
        arena.world.run(60)
    arena.probe()
    arena.nothing_lost()
    arena.keeps_its_bounds()
    assert leaf.links() == {arena.sites[1].name: "active"}
