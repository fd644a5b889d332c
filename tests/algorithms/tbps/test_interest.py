"""Filters of local clients: wanted on trial until the broker grants them."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

from ildm.mqtt import FilterTable
from ildm_algorithms.sg_tbps import SgTbps
from ildm_algorithms.tbps.interest import FETCHED, TRIAL, Interest
from ildm_algorithms.tbps.keys.segments import Segments
from tests.algorithms.fake_api import FakeApi


class Api(FakeApi):
    local_interest: dict[str, int]


def interest() -> tuple[Api, Interest]:
    api: Any = Api()
    api.local_interest = {}
    missing = Mock(restores=False)
    missing.interest_since.return_value = (0.0, 0.0)
    segments = Segments(Mock(), api, SgTbps.Config(), api.count)
    return api, Interest(api, FilterTable(), segments, Mock(behind=False), missing)


def test_topics_of_the_broker_stay_with_it() -> None:
    _, one = interest()
    one.changed({"$SYS/#": 1, "a": 1})
    assert one.filters.match("a") == {None: 1}
    assert not one.filters.match("$SYS/x")


def test_a_filter_that_is_not_granted_is_wanted_no_more() -> None:
    api, one = interest()
    assert not one.before_subscribe(["a", "b"], lambda: True)
    api.local_interest["a"] = 1
    api.run(TRIAL - 1)
    assert one.filters.match("b")
    api.run(2)
    assert one.filters.match("a")
    assert not one.filters.match("b")


def test_the_later_of_two_trials_counts() -> None:
    api, one = interest()
    one.before_subscribe(["a"], lambda: True)
    api.run(TRIAL - 1)
    one.before_subscribe(["a"], lambda: True)
    api.run(2)
    assert one.filters.match("a")
    api.run(TRIAL)
    assert not one.filters.match("a")


def test_a_client_with_very_many_filters_does_not_wait() -> None:
    _, one = interest()
    assert one.before_subscribe([str(number) for number in range(FETCHED + 1)], lambda: True)
    assert not one.filters.match("1")
