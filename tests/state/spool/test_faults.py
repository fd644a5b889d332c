"""Disks that fail, processes that are killed, power that is cut: what was durable is there, what was durably
freed is not."""

from __future__ import annotations

import errno
from random import Random

import pytest

from ildm.state.spool import FileSpool
from ildm.testing.virtual.disk import SimDisk
from tests.state.spool.lives import Lives, Settings, numbers, read_all, record, to

NAMES = ("a", "b")
Place = tuple[str, int, int]
"""Consumer, number of the record, place."""


class Storm:
    """Does this and that, and knows what must and what may be found afterwards."""

    def __init__(self, seed: int, mode: str) -> None:
        self.random = Random(seed)
        segment = self.random.choice((400, 1500, 5000))
        settings = Settings(
            mode=mode, bytes=1 << 20, segment_bytes=segment, delay=self.random.choice((0, 0.002)), expiry=1e9
        )
        self.lives = Lives(settings, SimDisk(Random(seed)))
        self.disk = self.lives.disk
        self.appended: dict[Place, int] = {}
        """What was not freed, with its LSN."""
        self.freed: set[Place] = set()
        """What was freed, but not written as such for certain."""
        self.hands: dict[str, list[tuple[int, int, int]]] = {name: [] for name in NAMES}
        self.journal: dict[int, bytes] = {}
        self.counter = 0
        self.begin()

    @property
    def spool(self) -> FileSpool:
        return self.lives.spool

    def begin(self) -> None:
        self.hands = {name: [] for name in NAMES}
        self.spool.snapshot = lambda: b"s" * 20

    def append(self) -> None:
        for _ in range(self.random.randint(1, 8)):
            self.counter += 1
            messages = self.random.randint(1, 3)
            names = self.random.sample(NAMES, self.random.randint(1, 2))
            held = {
                name
                for name in names
                if not self.spool.consumer(name).beyond_messages and self.random.random() < 0.5
            }
            lsn = self.spool.append(record(self.counter, messages), to(*names, held=held))
            for name in names:
                if name in held:
                    self.hands[name] += [(lsn, self.counter, place) for place in range(messages)]
                for place in range(messages):
                    self.appended[name, self.counter, place] = lsn

    def keep(self) -> None:
        entry = self.random.randbytes(20)
        self.journal[self.spool.journal(entry)] = entry

    def journaled(self) -> None:
        if self.journal:
            lsn = self.random.choice(list(self.journal))
            self.spool.journaled(lsn)
            self.journal = {other: entry for other, entry in self.journal.items() if other > lsn}

    def read(self) -> None:
        name = self.random.choice(NAMES)
        for each in self.spool.consumer(name).read(200):
            self.hands[name] += [(each.lsn, number, place) for number, place in numbers([each])]

    def free(self) -> None:
        name = self.random.choice(NAMES)
        for _ in range(self.random.randint(1, 10)):
            if self.hands[name]:
                which = 0 if self.random.random() < 0.8 else self.random.randrange(len(self.hands[name]))
                lsn, number, place = self.hands[name].pop(which)
                self.spool.consumer(name).free(lsn, place, 1)
                del self.appended[name, number, place]
                self.freed.add((name, number, place))

    def commit(self) -> None:
        self.spool.commit()

    def pass_time(self) -> None:
        self.lives.run(self.random.choice((0.001, 0.01, 0.5, 5, 20)))
        if self.spool.disk_bytes == sum(segment.safe for segment in self.spool.segments.segments):
            self.lives.run(0.5)  # also what nobody waits for is written by now
            if self.spool.failure is None:
                self.freed.clear()

    def fail_once(self) -> None:
        operation = self.random.choice(("write", "sync", "truncate", "create", "remove"))
        self.disk.once.setdefault(operation, []).append(self.random.choice((errno.EIO, errno.ENOSPC)))

    def fail_long(self) -> None:
        self.disk.fails[self.random.choice(("write", "sync", "create"))] = self.random.choice(
            (errno.EIO, errno.ENOSPC, errno.EMFILE)
        )

    def fill(self) -> None:
        self.disk.capacity = self.disk.capacity - self.disk.free + self.random.randint(0, 3000)

    def mend(self) -> None:
        self.disk.fails.clear()
        self.disk.once.clear()
        self.disk.capacity = 1 << 40

    def kill(self) -> None:
        self.check(lambda: self.lives.kill())

    def cut_power(self) -> None:
        if self.lives.settings.mode == "power":
            self.check(lambda: self.lives.cut_power())

    def close(self) -> None:
        if self.lives.settings.mode == "process":
            self.spool.close()
            self.check(lambda: self.lives.kill())

    def check(self, die) -> None:
        durable = self.spool.durable
        must = {place for place, lsn in self.appended.items() if lsn <= durable}
        may = self.appended.keys() | self.freed
        kept = {lsn: entry for lsn, entry in self.journal.items() if lsn <= durable}
        if self.random.random() < 0.7:
            self.mend()
        die()
        found = {}
        for name in NAMES:
            stored = read_all(self.spool, name)
            lsns = [each.lsn for each in stored]
            assert lsns == sorted(lsns)
            for each in stored:
                found |= {(name, number, place): each.lsn for number, place in numbers([each])}
        assert must <= found.keys(), f"lost: {must - found.keys()}"
        assert found.keys() <= may, f"returned: {found.keys() - may}"
        replayed = dict(self.spool.replay())
        assert kept.items() <= replayed.items()
        self.appended, self.freed = found, set()
        self.journal = replayed
        self.die_again()

    def die_again(self) -> None:
        """What was read is in hand; another life has it beyond again."""
        self.lives.kill()
        self.begin()


ACTIONS = {
    Storm.append: 8,
    Storm.read: 4,
    Storm.free: 5,
    Storm.keep: 1,
    Storm.journaled: 0.5,
    Storm.commit: 8,
    Storm.pass_time: 6,
    Storm.fail_once: 1,
    Storm.fail_long: 0.3,
    Storm.fill: 0.3,
    Storm.mend: 2,
    Storm.kill: 0.5,
    Storm.cut_power: 0.5,
    Storm.close: 0.1,
}


@pytest.mark.parametrize("mode", ["process", "power"])
@pytest.mark.parametrize("seed", range(40))
def test_whatever_fails(seed: int, mode: str) -> None:
    storm = Storm(seed, mode)
    for action in storm.random.choices(list(ACTIONS), list(ACTIONS.values()), k=150):
        action(storm)
    storm.mend()
    storm.lives.run(30)
    assert storm.spool.failure is None
    assert storm.spool.durable == storm.spool.last
    storm.kill()
