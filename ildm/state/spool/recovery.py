"""What earlier incarnations have left: found by one pass over the segments, from the newest to the oldest.

In this order the frees of a record are known before it comes, so that nothing is remembered for each record:
a consumer ends up with a cursor, the intervals it has passed from there on, and how much of each segment it
waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import NamedTuple
from zlib import crc32

from ildm.core.counters import Counters
from ildm.core.spool import Waiting
from ildm.state.spool.consumers import FileConsumer
from ildm.state.spool.disk import SCARCE, Disk, File
from ildm.state.spool.fate import Fate
from ildm.state.spool.log import LogLine
from ildm.state.spool.mark import Mark, read_mark
from ildm.state.spool.readers import read_past
from ildm.state.spool.records import (
    BEGINS_RECORD,
    HEADERS,
    HIGHEST,
    MOST_SEGMENTS,
    PREFIX,
    SMALLEST,
    Checkpoint,
    DamageError,
    Header,
    Kind,
    decode_checkpoint,
    decode_free,
    decode_gone,
    decode_header,
    decode_kept,
    decode_lsn,
    decode_name,
    decode_note,
    decode_record,
    decode_share,
    decode_snapshot,
    decode_targets,
    guess_head,
    salt_of,
    share_of,
)
from ildm.state.spool.segments import MISPLACED, MOVED, NEW, Segment, bit_of, name_of, number_of
from ildm.state.spool.walk import DAMAGE, TAIL, Found, Read, data_ends, walk
from ildm.text import reason

WINDOW = 1 << 20
PAGE = 4096
"""Bytes. Linux looks between two pages of a write whether its process was killed, and ends it there."""
RECORD = int(Kind.RECORD)
SEARCHED = 1 << 16
"""Numbers that are tried for a segment of an earlier version whose name is not its own."""


@dataclass
class Recovered:
    """What there is."""

    key: bytes
    epoch: int = 0
    """Of the newest incarnation."""
    last: int = 0
    number: int = 1
    """Of the next segment."""
    segments: list[Segment] = field(default_factory=list)
    latest: list[Segment] = field(default_factory=list)
    """Those of them that the newest incarnation has begun."""
    consumers: list[FileConsumer] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    next_number: int = 1
    journal_floor: int = 0
    snapshot: bytes = b""
    covered: int = 0
    covered_in: int = 0
    lost: dict[str, int] = field(default_factory=dict)
    """Messages for each consumer that still waited, in parts that are damaged or cut off."""
    lost_entries: int = 0
    """Of such parts, entries of which nothing is known any more: messages, or the node's own notes."""


Taken = tuple[int, int, int, bytes, float]
"""Of a record: LSN, messages, bytes of all, targets still encoded, Unix time at which it was written."""
MakeConsumer = Callable[[str, int], FileConsumer]
MOST_NUMBERS = 1 << 31
"""No spool gives so many to consumers and origins: what says so is damaged."""


