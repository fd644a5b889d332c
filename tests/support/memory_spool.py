"""A spool in memory: what a life of a node has made durable, the next one finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from ildm.core.spool import Delivery, Identity, Record, Stored, Waiting
from tests.support.site import Site


class Share(NamedTuple):
    """What a consumer has of a record."""

    record: Record
    qos: int
    priority: int
    open: set[int]


class MemoryConsumer:
    """See :class:`ildm.core.spool.Consumer`."""

    def __init__(self, spool: MemorySpool, name: str) -> None:
        self.spool = spool
        self.name = name
        self.shares: dict[int, Share] = {}
        self.notes: dict[tuple[int, int], int] = {}
        self.in_hand: dict[int, set[int]] = {}

    @property
    def waiting(self) -> Waiting:
        messages = sum(len(share.open) for share in self.shares.values())
        size = sum(
            len(share.record.frames) // share.record.messages * len(share.open)
            for share in self.shares.values()
        )
        return Waiting(messages, size, 0.0 if messages else None)

    def _beyond(self) -> list[int]:
        return sorted(self.shares.keys() - self.in_hand.keys())

    @property
    def beyond_messages(self) -> int:
        return sum(len(self.shares[lsn].open) for lsn in self._beyond())

    @property
    def beyond_bytes(self) -> int:
        return sum(len(self.shares[lsn].record.frames) for lsn in self._beyond())

    def noted(self) -> list[int]:
        return list(self.notes.values())

    scattered = False

    def priorities(self, after: int = 0, until: int = 1 << 62) -> list[int]:
        return list({self.shares[lsn].priority: None for lsn in self._beyond() if after < lsn <= until})

    def read_ahead(self, size: int, priority: int, after: int = 0, until: int = 1 << 62) -> list[Stored]:
        wanted = [lsn for lsn in self._beyond() if after < lsn <= until]
        return self._read(size, [lsn for lsn in wanted if self.shares[lsn].priority == priority])

    def read(self, size: int) -> list[Stored]:
        return self._read(size, self._beyond())

    def _read(self, size: int, wanted: list[int]) -> list[Stored]:
        found: list[Stored] = []
        for lsn in wanted:
            if size <= 0:
                break
            share = self.shares[lsn]
            record = share.record
            self.in_hand[lsn] = set(share.open)
            parts = stretches(sorted(share.open), {p for at, p in self.notes if at == lsn})
            for (first, _), part in zip(parts, record.parts(parts), strict=True):
                note = self.notes.get((lsn, first))
                found.append(Stored(lsn, first, part, share.qos, share.priority, note, 0.0))
                size -= len(part.frames)
        return found

    def free(self, lsn: int, first: int, count: int) -> None:
        places = set(range(first, first + count))
        if lsn not in self.shares:
            return  # retired meanwhile
        assert places <= self.in_hand[lsn], "freed what is not in hand"
        self.in_hand[lsn] -= places
        self.shares[lsn].open.difference_update(places)
        for place in places:
            self.notes.pop((lsn, place), None)
        if not self.shares[lsn].open:
            del self.shares[lsn], self.in_hand[lsn]

    def note(self, lsn: int, place: int, value: int, count: int = 1) -> None:
        if lsn not in self.shares:
            return  # retired meanwhile
        for i in range(count):
            assert place + i in self.in_hand[lsn]
            self.notes[lsn, place + i] = value + i
        self.spool.last += 1
        self.spool.log.append(
            (self.spool.last, lambda later: later.note_again(self.name, lsn, place, value, count))
        )

    def retire(self) -> Waiting:
        waiting = self.waiting
        self.shares.clear()
        self.in_hand.clear()
        self.notes.clear()
        return waiting


class MemorySpool:
    """See :class:`ildm.core.spool.Spool`. With ``power`` a test says when the disk has it (:meth:`sync`)."""

    def __init__(self, power: bool = False) -> None:
        self.power = power
        self.epoch = 1
        self.failure: str | None = None
        self.last = self.durable = 0
        self.on_durable: Callable[[], None] = lambda: None
        self.on_room: Callable[[], None] = lambda: None
        self.snapshot: Callable[[], bytes] = lambda: b""
        self.restored = b""
        self.losses: dict[str, int] = {}
        self.lost_entries = 0
        self.limit = 1 << 40
        self.commits = 0
        self.log: list[tuple[int, Callable[[MemorySpool], None]]] = []
        self._consumers: dict[str, MemoryConsumer] = {}
        self._identities: list[tuple[int, Identity, int]] = []
        self._journal: list[tuple[int, bytes]] = []

    @property
    def bytes(self) -> int:
        records = {
            lsn: len(share.record.frames)
            for consumer in self._consumers.values()
            for lsn, share in consumer.shares.items()
        }
        return sum(records.values())

    @property
    def disk_bytes(self) -> int:
        return self.bytes

    @property
    def full(self) -> bool:
        return self.failure is not None or self.bytes > self.limit

    def keep_time(self, now: Callable[[], float], lead: float) -> None:
        """Nothing grows old here."""

    def shown(self, written: float | None) -> float | None:
        return written

    def consumer(self, name: str) -> MemoryConsumer:
        if name not in self._consumers:
            self._consumers[name] = MemoryConsumer(self, name)
        return self._consumers[name]

    def consumers(self) -> list[str]:
        return list(self._consumers)

    def append(self, record: Record, deliveries: Iterable[Delivery]) -> int:
        assert record.mixed or len(record.frames) % record.messages == 0
        self.last += 1
        given = list(deliveries)
        assert given
        assert len({delivery.consumer for delivery in given}) == len(given)
        for name, qos, priority, held in given:
            share = Share(record, qos, priority, set(range(record.messages)))
            self.consumer(name).shares[self.last] = share
            if held:
                self.consumer(name).in_hand[self.last] = set(share.open)
        if record.identity is not None:
            self._identities.append((self.last, record.identity, record.messages))
        return self.last

    def commit(self) -> None:
        if not self.power and self.failure is None:
            self.commits += 1
            self.sync()

    def sync(self) -> None:
        """All that was appended is durable now."""
        if self.last > self.durable:
            self.durable = self.last
            self.on_durable()

    def room(self) -> None:
        """Tell of room, as a spool does of itself after something was freed."""
        if not self.full:
            self.on_room()

    def journal(self, entry: bytes) -> int:
        self.last += 1
        self._journal.append((self.last, entry))
        return self.last

    def journaled(self, lsn: int) -> None:
        self._journal = [entry for entry in self._journal if entry[0] > lsn]

    def replay(self) -> Iterator[tuple[int, bytes]]:
        return iter(list(self._journal))

    def identities(self) -> Iterator[tuple[Identity, int]]:
        return ((identity, count) for _, identity, count in self._identities)

    def note_again(self, consumer: str, lsn: int, place: int, value: int, count: int) -> None:
        """Take over a note of an earlier life, unless what it was beside has been freed."""
        share = self.consumer(consumer).shares.get(lsn)
        for i in range(count):
            if share is not None and place + i in share.open:
                self.consumer(consumer).notes[lsn, place + i] = value + i

    def next_life(self) -> MemorySpool:
        """What the node finds after it was killed now: all that is durable, and what was freed is."""
        later = MemorySpool(self.power)
        later.epoch = self.epoch + 1
        later.last = later.durable = self.durable
        later.limit = self.limit
        later._journal = [entry for entry in self._journal if entry[0] <= self.durable]
        later._identities = [each for each in self._identities if each[0] <= self.durable]
        for name, consumer in self._consumers.items():
            for lsn, share in consumer.shares.items():
                if lsn <= self.durable:
                    later.consumer(name).shares[lsn] = share._replace(open=set(share.open))
        for lsn, what in self.log:
            if lsn <= self.durable:
                what(later)
                later.log.append((lsn, what))
        return later


def stretches(places: list[int], alone: set[int]) -> list[tuple[int, int]]:
    """Places without a gap: the first, and how many; some stand alone."""
    found: list[tuple[int, int]] = []
    for place in places:
        if found and sum(found[-1]) == place and place not in alone and found[-1][0] not in alone:
            found[-1] = found[-1][0], found[-1][1] + 1
        else:
            found.append((place, 1))
    return found


def spool(site: Site) -> MemorySpool:
    assert isinstance(site.spool, MemorySpool)
    return site.spool


def reborn(site: Site, *neighbors: str) -> None:
    """Kill a node and start it again at once, with what was durable."""
    site.kill()
    site.spool = spool(site).next_life()
    site.store = site.store.copy()
    site.start(neighbors)
