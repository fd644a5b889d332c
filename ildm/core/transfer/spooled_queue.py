"""What waits in a sender with a spool: a page in memory, the rest on disk alone.

A message with a share is never dropped here. A message without one (QoS 0 above all) waits in memory.
Priorities hold within what is in memory: a message that would overtake what is on disk is taken into
memory as long as nothing of its own or a higher priority is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from ildm.core.frames import expiry_interval
from ildm.core.spool import NEVER, Consumer, Delivery, Stored, Waiting
from ildm.core.transfer.batch import Batch, batch_of
from ildm.core.transfer.classes import LinkClasses, priority_of
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
LOWEST = -1
"""Lower than every priority."""


class SpooledQueue:
    """The second implementation of :class:`~ildm.core.transfer.queue.Queue`.

    Args:
        page: bytes of messages with a share in memory.
    """

    __slots__ = (
        "_adopted",
        "_beyond",
        "_deliveries",
        "_highest",
        "_near",
        "classes",
        "consumer",
        "custody",
        "make",
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
        self._near = Backlog()
        self._deliveries: dict[tuple[int, int, bool], Delivery] = {}
        """By QoS, priority, and whether it is in hand: made once."""
        self._adopted: list[Consumer] = []
        """Consumers of senders that are no more; what they have left goes first."""
        self._beyond = consumer.beyond_messages > 0
        self._highest = 1 << 30 if self._beyond else LOWEST
        """Priority of what is beyond, at most."""

    # what is beyond -----------------------------------------------------------------------------

    def takes(self, size: int, priority: int) -> bool:
        """Whether a record that is appended next goes to memory at once; if not, it is beyond."""
        unacknowledged = self._near.unacknowledged_bytes
        if not self._beyond:
            return unacknowledged + size <= self.page or not unacknowledged
        return priority_of(priority) > self._highest and unacknowledged + size <= URGENT * self.page

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
        priority = priority_of(priority)  # the numbers of classes do not outlive the process
        found = self._deliveries.get((qos, priority, held))
        if found is None:
            if len(self._deliveries) >= DELIVERIES:
                self._deliveries.clear()
            found = Delivery(self.consumer.name, qos, priority, held)
            self._deliveries[qos, priority, held] = found
        return found

    def adopt(self, other: SpooledQueue) -> None:
        """Take over what another sender has left; it goes before what comes from now on."""
        self._adopted += [*other._adopted, other.consumer]
        for entry in other._near.take_all():
            self._near.append(entry)
        other._adopted = []
        self._look_beyond()
        self._highest = 1 << 30 if self._beyond else LOWEST

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
            self._highest = LOWEST
            self.newest_on_disk.clear()

    def _read(self) -> None:
        """Take the next page to memory."""
        for consumer in self._consumers():
            while self._near.unacknowledged_bytes < self.page:
                stored = consumer.read(self.page - self._near.unacknowledged_bytes)
                if not stored:
                    break
                for each in stored:
                    entry = self._entry(consumer, each)
                    if entry is not None:
                        if self.classes is not None:
                            entry.priority = self.classes.rank_of(entry)
                            entry.since = each.written - self.custody.calendar.lead
                            if self.classes.conflates(entry):
                                append(self._near, entry, self.classes, self.newest_on_disk)
                                continue
                        self._near.append(entry)
        self._look_beyond()

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
        return Entry(batch, share, stored.priority)

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
        self._near.favour(priority, size)

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
        if self._beyond and self._near.unacknowledged_bytes < self.page // 2:
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
