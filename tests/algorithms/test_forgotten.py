"""A site whose node has lost its state gets what it had not acknowledged, and nothing that it had."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.api import OverlayAlgorithm
from tests.algorithms.test_outage import KINDS, REST, Sites


class Forgetful(Sites):
    """The node of ``d`` loses its state directory whenever it is killed; its broker keeps all sessions."""

    def lose(self) -> None:
        self.kill("d")
        self.world.saved.pop("d", None)
        disk = self.world.disk
        assert disk is not None
        disk.kept.pop("d", None)
        disk.injected.pop("d", None)


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def sites(request: pytest.FixtureRequest) -> Forgetful:
    kind: type[OverlayAlgorithm[Any]] = request.param
    return Forgetful(kind)


@pytest.mark.parametrize("seconds", [1.0, 10.0, 3_600.0])
def test_it_gets_what_was_published_while_it_was_away_once(sites: Forgetful, seconds: float) -> None:
    """Also while nobody has noticed yet that it is gone."""
    sites.lose()
    sites.publish_for(seconds)
    sites.start("d")
    sites.settle()
    assert (sites.lost, sites.counted) == ([], 0)


@pytest.mark.parametrize("seconds", [0.2, 2.0, 60.0])
def test_it_may_lose_its_state_again(sites: Forgetful, seconds: float) -> None:
    """Before it has fetched what it lacks, or afterwards."""
    sites.lose()
    sites.publish_for(20.0)
    sites.start("d")
    sites.world.run(seconds)
    sites.lose()
    sites.publish_for(20.0)
    sites.start("d")
    sites.settle()
    assert (sites.lost, sites.counted) == ([], 0)


def test_a_restart_after_that_brings_nothing_a_second_time(sites: Forgetful) -> None:
    sites.lose()
    sites.publish_for(20.0)
    sites.start("d")
    sites.world.run(REST)
    sites.kill("d")
    sites.publish_for(20.0)
    sites.start("d")
    sites.settle()
    assert (sites.lost, sites.counted) == ([], 0)
