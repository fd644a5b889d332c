"""A segment of which little is left, or a part is damaged, is written anew: what is needed of it alone.

LSNs stay, so order does. It is done a little at a time, beside the node's other work. The new file takes the
old one's name when it is complete, so that at any time one of them is there; a damaged file is kept under
another name, to be looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ildm.state.spool.batch import write_all
from ildm.state.spool.disk import File
from ildm.state.spool.log import set_aside
from ildm.state.spool.records import (
    HEADERS,
    PREFIX,
    DamageError,
    Header,
    Kind,
    decode_header,
    decode_lsn,
    decode_name,
    decode_record,
    decode_targets,
    encode,
    encode_header,
    encode_name,
)
from ildm.state.spool.segments import NEW, Segment
from ildm.state.spool.walk import Found, walk
from ildm.text import reason

if TYPE_CHECKING:
    from ildm.state.spool.consumers import Owner

STEP = 256 << 10
"""Bytes of the old file that are gone through before others get a turn."""
PAUSE = 0.01
"""Seconds from one step to the next."""


class Rewriting:
    """One segment being written anew.

    Args:
        done: called when it has ended, well or not.
    """

    def __init__(self, spool: Owner, segment: Segment, done: Callable[[], None]) -> None:
        self._spool = spool
        self._log = spool.segments
        self._segment = segment
        self._done = done
        self._name = segment.name + NEW
        self._size = 0
        self._file: File | None = None
        self._error: OSError | None = None
        self._record_bytes = 0
        self._names: set[int] = set()
        """What the numbers in the new file stand for is in it."""
        self._used: set[int] = set()
        segment.rewritten = True
        read = partial(self._log.readers.read, segment)
        self._entries: Iterator[Found] = walk(read, HEADERS, segment.end, segment.salt)
        try:
            self._file = self._log.disk.create(self._name, 0)
            header = decode_header(read(0, HEADERS)) or Header(self._log.key, segment.first, 0)
            self._write(encode_header(header._replace(number=segment.number)))
        except OSError as error:
            self._give_up(error)
        else:
            self._later()

    def _later(self) -> None:
        self._log.call_later(PAUSE, self._step)

    def _step(self) -> None:
        if self._log.closed:
            return
        needs = {consumer.number: consumer.needs() for consumer in self._segment.live}
        kept = []
        passed = 0
        try:
            for begin, end, kind, entry in self._entries:
                if self._keeps(kind, entry, needs):
                    kept.append(encode(self._segment.salt, entry) + entry)
                passed += end - begin
                if passed >= STEP:
                    self._write(b"".join(kept))
                    self._later()
                    return
            for number in self._used - self._names:  # these names were damaged
                name = encode_name(number, self._spool.name(number))
                kept += [encode(self._segment.salt, name) + name] * 2
            self._write(b"".join(kept))
        except OSError as error:
            self._give_up(error)
            return
        self._log.disk.later(self._sync, self._synced)

    def _keeps(self, kind: int, entry: bytes, needs: dict[int, Callable[[int], bool]]) -> bool:
        """The newest checkpoint knows what was freed and noted."""
        try:
            match kind:
                case Kind.NAME:
                    self._names.add(decode_name(entry)[0])
                    return True
                case Kind.RECORD:
                    head, encoded, _ = decode_record(entry)
                    targets = [number for number, _, _ in decode_targets(encoded)]
                    if not any(number in needs and needs[number](head.lsn) for number in targets):
                        return False
                    self._record_bytes += PREFIX.size + len(entry)
                    self._used |= {*targets, head.origin, head.again} - {0}
                    return True
                case Kind.JOURNAL:
                    return decode_lsn(entry)[0] > self._spool.journal_floor
        except DamageError:
            pass  # its bytes are what was written, and nobody could read them
        return False

    def _write(self, data: bytes) -> None:
        assert self._file is not None
        write_all(self._file, self._size, data)
        self._size += len(data)

    def _sync(self) -> None:
        assert self._file is not None
        try:
            if self._log.power:
                self._file.sync()
        except OSError as error:
            self._error = error

    def _synced(self) -> None:
        if self._log.closed:
            return
        segment = self._segment
        if self._error is not None or segment not in self._log.segments:
            self._give_up(self._error)
            return
        disk = self._log.disk
        try:
            if segment.damaged:
                set_aside(disk, segment.name)
            disk.rename(self._name, segment.name)
        except OSError as error:
            self._give_up(error)
            return
        self._log.readers.close(segment)
        segment.file, self._file = self._file, None
        self._log.readers.took(segment)
        self._log.shrunk(segment, self._size)
        self._spool.counters["spool_rewritten"] += 1
        segment.damaged = False
        segment.record_bytes = self._record_bytes
        segment.taken = segment.live_bytes
        self._end()

    def _give_up(self, error: OSError | None) -> None:
        """The old file is as it was; it is tried again some time."""
        if error is not None:
            self._spool.log(
                "info",
                "a segment of the spool cannot be written anew",
                file=self._segment.name,
                reason=reason(error),
            )
        if self._file is not None:
            self._file.close()
            with suppress(OSError):
                self._log.disk.remove(self._name)
        self._end()

    def _end(self) -> None:
        self._segment.rewritten = False
        self._done()
