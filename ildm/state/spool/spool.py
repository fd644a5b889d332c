"""The spool of a node: what the port says, put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Protocol

from ildm.core.counters import Counters
from ildm.core.spool import Delivery, Identity, Record, Waiting
from ildm.state.spool.consumers import FileConsumer, Owner
from ildm.state.spool.disk import Disk
from ildm.state.spool.log import CallLater, LogLine, SegmentLog
from ildm.state.spool.mark import Mark, Share, encode_mark
from ildm.state.spool.records import (
    HEADERS,
    MOST,
    Checkpoint,
    DamageError,
    Kind,
    Note,
    RecordHead,
    Span,
    decode_lsn,
    decode_record,
    decode_snapshot,
    decode_targets,
    encode_checkpoint,
    encode_free,
    encode_gone,
    encode_journal,
    encode_journaled,
    encode_kept,
    encode_name,
    encode_note,
    encode_record,
    encode_snapshot,
    encode_targets,
)
from ildm.state.spool.recovery import Recovered, recover
from ildm.state.spool.rewriting import Rewriting
from ildm.state.spool.segments import Segment
from ildm.state.spool.walk import walk

TICK = 5.0
"""Seconds between looks at what has grown old, and at segments with little in them."""
LITTLE = 0.25
"""A segment with a smaller share that is waited for is written anew."""
LITTLE_WHEN_FULL = 0.75
AT_ONCE = 5000
"""Old records that are dropped before others get a turn."""
CACHED = 4096
_EPOCHS = (1 << 32) - 1
Targets = tuple[bytes, list[tuple[FileConsumer, bool, int]]]
"""Of a record: encoded, and the consumers, with whether each has it in hand, and its priority."""


class Settings(Protocol):
    """The part of :class:`ildm.config.SpoolConfig` which is meant here."""

    @property
    def mode(self) -> str: ...
    @property
    def bytes(self) -> int: ...
    @property
    def segment_bytes(self) -> int: ...
    @property
    def full(self) -> str: ...
    @property
    def delay(self) -> float: ...


def _nothing() -> None:
    pass


class FileSpool(Owner):
    """Implements :class:`ildm.core.spool.Spool` on a :class:`Disk`, real or simulated.

    A damaged disk does not keep it from being opened: what can be read is there, what cannot is counted and
    named in the log. Nor does one that cannot be written: then :attr:`failure` says so.

    Args:
        disk: the spool's directory; the lock of the state directory keeps other processes out.
        wall: Unix time in seconds; ages are counted by it as long as nobody calls :meth:`keep_time`.
        call_later: runs a callback after a delay in seconds.
        log: ``log(level, event, **fields)``.
        expiry: seconds after which what waits is dropped.

    Raises:
        OSError: the directory cannot be read at all.
    """

    def __init__(
        self,
        disk: Disk,
        settings: Settings,
        *,
        wall: Callable[[], float],
        call_later: CallLater,
        log: LogLine,
        expiry: float,
        counters: Counters | None = None,
    ) -> None:
        self.log = log
        self.counters = Counters() if counters is None else counters
        self.on_durable: Callable[[], None] = _nothing
        self.on_room: Callable[[], None] = _nothing
        self._settings = settings
        self._expiry = expiry
        self._bound = settings.bytes - settings.segment_bytes
        """Of what is used, so that there is room for another segment. Asked for each record: an attribute of
        a pydantic model takes longer than what is done with it."""
        self._wall = self._now = wall
        self._lead = 0.0
        self._call_later = call_later
        self.last = 0
        found = recover(
            disk, partial(FileConsumer, self), log, self.counters, synced=settings.mode == "power"
        )
        self.losses = found.lost
        self.lost_entries = found.lost_entries
        self.last = found.last
        self.epoch = min(max(found.epoch + 1, int(wall())), _EPOCHS)
        """At least the time in seconds: also greater than that of a spool that somebody has removed."""
        self.restored = found.snapshot
        self.emptied = True
        self._beginning = found.last
        self.journal_floor = found.journal_floor
        self._snapshot: Callable[[], bytes] | None = None
        self._snapshot_due = False
        self._since_snapshot = self._snapshot_size = 0
        self._snapshot_taken: tuple[int, bytes] | None = None
        """Up to which LSN it knows the records, and its bytes: until these records are durable."""
        self._snapshot_put: tuple[int, int, Segment] | None = None
        """Its own LSN, what it covers, where it is: until it is durable."""
        self._covered = found.covered
        """What the newest durable snapshot knows of, and the number of the segment it is in."""
        self._covered_in = found.covered_in
        self._names = found.names
        self._next_number = found.next_number
        self._origins: dict[str, int] = {}
        self._consumers: dict[str, FileConsumer] = {consumer.name: consumer for consumer in found.consumers}
        self._by_number = {consumer.number: consumer for consumer in found.consumers}
        self._targets: dict[tuple[Delivery, ...], Targets] = {}
        self._targets_in: Segment | None = None
        """All names the cached targets need are in this segment."""
        self._dirty: dict[FileConsumer, None] = {}
        self._going: list[Segment] = []
        """Segments to be removed, when it is written that they are."""
        self._gone_at: tuple[Segment, int] | None = None
        """Where that is: a segment, and the offset behind it."""
        self._told_full = False
        self._told_durable = found.last
        self._ticking = False
        self._rewriting: Rewriting | None = None
        self._unreadable: set[tuple[str, int]] = set()
        self.segments = self._segment_log(disk, found)
        if settings.mode == "power":
            self.segments.doubt(found.latest[::-1])
        self.segments.start()
        self._tick_later()

    def _segment_log(self, disk: Disk, found: Recovered) -> SegmentLog:
        """The files, with the segments that were found."""
        settings = self._settings
        return SegmentLog(
            disk,
            self,
            segments=found.segments,
            number=found.number,
            key=found.key,
            epoch=self.epoch,
            segment_bytes=settings.segment_bytes,
            power=settings.mode == "power",
            delay=settings.delay,
            call_later=self._call_later,
            log=self.log,
            counters=self.counters,
        )

    # what it is like ----------------------------------------------------------------------------

    @property
    def failure(self) -> str | None:
        return self.segments.failure

    @property
    def durable(self) -> int:
        return self.segments.durable

    @property
    def disk_bytes(self) -> int:
        """Bytes on the disk, and those that are to be written to it."""
        return self.segments.used

    @property
    def full(self) -> bool:
        written = self.segments.failure is None
        crowded = self._exceeded or self.segments.tight
        if written and (not crowded or (self._drops and self._largest().beyond_messages)):
            return False
        self._told_full = True
        return True

    @property
    def _exceeded(self) -> bool:
        log = self.segments  # its ``used`` is interpreted
        return log.sealed + log.segments[-1].end > self._bound

    @property
    def _drops(self) -> bool:
        """Without room the oldest gives way."""
        return self._settings.full == "drop_oldest" and bool(self._consumers) and self._snapshot is not None

    def _largest(self) -> FileConsumer:
        return max(self._consumers.values(), key=lambda consumer: consumer.beyond_bytes)

    # records ------------------------------------------------------------------------------------

    def consumer(self, name: str) -> FileConsumer:
        consumer = self._consumers.get(name)
        if consumer is None:
            consumer = self._consumers[name] = FileConsumer(self, name, self._number(name))
            self._by_number[consumer.number] = consumer
        return consumer

    def consumers(self) -> list[str]:
        return list(self._consumers)

    def append(self, record: Record, deliveries: Iterable[Delivery]) -> int:
        frames, messages, identity, turn, expires, again, mixed = record
        assert 0 < messages <= MOST
        log = self.segments
        segment = log.segments[-1]  # nearly always there is room, and a write is due: no call is needed
        if segment.end >= log.capacity or not log.waiting:
            segment = log.room()
        ways = tuple(deliveries)
        found = self._targets.get(ways) if segment is self._targets_in else None
        if found is None:
            found = self._target(ways, segment)
        targets, takers = found
        origin = again_by = number = again_number = 0
        if identity is not None:
            name, number = identity
            known = self._origins.get(name)
            origin = known if known is not None and known in segment.names else self._origin(name, segment)
        if again is not None:
            name, again_number = again
            again_by = self._origin(name, segment)
        lsn = self.last = self.last + 1
        written = self._now() + self._lead
        offset, size = segment.end, len(frames)
        segment.put(
            encode_record(
                lsn, written, expires, turn, number, again_number, origin, again_by, messages, mixed, targets
            ),
            frames,
        )
        segment.last = lsn
        segment.newest = written
        segment.record_bytes += segment.end - offset
        for consumer, held, priority in takers:
            if held:
                consumer.holds(lsn, messages, size, segment, written)
            else:
                consumer.takes(lsn, messages, size, segment, offset, priority)
        self.counters["spool_records"] += 1
        if not self._ticking:
            self._tick_later()
        return lsn

    def _target(self, deliveries: tuple[Delivery, ...], segment: Segment) -> Targets:
        if segment is not self._targets_in or len(self._targets) > CACHED:
            self._targets.clear()
            self._targets_in = segment
        ways = [(self.consumer(way.consumer), way) for way in deliveries]
        assert ways
        for consumer, _ in ways:
            self._put_name(consumer.number, segment)
        targets = encode_targets((consumer.number, way) for consumer, way in ways)
        takers = [(consumer, way.held, way.priority) for consumer, way in ways]
        found = self._targets[deliveries] = targets, takers
        return found

    def _origin(self, name: str, segment: Segment) -> int:
        number = self._origins.get(name)
        if number is None:
            number = self._origins[name] = self._number(name)
        if number not in segment.names:
            self._put_name(number, segment)
        return number

    def _number(self, name: str) -> int:
        number = self._next_number
        self._next_number += 1
        self._names[number] = name
        return number

    def _put_name(self, number: int, segment: Segment) -> None:
        if number not in segment.names:
            segment.names.add(number)
            name = encode_name(number, self.name(number))  # both copies may have been damaged
            segment.put(name)
            segment.put(name)  # what it stands for is worth more than one flipped bit

    def record(self, entry: bytes, head: RecordHead, begin: int) -> Record:
        _, _, expires, turn, number, again_number, origin, again, messages, mixed = head
        return Record(
            entry[begin:],
            messages,
            Identity(self.name(origin), number) if origin else None,
            turn,
            expires,
            Identity(self.name(again), again_number) if again else None,
            mixed,
        )

    def name(self, number: int) -> str:
        return self._names.get(number, f"?{number}")

    def keep_time(self, now: Callable[[], float], lead: float) -> None:
        self._now, self._lead = now, lead

    def shown(self, written: float | None) -> float | None:
        return None if written is None else written - self._now() - self._lead + self._wall()

    def commit(self) -> None:
        self.segments.commit()

    def drop_oldest(self) -> list[tuple[str, Waiting]]:
        """Make room: free some of the oldest that the consumer with most of it has beyond.

        What is in hand stays. Answers what was dropped; nothing when there is nothing to drop.
        """
        if not self._consumers or not (consumer := self._largest()).beyond_messages:
            return []
        part = min(self._settings.segment_bytes, self.segments.used) // 4  # a full disk may hold less
        dropped = consumer.discard(part, 0.0, AT_ONCE)
        self.counters["spool_dropped_full"] += dropped.messages
        self.log(
            "warning",
            "there is no room in the spool: the oldest messages are dropped",
            consumer=consumer.name,
            messages=dropped.messages,
            bytes=dropped.bytes,
        )
        return [(consumer.name, dropped)]

    # what consumers tell --------------------------------------------------------------------------

    def freed(self, consumer: FileConsumer) -> None:
        self._dirty[consumer] = None
        self.segments.wake()

    def put_note(self, consumer: int, of: int, place: int, value: int, count: int) -> None:
        segment = self.segments.room()
        self.last += 1
        segment.last = self.last
        segment.put(encode_note(Note(self.last, consumer, of, place, value, count)))

    def changed(self, consumer: FileConsumer) -> None:
        self._dirty.pop(consumer, None)
        consumer.take_done()
        self.segments.room().put(encode_kept(consumer.kept()))

    def retired(self, consumer: FileConsumer, messages: int) -> None:
        for segment in self.segments.segments:
            segment.live.pop(consumer, None)
        self._dirty.pop(consumer, None)
        self.emptied = True
        self.counters["spool_freed"] += messages
        self.segments.room().put(encode_kept(consumer.kept()))

    def unreadable(self, segment: Segment, begin: int, end: int) -> None:
        if (segment.name, begin) not in self._unreadable and len(self._unreadable) < CACHED:
            self._unreadable.add((segment.name, begin))
            segment.damaged = True
            self.counters["spool_damaged"] += 1
            self.log(
                "error",
                "a part of the spool cannot be read",
                file=segment.name,
                offset=begin,
                bytes=end - begin,
            )

    def lost(self, consumer: FileConsumer, segment: Segment, messages: int) -> None:
        self.counters["spool_unreadable"] += messages
        self.log(
            "error",
            "messages in the spool cannot be read",
            consumer=consumer.name,
            messages=messages,
            file=segment.name,
        )

    # the journal and the snapshot ---------------------------------------------------------------

    def journal(self, entry: bytes) -> int:
        segment = self.segments.room()
        self.last += 1
        segment.last = segment.journal = self.last
        segment.put(encode_journal(self.last), entry)
        return self.last

    def journaled(self, lsn: int) -> None:
        if lsn > self.journal_floor:
            self.journal_floor = lsn
            self.segments.room().put(encode_journaled(lsn))
            self.emptied = True

    def replay(self) -> Iterator[tuple[int, bytes]]:
        for segment in list(self.segments.segments):
            if segment.journal > self.journal_floor:
                for entry in self._entries(segment, Kind.JOURNAL):
                    with suppress(DamageError):  # was counted when the spool was opened
                        lsn, data = decode_lsn(entry)
                        if self.journal_floor < lsn <= self._beginning:
                            yield lsn, data

    @property
    def snapshot(self) -> Callable[[], bytes]:
        return self._snapshot or bytes

    @snapshot.setter
    def snapshot(self, ask: Callable[[], bytes]) -> None:
        self._snapshot = ask
        self._snapshot_due = True
        self.segments.wake()

    def identities(self) -> Iterator[tuple[Identity, int]]:
        after = self._covered
        for segment in list(self.segments.segments):
            if segment.last > after:
                for entry in self._entries(segment, Kind.RECORD):
                    with suppress(DamageError):
                        head, _, _ = decode_record(entry)
                        if after < head.lsn <= self._beginning:
                            after = head.lsn
                            if head.origin:
                                yield Identity(self.name(head.origin), head.number), head.messages

    def _entries(self, segment: Segment, wanted: Kind) -> Iterator[bytes]:
        read = partial(self.segments.readers.read, segment)
        for _, _, kind, entry in walk(read, HEADERS, segment.end, segment.salt):
            if kind == wanted:
                yield entry

    # what the log asks --------------------------------------------------------------------------

    def gather(self) -> None:
        if self._dirty:
            dirty, self._dirty = self._dirty, {}
            for consumer in dirty:
                free = consumer.take_done()
                if free is not None:
                    self.segments.room().put(encode_free(free))
        self._gather_snapshot()
        if self.emptied:
            self.emptied = False
            self._gather_gone()

    def _gather_snapshot(self) -> None:
        taken = self._snapshot_taken
        if taken is not None:
            if taken[0] <= self.durable:
                self._snapshot_taken = None
                segment = self.segments.room()
                self.last += 1
                segment.last = self.last
                segment.put(encode_snapshot(self.last, taken[0]), taken[1])
                self._snapshot_put = (self.last, taken[0], segment)
        elif self._snapshot_due and self._snapshot is not None and self._snapshot_put is None:
            self._snapshot_due = False
            data = self._snapshot()
            self._snapshot_size, self._since_snapshot = len(data), 0
            self._snapshot_taken = (self.last, data)

    def _gather_gone(self) -> None:
        """Say of the segments nobody needs that they go."""
        going = [segment for segment in self.segments.segments[:-1] if self._needless(segment)]
        if going:
            room = self.segments.room()
            room.put(encode_gone([segment.number for segment in going]))
            self._gone_at = (room, room.end)
            for segment in going:
                segment.gone = True
            self._going += going

    def _needless(self, segment: Segment) -> bool:
        return not (
            segment.live
            or segment.tail
            or segment.gone
            or segment.rewritten
            or segment.journal > self.journal_floor
        ) and self._is_remembered(segment)

    def _is_remembered(self, segment: Segment) -> bool:
        """Whether a snapshot elsewhere knows who has come with the records of a segment."""
        return segment.last <= self._covered and segment.number < self._covered_in

    def settled(self) -> None:
        put, durable = self._snapshot_put, self.segments.durable
        if put is not None and put[0] <= durable:
            self._snapshot_put = None
            self._covered, self._covered_in = put[1], put[2].number
            self.emptied = True
        taken = self._snapshot_taken
        if self.emptied or (taken is not None and taken[0] <= durable):
            self.segments.wake()
        if self._gone_at is not None and self._gone_at[0].safe >= self._gone_at[1]:
            going, self._going, self._gone_at = self._going, [], None
            self.segments.remove(going)
        if self._drops and self._exceeded:
            self.drop_oldest()
        if self._told_full and not self.full:
            self._told_full = False
            self.on_room()
        if durable > self._told_durable:
            self._told_durable = durable
            self.on_durable()

    def relieve(self) -> None:
        if self._drops:
            self.drop_oldest()
        for segment in self.segments.segments[:-1]:
            if not segment.gone and self._needless(segment):
                self.segments.empty(segment, HEADERS)

    def checkpoint(self, segment: Segment, others: list[Segment]) -> None:
        consumers = [consumer for consumer in self._consumers.values() if consumer.messages]
        for consumer in consumers:
            self._put_name(consumer.number, segment)
        spans = [Span(other.number, other.first, other.last) for other in others if not other.gone]
        numbers = [consumer.number for consumer in consumers]
        segment.put(encode_checkpoint(Checkpoint(self.last, self._next_number, numbers, spans)))
        for consumer in consumers:
            segment.put(encode_kept(consumer.kept()))
        segment.put(encode_journaled(self.journal_floor))
        self._since_snapshot += others[-1].end if others else 0
        if self._since_snapshot >= 4 * self._snapshot_size:  # a large one is not to be all that is written
            self._snapshot_due = True

    def mark(self, segment: Segment, end: int) -> bytes:
        shares = [
            Share(consumer.number, consumer.name, messages)
            for consumer, (messages, _, _) in segment.live.items()
        ]
        return encode_mark(Mark(self.segments.key, segment.number, self.epoch, end, segment.last, shares))

    def move(self, kind: int, entry: bytes, old: Segment, new: Segment) -> None:
        body, frames = entry, b""
        match kind:
            case Kind.RECORD:
                head, targets, begin = decode_record(entry)
                body, frames = entry[:begin], entry[begin:]
                for number in {head.origin, head.again} - {0}:
                    self._put_name(number, new)
                for number, _, priority in decode_targets(targets):
                    consumer = self._by_number.get(number)
                    if consumer is not None:
                        self._put_name(number, new)
                        consumer.moved(head.lsn, head.messages, len(frames), old, new, priority)
                new.last = head.lsn
                new.newest = max(new.newest, head.written)
            case Kind.JOURNAL:
                lsn, _ = decode_lsn(entry)
                new.last = new.journal = lsn
            case Kind.NOTE:
                new.last = max(new.last, _note_lsn(entry))
            case Kind.SNAPSHOT:
                lsn, covered, _ = decode_snapshot(entry)
                new.last = lsn
                if self._snapshot_put is not None:
                    self._snapshot_put = (lsn, covered, new)
            case Kind.GONE:
                pass
            case _:
                return  # the checkpoint of the new segment says it
        begin = new.end
        new.put(body, frames)
        if kind == Kind.RECORD:
            new.record_bytes += new.end - begin
        if kind == Kind.GONE:
            self._gone_at = (new, new.end)

    # now and then -------------------------------------------------------------------------------

    def _tick_later(self) -> None:
        if not self._ticking and (
            any(consumer.messages for consumer in self._consumers.values())
            or any(segment.damaged for segment in self.segments.segments)
        ):
            self._ticking = True
            self._call_later(TICK, self._tick)

    def _tick(self) -> None:
        self._ticking = False
        if self.segments.closed:
            return
        before = self._now() + self._lead - self._expiry
        for consumer in self._consumers.values():
            self._drop_old(consumer, before)
        if self._rewriting is None and self.segments.failure is None:
            self._rewrite_one()
        self._tick_later()

    def _rewrite_one(self) -> None:
        """Write a segment anew of which little is left, or a part is damaged."""
        share = LITTLE_WHEN_FULL if self._told_full else LITTLE
        for segment in self.segments.segments:
            wanted = segment.damaged or (segment.live and segment.needed < share)
            free = segment not in self.segments.open and not segment.gone
            if wanted and free and self._is_remembered(segment):
                self._rewriting = Rewriting(self, segment, self._rewritten)
                return

    def _rewritten(self) -> None:
        self._rewriting = None
        self.emptied = True
        self.settled()

    def _drop_old(self, consumer: FileConsumer, before: float) -> None:
        oldest = consumer.oldest_beyond()
        if oldest is not None and oldest < before:
            dropped = consumer.discard(0, before, AT_ONCE)
            if dropped.messages:
                self.counters["spool_dropped_age"] += dropped.messages
                self.log(
                    "warning",
                    "messages in the spool have grown old and are dropped",
                    consumer=consumer.name,
                    messages=dropped.messages,
                    bytes=dropped.bytes,
                )

    def close(self) -> None:
        """Write what waits and let go of the disk. Nothing is told to anybody any more."""
        self.on_durable = self.on_room = _nothing
        self.segments.close()


def _note_lsn(entry: bytes) -> int:
    return int.from_bytes(entry[2:10], "little")
