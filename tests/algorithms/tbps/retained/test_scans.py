"""Thousands of retained messages: no call of the node works long, and all is found in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ildm.mqtt import IldmError
from ildm_algorithms.tbps.retained.scans import STEPS, WAITING, Scans
from tests.algorithms.fake_api import FakeApi
from tests.algorithms.tbps.test_pacing import longest
from tests.algorithms.tbps.world import World

MANY = 4_000


def test_who_subscribes_to_thousands_of_retained_messages() -> None:
    """They are found, sent, taken and, when nobody wants them any more, deleted a few at a time."""
    world = World("graph", siblings=1, max_topics=1)
    a, b, c = world.start("a", "b", "c")
    for number in range(MANY):
        a.publish(f"site/{number % 7}/dev{number}", "kept", retain=True)
        if number % 100 == 0:
            world.run(0.1)
    world.run(20)
    with longest(world) as most:
        b.subscribe("#", qos=0)
        world.run(30)
        c.subscribe("#", qos=0)  # its neighbour has it all
        world.run(30)
        c.unsubscribe("#")
        world.run(30)
    assert len(b.broker.retained) == MANY
    assert [len(node.injected) for node in (b, c)] == [MANY, 2 * MANY]
    assert not c.broker.retained
    assert most[0] < 5_000  # in one turn they take some hundred thousand


def scans_of(api: Any) -> tuple[Scans, list[str]]:
    errors: list[str] = []

    def guard(take: Callable[[], None]) -> None:
        try:
            take()
        except IldmError as error:
            errors.append(str(error))

    return Scans(api, guard, api.count), errors


def steps(number: int, done: list[int], fails: bool = False) -> Iterator[None]:
    for _ in range(number):
        done.append(number)
        yield
    if fails:
        raise IldmError("of another node")


def test_scans_go_on_in_turns_of_the_node() -> None:
    api: Any = FakeApi()
    scans, errors = scans_of(api)
    done: list[int] = []
    scans.add(steps(3, done))
    assert done == [3, 3, 3]
    scans.add(steps(10, done))
    scans.add(steps(2, done, fails=True))
    scans.add(steps(1, done))
    assert len(done) <= STEPS
    api.run(1)
    assert done == [3] * 3 + [10] * 10 + [2] * 2 + [1]
    assert errors == ["of another node"]
    done.clear()
    scans.add(steps(3, done))
    assert done == [3, 3, 3]


def test_scans_that_wait_are_bounded() -> None:
    api: Any = FakeApi()
    scans, _ = scans_of(api)
    done: list[int] = []
    scans.add(steps(100, done))
    for _ in range(WAITING + 5):
        scans.add(steps(1, done))
    assert api.counters["scans_dropped"] == 6
    api.run(1)
    assert done.count(1) == WAITING - 1


@pytest.mark.parametrize("topic_filter", ["t/+", "t/1"])
def test_at_the_bound_the_newest_are_sent_the_oldest_first(topic_filter: str) -> None:
    world = World("graph", retained_answers=3)
    a, b = world.start("a", "b")
    for number in range(8):
        a.publish(f"t/{number}", retain=True)
    world.run(5)
    b.subscribe(topic_filter)
    world.run(5)
    got = [message.topic for message in b.injected]
    assert got == (["t/1"] if topic_filter == "t/1" else ["t/5", "t/6", "t/7"])
