"""The SQLite file: rows of :mod:`ildm.core.tables` read and written; no thread, no loop."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple

from ildm.core.tables import META, TABLES, Key, Row, Table, Value

VERSION = "2"
DAMAGED_KEPT = 1000
"""Damaged rows kept to be looked at."""
Changes = Mapping[Table, Mapping[Key, Row | None]]
"""Rows to write; None removes one."""

_SQL_TYPES = {str: "TEXT", bytes: "BLOB", int: "INTEGER", float: "REAL"}
_BAD_ROW = (
    OverflowError,
    UnicodeError,
    sqlite3.InterfaceError,
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.ProgrammingError,
)
"""What a row is to blame for, not the disk: trying again would never end."""


class DamagedRow(NamedTuple):
    table: Table
    key: str
    """For people: the key as it was found."""
    reason: str


class Database:
    """One connection, to be used by one thread at a time. Every method may raise ``sqlite3.Error``."""

    def __init__(self, path: Path, *, unchanged: bool = False) -> None:
        """``unchanged`` opens a file that nobody writes for reading alone: it needs no space on the disk."""
        self.path = path
        name = f"{path.absolute().as_uri()}?mode=ro&immutable=1" if unchanged else str(path)
        self._connection = sqlite3.connect(name, isolation_level=None, check_same_thread=False, uri=unchanged)
        # text is decoded row by row, so that one with damaged bytes does not hide the others
        self._connection.text_factory = bytes

    def execute(self, statement: str, values: Iterable[Any] = ()) -> list[Any]:
        return self._connection.execute(statement, tuple(values)).fetchall()

    def prepare(self) -> None:
        """Make what is missing of the file and its tables."""
        self.execute("PRAGMA journal_mode=WAL")
        self.tune()
        for table in TABLES:
            self.execute(_create(table))
            known = {
                name.decode() for _, name, *_ in self.execute(f"PRAGMA table_info({_quoted(table.name)})")
            }
            for name, kind in table.columns.items():
                if name not in known:
                    self.execute(f"ALTER TABLE {_quoted(table.name)} ADD COLUMN {_column(name, kind)}")
        self.execute(
            "CREATE TABLE IF NOT EXISTS damaged (found TEXT, of_table TEXT, reason TEXT, row_values BLOB)"
        )

    def tune(self, *, synced: bool = False) -> None:
        """In WAL mode a commit then waits for no sync, and outlives the process, if not the machine.

        ``synced``: it waits, and outlives the machine, too.
        """
        self.execute(f"PRAGMA synchronous={'FULL' if synced else 'NORMAL'}")

    def close(self) -> None:
        self._connection.close()

    # reading ----------------------------------------------------------------------------------

    def meta(self, key: str) -> str | None:
        rows = self.execute("SELECT value FROM meta WHERE key = ?", [key])
        return _text(rows[0][0]) if rows else None

    def load(self, table: Table) -> tuple[list[tuple[Key, Row]], list[DamagedRow]]:
        """All rows in the order of their last change; those that do not fit the table are set aside."""
        decode = _row_decoder(table)
        rows: list[tuple[Key, Row]] = []
        damaged: list[tuple[int, tuple[Any, ...], str]] = []
        for number, *found in self._connection.execute(_select(table)):
            try:
                rows.append(decode(found))
            except ValueError as error:
                damaged.append((number, tuple(found), str(error)))
        with suppress(sqlite3.Error):  # told the same all the same, and found again by the next start
            for number, found, reason in damaged:
                self._move_aside(table, number, reason, found)
        width = len(table.key)
        return rows, [DamagedRow(table, repr(found[:width]), reason) for _, found, reason in damaged]

    def salvage(self, table: Table) -> dict[Key, Row]:
        """The rows of a damaged file, from both ends up to where it is damaged."""
        decode = _row_decoder(table)
        ends: list[dict[Key, Row]] = []
        for order in ("ASC", "DESC"):
            readable: dict[Key, Row] = {}
            ends.append(readable)
            try:
                for _, *found in self._connection.execute(_select(table, order=order)):
                    with suppress(ValueError):
                        key, row = decode(found)
                        readable[key] = row
            except sqlite3.Error:
                continue  # that far it could be read
        first, last = ends
        return first | {key: last[key] for key in reversed(last) if key not in first}

    def set_aside(self, table: Table, key: Key, reason: str) -> None:
        """Move a row whose meaning is damaged to the table ``damaged``."""
        for number, *found in self.execute(_select(table, key=True), key):
            self._move_aside(table, number, reason, tuple(found))

    def _move_aside(self, table: Table, number: int, reason: str, found: tuple[Any, ...]) -> None:
        self.execute(
            "INSERT INTO damaged VALUES (datetime(), ?, ?, ?)", [table.name, reason, repr(found).encode()]
        )
        self.execute(
            "DELETE FROM damaged WHERE rowid <= (SELECT max(rowid) FROM damaged) - ?", [DAMAGED_KEPT]
        )
        self.execute(f"DELETE FROM {_quoted(table.name)} WHERE rowid = ?", [number])  # noqa: S608 - own names

    # writing ----------------------------------------------------------------------------------

    def set_meta(self, key: str, value: str) -> None:
        self.write({META: {(key,): (value,)}})

    def write(self, changes: Changes) -> list[tuple[Table, Key, str]]:
        """Write everything in one transaction; answers the rows that no file could take, with the reason."""
        refused: list[tuple[Table, Key, str]] = []
        self.execute("BEGIN IMMEDIATE")
        try:
            for table, rows in changes.items():
                gone = [key for key, row in rows.items() if row is None]
                kept = [(key, (*key, *row)) for key, row in rows.items() if row is not None]
                for statement, pairs in (
                    (_delete(table), [(key, key) for key in gone]),
                    (_insert(table), kept),
                ):
                    refused += [(table, key, reason) for key, reason in self._each(statement, pairs)]
            self.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.rollback()
            raise
        return refused

    def _each(self, statement: str, pairs: list[tuple[Key, Row]]) -> Iterator[tuple[Key, str]]:
        try:
            self._connection.executemany(statement, [values for _, values in pairs])
        except _BAD_ROW:
            for key, values in pairs:
                try:
                    self.execute(statement, values)
                except _BAD_ROW as error:
                    yield key, str(error)


def _row_decoder(table: Table) -> Callable[[list[Any]], tuple[Key, Row]]:
    decoders = [_decoder(kind) for kind in (*table.key.values(), *table.columns.values())]
    width = len(table.key)

    def decode(found: list[Any]) -> tuple[Key, Row]:
        values = [decoder(value) for decoder, value in zip(decoders, found, strict=True)]
        return tuple(values[:width]), tuple(values[width:])

    return decode


def _decoder(kind: Any) -> Callable[[Any], Value]:
    """What reads a value of a column, and raises ValueError for one of another type."""
    if kind is str:
        return _text
    if isinstance(kind, UnionType):
        plain = _decoder(kind.__args__[0])
        return lambda value: None if value is None else plain(value)

    def checked(value: Any) -> Value:
        if isinstance(value, kind):
            return value  # type: ignore[no-any-return]
        raise ValueError(f"{value!r:.50} where {kind.__name__} is due")

    return checked


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode()
    raise ValueError(f"{value!r:.50} where text is due")


def _quoted(name: str) -> str:
    return f'"{name}"'


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(_quoted, names))


def _column(name: str, kind: Any) -> str:
    plain = kind.__args__[0] if isinstance(kind, UnionType) else kind
    return f"{_quoted(name)} {_SQL_TYPES[plain]}"


def _create(table: Table) -> str:
    columns = [f"{_column(name, kind)} NOT NULL" for name, kind in table.key.items()]
    columns += [_column(name, kind) for name, kind in table.columns.items()]
    return (
        f"CREATE TABLE IF NOT EXISTS {_quoted(table.name)} "
        f"({', '.join(columns)}, PRIMARY KEY ({_names(table.key)}))"
    )


def _where(table: Table) -> str:
    return " AND ".join(f"{_quoted(name)} = ?" for name in table.key)


def _select(table: Table, *, key: bool = False, order: str = "ASC") -> str:
    which = f" WHERE {_where(table)}" if key else ""
    columns = _names([*table.key, *table.columns])
    return f"SELECT rowid, {columns} FROM {_quoted(table.name)}{which} ORDER BY rowid {order}"  # noqa: S608


def _delete(table: Table) -> str:
    return f"DELETE FROM {_quoted(table.name)} WHERE {_where(table)}"  # noqa: S608 - own names


def _insert(table: Table) -> str:
    # a row that is replaced goes to the end, where the latest are
    names = [*table.key, *table.columns]
    marks = ", ".join("?" * len(names))
    return f"INSERT OR REPLACE INTO {_quoted(table.name)} ({_names(names)}) VALUES ({marks})"  # noqa: S608
