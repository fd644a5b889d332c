"""A site that was away for hours or days gets what was acknowledged meanwhile, or counts what it lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ildm.api import OverlayAlgorithm
from ildm_algorithms.octopia import Octopia
from ildm_algorithms.sg_tbps import SgTbps
from tests.algorithms.sites import Graph, all_kinds
from tests.support.examples import spread

HOUR = 3_600.0
DAY = 86_400.0
SITES = ["a", "b", "c", "d"]
KINDS = all_kinds("12", {"a": "x/1", "b": "x/2", "c": "y/1", "d": "y/2"})
REST = 100.0


class Sites(Graph):
    """Four sites, of which ``a`` publishes and ``d``, at least, has a persistent session."""

    def __init__(self, algorithm: type[OverlayAlgorithm[Any]], spool: bool = True, **options: Any) -> None:
        super().__init__(algorithm, {**KINDS[algorithm], **options}, SITES, spool=spool, sessions=2)
        self.sent: list[str] = []
        self.world.run(REST)
        self.world["d"].subscribe("t/#", 2)
        self.world.run(REST)
        self.publish(2)
        self.world.run(30)

    def publish(self, count: int, topic: str = "t/u") -> None:
        for _ in range(count):
            self.sent.append(str(len(self.sent)))
            self.send("a", topic, self.sent[-1:], 1 + len(self.sent) % 2)

    def publish_for(self, seconds: float) -> None:
        """Now and then, on topics old and new."""
        for number in range(4):
            self.publish(2)
            self.publish(1, f"t/{number}")
            self.world.run(seconds / 4)

    def settle(self) -> None:
        self.world.run(REST)
        self.publish(1)
        self.world.run(REST)

    @property
    def lost(self) -> list[str]:
        got = self.got["d"]
        assert len(set(got)) == len(got)
        return [text for text in self.sent if text not in got]

    @property
    def counted(self) -> int:
        return self.world.counters()["missed"]


def shown(value: object) -> str | None:
    """A kind of algorithm by its name."""
    return value.__name__ if isinstance(value, type) else None


def each(name: str, values: Sequence[object]) -> pytest.MarkDecorator:
    return spread(("algorithm", name), list(KINDS), values, shown)


each_algorithm = pytest.mark.parametrize("algorithm", KINDS, ids=shown)


@each("spool", [False, True])
def test_a_node_that_is_down_misses_nothing(algorithm: type[OverlayAlgorithm[Any]], spool: bool) -> None:
    sites = Sites(algorithm, spool)
    sites.kill("d")
    sites.publish_for(2 * HOUR)
    sites.start("d")
    sites.settle()
    assert (sites.lost, sites.counted) == ([], 0)


@pytest.mark.long
@pytest.mark.parametrize("kind", [SgTbps, Octopia], ids=shown)
def test_a_day_is_no_longer_than_an_hour(kind: type[OverlayAlgorithm[Any]]) -> None:
    sites = Sites(kind)
    sites.kill("d")
    sites.publish_for(DAY)
    sites.start("d")
    sites.settle()
    assert (sites.lost, sites.counted) == ([], 0)


@each("away", [["d"], ["a"], ["a", "b"]])
def test_a_node_that_is_cut_off_misses_nothing(
    algorithm: type[OverlayAlgorithm[Any]], away: list[str]
) -> None:
    """It is up all the time, alone or with others; it publishes, or has missed what was published."""
    sites = Sites(algorithm)
    sites.world.partition(away)
    sites.publish_for(2 * HOUR)
    sites.world.heal()
    sites.settle()
    assert (sites.lost, sites.counted) == ([], 0)


@each("seconds", [1.0, 5.0, 20.0])
def test_parts_that_meet_for_moments_miss_nothing(
    algorithm: type[OverlayAlgorithm[Any]], seconds: float
) -> None:
    """What comes then tells nothing of what came before; nor is it enough to have been alone at last."""
    sites = Sites(algorithm)
    sites.world.partition(["a", "b"])
    sites.publish_for(HOUR)
    sites.world.heal()
    sites.publish(2)
    sites.world.run(seconds)
    sites.publish(2)
    sites.world.partition(["a", "b"])
    sites.publish_for(HOUR)
    sites.world.partition(["a"])
    sites.publish_for(HOUR)
    sites.world.heal()
    sites.settle()
    sites.world.run(1.5 * HOUR)  # a question for all is asked by then, whatever happens
    assert (sites.lost, sites.counted) == ([], 0)


@each("who", ["a", "d", "ad"])
def test_a_restart_during_the_outage_changes_nothing(
    algorithm: type[OverlayAlgorithm[Any]], who: str
) -> None:
    """Of the publisher's node, of the one that is away (it finds nobody), or of both."""
    sites = Sites(algorithm)
    sites.world.partition(["d"])
    sites.publish_for(HOUR)
    for name in who:
        sites.kill(name)
        sites.world.run(HOUR)
        sites.start(name)
    sites.world.run(HOUR)
    sites.publish_for(HOUR)
    sites.world.heal()
    sites.settle()
    assert (sites.lost, sites.counted) == ([], 0)


@each("restarted", [False, True])
def test_each_message_that_was_kept_for_too_long_is_counted(
    algorithm: type[OverlayAlgorithm[Any]], restarted: bool
) -> None:
    """Also those that were published long after the site was given up, and by an earlier life."""
    sites = Sites(algorithm, absence_period=HOUR)
    sites.kill("d")
    sites.publish_for(4 * HOUR)
    if restarted:
        sites.kill("a")
        sites.world.run(HOUR)
        sites.start("a")
    sites.publish(2)
    sites.start("d")
    sites.settle()
    assert sites.lost
    assert sites.sent[-1] not in sites.lost
    assert sites.counted == len(sites.lost)
    counted = sites.counted
    sites.world.partition(["d"])
    sites.world.run(60)
    sites.world.heal()
    sites.settle()
    assert sites.counted == counted


@each_algorithm
def test_each_message_for_which_there_was_no_room_is_counted(algorithm: type[OverlayAlgorithm[Any]]) -> None:
    sites = Sites(algorithm, kept_bytes=40_000)
    sites.kill("d")
    sites.publish_for(HOUR)
    for _ in range(20):
        sites.publish(30)
        sites.world.run(1)
    sites.start("d")
    sites.settle()
    assert 300 < len(sites.lost) < len(sites.sent)
    assert sites.counted == len(sites.lost)
