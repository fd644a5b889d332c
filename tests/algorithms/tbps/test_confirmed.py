"""Up to which message other nodes have offered all."""

from __future__ import annotations

from typing import Any

from ildm_algorithms.tbps.confirmed import Confirmed
from tests.algorithms.fake_api import FakeApi


def confirmed_of(api: Any, most: int = 10) -> Confirmed:
    confirmed = Confirmed(api, most, api.count)
    confirmed.load()
    return confirmed


def test_a_node_counts_that_has_answered_all_questions_of_a_round() -> None:
    confirmed = confirmed_of(FakeApi())
    confirmed.answered("a", 1, 7, fetching=False)
    confirmed.begin([1, 2])
    confirmed.answered("a", 1, 7, fetching=False)
    confirmed.answered("a", 1, 8, fetching=False)
    confirmed.answered("a", 3, 9, fetching=False)
    assert confirmed.numbers == {}
    confirmed.answered("a", 2, 12, fetching=False)
    assert confirmed.numbers == {"a": 8}
    confirmed.begin([3])
    confirmed.answered("a", 1, 20, fetching=False)
    assert confirmed.numbers == {"a": 8}


def test_what_is_still_to_be_fetched_does_not_count() -> None:
    confirmed = confirmed_of(FakeApi())
    confirmed.begin([1])
    confirmed.answered("a", 1, 7, fetching=True)
    assert confirmed.numbers == {}
    confirmed.fetched("b")
    confirmed.fetched("a")
    assert confirmed.numbers == {"a": 7}


def test_a_round_does_not_count_for_a_filter_that_came_after_it() -> None:
    confirmed = confirmed_of(FakeApi())
    confirmed.begin([1])
    confirmed.leave()
    confirmed.answered("a", 1, 7, fetching=False)
    assert confirmed.numbers == {}


def test_it_outlives_a_restart_and_is_bounded() -> None:
    api: Any = FakeApi()
    confirmed = confirmed_of(api, most=3)
    for round in range(1, 6):
        confirmed.begin([round])
        confirmed.answered(f"n{round}", round, round, fetching=False)
    confirmed.save()
    assert confirmed_of(api).numbers == confirmed.numbers == {"n3": 3, "n4": 4, "n5": 5}
    confirmed.begin([9])
    for number in range(10):
        confirmed.answered(f"m{number}", 9, 1, fetching=True)
    for number in range(10):
        confirmed.fetched(f"m{number}")
    assert list(confirmed.numbers) == ["m0", "m1", "m2"]
