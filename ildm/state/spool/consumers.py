"""One receiver of records: where it stands, and what is in hand. Nothing is kept for each record on disk."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ildm.core.spool import Stored, Waiting
from ildm.state.spool.passed import Passed
from ildm.state.spool.records import (
    HEADERS,
    HIGHEST,
    DamageError,
    Free,
    Kept,
    Kind,
    Range,
    RecordHead,
    decode_record,
    decode_share,
    decode_targets,
    share_of,
)
from ildm.state.spool.segments import Receiver, Segment, bit_of, priority_at
from ildm.state.spool.walk import DAMAGE, TAIL, walk

if TYPE_CHECKING:
    from ildm.core.counters import Counters
    from ildm.core.spool import Record
    from ildm.state.spool.log import LogLine, SegmentLog

SEARCHED = 1000
"""Among so many records out of order the oldest is looked for, to free all before it with one number."""
WALKED = 4096
"""Entries that are looked at in one go for those of a priority."""


class Owner(ABC):
    """The spool, as its consumers and the rewriting of a segment know it."""

    log: LogLine
    counters: Counters
    segments: SegmentLog
    last: int
    journal_floor: int
    """Entries of the journal up to this LSN are kept elsewhere."""
    emptied: bool
    """A segment may be done with."""

    @abstractmethod
    def record(self, entry: bytes, head: RecordHead, begin: int) -> Record:
        """A record as it was appended, from its entry."""

    @abstractmethod
    def name(self, number: int) -> str:
        """What a number stands for."""

    @abstractmethod
    def shown(self, written: float | None) -> float | None:
        """When the machine's clock says that it was written."""

    @abstractmethod
    def freed(self, consumer: FileConsumer) -> None:
        """It has done with something, for the first time since the last batch."""

    @abstractmethod
    def put_note(self, consumer: int, of: int, place: int, value: int, count: int) -> None:
        """Write numbers beside messages of a record; see :class:`~ildm.state.spool.records.Note`."""

    @abstractmethod
    def changed(self, consumer: FileConsumer) -> None:
        """It has done with much at once."""

    @abstractmethod
    def retired(self, consumer: FileConsumer, messages: int) -> None:
        """It has done with all it had; its owner may go on to use it."""

    @abstractmethod
    def unreadable(self, segment: Segment, begin: int, end: int) -> None:
        """Bytes of a segment that have no entry; said once for each."""

    @abstractmethod
    def lost(self, consumer: FileConsumer, segment: Segment, messages: int) -> None:
        """Messages for it cannot be read."""


class Hand:
    """A record in hand."""

    __slots__ = ("freed", "left", "messages", "notes", "segment", "size", "written")

    def __init__(self, segment: Segment, messages: int, size: int, written: float) -> None:
        self.segment = segment
        self.messages = self.left = messages
        self.size = size
        """Bytes of all."""
        self.written = written
        self.freed = 0
        """One bit for each message, from the lowest."""
        self.notes: dict[int, int] | None = None

    @property
    def bytes(self) -> int:
        """Of what is left."""
        return share_of(self.size, self.messages, self.left)


class _Found(NamedTuple):
    """A record beyond, as it was found on the disk."""

    segment: Segment
    end: int
    head: RecordHead
    entry: bytes
    begin: int
    """Of the frames in the entry."""
    qos: int
    priority: int


class _Ahead:
    """How far the records of a priority were read out of turn."""

    __slots__ = ("before", "generation", "lsn", "offset", "segment")

    def __init__(self) -> None:
        self.lsn = 0
        """None of these is beyond before this one."""
        self.segment: Segment | None = None
        self.generation = 0
        self.offset = 0
        self.before = 0
        """LSN of the record before it, if that is in hand or done with."""

    def reached(self, lsn: int, segment: Segment, offset: int, before: int) -> None:
        self.lsn, self.before = lsn, before
        self.segment, self.generation, self.offset = segment, segment.generation, offset