class Recovery:
    """One pass."""

    def __init__(self, disk: Disk, log: LogLine, counters: Counters, *, synced: bool = False) -> None:
        self.disk = disk
        self._synced = synced
        """Nothing was durable before its sync: a torn end has lost nothing that was."""
        self._lost: dict[int, int] = {}
        self._mark: Mark | None = None
        self._reached = 0
        """Offset up to which the segment of the mark can be read."""
        self._weighed: dict[int, int] = {}
        """What was lost amid it."""
        self._log = log
        self._counters = counters
        self._fates: dict[int, Fate] = {}
        self._head: Checkpoint | None = None
        self._listed: frozenset[int] = frozenset()
        self._gone: set[int] = set()
        self._ceiling = 1 << 63
        """LSNs from here on are in newer segments."""
        self._cells: list[tuple[Segment, dict[int, list[int]]]] = []
        self._targets: dict[bytes, list[int]] = {}
        self.found = Recovered(b"")

    def run(self, consumer: MakeConsumer) -> Recovered:
        """What there is, with its consumers."""
        self._pass(lambda: False)
        self._missing()
        self._measure()
        self._say_lost()
        if self._counters["spool_damaged"]:
            self._numbers_in_records()
        self._make_consumers(consumer)
        return self.found

    def look(self, names: Collection[str]) -> tuple[list[Segment], dict[int, Fate]]:
        """The segments, and what is known of consumers; no further back than all is known of those named."""

        def enough() -> bool:
            return self._head is not None and all(
                self.fate(number).known or self._name(number) not in names for number in self._listed
            )

        self._pass(enough)
        return self.found.segments, self._fates

    def totals(self) -> dict[str, Waiting]:
        """What each consumer has not freed."""
        self._pass(lambda: False)
        totals: dict[str, Waiting] = {}
        for _, cells in self._cells:
            for number, (messages, size, _) in cells.items():
                name = self._name(number)
                before = totals.get(name, Waiting(0, 0, None))
                oldest = self._fates[number].oldest
                totals[name] = Waiting(before.messages + messages, before.bytes + size, oldest)
        return totals

    def _pass(self, enough: Callable[[], bool]) -> None:
        """From the newest segment to the oldest, or until it is enough."""
        found = self.found
        headers = self._headers()
        self._mark = self._marked(headers)
        found.key = found.key or self.disk.token(8)
        for segment, header in reversed(headers):
            try:
                self._segment(segment, header, newest=segment is headers[-1][0])
            except FileNotFoundError:  # a node that runs on it has removed it: it was done with
                segment.end = 0
            if enough():
                break
        found.segments = [segment for segment, _ in headers if segment.end]
        for before, segment in pairwise(found.segments):
            if not segment.last:  # without its header, nothing else tells that all before is in others
                segment.first = max(segment.first, before.first, before.last + 1)

    # files --------------------------------------------------------------------------------------

    def _headers(self) -> list[tuple[Segment, Header | None]]:
        """The segments there are, in order."""
        answer: list[tuple[Segment, Header | None]] = []
        numbers = {
            name: number if number < MOST_SEGMENTS else 0
            for name in self._tidied()
            if (number := number_of(name.removesuffix(MOVED))) is not None
        }
        looked = [each for name in sorted(numbers) if (each := self._look_at(name, numbers)) is not None]
        places = self._placed(looked)
        self.found.number = max([*numbers.values(), *places], default=0) + 1
        for number, (name, size, header, _) in sorted(places.items()):
            first = header.first if header is not None else answer[-1][0].first if answer else 0
            segment = Segment(number, self.found.key, first)
            segment.name = name
            segment.end = segment.safe = size
            answer.append((segment, header))
        return answer

    def _look_at(self, name: str, numbers: dict[str, int]) -> _File | None:
        """What a file says of itself."""
        try:
            file = self.disk.open(name)
            size = file.size()
            header = decode_header(read_past(file, 0, HEADERS))
            blank = header is None and _blank(file, size)
            number = header.number if header is not None else 0
            if header is not None and not number:  # of an earlier version
                highest = min(max(numbers.values()), SEARCHED)
                tried = [numbers[name], *numbers.values(), *range(1, highest)]
                number = _number_in(file, size, header.key, tried)
            file.close()
        except OSError as error:
            if error.errno in SCARCE:
                raise
            self._damage(name, 0, 0, reason=reason(error))
            return None
        if blank:
            self._remove(name)  # made beforehand, and never used
            return None
        return _File(name, size, header, number or numbers[name])

    def _placed(self, looked: list[_File]) -> dict[int, _File]:
        """The files of this spool, by the number that each has, whatever its name.

        A file of another spool, and one that has a number which another has by right, is set aside.
        """
        keys = [file.header.key for file in looked if file.header is not None]
        # the first of those that most have: a file which is put in beside comes to the end
        key = self.found.key = max(keys, key=keys.count, default=b"")
        places: dict[int, _File] = {}
        moved: list[_File] = []
        for file in looked:
            if file.header is not None and file.header.key != key:
                self._set_aside(file.name, "it is of another spool")
            elif file.name == name_of(file.number):
                places[file.number] = file
            else:
                moved.append(file)
        going: list[int] = []
        for file in moved:
            if not file.number or file.number in places:
                self._set_aside(file.name, f"it is a copy of {name_of(file.number)}")
                continue
            self._log(
                "warning",
                "a file of the spool has a name that is not its own",
                file=file.name,
                instead_of=name_of(file.number),
            )
            self._counters["spool_misplaced"] += 1
            places[file.number] = file
            going.append(file.number)
        # two that have each other's name need a third
        for suffix in (MOVED, ""):
            for number in going:
                file, to = places[number], name_of(number) + suffix
                with suppress(OSError):  # it is read under the name it has
                    if file.name != to:
                        self.disk.rename(file.name, to)
                        places[number] = file._replace(name=to)
        return places

    def _set_aside(self, name: str, why: str) -> None:
        self._counters["spool_misplaced"] += 1
        kept = name.removesuffix(MOVED) + MISPLACED
        with suppress(OSError):  # it is found the same the next time
            self.disk.rename(name, kept)
        self._log("error", "a file of the spool is left out", file=name, reason=why, kept_as=kept)

    def _tidied(self) -> list[str]:
        """Names of the files; a segment that was being written anew is its old file or its new one."""
        names = self.disk.names()
        for name in [name for name in names if name.endswith(NEW)]:
            old = name.removesuffix(NEW)
            with suppress(OSError):
                if old in names:
                    self.disk.remove(name)
                else:
                    self.disk.rename(name, old)
                    names.append(old)
        return names

    def _remove(self, name: str) -> None:
        with suppress(OSError):
            self.disk.remove(name)

    # entries ------------------------------------------------------------------------------------

    def _segment(self, segment: Segment, header: Header | None, newest: bool) -> None:
        found = self.found
        if header is not None:
            if header.epoch > found.epoch:
                found.epoch = header.epoch
                found.latest.clear()
            if header.epoch == found.epoch:
                found.latest.append(segment)
            found.last = max(found.last, header.first - 1)
        else:
            self.damaged(segment, 0, HEADERS)
        file = self.disk.open(segment.name)
        scan = _Scan(self, segment, self._ceiling)
        for entry in walk(partial(read_past, file), HEADERS, segment.end, segment.salt, WINDOW):
            scan.take(entry)
            if scan.superseded:
                break
        if header is None:
            segment.first = scan.lowest or segment.first
        short = self._is_short(scan)
        if scan.torn is not None:
            self._torn(scan, scan.torn, newest, short, partial(read_past, file))
        for hole in scan.holes:
            self._weigh(hole, partial(read_past, file))
        if short:
            self._weighed = dict(self._lost)
        # what is only the end of it is cut off; what else is damaged is kept, to be looked at
        if not segment.damaged:
            with suppress(OSError):  # it is not written again, and found the same the next time
                file.truncate(scan.end)
        segment.end = segment.safe = scan.end
        file.close()
        self._settle(scan)
        found.last = max(found.last, scan.highest)
        if scan.highest or (header is not None and header.number):  # else nothing vouches for where it begins
            self._ceiling = min(self._ceiling, segment.first)

    def _torn(self, scan: _Scan, begin: int, newest: bool, short: bool, read: Read) -> None:
        """Nothing can be read from an offset on to the end of a segment."""
        segment = scan.segment
        if short:  # what the mark tells of it comes later
            scan.holes.append(_Hole(begin, segment.end, scan.highest, self._ceiling))
            scan.end = begin
        elif newest or max(scan.highest, segment.first - 1) >= self._ceiling - 1:
            self._counters["spool_torn"] += 1
            killed = data_ends(read, begin, segment.end) % PAGE == 0
            if killed:
                self._counters["spool_cut_short"] += 1
            if killed or self._synced:
                self._log(
                    "info", "a torn end of the spool is cut off", file=segment.name, bytes=segment.end - begin
                )
            else:
                self._counters["spool_damaged"] += 1
                self._log(
                    "error",
                    "the end of the spool is lost: no kill ends a file there",
                    file=segment.name,
                    bytes=segment.end - begin,
                    after=max(scan.highest, segment.first - 1),
                )
                scan.holes.append(_Hole(begin, segment.end, scan.highest, self._ceiling))
            scan.end = begin
        else:
            self.damaged(segment, begin, segment.end)
            last = max(scan.highest, segment.first - 1)
            scan.holes.append(_Hole(begin, segment.end, last, self._ceiling))

    def _weigh(self, hole: _Hole, read: Read) -> None:
        """What has been lost with a part that cannot be read: the heads of its records may be whole."""
        begin, end, before, after = hole
        last = before
        for base in range(begin, end, WINDOW):
            data = read(base, min(WINDOW + PAGE, end - base))
            at = data.find(BEGINS_RECORD)
            while 0 <= at < WINDOW:
                head = guess_head(data, at)
                if head is not None and last < head[0] < after:
                    last, messages, targets = head
                    self.found.lost_entries -= 1
                    for number in self.targets(targets):
                        fate = self._fates.get(number)
                        freed = 0 if fate is None else fate.of(last, messages)
                        if freed is not None and not self.unlisted(number, last):
                            left = messages - freed.bit_count()
                            self._lost[number] = self._lost.get(number, 0) + left
                at = data.find(BEGINS_RECORD, at + 1)
        known = after if after < HIGHEST else last + 1
        self.found.lost_entries += known - before - 1

    # the mark -----------------------------------------------------------------------------------

    def _marked(self, headers: list[tuple[Segment, Header | None]]) -> Mark | None:
        """The mark, if it is of the newest segment: with another one after it, it is too old to tell."""
        try:
            mark = read_mark(self.disk)
        except (OSError, DamageError) as error:
            why = reason(error) if isinstance(error, OSError) else str(error)
            self._log("warning", "the mark of the spool is left out", reason=why)
            return None
        if mark is not None and self.found.key not in (b"", mark.key):
            self._log("warning", "the mark of the spool is left out", reason="it is of another spool")
            return None
        newest = headers[-1][0].number if headers else 0
        epoch = max((header.epoch for _, header in headers if header is not None), default=0)
        return mark if mark is not None and mark.segment >= newest and mark.epoch >= epoch else None

    def _is_short(self, scan: _Scan) -> bool:
        """Whether a segment has lost a part of what it has held at its mark, from some offset on."""
        mark = self._mark
        if mark is None or mark.segment != scan.segment.number:
            return False
        self._reached = scan.end if scan.torn is None else scan.torn
        return self._reached < mark.end

    def _measure(self) -> None:
        """What has been lost from the end of the newest segment, or with all of it.

        A consumer has lost what it had there at the mark but for what is still there. Of the latter some may
        have been freed before the mark, which is lost as well: then it was more.
        """
        mark = self._mark
        if mark is None or self._reached >= mark.end:
            return
        self._counters["spool_damaged"] += 1
        self._log(
            "error",
            "the end of the spool is lost, as its mark tells",
            file=name_of(mark.segment),
            bytes=mark.end - self._reached,
            after=self.found.last,
            last=mark.last,
        )
        there = {
            number: left
            for segment, cells in self._cells
            if segment.number == mark.segment
            for number, left in cells.items()
        }
        for number, name, messages in mark.shares:
            self.found.names.setdefault(number, name)
            known = there[number][0] if number in there else 0
            missing = messages - known - self._weighed.get(number, 0)
            if missing > 0:
                self._lost[number] = self._lost.get(number, 0) + missing
        self.found.last = max(self.found.last, mark.last)  # these have been given

    # what has become of records ------------------------------------------------------------------

    def _say_lost(self) -> None:
        found = self.found
        for number, messages in self._lost.items():
            name = self._name(number)
            found.lost[name] = found.lost.get(name, 0) + messages
            self._counters["spool_lost"] += messages
            self._log("error", "messages of the spool are lost", consumer=name, messages=messages)
        if found.lost_entries:
            self._log("error", "entries of the spool are lost", at_most=found.lost_entries)

    def _settle(self, scan: _Scan) -> None:
        """The records of a segment, after all that was done with them."""
        segment = scan.segment
        for number, notes in scan.notes.items():
            fate = self.fate(number)
            if not fate.known:
                for (lsn, place), value in notes.items():
                    fate.notes.setdefault(lsn, {}).setdefault(place, value)
        cells: dict[int, list[int]] = {}
        shares = self._shares(scan.records)
        each: set[int] = set()
        for number, share in sorted(shares.items(), key=lambda item: -item[1].last):
            segment.taken += share.bytes
            fate = self.fate(number)
            head = self._head
            if not scan.in_order or (head is not None and share.first <= head.lsn < share.last):
                each.add(number)
                continue
            if self.unlisted(number, share.first):
                continue
            done = fate.uniform(share.first, share.last)
            if done is None:
                each.add(number)
                continue
            fate.meet_all(done, share.first, share.last, share.written)
            if not done:
                cells[number] = [share.messages, share.bytes, share.bits]
        if each:
            self._settle_each(scan.records, each, cells)
            for number in each & cells.keys():
                cells[number][2] = shares[number].bits
        segment.newest = max((written for _, _, _, _, written in scan.records), default=segment.newest)
        if cells:
            self._cells.append((segment, cells))
        segment.last = scan.highest
        segment.journal = scan.journal
        segment.names = scan.names
        for number in scan.known:
            self.fate(number).known = True
        if scan.head is not None and self._head is None:
            self._head = scan.head
            self._listed = frozenset(scan.head.consumers)
            self.found.next_number = max(self.found.next_number, scan.head.next_number)

    def _shares(self, records: list[Taken]) -> dict[int, _Share]:
        """What each consumer has of the records of a segment."""
        groups: dict[bytes, _Share] = {}
        for lsn, messages, size, targets, written in records:
            group = groups.get(targets)
            if group is None:
                group = groups[targets] = _Share(lsn, written)
            group.last = lsn
            group.messages += messages
            group.bytes += size
        shares: dict[int, _Share] = {}
        for encoded, group in groups.items():
            for number, _, priority in decode_targets(encoded):
                share = shares.get(number)
                if share is None:
                    share = shares[number] = _Share(group.first, group.written)
                share.add(group, bit_of(priority))
        return shares

    def _settle_each(self, records: list[Taken], numbers: set[int], cells: dict[int, list[int]]) -> None:
        """The records of these consumers one by one."""
        for lsn, messages, size, targets, written in reversed(records):
            for number in self.targets(targets):
                if number not in numbers or self.unlisted(number, lsn):
                    continue
                left = self.fate(number).meet(lsn, messages, written)
                if left:
                    cell = cells.setdefault(number, [0, 0, 0])
                    cell[0] += left
                    cell[1] += share_of(size, messages, left)

    def unlisted(self, number: int, lsn: int) -> bool:
        """Whether the newest checkpoint, by not naming a consumer, says that it has done with a record."""
        head = self._head
        return (
            head is not None and number < head.next_number and lsn <= head.lsn and number not in self._listed
        )

    def fate(self, number: int) -> Fate:
        fate = self._fates.get(number)
        if fate is None:
            fate = self._fates[number] = Fate()
            self.found.next_number = max(self.found.next_number, number + 1)
        return fate

    def targets(self, encoded: bytes) -> list[int]:
        found = self._targets.get(encoded)
        if found is None:
            if len(self._targets) > 4096:
                self._targets.clear()
            found = self._targets[encoded] = [number for number, _, _ in decode_targets(encoded)]
        return found

    def gone(self, numbers: list[int]) -> None:
        self._gone.update(numbers)

    def damaged(self, segment: Segment, begin: int, end: int) -> None:
        segment.damaged = True
        self._damage(segment.name, begin, end - begin)

    def _damage(self, name: str, offset: int, size: int, **fields: object) -> None:
        self._counters["spool_damaged"] += 1
        self._log("error", "a part of the spool is damaged", file=name, offset=offset, bytes=size, **fields)

    # the whole ----------------------------------------------------------------------------------

    def _missing(self) -> None:
        """Segments of which the newest checkpoint says that they are there."""
        if self._head is None:
            return
        there = {segment.number for segment in self.found.segments}
        for span in self._head.segments:
            if span.number not in there and span.number not in self._gone:
                self._counters["spool_damaged"] += 1
                self.found.lost_entries += max(0, span.last - span.first + 1)
                self._log(
                    "error",
                    "a segment of the spool is gone",
                    file=name_of(span.number),
                    first=span.first,
                    last=span.last,
                )

    def _numbers_in_records(self) -> None:
        """Numbers of origins, of which only the records may tell now that they were given.

        Given to another node, they would make messages of that node of those that are there.
        """
        highest = 0
        for segment in self.found.segments:
            file = self.disk.open(segment.name)
            for _, _, kind, entry in walk(
                partial(read_past, file), HEADERS, segment.end, segment.salt, WINDOW
            ):
                if kind == RECORD:
                    with suppress(DamageError):  # counted in the pass before
                        head, _, _ = decode_record(entry)
                        highest = max(highest, head.origin, head.again)
            file.close()
        self.found.next_number = max(self.found.next_number, highest + 1)

    def _name(self, number: int) -> str:
        return self.found.names.get(number, f"?{number}")

    def _make_consumers(self, make: MakeConsumer) -> None:
        found = self.found
        highest = max(found.next_number, max(found.names, default=0) + 1)
        found.next_number = min(highest, MOST_NUMBERS)
        by_number: dict[int, FileConsumer] = {}
        taken: set[str] = set()
        for number in {number: None for _, cells in self._cells for number in cells}:
            fate = self._fates[number]
            name = self._name(number)
            if name in taken:
                name = f"{name}~{number}"  # its retirement could not be read
            taken.add(name)
            consumer = by_number[number] = make(name, number)
            consumer.restore(fate.first, fate.gaps, fate.partial, fate.marked, fate.newest)
            found.consumers.append(consumer)
        for segment, cells in self._cells:
            for number, (messages, size, bits) in cells.items():
                consumer = by_number[number]
                segment.live[consumer] = [messages, size, bits]
                consumer.may_have(bits, segment.last)
                consumer.beyond_messages += messages
                consumer.beyond_bytes += size
                consumer.messages += messages
                consumer.bytes += size


