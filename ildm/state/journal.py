"""Rows on their way to the state file, kept in the spool's journal meanwhile: a crash loses none of them.

An entry is one change of one row: a byte of version, the table's name, the number of values in the key, the
number of columns (255: the row is removed), then the values. A value is a letter (``n`` null, ``i`` int,
``f`` float, ``s`` text, ``b`` bytes) and, but for null, its length in four bytes and itself; numbers are
big-endian, an int in two's complement.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Protocol

from ildm.core.tables import TABLES, Key, Row, Table, Value

VERSION = 1
REMOVED = 255
PASSED = "passed"
"""Mark of a file that was written without a journal since: no entry is newer than it."""

_BY_NAME = {table.name: table for table in TABLES}


class Journal(Protocol):
    """The part of :class:`ildm.core.spool.Spool` that a state file needs."""

    epoch: int
    last: int

    @property
    def durable(self) -> int: ...

    def commit(self) -> None: ...
    def journal(self, entry: bytes) -> int: ...
    def journaled(self, lsn: int) -> None: ...
    def replay(self) -> Iterator[tuple[int, bytes]]: ...


class RowJournal:
    """Changes of rows in a journal until they are in the state file.

    The file bears a *mark*, which says how far it has the journal: the journal's epoch, and an LSN.

    Args:
        mark: that of the file; None if it has none.
        call_later: runs a callback after a delay in seconds.
    """

    def __init__(
        self,
        journal: Journal,
        mark: str | None,
        call_later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self.last = journal.last
        """LSN of the newest change."""
        self._journal = journal
        self._call_later = call_later
        self._committing = False
        self._applied = _applied(mark, journal)

    @property
    def mark(self) -> str:
        """For a file that has everything up to now."""
        return f"{self._journal.epoch} {self.last}"

    def beyond(self) -> Iterator[bytes]:
        """What earlier incarnations have left to it and the file has not, in order; to be asked at the
        start."""
        for lsn, entry in self._journal.replay():
            if lsn > self._applied:
                yield entry

    def add(self, table: Table, key: Key, row: Row | None) -> None:
        """Keep a change; it is durable soon."""
        self.last = self._journal.journal(encode(table, key, row))
        if not self._committing:
            self._committing = True
            self._call_later(0.0, self._commit)

    def _commit(self) -> None:
        self._committing = False
        self._journal.commit()

    def is_durable(self) -> bool:
        """Whether all changes up to now are; commits them if they are not."""
        if self._journal.durable < self.last:
            self._journal.commit()
        return self._journal.durable >= self.last

    def written(self, lsn: int) -> None:
        """The file has everything up to this LSN."""
        self._journal.journaled(lsn)


def _applied(mark: str | None, journal: Journal) -> int:
    """Up to which LSN of a journal the file with this mark has what it says."""
    if mark == PASSED:
        return journal.last
    epoch, _, lsn = (mark or "").partition(" ")
    same = epoch.isdecimal() and lsn.isdecimal() and int(epoch) < journal.epoch  # else one begun anew
    return int(lsn) if same else 0


def encode(table: Table, key: Key, row: Row | None) -> bytes:
    """A change as an entry; ``row`` None removes it."""
    name = table.name.encode()
    columns = REMOVED if row is None else len(row)
    head = bytes((VERSION, len(name))) + name + bytes((len(key), columns))
    return head + b"".join(map(_encode_value, key if row is None else key + row))


def _encode_value(value: Value) -> bytes:
    if isinstance(value, str):
        letter, body = b"s", value.encode(errors="surrogatepass")
    elif isinstance(value, bytes):
        letter, body = b"b", value
    elif isinstance(value, int):
        letter, body = b"i", value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)
    elif isinstance(value, float):
        letter, body = b"f", struct.pack(">d", value)
    else:
        return b"n"
    return letter + len(body).to_bytes(4, "big") + body


def decode(entry: bytes) -> tuple[Table, Key, Row | None]:
    """The change in an entry. Columns that the table has got since are null.

    Raises:
        ValueError: it is none that this version understands.
    """
    if len(entry) < 2 or entry[0] != VERSION:
        raise ValueError("an entry of another version")
    start = 2 + entry[1]
    name = entry[2:start].decode()
    table = _BY_NAME.get(name)
    if table is None:
        raise ValueError(f"no table {name!r}")
    if len(entry) < start + 2:
        raise ValueError("an entry that is cut off")
    width, columns = entry[start], entry[start + 1]
    values = list(_values(entry, start + 2))
    if width != len(table.key) or len(values) != width + (0 if columns == REMOVED else columns):
        raise ValueError(f"another number of values than {name!r} has")
    key = tuple(values[:width])
    if columns == REMOVED:
        return table, key, None
    if columns > len(table.columns):
        raise ValueError(f"more columns than {name!r} has")
    return table, key, (*values[width:], *[None] * (len(table.columns) - columns))


def _values(entry: bytes, pos: int) -> Iterator[Value]:
    while pos < len(entry):
        letter = entry[pos : pos + 1]
        pos += 1
        if letter == b"n":
            yield None
            continue
        end = pos + 4 + int.from_bytes(entry[pos : pos + 4], "big")
        body = entry[pos + 4 : end]
        if pos + 4 > len(entry) or end > len(entry):
            raise ValueError("a value that is cut off")
        pos = end
        if letter == b"s":
            yield body.decode(errors="surrogatepass")
        elif letter == b"b":
            yield body
        elif letter == b"i":
            yield int.from_bytes(body, "big", signed=True)
        elif letter == b"f" and len(body) == 8:
            yield struct.unpack(">d", body)[0]
        else:
            raise ValueError(f"no value begins with {letter!r}")
