"""When a node tells that graphs have merged, and how often something is done about it."""

from __future__ import annotations

from typing import Any

from ildm_algorithms.tbps.merging import Damper, MergeWatch
from tests.algorithms.fake_api import FakeApi


def watch(alone: bool = False) -> tuple[FakeApi, MergeWatch, list[bool]]:
    api: Any = FakeApi()
    merged: list[bool] = []
    return api, MergeWatch(api, lambda: alone, merged.append), merged


def test_merging_is_over_when_there_are_no_more_signs() -> None:
    api, merges, merged = watch()
    for _ in range(5):
        merges.sign()
        api.run(1.5)
    assert merges.merging
    assert merged == []
    api.run(5)
    assert not merges.merging
    assert merged == [False]


def test_what_another_node_has_told_is_not_told_again() -> None:
    api, merges, merged = watch()
    merges.sign()
    api.run(1.5)
    merges.announced()
    api.run(5)
    assert merged == []
    merges.sign()
    merges.announced()  # it may have begun before that sign
    api.run(6)
    assert merged == [False]


def test_where_only_own_keys_were_apart_others_are_not_told() -> None:
    api, merges, merged = watch()
    merges.sign(others=False)
    api.run(6)
    assert merged == [True]
    merges.sign(others=False)
    merges.sign()
    api.run(6)
    assert merged == [True, False]


def test_what_is_asked_for_all_the_time_is_done_ever_more_seldom() -> None:
    api: Any = FakeApi()
    times: list[float] = []
    damper = Damper(api, 60.0, lambda: times.append(round(api.now())))
    api.run(100)
    for _ in range(250):
        damper.ask()
        api.run(1)
    assert times == [100, 110, 130, 170, 230, 290, 350]
    api.run(121)
    asked = round(api.now())
    damper.ask()
    api.run(1)
    damper.ask()
    api.run(11)
    assert times[7:] == [asked, asked + 10]


def test_of_keys_of_others_that_entered_while_it_was_alone_all_are_told() -> None:
    alone = True
    api: Any = FakeApi()
    merged: list[bool] = []
    merges = MergeWatch(api, lambda: alone, merged.append)
    merges.sign()
    api.run(6)
    assert merged == [True]
    merges.other_entered()
    alone = False
    merges.sign(others=False)
    api.run(6)
    assert merged == [True, True, False]
    merges.other_entered()  # as they do
    merges.sign(others=False)
    api.run(6)
    assert merged == [True, True, False, True]
