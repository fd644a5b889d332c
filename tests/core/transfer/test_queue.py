"""What waits in a sender, against a model that keeps one list of messages and looks through all of it."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from ildm.core.transfer.batch import batch_of, single
from ildm.core.transfer.inbound import Inbound, NeighborReceipt
from ildm.core.transfer.queue import Backlog, Entry
from ildm.mqtt import Publish, Version
from tests.support.examples import examples
from tests.support.senders import message_of


class Item(NamedTuple):
    """One message in the model."""

    priority: int
    place: int
    """The smaller one came, or was put back, first."""
    number: int
    entry: int
    qos: int
    unacknowledged: bool
    size: int


class Model:
    """Messages in the order in which they leave."""

    def __init__(self) -> None:
        self.items: list[Item] = []

    def add(self, items: list[Item]) -> None:
        self.items = sorted([*self.items, *items], key=lambda item: (-item.priority, item.place, item.number))

    def entry(self, number: int) -> list[Item]:
        return [item for item in self.items if item.entry == number]

    def forget(self, items: list[Item]) -> None:
        self.items = [item for item in self.items if item not in items]

    def trim(self, messages: int, size: int, lowest: bool) -> list[int]:
        """What goes, message by message."""
        gone = []
        while True:
            free = [item for item in self.items if not item.unacknowledged]
            may_go = [item for item in free if not (lowest and item.qos)]
            if (len(free) <= messages and sum(item.size for item in free) <= size) or not may_go:
                return gone
            worst = min(may_go, key=lambda item: (item.priority, item.qos > 0, item.place, item.number))
            if len(free) == 1:
                return gone
            self.forget([worst])
            gone.append(worst.number)


class Pair:
    """A backlog and its model, filled alike."""

    def __init__(self) -> None:
        self.backlog = Backlog()
        self.model = Model()
        self.inbound = Inbound(1000, 1 << 20, lambda data: None)
        self.inbound.take(message_of(65_535, 1, 1 << 20))  # never settled: the others were not taken
        self.entries: dict[int, Entry] = {}
        self.count = 0
        self.front = 0

    def make(
        self, priority: int, kind: str, count: int, unacknowledged: bool, place: int
    ) -> tuple[Entry, list[Item]]:
        first = self.count
        self.count += count
        receipt = NeighborReceipt(self.inbound) if unacknowledged else None
        if kind == "one":
            message = Publish(topic="t", payload=b"%05d" % first, qos=1, packet_id=1)
            entry = Entry(single(message, 1), receipt, priority)
            self.count = first + 1
            count = 1
        elif kind == "run":
            frames = b"".join(frame(first + i, 1) for i in range(count))
            entry = Entry(batch_of(frames, count), receipt, priority)
        else:
            frames = b"".join(frame(first + i, 0) for i in range(count))
            entry = Entry(batch_of(frames, count), None, priority)
            unacknowledged = False
        self.entries[first] = entry
        qos = 0 if kind == "frames" else 1
        items = [
            Item(priority, place, first + i, first, qos, unacknowledged, entry.size // count)
            for i in range(count)
        ]
        return entry, items

    def append(self, priority: int, kind: str, count: int, unacknowledged: bool) -> None:
        entry, items = self.make(priority, kind, count, unacknowledged, self.count + 1)
        self.backlog.append(entry)
        self.model.add(items)

    def put_back(self, several: list[tuple[int, str, int, bool]]) -> None:
        made = []
        self.front -= len(several)
        for i, (priority, kind, count, unacknowledged) in enumerate(several):
            entry, items = self.make(priority, kind, count, unacknowledged, self.front + i)
            made.append(entry)
            self.model.add(items)
        self.backlog.put_back(made)

    def remove(self, most: int) -> None:
        if not self.model.items:
            assert not self.backlog
            return
        first = self.model.items[0]
        entry = self.backlog.first
        assert entry is self.entries[first.entry]
        count = min(most, entry.count)
        self.model.forget(self.model.items[:count])
        self.backlog.remove(count)

    def trim(self, messages: int, size: int, lowest: bool) -> None:
        expected = self.model.trim(messages, size, lowest)
        assert sum(count for _, count in self.backlog.trim(messages, size, lowest)) == len(expected)

    def own(self, count: int) -> None:
        left = [count]

        def enough() -> bool:
            left[0] -= 1
            return left[0] < 0

        unacknowledged = sorted(
            {(i.priority, i.place, i.entry) for i in self.model.items if i.unacknowledged}
        )[:count]
        chosen = [entry for _, _, entry in unacknowledged]
        expected = sum(len(self.model.entry(entry)) for entry in chosen)
        assert self.backlog.own(enough) == expected
        self.model.items = [
            item._replace(unacknowledged=False) if item.entry in chosen else item for item in self.model.items
        ]

    def check(self) -> None:
        items, backlog = self.model.items, self.backlog
        backlog.check()
        unacknowledged = [item for item in items if item.unacknowledged]
        assert (backlog.messages, backlog.unacknowledged_messages) == (len(items), len(unacknowledged))
        assert backlog.bytes == sum(item.size for item in items)
        assert backlog.unacknowledged_bytes == sum(item.size for item in unacknowledged)

    def drained(self) -> None:
        """What is left leaves in the order of the model."""
        expected = [item.number for item in self.model.items]
        found = []
        while self.backlog:
            entry = self.backlog.first
            found += numbers(entry)
            self.backlog.remove(entry.count)
        assert found == expected


def frame(number: int, qos: int) -> bytes:
    message = Publish(topic="t", payload=b"%05d" % number, qos=qos, packet_id=1 if qos else None)
    return message.encode(Version.V5)


def numbers(entry: Entry) -> list[int]:
    batch = entry.batch
    return [int(batch.part(place, 1).frames[-5:]) for place in range(batch.count)]


ENTRY = st.tuples(
    st.sampled_from([0, 0, 0, 7, -8, 3]),
    st.sampled_from(["one", "run", "frames"]),
    st.integers(1, 4),
    st.booleans(),
)
CALL = st.one_of(
    ENTRY.map(lambda entry: ("append", *entry)),
    ENTRY.map(lambda entry: ("append", *entry)),
    st.lists(ENTRY, max_size=3).map(lambda several: ("put_back", several)),
    st.tuples(st.just("remove"), st.integers(1, 4)),
    st.tuples(st.just("trim"), st.integers(0, 12), st.integers(0, 3000), st.booleans()),
    st.tuples(st.just("own"), st.integers(0, 3)),
)


@given(st.lists(CALL, max_size=40))
@examples(150)
def test_the_highest_priority_leaves_first_and_the_lowest_is_dropped_first(calls: list[Any]) -> None:
    pair = Pair()
    for name, *arguments in calls:
        getattr(pair, name)(*arguments)
        pair.check()
    pair.drained()


@given(st.lists(ENTRY, min_size=1, max_size=10), st.integers(0, 6), st.integers(0, 400))
@examples(50)
def test_what_is_cut_is_what_came_last(entries: list[Any], messages: int, size: int) -> None:
    """Whatever its priority: its sender can still be told."""
    pair = Pair()
    for entry in entries:
        pair.append(*entry)
    last = pair.model.entry(max(pair.entries))
    free = [item for item in pair.model.items if not item.unacknowledged]
    over = max(len(free) - messages, -(-(sum(item.size for item in free) - size) // last[0].size), 0)
    count = min(over, len(last))
    assert pair.backlog.cut(messages, size) == count
    pair.model.forget(last[len(last) - count :])
    pair.check()
    pair.drained()


def test_what_is_cut_is_kept_nowhere() -> None:
    """Else many entries of which little is left would have far more than the queue counts."""
    backlog = Backlog()
    backlog.append(Entry(batch_of(b"".join(frame(i, 0) for i in range(100)), 100)))
    assert backlog.cut(1, 1 << 20) == 99
    (entry,) = backlog.take_all()
    assert len(entry.whole.frames) == entry.size


@given(st.lists(ENTRY, max_size=10))
@examples(30)
def test_all_is_taken_in_the_order_of_arrival(entries: list[Any]) -> None:
    pair = Pair()
    for entry in entries:
        pair.append(*entry)
    found = [number for entry in pair.backlog.take_all() for number in numbers(entry)]
    assert found == sorted(item.number for item in pair.model.items)
    assert not pair.backlog


@given(st.lists(ENTRY, max_size=10))
@examples(30)
def test_what_nobody_waits_for_any_longer_keeps_its_place(entries: list[Any]) -> None:
    pair = Pair()
    for entry in entries:
        pair.append(*entry)
    for entry in list(pair.entries.values()):
        if entry.receipt is not None:
            pair.backlog.disown(entry.receipt)
    assert pair.backlog.unacknowledged_messages == 0
    pair.drained()


def test_only_what_has_something_to_overtake_does() -> None:
    backlog = Backlog()
    entries = [Entry(batch_of(frame(i, 0), 1), None, priority) for i, priority in enumerate((0, 5, 5, 0, 7))]
    found = []
    for entry in entries:
        backlog.append(entry)
        found.append(backlog.overtakes(entry))
    assert found == [False, True, False, False, True]
