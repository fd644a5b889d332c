"""Which algorithm the advice names, and why."""

from __future__ import annotations

import pytest

from ildm.advice import NAMES, PREFERENCES, Advice, Network, Topic, advise


def network(subscribers: int = 10, **given: object) -> Network:
    topics = [Topic(name="t", subscribers=subscribers)]
    return Network.model_validate({"sites": 81, "topics": topics, **given})


def estimate(advice: Advice, algorithm: str) -> tuple[float, float]:
    (found,) = (each for each in advice.estimates if each.algorithm == algorithm)
    return found.delay_ms, found.traffic


FIVE = {
    (1, 5): {"sf": 14, "sg_tbps": 12, "atm_tbps": 5, "stla": 11},
    (1, 20): {"sf": 17, "sg_tbps": 19, "atm_tbps": 6, "stla": 23},
    (1, 80): {"sf": 17, "sg_tbps": 29, "atm_tbps": 9, "stla": 28},
    (3, 5): {"sf": 42, "sg_tbps": 69, "atm_tbps": 27, "stla": 40},
    (3, 20): {"sf": 54, "sg_tbps": 79, "atm_tbps": 31, "stla": 51},
    (3, 80): {"sf": 51, "sg_tbps": 165, "atm_tbps": 39, "stla": 61},
}
"""Mean ms that the simulator gives, by regions and subscribers (experiment ``five``)."""


@pytest.mark.parametrize("case", FIVE)
def test_estimates_are_near_the_results_they_derive_from(case: tuple[int, int]) -> None:
    regions, subscribers = case
    advice = advise(network(subscribers, regions=regions, near_ms=4, far_ms=40))
    for algorithm, measured in FIVE[case].items():
        assert estimate(advice, algorithm)[0] == pytest.approx(measured, rel=0.45)
    assert advice.algorithm == "atm_tbps" == min(FIVE[case], key=FIVE[case].__getitem__)


def test_few_copies_between_regions_are_those_of_a_tree() -> None:
    given = {"regions": 3, "near_ms": 4, "far_ms": 40, "prefer": "traffic"}
    advice = advise(network(80, **given))
    assert advice.algorithm == "sf"
    assert estimate(advice, "sf")[1] == pytest.approx(2, rel=0.05)
    assert estimate(advice, "stla")[1] == pytest.approx(7.7, rel=0.1)
    assert estimate(advice, "sg_tbps")[1] == pytest.approx(49.3, rel=0.15)
    assert "pf sends the same" in advice.why[-1]
    assert not any("pf sends" in line for line in advise(network(40, **given)).why)


def test_sites_that_come_and_go_forbid_a_tree() -> None:
    given = {"regions": 3, "near_ms": 4, "far_ms": 40, "prefer": "traffic", "churn": 30}
    advice = advise(network(80, **given))
    assert advice.algorithm == "stla"
    assert advice.estimates[-1].algorithm == "sf"
    assert "sf would lose 0.28% of the messages of QoS 1 while sites come and go" in advice.why
    assert advise(network(80, **given, tolerated_loss=0.01)).algorithm == "sf"


def test_where_all_lose_too_much_the_least_is_named() -> None:
    advice = advise(network(qos=0, churn=30, prefer="traffic"))
    assert advice.algorithm == "atm_tbps"
    assert "no algorithm loses so little under this churn: 0.02% here, the least" in advice.why


def test_topics_count_by_their_rates() -> None:
    large, small = Topic(subscribers=9_000, rate=1), Topic(subscribers=2, rate=1)
    often = large.model_copy(update={"rate": 1e6})

    def copies(*topics: Topic) -> float:
        found = advise(Network(sites=10_000, regions=2, far_ms=50, topics=list(topics)))
        return estimate(found, "sg_tbps")[1]

    assert copies(large, small) == pytest.approx((4500 + 1) / 2)
    assert copies(often, small) == pytest.approx(4500, rel=0.01)


def test_each_algorithm_is_estimated_once_and_the_best_is_first() -> None:
    for prefer in PREFERENCES:
        for subscribers in (1, 7, 80):
            advice = advise(network(subscribers, prefer=prefer))
            assert sorted(each.algorithm for each in advice.estimates) == sorted(NAMES)
            costs = [each.cost(prefer) for each in advice.estimates]
            assert costs == sorted(costs)
            assert advice.row()["algorithm"] == advice.estimates[0].algorithm
