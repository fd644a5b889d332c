"""Alarms beside a backlog, as they are measured."""

from __future__ import annotations

import pytest

from ildm_bench.micro.link_backlog import CLASSES, IN_ORDER, WAYS, bound, measured
from ildm_bench.micro.link_rates import BURST, Profile
from tests.support.brokers import Mosquitto


def test_two_ways_are_compared_and_an_alarm_has_a_bound() -> None:
    assert list(WAYS) == [IN_ORDER, CLASSES]
    assert bound(Profile(0.3, 0.0, 0.0, None, 1)) == pytest.approx(1.2 + 2 * BURST)


@pytest.mark.broker
def test_an_alarm_passes_a_backlog_where_classes_say_so(mosquitto: Mosquitto) -> None:
    profile = Profile(0.02, 0.0, 0.0, None, 10_000)
    behind, before = (measured(profile, way, 0.015, 4.0) for way in WAYS)
    assert before.oldest < behind.alarm
    assert behind.share == 1.0
    assert before.share < 0.6
