"""Nodes come, leave and crash while messages are published."""

from __future__ import annotations

import pytest

from ildm_bench.sim.experiments.beyond.churn import Case, Churn


@pytest.mark.parametrize("qos", [0, 1])
def test_without_churn_every_subscriber_gets_each_message_once(qos: int) -> None:
    figures = Churn(10, Case(qos=qos), seed=1).run(20.0)
    assert figures["published"] == 80
    assert figures["due"] > 80
    assert figures["delivered"] == figures["due"]
    assert figures["ratio"] == 1.0
    assert figures["twice"] == 0
    assert figures["joins"] == figures["leaves"] == figures["crashes"] == 0
    assert figures["mean_hops"] >= 1


@pytest.mark.parametrize("qos", [0, 1])
def test_under_churn_most_messages_arrive_and_none_twice(qos: int) -> None:
    figures = Churn(12, Case(rate=15.0, qos=qos), seed=2).run(30.0)
    assert figures["joins"] + figures["leaves"] + figures["crashes"] > 3
    assert figures["due"] > 0
    assert figures["lost"] == 0 if qos else figures["ratio"] > 0.75
    assert figures["twice"] == 0
    assert figures["upkeep"] > 0


@pytest.mark.parametrize(
    "case",
    [
        Case("toggling", 30.0, toggling=True),
        Case("loss", 15.0, loss=0.05),
        Case("toggling and loss", loss=0.05, toggling=True),
        Case("parted", parted=1 / 3),
    ],
    ids=lambda case: case.name,
)
def test_whatever_befalls_the_overlay_nothing_of_qos_1_is_lost_or_comes_twice(case: Case) -> None:
    figures = Churn(12, case, seed=3).run(40.0)
    assert figures["due"] > 50
    assert (figures["lost"], figures["twice"]) == (0, 0)
