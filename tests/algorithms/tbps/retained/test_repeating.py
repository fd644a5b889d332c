"""When a node repeats the retained messages that have entered at it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ildm.api import STAMP_PROPERTY
from ildm.mqtt import Property, Publish
from ildm_algorithms.exchange.repeated import is_repeated
from ildm_algorithms.tbps.retained.repeating import PAUSE, PORTION, SPREAD, Repeating, in_portions
from tests.algorithms.fake_api import FakeApi


def held_on(topic: str) -> Publish:
    stamp = {Property.USER_PROPERTY: [(STAMP_PROPERTY, "1:n0")]}
    return Publish(topic=topic, payload=b"x", retain=True, properties=stamp)


def repeating(topics: list[str], interval: float = 0.0) -> tuple[FakeApi, Repeating, list[Publish]]:
    api: Any = FakeApi()
    sent: list[Publish] = []
    retained: Any = SimpleNamespace(held=lambda: topics, held_on=held_on)
    outbox: Any = SimpleNamespace(
        repeat=sent.append, goes_through=lambda route, topic: topic.startswith(route)
    )
    return api, Repeating(api, interval, retained, outbox), sent


def test_very_many_topics_are_done_some_at_a_time() -> None:
    api: Any = FakeApi()
    done: list[str] = []
    in_portions(api, map(str, range(PORTION + 1)), done.append)
    assert len(done) == PORTION
    api.run(PAUSE)
    assert len(done) == PORTION + 1


def test_after_many_merges_in_a_row_all_is_repeated_once() -> None:
    api, one, sent = repeating(["t", "u"])
    one.start()
    for _ in range(3):
        one.soon()
    api.run(SPREAD)
    assert [message.topic for message in sent] == ["t", "u"]
    assert all(map(is_repeated, sent))
    one.soon()
    api.run(SPREAD)
    assert len(sent) == 4


def test_a_route_that_was_late_repeats_what_goes_through_it() -> None:
    api, one, sent = repeating(["a/t", "b/t"])
    route: Any = "a/"
    one.late(route)
    api.run(1)
    assert [message.topic for message in sent] == ["a/t"]


def test_rounds_go_on() -> None:
    api, one, sent = repeating(["t"], interval=10.0)
    one.start()
    api.run(100)
    assert 6 <= len(sent) <= 20
