"""Nodes come, leave and crash while messages are published."""

from __future__ import annotations

import pytest

from ildm_bench.sim.experiments.beyond.churn import MRF, Case, Churn, by_routing


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


def test_the_routings_meet_the_same_changes_and_take_other_ways() -> None:
    case = Case(rate=15.0, qos=0)
    found = [Churn(12, case, 2, routing).run(30.0) for routing in ("sfb", "mrf")]
    changes = [[figures[kind] for kind in ("joins", "leaves", "crashes", "published")] for figures in found]
    assert changes[0] == changes[1]
    assert found[0]["mean_hops"] < found[1]["mean_hops"]


@pytest.mark.parametrize(("lost", "verdict"), [((0.06, 0.07), "agree"), ((0.02, 0.07), "open")])
def test_sfb_is_more_tolerant_where_mrf_loses_more_in_pairs(lost: tuple[float, ...], verdict: str) -> None:
    runs = [
        {"case": name, "qos": 0, "rate": 9.0, "ratio": 1 - share}
        for name, shares in (("churn", (0.04, 0.05)), (MRF, lost))
        for share in shares
    ]
    assert by_routing({"runs": runs}, 9.0).verdict == verdict


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
