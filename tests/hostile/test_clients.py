"""Whatever one local client sends or does not read, the node serves all others."""

from __future__ import annotations

from random import Random

import pytest

from tests.hostile.arena import Arena
from tests.hostile.clients import ACTS


@pytest.mark.parametrize(("algorithm", "at_far_site"), [("pf", False), ("sf", True)])
@pytest.mark.parametrize("act", ACTS)
def test_one_hostile_client_and_the_innocent(act: str, algorithm: str, at_far_site: bool) -> None:
    arena = Arena(algorithm)
    site = arena.there if at_far_site else arena.here
    for seed in range(2):
        with arena.bounded_work():
            ACTS[act](arena, site, Random(seed))
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
