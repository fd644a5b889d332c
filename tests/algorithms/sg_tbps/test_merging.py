"""Graphs that become one again tell each other what they have retained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ildm_algorithms.overlay.graph import CastResult
from ildm_algorithms.tbps.merging import AGAIN, TIMES, MergeTeller, MergeWatch
from tests.algorithms.fake_api import FakeApi
from tests.algorithms.tbps.world import World


@pytest.mark.parametrize("parts", [2, 3, 6])
@pytest.mark.parametrize("seed", range(3))
def test_the_newest_wins_where_the_checks_of_the_graph_heal_a_partition(parts: int, seed: int) -> None:
    """No link of an introducer comes back that would make the nodes join once more."""
    overlay = {"ping_interval": 0.4, "ping_timeout": 0.5, "check_interval": 2.0, "suspect_time": 3.0}
    world = World("graph", seed, probe_interval=3600.0, overlay={**overlay, "retry": 0.1})
    nodes = world.start(*(f"n{number}" for number in range(6)))
    for node in nodes:
        node.subscribe("a/b")
    world.settle()
    for node in nodes[1:]:
        world.unlink(node.node_id, "n0")
    merges = [node.counters.get("merges") for node in nodes]
    world.partition(*(list(world.nodes)[number::parts] for number in range(parts)))
    world.run(6)
    for number, node in enumerate(nodes):
        node.publish("a/b", str(number), retain=True)
    world.settle()
    kept = [node.broker.retained["a/b"].payload for node in nodes]
    assert len(set(kept)) == parts
    assert kept[-1] == b"5"
    world.heal()
    world.run(20)
    assert [node.broker.retained["a/b"].payload for node in nodes] == [b"5"] * 6
    assert [node.counters.get("merges") for node in nodes] == merges


class Casts:
    """What a teller casts, each of which reaches so many nodes."""

    def __init__(self, api: Any, reached: list[int]) -> None:
        self.api = api
        self.reached = reached
        self.made: list[tuple[float, bool]] = []

    def __call__(self, again: bool, done: Callable[[CastResult], None]) -> None:
        self.made.append((self.api.now(), again))
        nodes = self.reached[min(len(self.made), len(self.reached)) - 1]
        self.api.call_later(1.0, done, CastResult(nodes > 0, nodes, nodes, nodes, 1, None))


@pytest.mark.parametrize(
    ("reached", "again"),
    [([9, 9], 1), ([5, 8, 8], 2), ([9, 5, 8], 1), ([0, 0, 9, 9], 3), ([1, 2, 3, 4, 5, 6, 7], TIMES)],
)
def test_all_are_told_again_until_no_more_of_them_are_reached(reached: list[int], again: int) -> None:
    api: Any = FakeApi()
    casts = Casts(api, reached)
    MergeTeller(api, casts).tell()
    api.run(100)
    assert casts.made == [(number * (AGAIN + 1), number > 0) for number in range(again + 1)]


@pytest.mark.parametrize("after", [0.5, 5.0])
def test_who_hears_another_tell_leaves_it_to_that_one(after: float) -> None:
    api: Any = FakeApi()
    casts = Casts(api, [3])
    teller = MergeTeller(api, casts)
    teller.tell()
    api.run(after)
    teller.leave_it()
    api.run(100)
    assert casts.made == [(0.0, False)]
    teller.tell()
    api.run(2)
    teller.tell()
    api.run(AGAIN + 2)
    assert [again for _, again in casts.made] == [False, False, False, True]


def test_an_announcement_again_is_news_to_who_has_not_received_it() -> None:
    api: Any = FakeApi()
    watch = MergeWatch(api, lambda: False, lambda alone: None)
    assert [watch.announced_again(), watch.announced_again()] == [True, False]
    api.run(AGAIN * (TIMES + 2))
    watch.announced()
    assert not watch.announced_again()
    api.run(AGAIN * (TIMES + 2))
    assert watch.announced_again()
