"""Whatever one neighbour sends or does not read, a node serves its clients and its other neighbours."""

from __future__ import annotations

from random import Random

import pytest

from ildm.config import Address
from ildm.testing.virtual.store import MemoryStore
from tests.hostile.arena import LIMITS, LINK, Arena
from tests.hostile.neighbours import ACTS, DAY, YEAR, Evil, stamps_ahead
from tests.support.retained import set_value, value
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


@pytest.mark.parametrize(
    ("behind", "lies"),
    [
        (0.0, [100 * YEAR - 1, 7000 * YEAR]),
        (10.0, [100 * YEAR - 1, 100 * YEAR]),
        (400 * DAY, [DAY, 50 * YEAR, 98 * YEAR, 102 * YEAR]),
    ],
)
def test_a_neighbour_that_lied_about_the_time_leaves_no_value_behind(
    behind: float, lies: list[float]
) -> None:
    """``behind``: the clock of the last site. What the innocent set and delete then wins everywhere."""
    arena = Arena("sf", link={"sync_interval": 5})
    for site, ahead in zip(arena.sites, (0.0, 0.1, -behind), strict=True):
        site.node.driver.clock = ahead  # type: ignore[attr-defined]
    evil = Evil(arena, arena.sites[1], "sf")
    stamps_ahead(arena, evil, Random(0), lies)
    evil.pipe.abort()
    arena.world.run(1)
    late = Site(arena.world, "late", "sf", link={"sync_interval": 5})
    late.node.links.add(Address(arena.there.name, 2), False)
    sites = [*arena.sites, late]
    for turn, setter in enumerate(sites * 2):
        for number in range(10):
            set_value(setter, f"flood/{number}", b"" if number % 3 == turn % 3 else b"%d" % turn)
        arena.world.run(0.5)
    arena.world.run(20)
    wanted = [None if number % 3 == turn % 3 else b"%d" % turn for number in range(10)]
    for site in sites:
        assert [value(site, f"flood/{number}") for number in range(10)] == wanted
    assert len({site.node.retained.digest for site in sites}) == 1


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
