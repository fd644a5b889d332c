"""Whatever one neighbour sends or does not read, a node serves its clients and its other neighbours."""

from __future__ import annotations

from random import Random

import pytest

from tests.hostile.arena import Arena
from tests.hostile.neighbours import ACTS, Evil


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
