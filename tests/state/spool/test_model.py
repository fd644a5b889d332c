"""Anything may be done in any order: the spool has what the model has, in this life and the next ones."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from random import Random

import pytest

from ildm.core.spool import Stored
from ildm.state.spool import FileSpool
from ildm.state.spool.records import HIGHEST
from ildm.testing.virtual.disk import SimDisk
from tests.state.spool.lives import Lives, Settings, numbers, read_all, record, to

NAMES = ("a", "b", "c")
LATER = 23
"""Of it what is newer than a mark is read by itself."""
PRIORITIES = (-8, 0, 7, LATER)


@dataclass
class Entry:
    """A record, for one consumer."""

    number: int
    messages: int
    left: set[int]
    held: bool
    priority: int
    notes: dict[int, int] = field(default_factory=dict)


class Model:
    """Mode process: what was committed outlives a kill exactly; what was not leaves no trace."""

    def __init__(self, random: Random, settings: Settings) -> None:
        self.random = random
        self.lives = Lives(settings, SimDisk(Random(random.random())))
        self.model: dict[str, dict[int, Entry]] = {}
        self.journal: dict[int, bytes] = {}
        self.counter = 0
        self.memory: list[int] = []
        self.marks: dict[str, int] = {}
        self.begin()

    def begin(self) -> None:
        """The owner has taken up what was there, and has it remembered."""
        self.spool.snapshot = lambda: b"%d" % len(self.memory)
        self.spool.commit()
        self.remember()

    def remember(self) -> None:
        """What would be found after a kill."""
        self.safe = copy.deepcopy((self.model, self.journal, self.memory))

    @property
    def spool(self) -> FileSpool:
        return self.lives.spool

    def append(self) -> None:
        names = self.random.sample(NAMES, self.random.randint(1, 3))
        messages, held = self.random.randint(1, 4), self.random.random() < 0.5
        self.counter += 1
        # a queue in memory takes what is new, unless older ones are still beyond; a few go out of turn
        in_hand = {
            name
            for name in names
            if held
            and (self.counter % 5 == 0 or all(entry.held for entry in self.model.get(name, {}).values()))
        }
        priority = self.random.choice(PRIORITIES)
        lsn = self.spool.append(record(self.counter, messages), to(*names, held=in_hand, priority=priority))
        for name in names:
            entry = Entry(self.counter, messages, set(range(messages)), name in in_hand, priority)
            self.model.setdefault(name, {})[lsn] = entry
        self.memory += range(messages)

    def read(self) -> None:
        name, size = self.random.choice(NAMES), self.random.randint(1, 600)
        self.found(name, size, self.spool.consumer(name).read(size))

    def read_ahead(self) -> None:
        """What is of a priority is told, and read in order."""
        name, size = self.random.choice(NAMES), self.random.randint(1, 600)
        consumer, waiting = self.spool.consumer(name), self.model.get(name, {})
        if self.random.random() < 0.2:
            self.marks[name] = self.random.randint(self.marks.get(name, 0), self.spool.last)
        mark = self.marks.get(name, 0)
        priority = self.random.choice(PRIORITIES)
        bounds = (0, HIGHEST) if priority < LATER else self.random.choice(((mark, HIGHEST), (0, mark)))
        beyond = {(entry.priority, lsn) for lsn, entry in waiting.items() if not entry.held}
        assert {each for each, _ in beyond if each < LATER} <= set(consumer.priorities())
        assert {each for each, lsn in beyond if lsn > mark} & {LATER} <= set(consumer.priorities(mark))
        self.found(name, size, consumer.read_ahead(size, priority, *bounds), priority, *bounds)

    def found(
        self,
        name: str,
        size: int,
        found: list[Stored],
        priority: int | None = None,
        after: int = 0,
        until: int = HIGHEST,
    ) -> None:
        waiting = self.model.get(name, {})
        beyond = [
            lsn
            for lsn, entry in waiting.items()
            if not entry.held and after < lsn <= until and priority in (None, entry.priority)
        ]
        wanted = []
        for lsn in sorted(beyond):
            if size <= 0:
                break
            entry = waiting[lsn]
            entry.held = True
            size -= 50 * len(entry.left)
            wanted += [(entry.number, place) for place in sorted(entry.left)]
        assert numbers(found) == wanted
        for each in found:
            entry = waiting[each.lsn]
            assert each.note == entry.notes.get(each.first)
            assert each.record.identity == ("here", entry.number)
            if each.note is not None:
                assert each.record.messages == 1

    def free(self) -> None:
        name = self.random.choice(NAMES)
        held = [(lsn, entry) for lsn, entry in self.model.get(name, {}).items() if entry.held]
        if not held:
            return
        lsn, entry = self.random.choice(held[:5])
        first = self.random.randrange(entry.messages)
        count = self.random.randint(1, entry.messages - first)
        if not entry.left & set(range(first, first + count)):
            return
        self.spool.consumer(name).free(lsn, first, count)
        entry.left -= set(range(first, first + count))
        for place in range(first, first + count):
            entry.notes.pop(place, None)
        if not entry.left:
            del self.model[name][lsn]

    def note(self) -> None:
        name, value = self.random.choice(NAMES), self.random.getrandbits(17)
        held = [(lsn, entry) for lsn, entry in self.model.get(name, {}).items() if entry.held]
        if held:
            lsn, entry = self.random.choice(held[:5])
            place = min(entry.left)
            most = next(i for i in range(1, entry.messages + 1) if place + i not in entry.left)
            count = self.random.randint(1, most)
            self.spool.consumer(name).note(lsn, place, value, count)
            for i in range(count):
                entry.notes[place + i] = value + i

    def discard(self) -> None:
        name, size = self.random.choice(NAMES), self.random.randint(1, 400)
        dropped = self.spool.consumer(name).discard(size, 0.0, 1000)
        count = 0
        for lsn in sorted(self.model.get(name, {})):
            entry = self.model[name][lsn]
            if entry.held:
                continue
            if size <= 0:
                break
            size -= 50 * len(entry.left)
            count += len(entry.left)
            del self.model[name][lsn]
        assert dropped.messages == count

    def retire(self) -> None:
        name = self.random.choice(NAMES)
        left = sum(len(entry.left) for entry in self.model.pop(name, {}).values())
        assert self.spool.consumer(name).retire().messages == left

    def keep(self) -> None:
        size = self.random.randint(0, 100)
        self.journal[self.spool.journal(bytes(size))] = bytes(size)

    def journaled(self) -> None:
        part = self.random.randint(0, 10)
        gone = sorted(self.journal)[: len(self.journal) * part // 10]
        if gone:
            self.spool.journaled(gone[-1])
            for lsn in gone:
                del self.journal[lsn]

    def commit(self) -> None:
        self.spool.commit()
        assert self.spool.durable == self.spool.last
        self.remember()

    def pass_time(self) -> None:
        self.lives.run(self.random.choice((0.5, 6, 20)))
        self.remember()

    def kill(self) -> None:
        epoch = self.spool.epoch
        spool = self.lives.kill()
        self.marks.clear()
        assert spool.epoch > epoch
        self.model, self.journal, self.memory = copy.deepcopy(self.safe)
        self.check_next_life()
        self.begin()

    def check_next_life(self) -> None:
        spool = self.spool
        assert dict(spool.replay()) == self.journal
        covered = int(spool.restored or b"0")
        since = sum(messages for _, messages in spool.identities())
        assert covered + since == len(self.memory)
        for entries in self.model.values():
            for entry in entries.values():
                entry.held = False
        for name, entries in self.model.items():
            notes = [value for entry in entries.values() for value in entry.notes.values()]
            assert sorted(spool.consumer(name).noted()) == sorted(notes)

    def close(self) -> None:
        self.spool.close()
        self.remember()
        self.kill()

    def counts(self) -> None:
        for name in NAMES:
            waiting = self.model.get(name, {})
            consumer = self.spool.consumer(name)
            assert consumer.waiting.messages == sum(len(entry.left) for entry in waiting.values())
            assert consumer.waiting.bytes == 50 * consumer.waiting.messages
            beyond = sum(len(entry.left) for entry in waiting.values() if not entry.held)
            assert consumer.beyond_messages == beyond
        assert not self.lives.counters["spool_damaged"]
        assert not self.lives.counters["spool_unreadable"]
        assert not self.spool.losses, "the mark tells of nothing that is not lost"
        assert not self.lives.counters["spool_marks_failed"]

    def end(self) -> None:
        self.spool.commit()
        self.remember()
        self.kill()
        for name, entries in self.model.items():
            found = numbers(read_all(self.spool, name))
            wanted = [
                (entry.number, place) for _, entry in sorted(entries.items()) for place in sorted(entry.left)
            ]
            assert found == wanted


ACTIONS = {
    Model.append: 8,
    Model.read: 2,
    Model.read_ahead: 4,
    Model.free: 8,
    Model.note: 2,
    Model.discard: 0.5,
    Model.retire: 0.2,
    Model.keep: 1,
    Model.journaled: 0.5,
    Model.commit: 4,
    Model.pass_time: 0.3,
    Model.kill: 0.7,
    Model.close: 0.2,
}


@pytest.mark.parametrize("seed", range(100))
def test_whatever_is_done(seed: int) -> None:
    random = Random(seed)
    model = Model(random, Settings(segment_bytes=random.choice((300, 1500, 6000)), expiry=1e9))
    for action in random.choices(list(ACTIONS), list(ACTIONS.values()), k=120):
        action(model)
        model.counts()
    model.end()
