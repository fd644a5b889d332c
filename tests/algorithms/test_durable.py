"""Overlays whose nodes have a spool: what a client was acknowledged arrives once, whoever is killed."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from ildm.api import OverlayAlgorithm
from tests.algorithms.sites import Graph, all_kinds
from tests.support.examples import spread

QUICK = {"ping_interval": 0.5, "ping_timeout": 0.5, "check_interval": 3.0, "cast_deadline": 5.0}
SITES = ["a", "b", "c", "d", "e"]
MEMBERS = {"a": "x/1", "b": "x/2", "c": "y/1", "d": "y/2", "e": "x/3"}
KINDS = all_kinds("123", MEMBERS, overlay=QUICK)
ABSENT = 20.0
REST = 60.0


class Sites(Graph):
    """Five sites that have a spool."""

    def __init__(self, algorithm: type[OverlayAlgorithm[Any]], seed: int = 1, loss: float = 0.0) -> None:
        super().__init__(algorithm, KINDS[algorithm], SITES, seed, spool=True, sessions=2, loss=loss)
        self.world.run(10)
        self.subscribed = ""
        self.sent: list[str] = []

    def subscribe(self, names: str) -> None:
        self.subscribed = names
        for name in names:
            self.world[name].subscribe("t/#", 2)
        self.world.run(5)

    def publish(self, name: str, count: int = 1, topic: str = "t/u") -> None:
        for _ in range(count):
            self.sent.append(f"{name} {len(self.sent)}")
            self.send(name, topic, self.sent[-1:], 1 + len(self.sent) % 2)

    def check(self) -> None:
        """Everybody who subscribes got each once."""
        self.world.run(REST)
        for name in self.subscribed:
            counts = Counter(self.got[name])
            assert {"lost": sorted(set(self.sent) - set(counts))} == {"lost": []}, name
            assert {"twice": [text for text, times in counts.items() if times > 1]} == {"twice": []}, name
        assert self.world.counters()["missed"] == self.world.counters()["kept_missed"] == 0


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def sites(request: pytest.FixtureRequest) -> Sites:
    return Sites(request.param)


each_seed = spread(
    ("algorithm", "seed"), list(KINDS), range(3), lambda value: getattr(value, "__name__", None)
)


@pytest.mark.parametrize("absent", [0.0, ABSENT])
def test_the_node_of_a_publisher_is_killed_with_the_message_taken(sites: Sites, absent: float) -> None:
    """Nothing of it has left the node by then."""
    sites.subscribe("bcde")
    sites.publish("a", 3)
    sites.world.run(1)
    sites.publish("a", 3)
    sites.kill("a")
    sites.world.run(absent)
    sites.start("a")
    sites.check()


@pytest.mark.parametrize("first", ["ac", "ca"])
def test_publisher_and_subscriber_are_killed_at_once(sites: Sites, first: str) -> None:
    """Whoever comes back first."""
    sites.subscribe("bc")
    sites.publish("a", 3)
    sites.world.run(15)
    sites.publish("a", 3)
    sites.world.run(0.01)
    sites.kill("a", "c")
    for name in first:
        sites.world.run(ABSENT)
        sites.start(name)
    sites.check()


def test_a_publisher_is_killed_while_a_subscriber_is_away(sites: Sites) -> None:
    sites.subscribe("bc")
    sites.world.run(15)
    sites.kill("c")
    sites.world.run(ABSENT)
    sites.publish("a", 3)
    sites.world.run(ABSENT)
    sites.kill("a")
    sites.start("a")
    sites.world.run(ABSENT)
    sites.start("c")
    sites.check()


@pytest.mark.parametrize("absent", [0.0, 5.0])
@each_seed
def test_all_nodes_are_killed_at_once(
    algorithm: type[OverlayAlgorithm[Any]], absent: float, seed: int
) -> None:
    """In the middle of traffic, and they come back in any order."""
    sites = Sites(algorithm, seed)
    random = Random(seed)
    sites.subscribe("bcde")
    for _ in range(100):
        sites.publish(random.choice("abc"), random.randint(0, 3), random.choice(["t/u", "t/v", "t"]))
        sites.world.run(0.1 * random.random())
    names = list(SITES)
    random.shuffle(names)
    for name in "abc":
        sites.publish(name)
    sites.kill(*names)
    for name in names:
        sites.world.run(absent * random.random())
        sites.start(name)
    for _ in range(20):
        sites.publish(random.choice("abc"))
        sites.world.run(0.5 * random.random())
    sites.check()


@each_seed
def test_nodes_are_killed_again_and_again(algorithm: type[OverlayAlgorithm[Any]], seed: int) -> None:
    """And the network falls apart, and loses messages."""
    sites = Sites(algorithm, seed, loss=0.02)
    random = Random(seed)
    sites.subscribe("abcde")
    names = list(SITES)
    down: list[str] = []
    for _ in range(400):
        up = [name for name in SITES if name not in down]
        if up:
            sites.publish(random.choice(up), random.randint(0, 2))
        if up and random.random() < 0.05:
            down.append(random.choice(up))
            sites.kill(down[-1], silent=random.random() < 0.3)
        if random.random() < 0.02:
            random.shuffle(names)
            sites.world.partition(names[: random.randint(0, 2)])
        elif random.random() < 0.05:
            sites.world.heal()
        if down and random.random() < 0.06:
            sites.start(down.pop(random.randrange(len(down))))
        sites.world.run(0.5 * random.random())
    sites.world.heal()
    sites.start(*down)
    sites.check()