class _File(NamedTuple):
    """A file of the spool, and the number it has."""

    name: str
    size: int
    header: Header | None
    number: int


class _Hole(NamedTuple):
    """A part that cannot be read: offsets, and between which LSNs."""

    begin: int
    end: int
    before: int
    after: int


class _Share:
    """What a consumer has of the records of a segment: the first LSN and when that was written, the last one,
    messages and bytes, and the priorities by :func:`~ildm.state.spool.segments.bit_of`."""

    __slots__ = ("bits", "bytes", "first", "last", "messages", "written")

    def __init__(self, lsn: int, written: float) -> None:
        self.first = self.last = lsn
        self.written = written
        self.messages = self.bytes = self.bits = 0

    def add(self, other: _Share, bit: int) -> None:
        if other.first < self.first:
            self.first, self.written = other.first, other.written
        self.last = max(self.last, other.last)
        self.messages += other.messages
        self.bytes += other.bytes
        self.bits |= bit


class _SupersededError(Exception):
    """An LSN that is in a newer segment: this one could not be synced, or written further."""


class _Scan:
    """The entries of one segment, from its start to its end."""

    def __init__(self, recovery: Recovery, segment: Segment, ceiling: int) -> None:
        self.segment = segment
        self.superseded = False
        """From here on everything was written anew to a newer segment."""
        self._ceiling = ceiling
        self.records: list[Taken] = []
        self.notes: dict[int, dict[tuple[int, int], int]] = {}
        self.known: list[int] = []
        self.head: Checkpoint | None = None
        self.journal = 0
        self.lowest = self.highest = 0
        self.in_order = True
        """LSNs rise, as they do in whatever a spool has written."""
        self.end = HEADERS
        self.torn: int | None = None
        self.holes: list[_Hole] = []
        self._hole: tuple[int, int, int] | None = None
        """The last one, of which it is not known yet what comes after it."""
        self.names: set[int] = set()
        self._recovery = recovery

    def take(self, found: Found) -> None:
        at, end, kind, entry = found
        self.end = end
        if kind == RECORD:
            try:
                record = decode_share(entry)
            except DamageError:
                self._recovery.damaged(self.segment, at, end)
                self._hole = self._hole or (at, end, self.highest)
                return
            lsn = record[0]
            if self._hole is not None:
                self._bounded(lsn)
            if lsn >= self._ceiling:
                self.superseded = True
                self.end = at
                return
            if lsn < self.highest:
                self.in_order = False
            self.highest = max(self.highest, lsn)
            if not self.lowest:
                self.lowest = lsn
            self.segment.record_bytes += end - at
            self.records.append(record)
            return
        if kind == TAIL:
            self.torn = at
            return
        try:
            if kind == DAMAGE:
                raise DamageError
            self._take(kind, entry)
        except _SupersededError:
            self.superseded = True
            self.end = at
        except DamageError:
            self._recovery.damaged(self.segment, at, end)
            begin, _, before = self._hole or (at, end, self.highest)
            self._hole = begin, end, before

    def _bounded(self, lsn: int) -> None:
        assert self._hole is not None
        begin, end, before = self._hole
        self._hole = None
        self.holes.append(_Hole(begin, end, before or max(0, self.segment.first - 1), lsn))

    def _take(self, kind: int, entry: bytes) -> None:
        recovery, found = self._recovery, self._recovery.found
        match kind:
            case Kind.FREE:
                free = decode_free(entry)
                self._heard(free.floor - 1)
                fate = recovery.fate(free.consumer)
                if not fate.known:
                    fate.free(free.floor, list(free.ranges))
            case Kind.NOTE:
                note = decode_note(entry)
                self._saw(note.lsn)
                self._heard(note.of)
                notes = self.notes.setdefault(note.consumer, {})
                for i in range(note.messages):
                    notes[note.of, note.place + i] = note.value + i
            case Kind.CONSUMER:
                kept = decode_kept(entry)
                self._heard(kept.cursor - 1)
                fate = recovery.fate(kept.consumer)
                if not fate.known:
                    fate.cursor, fate.passed, fate.kept = kept.cursor, list(kept.passed), kept.kept
                    self.notes[kept.consumer] = kept.notes
                    self.known.append(kept.consumer)
            case Kind.NAME:
                number, name = decode_name(entry)
                self.names.add(number)
                found.names.setdefault(number, name)
            case Kind.JOURNAL:
                lsn, _ = decode_lsn(entry)
                self._saw(lsn)
                self.journal = lsn
            case Kind.JOURNALED:
                lsn, _ = decode_lsn(entry)
                found.journal_floor = max(found.journal_floor, lsn)
                self._heard(lsn)
            case Kind.CHECKPOINT:
                self.head = decode_checkpoint(entry)
                self._heard(self.head.lsn)
            case Kind.SNAPSHOT:
                lsn, covered, data = decode_snapshot(entry)
                self._saw(lsn)
                if covered >= found.covered:
                    found.covered, found.covered_in, found.snapshot = covered, self.segment.number, data
            case Kind.GONE:
                recovery.gone(decode_gone(entry))

    def _heard(self, lsn: int) -> None:
        """It has been given, and is not to be given again: what was done with it would hold for another."""
        self._recovery.found.last = max(self._recovery.found.last, lsn)

    def _saw(self, lsn: int) -> None:
        if lsn >= self._ceiling:
            raise _SupersededError
        if self._hole is not None:
            self._bounded(lsn)
        self.highest = max(self.highest, lsn)
        if not self.lowest:
            self.lowest = lsn


def recover(
    disk: Disk, consumer: MakeConsumer, log: LogLine, counters: Counters, *, synced: bool
) -> Recovered:
    """Find what is there; what cannot be read is counted, and named in the log.

    Args:
        consumer: makes one of a name and a number.
        synced: see :class:`Recovery`.

    Raises:
        OSError: the directory cannot be read.
    """
    return Recovery(disk, log, counters, synced=synced).run(consumer)


def _number_in(file: File, size: int, key: bytes, numbers: list[int]) -> int:
    """Which of these numbers the segment of a file has, as its first entry says; 0: none of them, or it
    cannot be read."""
    length, check = PREFIX.unpack(read_past(file, HEADERS, PREFIX.size).ljust(PREFIX.size, b"\0"))
    begin = HEADERS + PREFIX.size
    entry = read_past(file, begin, length) if SMALLEST <= length <= size - begin else b""
    if not entry:
        return 0
    return next((each for each in numbers if crc32(entry, salt_of(key, each)) == check), 0)


def _blank(file: File, size: int) -> bool:
    pieces = (read_past(file, begin, min(WINDOW, size - begin)) for begin in range(0, size, WINDOW))
    return all(piece.count(0) == len(piece) for piece in pieces)
