"""Takeovers of a pair, as they are measured."""

from __future__ import annotations

import pytest

from ildm_bench.micro.takeover import SIGNALS, measured
from tests.support.brokers import Mosquitto


@pytest.mark.broker
@pytest.mark.parametrize("how", SIGNALS)
def test_a_client_is_accepted_and_its_message_is_across_each_time(how: str, mosquitto: Mosquitto) -> None:
    accepted, across = measured(how, 2)  # the members change places
    assert len(accepted) == len(across) == 2
    assert all(0 < first < second for first, second in zip(accepted, across, strict=True))
