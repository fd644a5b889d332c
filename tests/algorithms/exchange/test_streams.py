"""The order of one publisher's messages where paths change."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ildm.testing import LinkModel, PluginWorld, uniform
from ildm_algorithms.exchange.receipts import Receipts
from ildm_algorithms.exchange.streams import OVERHEAD, StreamId, Streams
from ildm_algorithms.sg_tbps import SgTbps
from tests.algorithms.fake_api import FakeApi

WAIT = 0.2


class Receiver:
    """What has been let through, and virtual time."""

    def __init__(self, max_bytes: int = 1 << 20, streams: int = 100) -> None:
        self.api = FakeApi()
        api: Any = self.api
        self.receipts = Receipts(self.api.now, 300.0, 1 << 20, self.api.count)
        self.order = Streams(api, self.receipts, WAIT, max_bytes, streams, self.api.count)
        self.got: list[int] = []

    def take(self, number: int, behind: int = 1, topic: str = "t", turn: int = 0, origin: str = "o") -> None:
        if self.receipts.add(origin, number):
            stream = StreamId(origin, topic, turn)
            self.order.take(stream, number, behind, 100, partial(self.got.append, number))
        self.order.check_sums()


def test_what_overtakes_waits() -> None:
    receiver = Receiver()
    for number in (1, 3, 4, 2, 5):
        receiver.take(number)
    assert receiver.got == [1, 2, 3, 4, 5]
    assert receiver.order.bytes == 0
    assert receiver.api.counters["order_held"] == 2


def test_it_waits_a_moment_only() -> None:
    receiver = Receiver()
    for number in (1, 3, 4):
        receiver.take(number)
    receiver.api.run(WAIT - 0.01)
    assert receiver.got == [1]
    receiver.api.run(0.02)
    assert receiver.got == [1, 3, 4]
    assert receiver.api.counters["order_given_up"] == 1
    receiver.take(2)
    assert receiver.got == [1, 3, 4, 2]
    assert receiver.api.counters["order_late"] == 1
    receiver.take(5)
    assert receiver.got[-1] == 5


def test_the_first_of_a_stream_that_is_seen_here_does_not_wait() -> None:
    """It was published before this node subscribed, or is lost."""
    receiver = Receiver()
    receiver.take(17)
    assert receiver.got == [17]
    receiver.take(20, 2, topic="other")
    receiver.take(21, 3, turn=1)
    assert receiver.got == [17, 20, 21]


def test_streams_do_not_wait_for_each_other() -> None:
    receiver = Receiver()
    for number, topic in ((1, "a"), (2, "b")):
        receiver.take(number, 0, topic)
    receiver.take(5, 2, "a")
    receiver.take(4, 2, "b")
    receiver.take(1, 0, "a", origin="p")
    assert receiver.got == [1, 2, 4, 1]
    receiver.take(3, 2, "a")
    assert receiver.got == [1, 2, 4, 1, 3, 5]


def test_after_a_restart_of_the_origin_nothing_waits() -> None:
    receiver = Receiver()
    receiver.take(1_000)
    for number, behind in ((7, 0), (8, 1), (9, 1)):
        receiver.take(number, behind)
    assert receiver.got == [1_000, 7, 8, 9]


def test_a_stream_that_rested_for_longer_than_is_remembered() -> None:
    receiver = Receiver()
    receiver.take(1, 0)
    receiver.api.run(1_000)
    receiver.take(500_000, 0, "u")  # what is old is forgotten now
    receiver.take(900, 899)
    assert receiver.got == [1, 500_000, 900]


def test_what_waits_is_bounded() -> None:
    receiver = Receiver(max_bytes=2 * (100 + OVERHEAD))
    for number in (1, 10, 20, 30):
        receiver.take(number, 2)
    assert receiver.got == [1, 30]
    assert receiver.api.counters["order_full"] == 1
    receiver.api.run(1)
    assert sorted(receiver.got) == [1, 10, 20, 30]
    assert receiver.order.bytes == 0


def test_streams_are_bounded() -> None:
    receiver = Receiver(streams=2)
    for at, topic in enumerate("abc"):
        receiver.take(at + 1, 0, topic)
    receiver.take(9, 3, "a")  # forgotten, so it is the first again
    assert receiver.got == [1, 2, 3, 9]


@given(st.permutations(range(2, 12)), st.sets(st.integers(2, 11)))
def test_whatever_comes_first_all_come_in_order_and_once(order: list[int], twice: set[int]) -> None:
    receiver = Receiver()
    receiver.take(1, 0)
    for number in order:
        receiver.take(number)
        if number in twice:
            receiver.take(number)
    assert receiver.got == list(range(1, 12))


@pytest.mark.parametrize("qos", [0, 1])
def test_messages_come_in_order_where_the_network_does_not_keep_it(qos: int) -> None:
    """With filters in several segments: each message comes over the first one, and waits for none."""
    world = PluginWorld(SgTbps, seed=3, model=LinkModel(delay=uniform(0.001, 0.15), ordered=False))
    first = world.add("n0")
    for number in range(1, 6):
        world.add(f"n{number}", "n0")
    world["n1"].subscribe("t/u", qos)
    world["n2"].subscribe("t/#", qos)
    world["n3"].subscribe("t/#", qos)
    world["n3"].subscribe("t/u", qos)
    world["n3"].subscribe("+/u", qos)
    world.run(20)
    first.publish("t/u", b"first", qos, publisher=1)
    world.run(5)
    random = Random(1)
    for number in range(40):
        first.publish("t/u", b"%d" % number, qos, publisher=1)
        world.run(0.1 * random.random())
    world.run(5)
    for name in ("n1", "n2", "n3"):
        got = [delivery.payload for delivery in world[name].deliveries]
        assert got == [b"first", *(b"%d" % number for number in range(40))]
    assert world.counters()["order_held"] > 0


def test_what_has_come_is_remembered_as_long_as_needed() -> None:
    api = FakeApi()
    receipts = Receipts(api.now, 10.0, 1 << 20, api.count)
    assert receipts.add("o", 1)
    assert not receipts.add("o", 1)
    assert receipts.add("o", 2)
    assert receipts.add("p", 1)
    assert ("o", 2) in receipts
    assert ("o", 3) not in receipts
    api.run(9)
    assert not receipts.add("o", 1)
    assert receipts.add("o", 3)
    api.run(9)
    assert not receipts.add("o", 2)
    api.run(11)
    assert receipts.add("q", 1)
    assert receipts.add("o", 1)
    assert not api.counters


def test_what_has_come_is_bounded() -> None:
    api = FakeApi()
    receipts = Receipts(api.now, 10.0, 3 * 512, api.count)
    for number in range(3 * 256):
        assert receipts.add("o", number)
    assert not receipts.add("o", 0)
    assert not api.counters
    assert receipts.add("o", 3 * 256)
    assert len(receipts) == 3
    assert api.counters["seen_displaced"] == 1
