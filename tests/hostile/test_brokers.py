"""Whatever the broker of one site does, the other sites go on, and it is served again when it is well."""

from __future__ import annotations

from random import Random

import pytest

from tests.hostile.arena import Arena
from tests.hostile.brokers import ACTS, recover


@pytest.mark.parametrize("algorithm", ["pf", "sf"])
@pytest.mark.parametrize("act", ACTS)
def test_one_hostile_broker_and_the_innocent(act: str, algorithm: str) -> None:
    """It stands in the middle; messages between the innocent cross its site."""
    arena = Arena(algorithm)
    middle = arena.sites[1]
    for seed in range(3):
        ACTS[act](arena, middle, Random(seed))
        arena.probe()
    arena.world.run(10)
    arena.probe()
    arena.newcomer()
    recover(arena, middle)
    arena.world.run(30)
    arena.probe()
    arena.nothing_lost()
    client = middle.subscriber("innocent/#", "back", 1)
    arena.world.run(2)
    text = arena.publish()
    arena.world.run(2)
    assert text in [payload for _, payload in client.messages]
