"""Hostile peers of all kinds at once, in any order: the innocent are served.

The cases are chosen by hypothesis; ``ILDM_EXAMPLES=100`` takes a hundred times as many, at random.
"""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tests.hostile import brokers, clients, neighbours
from tests.hostile.arena import Arena
from tests.hostile.neighbours import Evil
from tests.support.examples import examples

NAMES = "abcd"

Step = tuple[str, str, int, int]
"""Kind of peer, what it does, at which site, seed."""


def steps() -> st.SearchStrategy[list[Step]]:
    seeds = st.integers(0, 1000)
    kinds = [
        st.tuples(st.just("client"), st.sampled_from(list(clients.ACTS)), st.integers(0, 3), seeds),
        st.tuples(st.just("neighbour"), st.sampled_from(list(neighbours.ACTS)), st.integers(0, 3), seeds),
        st.tuples(st.just("broker"), st.sampled_from(list(brokers.ACTS)), st.integers(1, 2), seeds),
        st.tuples(st.just("wait"), st.just("wait"), st.integers(0, 20), seeds),
    ]
    return st.lists(st.one_of(kinds), min_size=1, max_size=6)


SITES = st.integers(2, 4)
LINKS = st.fixed_dictionaries({"sessions": st.sampled_from([1, 2]), "qos": st.sampled_from([1, 2])})


class Play:
    """An arena in which steps are taken; a neighbour that has been sent away is followed by another."""

    def __init__(self, algorithm: str, sites: int, link: dict[str, Any]) -> None:
        self.algorithm = algorithm
        self.arena = Arena(algorithm, NAMES[:sites], link=link)
        self.evil: dict[int, Evil] = {}
        self.made = 0
        self.sick: set[int] = set()

    def take(self, step: Step) -> None:
        kind, act, where, seed = step
        arena = self.arena
        where = min(where, len(arena.sites) - 1)
        if kind == "client":
            clients.ACTS[act](arena, arena.sites[where], Random(seed))
        elif kind == "neighbour":
            evil = self.neighbour(where)
            if evil is not None:
                neighbours.ACTS[act](arena, evil, Random(seed))
        elif kind == "broker":
            if 0 < where < len(arena.sites) - 1:  # the innocent have theirs at both ends
                self.sick.add(where)
                brokers.ACTS[act](arena, arena.sites[where], Random(seed))
        else:
            arena.world.run(float(where))

    def neighbour(self, where: int) -> Evil | None:
        """The hostile neighbour of a site, one that has just come where there is none (any more)."""
        evil = self.evil.get(where)
        if evil is None or evil.ended:
            if self.made >= 3:
                return None
            self.made += 1
            evil = self.evil[where] = Evil(
                self.arena, self.arena.sites[where], self.algorithm, f"evil{self.made}"
            )
        return evil

    def recover(self) -> None:
        for where in self.sick:
            brokers.recover(self.arena, self.arena.sites[where])
        self.arena.world.run(30)


FULL: list[Step] = [
    ("client", "deep_filters", 2, 568),
    ("neighbour", "subscribes_to_everything", 1, 999),
    ("client", "half_open", 2, 117),
]
"""Filters fill a neighbour's bound, then ``#`` takes their place."""
FULL_AND_SLOW: list[Step] = [
    ("client", "takes_all_connections", 0, 661),
    ("neighbour", "subscribes_to_everything", 1, 356),
    ("neighbour", "toggles_everything", 3, 178),
    ("wait", "wait", 6, 848),
    ("broker", "stops_reading", 2, 727),
    ("wait", "wait", 13, 894),
]
"""The same, and afterwards a broker takes nothing for longer than ``#`` lingers."""


@examples(30)
@example(algorithm="sf", sites=2, link={"sessions": 1, "qos": 2}, steps=FULL)
@example(algorithm="sf", sites=4, link={"sessions": 1, "qos": 2}, steps=FULL_AND_SLOW)
@given(algorithm=st.sampled_from(["pf", "sf"]), sites=SITES, link=LINKS, steps=steps())
def test_the_innocent_are_served_whatever_the_others_do(
    algorithm: str, sites: int, link: dict[str, Any], steps: list[Step]
) -> None:
    play = Play(algorithm, sites, link)
    arena = play.arena
    for step in steps:
        play.take(step)
        arena.probe()
        arena.keeps_its_bounds()
    play.recover()
    arena.probe()
    arena.newcomer()
    arena.nothing_lost()
    arena.keeps_its_bounds()
