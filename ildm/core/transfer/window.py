"""What a sender has sent and the far end has not acknowledged, by packet identifier."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from ildm.core.transfer.batch import Batch
from ildm.core.transfer.queue import Entry
from ildm.core.transfer.receipt import Receipt
from ildm.mqtt import LocalError

SCATTERED = 8
"""A batch with no more than one message in so many left unacknowledged is taken apart."""


class Inflight:
    """A batch of QoS 1 or 2 of which some messages are without acknowledgement, kept by their identifiers.

    Args:
        messages: the identifiers in them are those of ``receipt``.
        first_id: the identifier of the first; the others count up from it.
        receipt: told of what is done.
        priority: of what would have to wait again.
    """

    __slots__ = ("first_id", "left", "messages", "next_id", "priority", "receipt")

    def __init__(
        self, messages: Batch, first_id: int, receipt: Receipt | None = None, priority: int = 0
    ) -> None:
        self.messages = messages
        self.first_id = self.next_id = first_id
        self.receipt = receipt
        self.priority = priority
        self.left = messages.count

    @property
    def qos(self) -> int:
        return self.messages.qos

    @property
    def ids(self) -> range:
        return range(self.first_id, self.first_id + self.messages.count)

    def begins_with(self, packet_id: int) -> bool:
        """What is left of it is this message and all that follow it, without a gap."""
        return packet_id == self.next_id == self.first_id + self.messages.count - self.left

    @property
    def scattered(self) -> bool:
        """It keeps much more in memory than what is left of it."""
        return 0 < self.left * SCATTERED < self.messages.count

    def bytes_of(self, first_id: int, count: int) -> int:
        """Bytes of messages whose identifiers begin with ``first_id``."""
        return self.messages.bytes_of(first_id - self.first_id, count)

    def part(self, first_id: int, count: int) -> Batch:
        """The messages whose identifiers begin with ``first_id``."""
        return self.messages.part(first_id - self.first_id, count)

    def entry(self, first_id: int, count: int) -> Entry:
        """The same as what may wait in a queue."""
        return Entry(self.part(first_id, count), self.receipt, self.priority)

    def place_id(self, packet_id: int) -> int:
        """The identifier of a message for the receipt."""
        return self.messages.first_id + packet_id - self.first_id

    def settle(self, first_id: int, count: int) -> None:
        """Those messages have been disposed of."""
        self.messages.settle(self.receipt, first_id - self.first_id, count)

    def own(self, first_id: int, count: int) -> None:
        """Answer the sender of those messages."""
        if self.receipt is not None:
            self.receipt.settle(self.messages, first_id - self.first_id, count)


class Window:
    """Messages under way in the order they were sent; each of a batch stands for itself.

    One of QoS 2 is *released* when PUBREC has come and PUBREL was sent. It is kept until PUBCOMP: a far end
    that has forgotten the session after PUBREC may have lost it.
    """

    __slots__ = ("_items", "_released", "_reserved", "bytes", "last_id", "max_bytes", "size")

    def __init__(self, size: int, max_bytes: int = 1 << 62) -> None:
        self.size = size
        """So many may be under way (MQTT 5, 3.3.4: receive maximum)."""
        self.max_bytes = max_bytes
        """So many bytes, unless it is one message."""
        self.bytes = 0
        self.last_id = 0
        """The identifier given last; they count up."""
        self._items: dict[int, Inflight] = {}
        self._released: set[int] = set()
        self._reserved: set[int] = set()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def room(self) -> int:
        """Messages that may be sent now; negative when the window has become smaller."""
        return self.size - len(self._items)

    def takes(self, size: int) -> bool:
        """Whether a message of so many bytes may be sent now."""
        return len(self._items) < self.size and (not self._items or self.bytes + size <= self.max_bytes)

    def takes_of(self, batch: Batch, first: int, count: int) -> int:
        """How many of ``count`` messages of a batch may be sent now, from the place ``first`` on."""
        count = min(count, self.size - len(self._items))
        room = self.max_bytes - self.bytes
        if count <= 0 or batch.bytes_of(first, count) <= room:
            return max(0, count)
        return max(0 if self._items else 1, min(count, batch.fitting(room, first)))

    def get(self, packet_id: int) -> Inflight | None:
        return self._items.get(packet_id)

    def add(self, batch: Inflight) -> None:
        if batch.left == 1:
            self._items[batch.first_id] = batch
        else:
            self._items.update(dict.fromkeys(batch.ids, batch))
        self.bytes += len(batch.messages.frames)

    def acknowledged(self, packet_ids: Sequence[int]) -> None:
        """PUBACKs have come: messages are done, but for those that are released; unknown ones are ignored."""
        if self._released and not self._released.isdisjoint(packet_ids):
            packet_ids = [i for i in packet_ids if i not in self._released]
        self._end(packet_ids)

    def completed(self, packet_ids: Sequence[int]) -> None:
        """PUBCOMPs have come: messages are done; unknown ones are ignored."""
        self._released.difference_update(packet_ids)
        self._end(packet_ids)

    def _end(self, packet_ids: Iterable[int]) -> None:
        items = self._items
        if isinstance(packet_ids, range):
            packet_ids = self._end_in_order(packet_ids)
        batch: Inflight | None = None
        first = last = 0  # of the stretch of the batch
        for packet_id in packet_ids:
            item = items.get(packet_id)
            if item is None:
                continue
            del items[packet_id]
            if item is batch and packet_id == last + 1:
                last = packet_id
                continue
            if batch is not None:
                self._done(batch, first, last)
            batch, first, last = item, packet_id, packet_id
        if batch is not None:
            self._done(batch, first, last)
        self._verify()

    def _end_in_order(self, packet_ids: range) -> range:
        """Take what consecutive identifiers end of batches, all at once; answers the rest."""
        items = self._items
        first, end = packet_ids.start, packet_ids.stop
        while first < end:
            batch = items.get(first)
            if batch is None:
                break
            if batch.messages.count == 1:  # it needs no account of what is left
                del items[first]
                batch.left = 0
                self.bytes -= len(batch.messages.frames)
                batch.messages.settle(batch.receipt, 0, 1)
                first += 1
                continue
            if not batch.begins_with(first):
                break
            stop = min(end, first + batch.left)
            deque(map(items.__delitem__, range(first, stop)), 0)
            batch.next_id = stop
            self._done(batch, first, stop - 1)
            first = stop
        return range(first, end)

    def _done(self, batch: Inflight, first: int, last: int) -> None:
        """A stretch of a batch is no longer among the items."""
        count = last + 1 - first
        batch.left -= count
        self.bytes -= batch.bytes_of(first, count)
        batch.settle(first, count)
        self._take_apart(batch)

    def complete(self, packet_id: int) -> None:
        """A message is done, whatever its QoS."""
        item = self._items.pop(packet_id)
        self._released.discard(packet_id)
        self._done(item, packet_id, packet_id)
        self._verify()

    def release(self, packet_id: int) -> bool:
        """PUBREC has come; False when there is no such message."""
        if packet_id not in self._items:
            return False
        self._released.add(packet_id)
        return True

    def is_released(self, packet_id: int) -> bool:
        return packet_id in self._released

    def take_back(self, packet_id: int) -> None:
        """A message counts as not released: the far end has forgotten the session."""
        self._released.discard(packet_id)

    def _take_apart(self, batch: Inflight) -> None:
        """Keep what is left of a batch on its own, once that is little."""
        if batch.scattered:
            for packet_id in batch.ids:
                if self._items.get(packet_id) is batch:
                    part = batch.part(packet_id, 1)
                    self._items[packet_id] = Inflight(part, packet_id, batch.receipt, batch.priority)

    def take_all(self) -> list[tuple[Inflight, int, int, bool]]:
        """Empty the window; answers what was under way as :meth:`stretches`."""
        found = self.stretches()
        self._items = {}
        self._released = set()
        self.bytes = 0
        return found

    def stretches(self) -> list[tuple[Inflight, int, int, bool]]:
        """What is under way, in order: each message or what is left of a batch without a gap, its first
        identifier, the number of messages, and whether they are released."""
        found: list[tuple[Inflight, int, int, bool]] = []
        for item, group in groupby(self._items.items(), itemgetter(1)):
            for released, part in groupby([i for i, _ in group], self.is_released):
                found += [(item, first_id, count, released) for first_id, count in consecutive(list(part))]
        return found

    def stretches_of(self, packet_ids: Iterable[int]) -> list[tuple[Inflight, int, int]]:
        """Of these messages those under way: consecutive ones of a batch, the first identifier, and their
        number."""
        found: list[tuple[Inflight, int, int]] = []
        batch: Inflight | None = None
        first = end = 0
        for packet_id in packet_ids:
            item = self._items.get(packet_id)
            if batch is not None and item is batch and packet_id == end:
                end += 1
                continue
            if batch is not None:
                found.append((batch, first, end - first))
            batch, first, end = item, packet_id, packet_id + 1
        if batch is not None:
            found.append((batch, first, end - first))
        return found

    def entries(self) -> list[Entry]:
        """What is under way and was not released, in order; it stays in the window."""
        return [
            item.entry(first_id, count)
            for item, first_id, count, released in self.stretches()
            if not released
        ]

    @property
    def unacknowledged_only(self) -> bool:
        """Whoever has sent these messages has no answer to them yet."""
        receipts = (item.receipt for item in self._items.values())
        return all(receipt is not None and not receipt.is_void for receipt in receipts)

    def own(self, enough: Callable[[], bool]) -> int:
        """Answer the senders of the oldest messages until it is enough; answers how many messages."""
        count = 0
        for packet_id, item in list(self._items.items()):
            if enough():
                break
            if item.receipt is not None:
                ids = [i for i in range(packet_id, item.ids.stop) if self._items.get(i) is item]
                for first_id, number in consecutive(ids):
                    item.own(first_id, number)
                item.receipt = None
                count += len(ids)
        return count

    def take(self, packet_id: int) -> None:
        """Remove a message that has been, or will be, disposed of otherwise."""
        item = self._items.pop(packet_id)
        self._released.discard(packet_id)
        item.left -= 1
        self.bytes -= item.bytes_of(packet_id, 1)
        self._verify()

    @property
    def ids(self) -> list[int]:
        """Of all messages under way, in the order they were sent."""
        return list(self._items)

    # sums ------------------------------------------------------------------------------------

    def _verify(self) -> None:
        assert self.bytes >= 0, f"a window has {self.bytes} bytes"
        assert self._items or not self.bytes, f"an empty window has {self.bytes} bytes"

    def check(self) -> None:
        """Count all again that is counted as it changes. Raises: AssertionError, it was counted wrong."""
        self._verify()
        assert self._released <= self._items.keys(), "what is released is no longer under way"
        size = 0
        for packet_id, item in self._items.items():
            size += item.bytes_of(packet_id, 1)
        assert self.bytes == size, f"a window of {size} bytes counts {self.bytes}"
        for batch, left in Counter(self._items.values()).items():
            assert batch.left == left, f"a batch with {left} messages left counts {batch.left}"

    # identifiers ------------------------------------------------------------------------------

    def reserve_id(self) -> int:
        """An identifier for SUBSCRIBE or UNSUBSCRIBE; free again with :meth:`free_id`."""
        packet_id = self.next_id()
        self._reserved.add(packet_id)
        return packet_id

    def free_id(self, packet_id: int) -> None:
        self._reserved.discard(packet_id)

    def free_reserved(self, but: Iterable[int] = ()) -> None:
        self._reserved = set(but)

    def next_id(self) -> int:
        """Raises: LocalError when all are taken; the bounds of what may be under way do not let it happen."""
        packet_id = self.last_id
        for _ in range(65535):
            packet_id = packet_id % 65535 + 1
            if packet_id not in self._items and packet_id not in self._reserved:
                self.last_id = packet_id
                return packet_id
        raise LocalError("all packet identifiers are taken")

    def next_ids(self, count: int) -> tuple[int, int]:
        """Consecutive identifiers that are free, ``count`` or fewer: the first, and how many."""
        first_id = self.next_id()
        if count == 1:
            return first_id, 1
        ids = range(first_id, min(first_id + count, 65536))
        free = self._items.keys().isdisjoint(ids)
        if not free or (self._reserved and not self._reserved.isdisjoint(ids)):
            taken = next(i for i in ids if i in self._items or i in self._reserved)
            ids = range(first_id, taken)
        self.last_id = ids[-1]
        return first_id, len(ids)


def consecutive(ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Ascending identifiers as stretches without a gap: the first, and how many."""
    start = 0
    for i in range(1, len(ids) + 1):
        if i == len(ids) or ids[i] != ids[i - 1] + 1:
            yield ids[start], i - start
            start = i
