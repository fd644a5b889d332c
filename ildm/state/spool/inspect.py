"""What is in a spool, read from its files alone: whether a node runs on them or not, nothing is changed."""

from __future__ import annotations

import errno
import os
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ildm.core.counters import Counters
from ildm.core.frames import expiry_interval
from ildm.core.spool import NEVER, Identity, Record, Waiting
from ildm.regular import open_regular
from ildm.state.spool.disk import File, OsFile
from ildm.state.spool.fate import Fate
from ildm.state.spool.readers import read_past
from ildm.state.spool.records import HEADERS, DamageError, Kind, RecordHead, decode_record, decode_targets
from ildm.state.spool.recovery import Recovery
from ildm.state.spool.segments import Segment
from ildm.state.spool.walk import walk


class Found(NamedTuple):
    """A message that a consumer has not freed."""

    lsn: int
    place: int
    """In the record, from 0."""
    since: float
    """When the record was written, as the node counts ages."""
    qos: int
    frame: bytes
    """What was kept of it: a PUBLISH of MQTT 5, or what a plugin has kept."""
    identity: Identity | None
    """Of the first message of the record."""
    expires: float
    """By :meth:`ildm.core.calendar.Calendar.date`."""


def read_waiting(directory: Path, consumers: Collection[str], after: int, limit: int) -> list[Found]:
    """The oldest messages with a higher LSN than ``after`` that one of these consumers has not freed.

    ``limit`` of them at least, with the rest of the last record, unless there are fewer. One message for two
    consumers is there once. What the node has not written yet is not, what it is about to free may be. Any
    thread may ask. What is damaged is passed over.

    Raises:
        OSError: the directory cannot be read.
    """
    recovery = Recovery(_ReadOnly(directory), _ignore, Counters())
    segments, fates = recovery.look(consumers)
    wanted = {number: fate for number, fate in fates.items() if recovery.found.names.get(number) in consumers}
    if not wanted:
        return []
    start = max(after + 1, min(fate.lowest for fate in wanted.values()))
    first = max(0, bisect_right(segments, start, key=lambda segment: segment.first) - 1)
    answer: list[Found] = []
    for segment in segments[first:]:
        for lsn, found in _of_segment(segment, recovery, wanted, start):
            answer += found
            start = lsn + 1
            if len(answer) >= limit:
                return answer
    return answer


def _of_segment(
    segment: Segment, recovery: Recovery, wanted: dict[int, Fate], start: int
) -> Iterator[tuple[int, list[Found]]]:
    names = recovery.found.names
    try:
        file = recovery.disk.open(segment.name)
    except FileNotFoundError:  # the node has removed it meanwhile: it was done with
        return
    for _, _, kind, entry in walk(partial(read_past, file), HEADERS, segment.end, segment.salt):
        if kind != Kind.RECORD:
            continue
        try:
            head, targets, begin = decode_record(entry)
        except DamageError:
            continue
        if head.lsn < start:
            continue
        ways: dict[int, int] = {}
        for number, qos, _ in decode_targets(targets):
            fate = wanted.get(number)
            freed = (
                fate.of(head.lsn, head.messages)
                if fate is not None and not recovery.unlisted(number, head.lsn)
                else None
            )
            if freed is not None:
                ways |= {place: qos for place in range(head.messages) if not freed >> place & 1}
        record = Record(entry[begin:], head.messages, None, mixed=head.mixed)
        identity = Identity(names.get(head.origin, "?"), head.number) if head.origin else None
        places = sorted(ways)
        singles = zip(places, record.parts([(place, 1) for place in places]), strict=True)
        yield (
            head.lsn,
            [
                Found(head.lsn, place, head.written, ways[place], single.frames, identity, _end(head, single))
                for place, single in singles
            ],
        )


def _end(head: RecordHead, single: Record) -> float:
    """When a message of a record expires."""
    if not head.mixed or head.expires == NEVER:
        return head.expires
    interval = expiry_interval(single.frames)
    return NEVER if interval is None else head.expires + interval


def waiting(directory: Path) -> dict[str, Waiting]:
    """What each consumer has not freed, by its name, of a node that does not run (or as of a moment ago).

    Goes through the whole spool, about a second for a million records.

    Raises:
        OSError: the directory cannot be read.
    """
    return Recovery(_ReadOnly(directory), _ignore, Counters()).totals()


def _ignore(*args: object, **fields: object) -> None:
    pass


class _ReadOnlyFile(OsFile):
    def truncate(self, size: int) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))


class _ReadOnly:
    """Implements :class:`ildm.state.spool.disk.Disk` as far as one may who only looks."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def names(self) -> list[str]:
        return os.listdir(self._directory)

    def open(self, name: str) -> File:
        return _ReadOnlyFile(open_regular(self._directory / name, os.O_RDONLY | os.O_NOFOLLOW))

    def token(self, size: int) -> bytes:
        return bytes(size)

    def create(self, name: str, size: int) -> File:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def remove(self, name: str) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def rename(self, name: str, to: str) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def sync_names(self) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def later(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        raise NotImplementedError("nothing is written here")

    def close(self) -> None:
        pass