class FileConsumer(Receiver):
    """Implements :class:`ildm.core.spool.Consumer`."""

    def __init__(self, spool: Owner, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.beyond_messages = 0
        self.beyond_bytes = 0
        self.messages = 0
        """Not freed, with what is in hand."""
        self.bytes = 0
        self.hands: dict[int, Hand] = {}
        """LSN: record. In order of LSN while ``_ordered``."""
        self._spool = spool
        self._cursor = spool.last + 1
        """What is beyond has this LSN or a higher one, but is none of those passed."""
        self._hint: tuple[Segment, int, int] | None = None
        """Where the cursor is: segment, its generation, offset."""
        self._passed = Passed()
        """Records from the cursor on that are done with, or in hand out of turn."""
        self._newest_at: dict[int, int] = {}
        """Priority -> LSN of the newest record beyond that may have it."""
        self._ahead: dict[tuple[int, bool], _Ahead] = {}
        """Priority, and whether only older ones than some LSN are meant."""
        self._newest = 0
        """LSN of the newest record for it."""
        self._ordered = True
        self._partial: dict[int, int] = {}
        """LSN of a record beyond of which an earlier incarnation has freed some messages: which."""
        self._notes: dict[int, dict[int, int]] = {}
        """LSN of a record beyond: place and value."""
        self._done: list[tuple[int, int, int]] = []
        """Freed since the last batch: LSN, place, count."""
        self._ways: dict[bytes, tuple[int, int] | None] = {}
        self._oldest: tuple[int, float] = (0, 0.0)
        """LSN of a cursor, and when the record there was written."""

    # what it has --------------------------------------------------------------------------------

    @property
    def waiting(self) -> Waiting:
        hand = next(iter(self.hands.values()), None)
        oldest = hand.written if hand is not None else self.oldest_beyond()
        if hand is not None and self._passed.count:
            beyond = self.oldest_beyond()
            oldest = hand.written if beyond is None else min(hand.written, beyond)
        return Waiting(self.messages, self.bytes, self._spool.shown(oldest))

    def oldest_beyond(self) -> float | None:
        """When the oldest of what is beyond was written, as the spool counts time."""
        if self.beyond_messages and self._oldest[0] != self._cursor:
            try:
                found = next(self._scan(), None)
            except OSError:  # descriptors or memory lack
                return None
            if found is not None:
                self._oldest = (self._cursor, found.head.written)
        return self._oldest[1] if self.beyond_messages else None

    # the port -----------------------------------------------------------------------------------

    def takes(self, lsn: int, messages: int, size: int, segment: Segment, offset: int, priority: int) -> None:
        """A record for it was appended, at that offset; it is beyond."""
        if not self.beyond_messages:
            self._cursor = lsn
            self._hint = (segment, segment.generation, offset)
            self._passed.clear()
            self._newest_at.clear()
            self._ahead.clear()
        self.beyond_messages += messages
        self.beyond_bytes += size
        self.messages += messages
        self.bytes += size
        self._newest = self._newest_at[priority] = lsn
        segment.takes(self, messages, size, bit_of(priority))

    def holds(self, lsn: int, messages: int, size: int, segment: Segment, written: float) -> None:
        """A record for it was appended, and is in hand."""
        self.messages += messages
        self.bytes += size
        segment.takes(self, messages, size)
        self.hands[lsn] = Hand(segment, messages, size, written)
        if self.beyond_messages:
            self._ordered = False
            self._passed.append(lsn, self._newest)
        self._newest = lsn

    def read(self, size: int) -> list[Stored]:
        if not self.beyond_messages:
            return []
        answer: list[Stored] = []
        try:
            for found in self._scan():
                messages, bytes_ = self._pick(found, answer)
                self._advance(found, messages, bytes_)
                size -= bytes_
                if size <= 0 or not self.beyond_messages:
                    break
        except OSError as error:  # descriptors or memory lack: the rest is read later
            self._spool.log("warning", "the spool cannot be read just now", reason=str(error))
        self._passed.forget_before(self._cursor)
        self._spool.counters["spool_read"] += sum(each.record.messages for each in answer)
        return answer

    @property
    def scattered(self) -> bool:
        return self._passed.full

    def may_have(self, bits: int, last: int) -> None:
        """Records beyond, up to an LSN, may have these priorities."""
        for place in range(bits.bit_length()):
            if bits >> place & 1:
                priority = priority_at(place)
                self._newest_at[priority] = max(last, self._newest_at.get(priority, 0))

    def priorities(self, after: int = 0, until: int = HIGHEST) -> list[int]:
        found: list[int] = []
        if not self.beyond_messages or until < self._cursor:
            return found
        for priority, newest in self._newest_at.items():
            ahead = self._ahead.get((priority, until < HIGHEST))
            begin = self._cursor if ahead is None else max(self._cursor, ahead.lsn)
            if newest > after and min(newest, until) >= begin:
                found.append(priority)
        return found

    def read_ahead(self, size: int, priority: int, after: int = 0, until: int = HIGHEST) -> list[Stored]:
        answer: list[Stored] = []
        if not self.beyond_messages:
            return answer
        if self._passed.full:
            self._spool.counters["spool_read_in_turn"] += 1
            return answer
        key = (priority, until < HIGHEST)
        ahead = self._ahead.get(key)
        if ahead is None:
            ahead = self._ahead[key] = _Ahead()
        before = 0
        try:
            for found, before in self._scan_ahead(ahead, priority, after, until):
                messages, bytes_ = self._pick(found, answer)
                self._passed.add(found.head.lsn, before)
                self.beyond_messages -= messages
                self.beyond_bytes -= bytes_
                size -= bytes_
                if size <= 0 or not self.beyond_messages:
                    break
        except OSError as error:
            self._spool.log("warning", "the spool cannot be read just now", reason=str(error))
        self._spool.counters["spool_read"] += sum(each.record.messages for each in answer)
        return answer

    def _pick(self, found: _Found, answer: list[Stored]) -> tuple[int, int]:
        """Take a record in hand; answers the messages and bytes of what is left of it."""
        head = found.head
        lsn, messages = head.lsn, head.messages
        hand = Hand(found.segment, messages, len(found.entry) - found.begin, head.written)
        hand.freed = self._partial.pop(lsn, 0)
        hand.left -= hand.freed.bit_count()
        hand.notes = self._notes.pop(lsn, None)
        if self.hands and lsn < next(reversed(self.hands)):
            self._ordered = False
        self.hands[lsn] = hand
        record = self._spool.record(found.entry, head, found.begin)
        stretches = list(_stretches(hand))
        for (first, _), part in zip(stretches, record.parts(stretches), strict=True):
            note = hand.notes.get(first) if hand.notes else None
            answer.append(Stored(lsn, first, part, found.qos, found.priority, note, head.written))
        return hand.left, hand.bytes

    def _advance(self, found: _Found, messages: int, size: int) -> None:
        """So much is not beyond any more, and the cursor is behind it."""
        self.beyond_messages -= messages
        self.beyond_bytes -= size
        self._cursor = found.head.lsn + 1
        self._hint = (found.segment, found.segment.generation, found.end)

    def noted(self) -> list[int]:
        marked = [*self._notes.values(), *(hand.notes for hand in self.hands.values() if hand.notes)]
        return [value for notes in marked for value in notes.values()]

    def free(self, lsn: int, first: int, count: int) -> None:
        hand = self.hands.get(lsn)
        if hand is None:
            return  # the consumer was retired
        if not self._done:
            self._spool.freed(self)
        self._done.append((lsn, first, count))
        end = first + count
        if count != hand.left or count != hand.messages:
            places = ((1 << count) - 1) << first
            count = (places & ~hand.freed).bit_count()
            hand.freed |= places
        self._spool.counters["spool_freed"] += count
        size = hand.bytes
        hand.left -= count
        size -= hand.bytes
        if not hand.left:
            del self.hands[lsn]
            if not self.hands:
                self._ordered = True
        elif hand.notes:
            for place in range(first, end):
                hand.notes.pop(place, None)
        self._loses(hand.segment, count, size)

    def _loses(self, segment: Segment, messages: int, size: int) -> None:
        self.messages -= messages
        self.bytes -= size
        if segment.loses(self, messages, size):
            self._spool.emptied = True

    def note(self, lsn: int, place: int, value: int, count: int = 1) -> None:
        hand = self.hands.get(lsn)
        if hand is None:
            return  # the consumer was retired
        if hand.notes is None:
            hand.notes = {}
        hand.notes.update(zip(range(place, place + count), range(value, value + count), strict=True))
        self._spool.put_note(self.number, lsn, place, value, count)

    def retire(self) -> Waiting:
        waiting = self.waiting
        self.hands.clear()
        self._passed.clear()
        self._partial.clear()
        self._notes.clear()
        self._done.clear()
        self._newest_at.clear()
        self._ahead.clear()
        self._ordered = True
        self.beyond_messages = self.beyond_bytes = self.messages = self.bytes = 0
        self._spool.retired(self, waiting.messages)
        return waiting

    def discard(self, size: int, before: float, most: int) -> Waiting:
        """Free the oldest of what is beyond: so many bytes and what was written before then, but not more
        than ``most`` records; answers what that was."""
        messages = done = records = 0
        oldest = None
        if not self.beyond_messages:
            return Waiting(0, 0, None)  # the cursor says nothing
        try:
            for found in self._scan():
                if (done >= size and found.head.written >= before) or records >= most:
                    break
                freed = self._partial.pop(found.head.lsn, 0)
                self._notes.pop(found.head.lsn, None)
                left = found.head.messages - freed.bit_count()
                bytes_ = share_of(len(found.entry) - found.begin, found.head.messages, left)
                if oldest is None:
                    oldest = found.head.written
                self._advance(found, left, bytes_)
                self._loses(found.segment, left, bytes_)
                messages, done, records = messages + left, done + bytes_, records + 1
                if not self.beyond_messages:
                    break
        except OSError as error:
            self._spool.log("warning", "the spool cannot be read just now", reason=str(error))
        if records:
            self._spool.changed(self)
        return Waiting(messages, done, self._spool.shown(oldest))

    # the disk -----------------------------------------------------------------------------------

    def _scan(self) -> Iterator[_Found]:
        """What is beyond, from the cursor on. Whoever asks moves the cursor behind what it takes."""
        log = self._spool.segments
        index, offset = log.holding(self._cursor), HEADERS
        if self._hint is not None:
            segment, generation, at = self._hint
            if segment.generation == generation and segment is log.segments[index]:
                offset = at
        while index < len(log.segments):
            segment = log.segments[index]
            if self in segment.live:
                yield from self._scan_segment(segment, offset)
                self._reconcile(segment)
            index, offset = index + 1, HEADERS

    def _scan_segment(self, segment: Segment, offset: int) -> Iterator[_Found]:
        read = partial(self._spool.segments.readers.read, segment)
        for at, end, kind, entry in walk(read, offset, segment.end, segment.salt):
            if kind != Kind.RECORD:
                if kind in (DAMAGE, TAIL):
                    self._spool.unreadable(segment, at, end)
                continue
            try:
                head, targets, begin = decode_record(entry)
            except DamageError:
                self._spool.unreadable(segment, at, end)
                continue
            way = self._way(targets)
            if way is None or head.lsn < self._cursor:
                continue
            if self._passed.count and self._passed.has(head.lsn):
                self._cursor = head.lsn + 1
                self._hint = (segment, segment.generation, end)
                continue
            self._cursor = head.lsn
            self._hint = (segment, segment.generation, at)
            yield _Found(segment, end, head, entry, begin, *way)

    def _scan_ahead(
        self, ahead: _Ahead, priority: int, after: int, until: int
    ) -> Iterator[tuple[_Found, int]]:
        """What is beyond of a priority, and the LSN of the record before it if that is in hand or done with.
        Whoever asks takes it in hand."""
        log, bit, left = self._spool.segments, bit_of(priority), WALKED
        begin = max(ahead.lsn, after + 1, self._cursor)
        index, offset, before = log.holding(begin), HEADERS, 0
        if ahead.segment is log.segments[index] and log.segments[index].generation == ahead.generation:
            offset, before = ahead.offset, ahead.before
        while index < len(log.segments) and log.segments[index].first <= until:
            segment = log.segments[index]
            cell = segment.live.get(self)
            if cell is not None and cell[2] & bit:
                read = partial(log.readers.read, segment)
                for at, end, kind, entry in walk(read, offset, segment.end, segment.salt):
                    left -= 1
                    if not left:
                        ahead.reached(begin, segment, at, before)
                        return
                    if kind != Kind.RECORD:
                        continue  # damage is told of when its turn has come
                    try:
                        lsn, _, _, targets, _ = decode_share(entry)
                    except DamageError:
                        continue
                    way = self._way(targets)
                    if way is None or lsn < begin:
                        continue
                    if lsn > until:
                        ahead.reached(lsn, segment, at, before)
                        return
                    begin = lsn + 1
                    if self._passed.has(lsn):
                        if before:
                            self._passed.join(lsn, before)
                        before = lsn
                    elif bit_of(way[1]) != bit:
                        before = 0
                    else:
                        ahead.reached(begin, segment, end, lsn)
                        head, _, frames = decode_record(entry)
                        yield _Found(segment, end, head, entry, frames, *way), before
                        before = lsn
            else:
                before = 0
            begin = max(begin, segment.last + 1)
            ahead.reached(begin, segment, segment.end, before)
            index, offset, before = index + 1, HEADERS, 0

    def _way(self, targets: bytes) -> tuple[int, int] | None:
        """QoS and priority, if it is among the targets of a record."""
        try:
            return self._ways[targets]
        except KeyError:
            if len(self._ways) > SEARCHED:
                self._ways.clear()
            ways = (
                (qos, priority) for number, qos, priority in decode_targets(targets) if number == self.number
            )
            way = self._ways[targets] = next(ways, None)
            return way

    def _reconcile(self, segment: Segment) -> None:
        """All of a segment was gone through: what is still missing cannot be read."""
        cell = segment.live.get(self)
        if cell is None:
            return
        held = [hand for hand in self.hands.values() if hand.segment is segment]
        missing = cell[0] - sum(hand.left for hand in held)
        size = cell[1] - sum(hand.bytes for hand in held)
        if missing > 0:
            self.beyond_messages -= missing
            self.beyond_bytes -= size
            self._loses(segment, missing, size)
            self._cursor = max(self._cursor, segment.last + 1)
            self._spool.lost(self, segment, missing)

    # what is written of it ----------------------------------------------------------------------

    def take_done(self) -> Free | None:
        """What was freed since this was asked last."""
        if not self._done:
            return None
        floor = self._floor()
        ranges: list[Range] = []
        for lsn, first, count in self._done:
            if lsn < floor:
                continue
            if ranges:
                last = ranges[-1]
                if last.lsn == lsn and last.first + last.size == first:
                    ranges[-1] = Range(lsn, last.first, last.size + count)
                    continue
            ranges.append(Range(lsn, first, count))
        self._done.clear()
        return Free(self.number, floor, ranges)

    def _floor(self) -> int:
        """Everything of it before this LSN is done with; 0: that would take long to find out."""
        floor = self._cursor if self.beyond_messages else self._spool.last + 1
        if self.hands:
            if self._ordered:
                floor = min(floor, next(iter(self.hands)))
            elif len(self.hands) <= SEARCHED:
                floor = min(floor, *self.hands)
            else:
                floor = 0
        return floor

    def kept(self) -> Kept:
        """Everything it has not done with."""
        notes = {
            (lsn, place): value
            for lsn, hand in self.hands.items()
            if hand.notes
            for place, value in hand.notes.items()
        }
        notes |= {
            (lsn, place): value for lsn, marked in self._notes.items() for place, value in marked.items()
        }
        kept = {lsn: hand.freed for lsn, hand in self.hands.items()}
        cursor = self._cursor if self.beyond_messages else self._spool.last + 1
        self._passed.forget_before(cursor)
        return Kept(self.number, cursor, list(self._passed), kept | self._partial, notes)

    def restore(
        self,
        cursor: int,
        passed: Iterable[list[int]],
        partial: dict[int, int],
        notes: dict[int, dict[int, int]],
        newest: int,
    ) -> None:
        """Begin where an earlier incarnation has ended; its segments say how much there is."""
        self._cursor = cursor
        self._passed = Passed((first, last) for first, last in passed)
        self._partial = partial
        self._notes = notes
        self._newest = newest

    def moved(self, lsn: int, messages: int, size: int, old: Segment, new: Segment, priority: int) -> None:
        """A record of so many messages and bytes is in another segment now."""
        hand = self.hands.get(lsn)
        if hand is not None:
            left = hand.left
            hand.segment = new
        elif not self.needs()(lsn):
            return
        else:
            left = messages - self._partial.get(lsn, 0).bit_count()
        size = left * (size // messages)
        old.loses(self, left, size)
        new.takes(self, left, size, bit_of(priority))

    def needs(self) -> Callable[[int], bool]:
        hands, cursor, beyond = self.hands, self._cursor, self.beyond_messages
        passed = Passed(self._passed)

        def needs(lsn: int) -> bool:
            if lsn in hands:
                return True
            return lsn >= cursor and beyond > 0 and not passed.has(lsn)

        return needs


def _stretches(hand: Hand) -> Iterator[tuple[int, int]]:
    """Consecutive places that are not freed, each with a note apart: the first of them and their count."""
    if not hand.freed and not hand.notes:
        yield 0, hand.messages
        return
    marked = hand.notes or {}
    borders = {0, hand.messages}
    for place in range(hand.messages):
        if place in marked or hand.freed >> place & 1:
            borders |= {place, place + 1}
    for first, last in pairwise(sorted(borders)):
        if not hand.freed >> first & 1:
            yield first, last - first
