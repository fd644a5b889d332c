"""What origins have offered is fetched, once, within bounds; the answers of an origin are bounded, too."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ildm.mqtt import Publish, Version
from ildm_algorithms.exchange.log import Log
from ildm_algorithms.exchange.messages import Message
from ildm_algorithms.exchange.receipts import Receipts
from ildm_algorithms.exchange.receiver import FETCH, PATIENCE, TRANSITIONS, Event, Receiver, State
from ildm_algorithms.exchange.repair import LATE_BYTES, WANT_BYTES, send_late
from tests.algorithms.fake_api import FakeApi

ATTEMPTS = 3


def payload_of(number: int, size: int = 1) -> bytes:
    return Message(number, 0, 0, Publish(topic="t", payload=b"x" * size).encode(Version.V5)).encode()


class Node:
    """A receiver, and what its algorithm sees of it."""

    def __init__(self, most: int = 1_000) -> None:
        self.api = FakeApi()
        api: Any = self.api
        self.receipts = Receipts(self.api.now, 1e6, 1 << 20, self.api.count)
        self.receiver = Receiver(api, self, self.receipts, most, ATTEMPTS, self.api.count)
        self.before: set[tuple[str, int]] = set()
        self.wanted: list[tuple[str, list[int]]] = []
        self.asked: Counter[str] = Counter()
        self.got: Counter[tuple[str, int]] = Counter()
        self.missed: Counter[tuple[str, int]] = Counter()
        self.over: list[tuple[str, bool]] = []

    def came_before(self, origin: str, number: int) -> bool:
        return (origin, number) in self.before

    def want(self, origin: str, numbers: list[int]) -> None:
        assert 0 < len(numbers) <= FETCH
        assert numbers == sorted(set(numbers))
        self.wanted.append((origin, numbers))

    def take(self, origin: str, topic: str, age: int, message: Message) -> bool:
        assert topic == f"of {origin}"
        self.receipts.add(origin, message.number)
        self.got[origin, message.number] += 1
        return True

    def lost(self, origin: str, lacking: dict[int, str], gone: bool) -> None:
        self.missed.update((origin, number) for number in lacking)

    def ended(self, origin: str, filled: bool) -> None:
        assert self.receiver.state(origin) is State.CURRENT
        self.over.append((origin, filled))

    def ask(self, origin: str) -> None:
        self.receiver.ask(origin, lambda: self.asked.update([origin]))

    def offer(self, origin: str, *numbers: int) -> list[str]:
        return self.receiver.offered(origin, [(number, f"of {origin}") for number in numbers])

    def late(self, origin: str, *numbers: int, gone: tuple[int, ...] = (), last: bool = True) -> None:
        self.receiver.arrived(origin, [(0, payload_of(number)) for number in numbers], gone, last)


def test_what_is_offered_is_requested_until_it_is_there() -> None:
    node = Node()
    node.before.add(("o", 4))
    node.receipts.add("o", 5)
    assert node.offer("o", 2, 1, 2, 4, 5, 3) == []
    assert node.receiver.state("o") is State.BEHIND
    assert node.wanted == []
    node.receiver.fetch("o")
    assert node.wanted == [("o", [1, 2, 3])]
    node.api.run(PATIENCE + 0.1)
    assert node.wanted[1:] == [("o", [1, 2, 3])]
    node.receipts.add("o", 2)  # on another way
    node.late("o", 1)
    assert node.wanted[2:] == [("o", [3])]
    node.late("o", gone=(3,))
    assert node.over == [("o", True)]
    assert node.receiver.state("o") is State.CURRENT
    assert (node.got, node.missed) == ({("o", 1): 1}, {("o", 3): 1})
    node.offer("o", 1, 2, 3)
    node.api.run(100)
    assert node.receiver.state("o") is State.CURRENT
    assert len(node.wanted) == 3


def test_an_answer_that_brings_nothing_is_not_followed_by_a_request_at_once() -> None:
    """An origin that answers so again and again would keep both nodes busy."""
    node = Node()
    node.offer("o", 1, 2)
    node.receiver.fetch("o")
    for _ in range(10):
        node.late("o", 7)
        node.late("o")
    assert len(node.wanted) == 1
    node.api.run(100)
    assert len(node.wanted) == ATTEMPTS
    assert node.missed == {("o", 1): 1, ("o", 2): 1}
    assert node.over == [("o", False)]


def test_an_origin_that_was_asked_is_asked_until_it_answers() -> None:
    node = Node()
    node.ask("o")
    node.api.run(PATIENCE + 0.1)
    assert node.asked["o"] == 2
    node.offer("o", 1)
    node.api.run(100)  # nothing is said until it is fetched
    assert (node.asked["o"], node.wanted) == (2, [])
    node.receiver.fetch("o")
    node.late("o", 1)
    node.ask("o")
    node.receiver.fetch("o")  # it has nothing more
    assert node.over == [("o", True)] * 2
    node.ask("o")
    node.api.run(100)
    assert node.asked["o"] == 3 + ATTEMPTS
    assert node.over[2:] == [("o", False)]
    assert not node.missed


def test_one_origin_leaves_room_for_others() -> None:
    node = Node(most=10)
    assert node.offer("greedy", *range(20)) == ["of greedy"] * 14
    assert node.offer("o", *range(5)) == ["of o"] * 2
    node.receiver.fetch("greedy")
    node.late("greedy", *range(5))
    assert node.offer("o", *range(5)) == []


def test_only_what_the_table_has_happens() -> None:
    assert {state for state, _ in TRANSITIONS} == set(State)
    assert {event for _, event in TRANSITIONS} == set(Event)
    node = Node()
    node.offer("o", 1)
    with pytest.raises(KeyError):
        node.ask("o")
    assert node.receiver.state("o") is State.BEHIND


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_all_that_an_origin_has_comes_or_is_counted_once(seed: int, most: int) -> None:
    """Origins lose requests and answers, answer in pieces, twice, or that something is gone."""
    random, node = Random(seed), Node(most)
    receiver, origins = node.receiver, ["a", "b", "c"]
    has = {origin: set(random.sample(range(200), 30)) for origin in origins}
    kept = {origin: {number for number in has[origin] if random.random() < 0.8} for origin in origins}

    def answer(origin: str, numbers: list[int]) -> None:
        pieces = [number for number in numbers if number in kept[origin]][: random.choice([1, 5, 100])]
        gone = tuple(number for number in numbers if number not in kept[origin])
        for _ in range(random.choice([1, 1, 2])):
            at = random.randrange(len(pieces) + 1)
            node.late(origin, *pieces[:at], last=False)
            node.late(origin, *pieces[at:], gone=gone)

    def step(calm: bool) -> None:
        origin = random.choice(origins)
        match receiver.state(origin):
            case State.CURRENT if random.random() < 0.5:
                node.ask(origin)
            case State.CURRENT | State.UNSURE if random.random() < 0.8:
                # with less room only so many are offered
                node.offer(origin, *random.sample(sorted(has[origin]), 30))
                if receiver.state(origin) is State.UNSURE:
                    receiver.fetch(origin)
            case State.BEHIND:
                receiver.fetch(origin)
        if calm or random.random() < 0.5:
            requests, node.wanted = node.wanted, []
            for request in requests:
                answer(*request)
        node.api.run(random.choice([0.0, 1.0, PATIENCE]))
        lacking = [cursor.lacking for cursor in receiver._cursors.values()]
        assert sum(map(len, lacking)) <= most
        assert all(receiver._cursors[name].lacking for name in receiver.all_in(State.BEHIND))

    for _ in range(50):
        step(calm=False)
    for _ in range(2_000):
        step(calm=True)
        if all((origin, number) in node.receipts for origin in origins for number in has[origin]):
            break
    else:
        raise AssertionError("not all has come")
    assert set(node.got.values()) == {1}
    assert set(node.got) == {(origin, number) for origin in origins for number in kept[origin]}
    assert len(node.over) >= len(origins) or len(receiver)


@pytest.mark.parametrize("largest", [1 << 30, 150_000])
def test_late_messages_come_in_pieces_that_links_can_carry(largest: int) -> None:
    api: Any = FakeApi()
    log = Log(api, 300.0, 1 << 30, api.count)
    sizes = [100, 20_000, 20_000, 200_000, *[10_000] * 40]
    for number, size in enumerate(sizes, 1):
        log.add(number, "t", payload_of(number, size), None, subscribed=True)
    sent: list[tuple[bool, list[int], list[int]]] = []

    def send(last: bool, gone: list[int], messages: dict[int, tuple[int, bytes]]) -> bool:
        bytes_ = sum(len(data) for _, data in messages.values())
        assert bytes_ <= LATE_BYTES or len(messages) == 1
        if bytes_ > largest:
            return False
        sent.append((last, list(gone), list(messages)))
        return True

    lacking, gone = set(range(len(sizes) + 2)), set()
    while lacking:
        sent.clear()
        send_late(log, sorted(lacking), api.now(), send, api.count)
        assert [last for last, _, _ in sent] == [False] * (len(sent) - 1) + [True]
        assert sum(sizes[number - 1] for *_, numbers in sent for number in numbers) <= WANT_BYTES
        for _, missing, numbers in sent:
            gone.update(missing)
            lacking -= {*missing, *numbers}
    assert gone == {0, len(sizes) + 1, *([] if largest > 200_000 else [4])}
