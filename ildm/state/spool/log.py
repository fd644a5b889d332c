"""Entries go to segments, segments to files: when, and what happens if that fails.

Entries that are not safe yet are in memory, in the order of LSN: the tails of the segments in
``SegmentLog.open``. One batch after the other makes the first tail safe: written (``process``), or written
and synced in the disk's thread (``power``, the next batch gathers meanwhile).

============================  ==============================================================================
It fails                      Then
============================  ==============================================================================
no segment can be made        nothing becomes durable; again after :data:`RETRY`
a write, for want of space    the file is cut to what is safe; again after :data:`RETRY`, or as below at once
                              when the next segment has its room already
a write otherwise, or a sync  that file is not written again (Linux takes pages for clean after a failed
                              fsync): all that is not safe goes to a new segment at once; if that fails, too,
                              to another one after :data:`RETRY`
============================  ==============================================================================
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

from ildm.core.counters import Counters
from ildm.state.spool.batch import Batch, carry_out, write_all
from ildm.state.spool.disk import NO_SPACE, SCARCE, Disk, File
from ildm.state.spool.mark import Marker
from ildm.state.spool.readers import Readers, read_past
from ildm.state.spool.records import HEADERS, Header
from ildm.state.spool.segments import DAMAGED, NEW, Segment, name_of
from ildm.state.spool.walk import WINDOW, walk
from ildm.text import reason

RETRY = 2.0
"""Seconds until writing is tried again."""
KEPT = 4
"""Damaged files that are kept."""
LAZY = 0.2
"""Seconds after which something is written that nobody waits for."""
MARKED = 0.05
"""Seconds from one mark to the next, while something changes; ..."""
MARKED_EACH = 0.001
"""... and for each consumer in it."""
MARKED_BYTES = 128 << 10
"""Bytes from one mark to the next, at most; ..."""
MARKED_BYTES_EACH = 16 << 10
"""... and for each consumer in it."""

CallLater = Callable[..., object]
LogLine = Callable[..., None]


class Contents(Protocol):
    """Who knows what the entries mean."""

    last: int

    def gather(self) -> None:
        """A batch is about to be written: put what has been saved up for it."""

    def checkpoint(self, segment: Segment, others: list[Segment]) -> None:
        """Put what a segment is to begin with, beside those there are."""

    def move(self, kind: int, entry: bytes, old: Segment, new: Segment) -> None:
        """An entry of ``old`` goes to ``new``, if it is worth it."""

    def mark(self, segment: Segment, end: int) -> bytes:
        """What the newest segment holds up to an offset, where all that is put ends."""

    def settled(self) -> None:
        """More is safe, or room has been made."""

    def relieve(self) -> None:
        """There is no space: give back what can be without writing."""


class SegmentLog:
    """The segments of a spool, the newest of which is written.

    Args:
        segments: what earlier incarnations have left, in order.
        number: of the next segment.
        log: ``log(level, event, **fields)``.
    """

    def __init__(
        self,
        disk: Disk,
        contents: Contents,
        *,
        segments: list[Segment],
        number: int,
        key: bytes,
        epoch: int,
        segment_bytes: int,
        power: bool,
        delay: float,
        call_later: CallLater,
        log: LogLine,
        counters: Counters,
    ) -> None:
        self.disk = disk
        self.segments = segments
        self.open: list[Segment] = []
        self.durable = contents.last
        self.failure: str | None = None
        self.tight = False
        """There is no space for another segment."""
        self.closed = False
        self.log = log
        self.counters = counters
        self.key = key
        self._contents = contents
        self._number = number
        self._epoch = epoch
        self._segment_bytes = segment_bytes
        self.power = power
        self._delay = delay
        self.call_later = call_later
        self.capacity = self._spare_at = 0
        """Bytes of the newest segment from which on another is begun, and from which on its file is made."""
        self._spare: File | None = None
        self._spare_size = self._least = 0
        self._flight: Batch | None = None
        self._resting = False
        self.waiting = False
        """Something is to be written, and will be."""
        self._rescued = False
        self._lazy = False
        self._doubted: list[Segment] = []
        self._sure = True
        self._beginning = 0
        self._marker = Marker(disk)
        self._mark_due = True
        """The next batch takes a mark along."""
        self._mark_timed = False
        self._mark_at = 0
        """Or one that reaches this offset does."""
        self._marked = 0, 0
        """Number of the segment, and the offset up to which the mark tells of it."""
        self._mark_failure: str | None = None
        self.readers = Readers(disk, lambda segment: segment in self.open)
        self.sealed = sum(segment.end for segment in segments)
        """Bytes in all segments but the newest."""
        self._roll()

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def used(self) -> int:
        """Bytes in all segments, with what is not written yet."""
        return self.sealed + self.segments[-1].end

    # entries ------------------------------------------------------------------------------------

    def room(self) -> Segment:
        """The segment to put the next entry in."""
        segment = self.segments[-1]
        if segment.end >= self.capacity:
            segment = self._roll()
        if not self.waiting:
            self.wake()
        return segment

    def wake(self) -> None:
        """There is something to write."""
        self.waiting = True
        if not self._lazy:
            self._lazy = True
            self.call_later(LAZY, self._commit_late)

    def _commit_late(self) -> None:
        self._lazy = False
        if self.waiting:
            self.commit()

    def _roll(self) -> Segment:
        if self.open:
            self._seal(self.segments[-1])
        segment = Segment(self._number, self.key, self._contents.last + 1)
        self._begin(segment)
        return segment

    def _seal(self, segment: Segment) -> None:
        """Nothing more is put in it. Its room is given back now, or with its last batch."""
        self.sealed += segment.end
        if not segment.tail:
            self.open.remove(segment)
            with suppress(OSError):
                self.readers.file(segment).truncate(segment.end)

    def _begin(self, segment: Segment) -> None:
        self._number = segment.number + 1
        segment.file, self._spare = self._spare, None
        room, self._spare_size = self._spare_size, 0
        segment.begin(Header(self.key, segment.first, self._epoch, segment.number))
        self._contents.checkpoint(segment, self.segments)
        self.segments.append(segment)
        self.open.append(segment)
        self._mark_due = True
        # a checkpoint as large as the segment would be followed by another at once
        self._least = 2 * segment.end
        self._bound(segment, room or self._segment_bytes)
        self.wake()

    def _bound(self, segment: Segment, room: int) -> None:
        """The file of the newest segment has so much room."""
        if segment is self.segments[-1]:
            self.capacity = max(room, self._least)
            self._spare_at = self.capacity * 7 // 8

    # writing ------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Begin to make safe what was put; in mode process it is, on return, unless there is a failure."""
        if self.waiting and self.failure is None and self._flight is None and not self._resting:
            self._write()

    def doubt(self, segments: list[Segment]) -> None:
        """A killed process has written them, perhaps without a sync: they do not count as durable yet."""
        self._doubted = segments
        self._sure = False
        self._beginning = self.durable
        if segments:
            self.durable = min(self.durable, segments[0].first - 1)

    def _make_sure(self) -> None:
        """Sync what was doubted.

        Raises:
            OSError: neither it nor a copy of it could be synced.
        """
        while self._doubted:
            segment = self._doubted[0]
            try:
                self.readers.file(segment).sync()
            except OSError as error:
                if error.errno in SCARCE:
                    raise
                self.counters["spool_syncs_failed"] += 1
                self._copy(segment)
            del self._doubted[0]
        if not self._sure:
            self.disk.sync_names()
            self._sure = True
            self.durable = max(self.durable, self._beginning)

    def _copy(self, segment: Segment) -> None:
        """Put a new file in the place of one that cannot be synced."""
        new = segment.name + NEW
        copy = self.disk.create(new, segment.end)
        old = self.readers.file(segment)
        for offset in range(0, segment.end, WINDOW):
            write_all(copy, offset, read_past(old, offset, min(WINDOW, segment.end - offset)))
        copy.sync()
        self.disk.rename(new, segment.name)
        self.disk.sync_names()
        segment.file = copy
        old.close()

    def start(self) -> None:
        """Write, and sync, at once: for the beginning of an incarnation."""
        self._write(at_once=True)

    def _write(self, at_once: bool = False) -> None:
        if self.closed:
            return
        try:
            self._make_sure()
        except OSError as error:
            self._stop(self._doubted[0].name if self._doubted else "directory", error)
            return
        self._contents.gather()
        self.waiting = False
        if self.power and not at_once:
            batch = self._next_batch()
            if batch is not None:
                self._flight = batch
                self.disk.later(partial(carry_out, self.disk, batch), partial(self._landed, batch))
            return
        durable = self.durable
        if at_once or not self._write_plainly():
            while (batch := self._next_batch()) is not None:
                carry_out(self.disk, batch)
                self._ended(batch)
                if self.failure is not None:
                    break
        if self.durable > durable or self.failure is None:
            self._contents.settled()

    def _write_plainly(self) -> bool:
        """Write the way it nearly always goes: one segment, which is in its file already and has room.

        False: the long way is to be gone, or to be gone on after what has failed.
        """
        segment = self.segments[-1]
        file, tail, failure = segment.file, segment.tail, self.failure
        if len(self.open) > 1 or file is None or not segment.safe or not tail or self._mark_due:
            return False
        if failure is not None:
            return False
        if segment.end >= self._mark_at or (segment.end >= self._spare_at and self._spare is None):
            return False
        data = b"".join(tail)
        try:
            written = file.write(segment.safe, data)
        except OSError as error:
            batch = self._next_batch()
            assert batch is not None
            batch.fail(self.disk, "write", error)
            self._ended(batch)
            return self.failure is not None
        if written < len(data):
            return False  # what is there is written again
        segment.safe += written
        tail.clear()
        self.durable = max(self.durable, segment.last)
        self._rescued = False
        return True

    def _landed(self, batch: Batch) -> None:
        self._flight = None
        if self.closed:
            return
        self._ended(batch)
        if self.failure is not None:
            return
        if self._delay and batch.error is None:
            self._resting = True
            self.call_later(self._delay, self._rested)
        else:
            self._go_on()
        self._contents.settled()

    def _rested(self) -> None:
        self._resting = False
        self._go_on()

    def _go_on(self) -> None:
        """Write what has gathered meanwhile."""
        if any(segment.tail for segment in self.open):
            self.waiting = True
        self.commit()

    def _next_batch(self) -> Batch | None:
        segment = next((segment for segment in self.open if segment.tail), None)
        if segment is None:
            self.failure = None
            segment = self.segments[-1]
            if not self._mark_due or not self._is_unmarked:
                return None
        active = segment is self.segments[-1]
        nearly = active and self._spare is None and not self.tight and segment.end >= self._spare_at
        data = b"".join(segment.tail)
        marked = active and (self._mark_due or segment.end >= self._mark_at)
        return Batch(
            segment,
            segment.file,
            segment.safe,
            data,
            len(segment.tail),
            segment.last,
            self._segment_bytes,
            sync=self.power and bool(data),
            cut=not active,
            spare=name_of(self._number) if nearly else None,
            wanted=self._segment_bytes,
            mark=self._mark(segment, len(data)) if marked else None,
        )

    def _ended(self, batch: Batch) -> None:
        segment = batch.segment
        if batch.sync:
            self.counters["spool_sync"] += 1
        if batch.mark is not None:
            self._mark_ended(batch)
        if batch.error is not None:
            self._failed(batch, batch.error)
            return
        if segment.file is None:
            self._bound(segment, batch.size)
        segment.file = batch.file
        self.readers.took(segment)
        segment.settled(batch.pieces, len(batch.data))
        self.durable = max(self.durable, batch.lsn)
        self._rescued = False
        if segment is not self.segments[-1] and not segment.tail and batch.data:
            self.open.remove(segment)
        if batch.spare_file is not None:
            # meanwhile the next segment may have begun; else it is made with this file
            begun = [segment for segment in self.open if segment.name == batch.spare]
            if begun:
                begun[0].file = batch.spare_file
                self._bound(begun[0], batch.spare_size)
            else:
                self._spare, self._spare_size = batch.spare_file, batch.spare_size
        elif batch.spare_error is not None:
            self._grow_tight(batch.spare_error)
        if self.failure is not None:
            self.failure = None
            self.log("info", "the spool is written again")

    def _failed(self, batch: Batch, error: OSError) -> None:
        self.counters["spool_writes_failed"] += 1
        if batch.stage == "sync":
            self.counters["spool_syncs_failed"] += 1
        self.waiting = True
        retried = self._rescued
        space = error.errno in NO_SPACE or error.errno in SCARCE
        # without space, what is beyond the room of its segment has room in the next one, if that is made
        elsewhere = not space or (error.errno in NO_SPACE and self._spare is not None)
        if batch.stage == "sync" or (batch.stage == "write" and elsewhere):
            self._rescue(batch.segment, error)
            self._rescued = True
            if not retried and self.failure is None:
                return  # it is tried there at once
        self._stop(batch.segment.name, error)

    def _stop(self, name: str, error: OSError) -> None:
        why = f"{name}: {reason(error)}"
        if self.failure != why:
            self.log("error", "nothing becomes durable: the spool cannot be written", reason=why)
        self.failure = why
        self.call_later(RETRY, self._retry)

    def _retry(self) -> None:
        if not self.closed and self._flight is None:
            self._contents.relieve()
            self._write()

    # the mark -----------------------------------------------------------------------------------

    @property
    def _is_unmarked(self) -> bool:
        segment = self.segments[-1]
        return (segment.number, segment.safe) != self._marked

    def _mark(self, segment: Segment, size: int) -> Callable[[], None]:
        """Write the mark of the newest segment with so many more bytes."""
        self._mark_due = False
        self._mark_at = segment.end + MARKED_BYTES + MARKED_BYTES_EACH * len(segment.live)
        return partial(self._marker.write, self._contents.mark(segment, segment.safe + size))

    def _mark_ended(self, batch: Batch) -> None:
        segment = batch.segment
        if batch.error is not None:
            self._mark_due = True
            return
        self._marked = segment.number, segment.safe + len(batch.data)
        delay = MARKED + MARKED_EACH * len(segment.live)
        why = None
        if batch.mark_error is not None:
            self.counters["spool_marks_failed"] += 1
            why, delay = reason(batch.mark_error), RETRY
            if self._mark_failure != why:
                self.log("warning", "the mark of the spool cannot be written", reason=why)
        self._mark_failure = why
        if not self._mark_timed:
            self._mark_timed = True
            self.call_later(delay, self._mark_again)

    def _mark_again(self) -> None:
        """From now on the mark is written with what comes; at once, if something has come since."""
        self._mark_timed = False
        self._mark_due = True
        if self._is_unmarked and not self.waiting:
            self.waiting = True
            self.commit()

    def _grow_tight(self, error: OSError) -> None:
        self.tight = True
        self.log("error", "no space for another segment of the spool", reason=reason(error))
        self._contents.relieve()
        self.call_later(RETRY, self._loosen)

    def _loosen(self) -> None:
        """Try once more to make a file for the next segment, with the next batch."""
        self.tight = False
        self.wake()
        self._contents.settled()

    # a file that has failed ---------------------------------------------------------------------

    def _rescue(self, failed: Segment, error: OSError) -> None:
        """All that is not safe goes to a new segment."""
        self.log(
            "warning",
            "what is not safe goes to another segment of the spool",
            file=failed.name,
            reason=reason(error),
        )
        tails = [(segment, b"".join(segment.tail)) for segment in self.open if segment.tail]
        for segment, _ in tails:
            segment.tail = []
            segment.end = segment.safe
            segment.generation += 1
            segment.last = min(segment.last, self.durable)
            segment.journal = min(segment.journal, self.durable)
        lost = [segment for segment in self.open if not segment.safe]
        self.segments = [segment for segment in self.segments if segment.safe]
        self.open = []
        self.sealed = sum(segment.end for segment in self.segments)
        for segment in lost:
            self._discard(segment)
        new = Segment(self._number, self.key, self.durable + 1)
        self._begin(new)
        for old, data in tails:
            for _, _, kind, entry in walk(
                partial(_slice, data), 0 if old.safe else HEADERS, len(data), old.salt
            ):
                self._contents.move(kind, entry, old, new)

    def _discard(self, segment: Segment) -> None:
        """Nothing in its file is needed."""
        made = segment.file is not None
        self.readers.close(segment)
        if made:
            with suppress(OSError):  # found empty of anything new when the spool is opened again
                self.disk.remove(segment.name)

    def holding(self, lsn: int) -> int:
        """Index of the segment an LSN is in, if it is in any."""
        return max(0, bisect_right(self.segments, lsn, key=lambda segment: segment.first) - 1)

    # removing and replacing ---------------------------------------------------------------------

    def remove(self, segments: list[Segment]) -> None:
        """Their entries are done with, and it is written that they go."""
        for segment in segments:
            self.segments.remove(segment)
            self.sealed -= segment.end
            self.readers.close(segment)
            try:
                if segment.damaged:
                    set_aside(self.disk, segment.name)
                else:
                    self.disk.remove(segment.name)
            except FileNotFoundError:
                continue
            except OSError as error:
                self.log(
                    "error", "cannot remove a segment of the spool", file=segment.name, reason=reason(error)
                )

    def empty(self, segment: Segment, size: int) -> None:
        """Give back the space of a segment that is done with, but for its header."""
        if segment.number == self._marked[0]:
            self._marker.remove()  # it may be the newest in a file yet
        with suppress(OSError):
            self.readers.file(segment).truncate(size)
            self.shrunk(segment, size)

    def shrunk(self, segment: Segment, size: int) -> None:
        """The file of a complete segment has another size now, and its entries stand elsewhere in it."""
        self.sealed += size - segment.end
        segment.end = segment.safe = size
        segment.generation += 1

    # the end ------------------------------------------------------------------------------------

    def close(self) -> None:
        """Write what waits, and let go of the files."""
        if self.closed:
            return
        self.disk.close()
        flight, self._flight = self._flight, None
        if flight is None or flight.finished:
            if flight is not None:
                self._ended(flight)
            self.failure = None
            self._mark_due = True
            self._write(at_once=True)
            self._marker.close()
        if flight is not None and not flight.finished:
            self.failure = "the disk does not answer"
        self.closed = True
        if self.failure is not None:
            self.log("error", "the spool was not written at the end", reason=self.failure)
            return
        with suppress(OSError):
            if self.active.file is not None:
                self.active.file.truncate(self.active.safe)
        if self._spare is not None:
            self._spare.close()
            with suppress(OSError):
                self.disk.remove(name_of(self._number))
        for segment in self.segments:
            self.readers.close(segment)


def set_aside(disk: Disk, name: str) -> None:
    """Keep a damaged file under another name. Of those that are kept, the oldest give way.

    Raises:
        OSError: that cannot be done.
    """
    kept = sorted(name for name in disk.names() if name.endswith(DAMAGED))
    for old in kept[: max(0, len(kept) + 1 - KEPT)]:
        disk.remove(old)
    disk.rename(name, name + DAMAGED)


def _slice(data: bytes, offset: int, size: int) -> bytes:
    return data[offset : offset + size]
