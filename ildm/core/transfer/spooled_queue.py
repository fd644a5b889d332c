"""What waits in a sender with a spool: a page in memory, the rest on disk alone.

A message with a share is never dropped here. A message without one (QoS 0 above all) waits in memory.
The highest priority is read first. A message that would overtake what is on disk is taken into memory as long
as nothing of its own or a higher priority is there.

Where a class has ``backlog: after_live``, its messages up to :attr:`SpooledQueue.mark` go after all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ildm.core.frames import expiry_interval
from ildm.core.spool import NEVER, Consumer, Delivery, Stored, Waiting
from ildm.core.transfer.batch import Batch, batch_of
from ildm.core.transfer.classes import BEHIND, HIGHEST_PRIORITY, LinkClasses, priority_of
from ildm.core.transfer.conflating import NewestOnDisk, append
from ildm.core.transfer.queue import Backlog, Entry
from ildm.core.transfer.share import Share
from ildm.mqtt import MqttError

if TYPE_CHECKING:
    from ildm.core.transfer.custody import Custody
    from ildm.core.transfer.receipt import Receipt

URGENT = 2
"""Of messages that overtake, so many pages may be in memory."""
DELIVERIES = 64
"""Kept ready, at most; more priorities are rare."""
LOWEST = BEHIND - 1
"""Lower than every priority."""
UNKNOWN = 1 << 30
"""Higher than every priority."""


class SpooledQueue:
    """The second implementation of :class:`~ildm.core.transfer.queue.Queue`.

    Args:
        page: bytes of messages with a share in memory.
    """

    __slots__ = (
        "_adopted",
        "_beyond",
        "_deliveries",
        "_has_behind",
        "_highest",
        "_near",
        "classes",
        "consumer",
        "custody",
        "in_turn",
        "make",
        "mark",
        "newest_on_disk",
        "page",
    )

    def __init__(self, custody: Custody, consumer: Consumer, page: int) -> None:
        self.custody = custody
        self.consumer = consumer
        self.page = page
        self.make: Callable[[Batch], Batch] | None = None
        """Makes of a retained message what is to wait here. Raises: MqttError: it is no message."""
        self.classes: LinkClasses | None = None
        """How messages wait; None: all alike."""
        self.newest_on_disk = NewestOnDisk()
        self.mark = 0
        """LSN of the newest record as the link came up."""
        self.in_turn = False
        """What is beyond is to be read in the order of arrival, whatever its priority."""
        self._near = Backlog()
        self._deliveries: dict[tuple[int, int, bool], Delivery] = {}
        """By QoS, rank, and whether it is in hand: made once."""
        self._adopted: list[Consumer] = []
        """Consumers of senders that are no more; what they have left goes first."""
        self._beyond = False
        self._highest = LOWEST
        """Priority of what is beyond, at most."""
        self._has_behind = False
        """Something that goes after all others may be beyond."""
        self._look_beyond()

    # what is beyond -----------------------------------------------------------------------------

    def takes(self, size: int, priority: int) -> bool:
        """Whether a record that is appended next goes to memory at once; if not, it is beyond."""
        unacknowledged = self._near.unacknowledged_bytes
        if not self._beyond:
            return unacknowledged + size <= self.page or not unacknowledged
        overtakes = priority_of(priority) > self._highest and not self.consumer.scattered
        return overtakes and unacknowledged + size <= URGENT * self.page

    def passed_over(self, priority: int) -> None:
        """A record is appended, and not taken to memory."""
        self._beyond = True
        self._highest = max(self._highest, priority_of(priority))

    def is_on_disk(self, entry: Entry, lsn: int) -> None:
        """What was passed over has this LSN; its priority is a rank."""
        classes = self.classes
        if classes is not None and classes.conflates(entry):
            self.newest_on_disk.note(entry.whole, lsn, classes)

    def delivery(self, qos: int, priority: int, held: bool) -> Delivery:
        """How the consumer is to get a record."""
        found = self._deliveries.get((qos, priority, held))
        if found is None:
            if len(self._deliveries) >= DELIVERIES:
                self._deliveries.clear()
            on_disk = priority_of(priority) if self.classes is None else self.classes.on_disk(priority)
            found = Delivery(self.consumer.name, qos, on_disk, held)
            self._deliveries[qos, priority, held] = found
        return found

    def adopt(self, other: SpooledQueue) -> None:
        """Take over what another sender has left; it goes before what comes from now on."""
        self._adopted += [*other._adopted, other.consumer]
        for entry in other._near.take_all():
            self._near.append(entry)
        other._adopted = []
        self._look_beyond()

    def release(self, consumer: Consumer) -> None:
        """What this consumer still has beyond is its own sender's again."""
        if consumer in self._adopted:
            self._adopted.remove(consumer)
            self._look_beyond()

    def _consumers(self) -> Iterator[Consumer]:
        yield from self._adopted
        yield self.consumer

    def _look_beyond(self) -> None:
        self._beyond = any(consumer.beyond_messages for consumer in self._consumers())
        if not self._beyond:
            self._highest, self._has_behind = LOWEST, False
            self.newest_on_disk.clear()
            return
        live, self._has_behind = self._there()
        highest = UNKNOWN if not self._has_behind else BEHIND  # what is not told may be anything
        self._highest = max([level for level, _, _, _ in live], default=highest)

    @property
    def _parts(self) -> bool:
        """Whether some messages go after newer ones."""
        return self.mark > 0 and self.classes is not None and self.classes.after_live

    def _there(self) -> tuple[list[tuple[int, Consumer, int, int]], bool]:
        """What may be beyond: priority, consumer, what stands for it on disk, the LSN that it is newer than;
        and whether something goes after all others."""
        live: list[tuple[int, Consumer, int, int]] = []
        behind = False
        for consumer in self._consumers():
            parts = self._parts
            live += [
                (priority_of(each), consumer, each, 0)
                for each in consumer.priorities()
                if each <= HIGHEST_PRIORITY or not parts
            ]
            if parts:
                behind |= max(consumer.priorities(0, self.mark), default=0) > HIGHEST_PRIORITY
                live += [
                    (priority_of(each), consumer, each, self.mark)
                    for each in consumer.priorities(self.mark)
                    if each > HIGHEST_PRIORITY
                ]
        return live, behind

    def _read(self) -> None:
        """Take the next page to memory: the highest priority first, at last what goes after all others."""
        live, behind = self._there()
        levels = sorted({level for level, _, _, _ in live}, reverse=True)
        if not behind:  # the lowest is what is left
            del levels[-1:]
        for level in () if self.in_turn else levels:
            most = self.page * (URGENT if level > self._near_level else 1)
            for of, consumer, each, after in live:
                while of == level and (room := most - self._near.unacknowledged_bytes) > 0:
                    if not self._take(consumer, consumer.read_ahead(room, each, after)):
                        break
        for consumer in self._consumers():
            while (room := self.page - self._near.unacknowledged_bytes) > 0:
                if not self._take(consumer, consumer.read(room)):
                    break
        self._look_beyond()

    @property
    def _near_level(self) -> int:
        """Priority of what goes next, of what is in memory."""
        return self._near.first.level if self._near.messages else LOWEST

    def _take(self, consumer: Consumer, stored: Sequence[Stored]) -> bool:
        """Let wait what was read; whether it is anything."""
        classes = self.classes
        for each in stored:
            entry = self._entry(consumer, each)
            if entry is None:
                continue
            if classes is not None:
                entry.priority = classes.rank_of(entry)
                entry.since = each.written - self.custody.calendar.lead
                if each.priority > HIGHEST_PRIORITY and each.lsn <= self.mark:
                    entry.behind = classes.goes_back(entry)
                    classes.count_behind(entry.count if entry.behind else 0)
                if classes.conflates(entry):
                    append(self._near, entry, classes, self.newest_on_disk)
                    continue
            self._near.append(entry)
        return len(stored) > 0

    def _entry(self, consumer: Consumer, stored: Stored) -> Entry | None:
        record, first = stored.record, stored.first
        share = Share(self.custody, consumer, stored.lsn, record.identity, record.again, stored.note)
        frames = record.frames
        count = record.messages
        try:
            batch = batch_of(frames, count) if record.mixed else Batch(frames, count, len(frames) // count)
            batch.verify()
            if record.expires != NEVER:
                interval = 0 if record.mixed else expiry_interval(frames) or 0
                batch.since = self.custody.monotonic(record.expires) - interval
            batch = self.made(batch.at_qos(stored.qos))
        except MqttError as error:
            self.custody.unreadable(consumer, stored, error)
            consumer.free(stored.lsn, first, count)
            return None
        return Entry(batch, share, priority_of(stored.priority))

    def made(self, batch: Batch) -> Batch:
        """A batch of the spool as it waits here."""
        return batch if self.make is None or not batch.retain else self.make(batch)

    # the queue ----------------------------------------------------------------------------------

    @property
    def messages(self) -> int:
        return self._near.messages + self._beyond_messages

    @property
    def bytes(self) -> int:
        return self._near.bytes + sum(consumer.beyond_bytes for consumer in self._consumers())

    @property
    def unacknowledged_messages(self) -> int:
        return self._near.unacknowledged_messages + self._beyond_messages

    @property
    def unacknowledged_bytes(self) -> int:
        return self._near.unacknowledged_bytes + sum(consumer.beyond_bytes for consumer in self._consumers())

    @property
    def _beyond_messages(self) -> int:
        return sum(consumer.beyond_messages for consumer in self._consumers()) if self._beyond else 0

    @property
    def all_in_memory(self) -> bool:
        return not self._beyond

    def check(self) -> None:
        """As :meth:`Backlog.check`, of what is in memory."""
        self._near.check()

    def __bool__(self) -> bool:
        if self._near.messages:
            return True
        if self._beyond:
            self._read()
        return self._near.messages > 0

    @property
    def first(self) -> Entry:
        return self._near.first

    def waiting(self) -> list[int]:
        return self._near.waiting()

    def favour(self, priority: int, size: int) -> None:
        if priority == BEHIND and not self._near.has_behind:
            self._read_behind(size)
        if priority != BEHIND or self._near.has_behind:
            self._near.favour(priority, size)

    def _read_behind(self, size: int) -> None:
        """Memory is full of what goes before."""
        for consumer in self._consumers():
            for each in consumer.priorities(0, self.mark):
                if each > HIGHEST_PRIORITY and self._take(
                    consumer, consumer.read_ahead(size, each, 0, self.mark)
                ):
                    self._look_beyond()
                    return

    @property
    def has_behind(self) -> bool:
        return self._has_behind or self._near.has_behind

    @property
    def behind_since(self) -> float:
        return self._near.behind_since

    @property
    def behind(self) -> int:
        return self._near.behind + (self._beyond_messages if self._has_behind else 0)

    def set_back(self, goes_back: Callable[[Entry], bool]) -> int:
        self.mark = self.custody.last
        count = self._near.set_back(goes_back)
        self._look_beyond()
        return count

    def over(self, messages: float, size: float) -> bool:
        return self._near.over(messages, size)

    def overtakes(self, entry: Entry) -> bool:
        return self._near.overtakes(entry)

    def append(self, entry: Entry) -> None:
        self._near.append(entry)

    def replace(self, entry: Entry) -> Entry | None:
        return self._near.replace(entry)

    def put_back(self, entries: Iterable[Entry]) -> None:
        self._near.put_back(entries)

    def remove(self, count: int) -> None:
        self._near.remove(count)
        if self._beyond:
            unacknowledged = self._near.unacknowledged_bytes
            if unacknowledged < self.page // 2 or (
                self._highest > self._near_level and unacknowledged < URGENT * self.page
            ):
                self._read()

    def trim(self, messages: int, size: int, lowest: bool = False) -> Iterator[tuple[Entry, int]]:
        return self._near.trim(messages, size, lowest)

    def cut(self, messages: int, size: int) -> int:
        return self._near.cut(messages, size)

    def take_all(self) -> list[Entry]:
        """Empty the queue but for what is beyond."""
        return self._near.take_all()

    def take_loose(self) -> list[Entry]:
        """Give up the messages without a share."""
        entries = self._near.take_all()
        for entry in entries:
            if entry.receipt is not None:
                self._near.append(entry)
        return [entry for entry in entries if entry.receipt is None]

    def disown(self, receipt: Receipt) -> None:
        """No share becomes void."""

    def own(self, enough: Callable[[], bool]) -> int:
        """Whoever has sent these messages has been answered."""
        return 0

    def retire(self) -> Waiting:
        """Forget all messages with a share; answers their amount."""
        loose = self.take_loose()
        self._near.take_all()
        self._near.put_back(loose)
        waiting = summed(consumer.retire() for consumer in self._consumers())
        for consumer in self._consumers():
            self.custody.retired(consumer)
        self._adopted = []
        self._look_beyond()
        return waiting


def summed(parts: Iterable[Waiting]) -> Waiting:
    """What several consumers have not freed, together."""
    waiting = list(parts)
    oldest = min((each.oldest for each in waiting if each.oldest is not None), default=None)
    return Waiting(sum(each.messages for each in waiting), sum(each.bytes for each in waiting), oldest)
