"""Nodes come, leave and crash while messages are published."""

from __future__ import annotations

import pytest

from bench.sim.experiments.beyond.churn import Churn


@pytest.mark.parametrize("qos", [0, 1])
def test_without_churn_every_subscriber_gets_each_message_once(qos: int) -> None:
    figures = Churn(nodes=10, rate=0.0, qos=qos, seed=1).run(20.0)
    assert figures["published"] == 80
    assert figures["due"] > 80
    assert figures["delivered"] == figures["due"]
    assert figures["ratio"] == 1.0
    assert figures["twice"] == 0
    assert figures["joins"] == figures["leaves"] == figures["crashes"] == 0
    assert figures["mean_hops"] >= 1


@pytest.mark.parametrize("qos", [0, 1])
def test_under_churn_most_messages_arrive_and_none_twice(qos: int) -> None:
    figures = Churn(nodes=12, rate=15.0, qos=qos, seed=2).run(30.0)
    assert figures["joins"] + figures["leaves"] + figures["crashes"] > 3
    assert figures["due"] > 0
    assert figures["ratio"] > (0.98 if qos else 0.75)
    assert figures["twice"] == 0
    assert figures["upkeep"] > 0
