"""Stores of nodes in virtual time."""

from __future__ import annotations

from collections.abc import Callable

from ildm.core.tables import Key, Row, Table
from ildm.state.journal import Journal, RowJournal, decode

FLUSH_DELAY = 0.1
"""Seconds until a change is in the file."""
WRITING = 0.002
"""The same where somebody waits for it."""


class MemoryStore:
    """A store that survives as long as the test keeps it."""

    def __init__(self) -> None:
        self.tables: dict[Table, dict[Key, Row]] = {}
        self.damaged: list[tuple[Table, Key, str]] = []

    def rows(self, table: Table) -> dict[Key, Row]:
        """The rows of a table, to look at or to change."""
        return self.tables.setdefault(table, {})

    def copy(self) -> MemoryStore:
        """The same rows, which no longer change: what a node that is killed now would find."""
        other = MemoryStore()
        other.tables = {table: dict(rows) for table, rows in self.tables.items()}
        return other

    def load(self, table: Table) -> list[tuple[Key, Row]]:
        return list(self.rows(table).items())

    def set_aside(self, table: Table, key: Key, reason: str) -> None:
        self.damaged.append((table, key, reason))
        self.put(table, key, None)

    def put(self, table: Table, key: Key, row: Row | None) -> None:
        self.rows(table).pop(key, None)
        if row is not None:
            self.rows(table)[key] = row

    def when_written(self, callback: Callable[[bool], None]) -> None:
        callback(True)


class StateFile:
    """What is in a file of state: it outlives the processes that write it."""

    def __init__(self) -> None:
        self.tables: dict[Table, dict[Key, Row]] = {}
        self.mark: str | None = None
        """How far it has the journal; see :class:`ildm.state.journal.RowJournal`."""


class VirtualStore:
    """A store of one incarnation of a node, over a file; it behaves as :class:`ildm.state.store.StateStore`
    does.

    What was not written when the process ends is lost, unless a journal has it.
    """

    def __init__(
        self,
        file: StateFile,
        call_later: Callable[[float, Callable[[], None]], object],
        journal: Journal | None = None,
    ) -> None:
        self.file = file
        self._call_later = call_later
        self._waiting: dict[tuple[Table, Key], Row | None] = {}
        self._told: list[Callable[[bool], None]] = []
        self._scheduled = False
        self._journal: RowJournal | None = None
        if journal is not None:
            self._journal = RowJournal(journal, file.mark, call_later)
            for entry in self._journal.beyond():
                table, key, row = decode(entry)
                self._waiting.pop((table, key), None)
                self._waiting[table, key] = row
            self._write()

    def load(self, table: Table) -> list[tuple[Key, Row]]:
        return list(self.file.tables.get(table, {}).items())

    def set_aside(self, table: Table, key: Key, reason: str) -> None:
        raise AssertionError(f"a row of {table.name} makes no sense: {key!r}: {reason}")

    def put(self, table: Table, key: Key, row: Row | None) -> None:
        self._waiting.pop((table, key), None)
        self._waiting[table, key] = row
        if self._journal is not None:
            self._journal.add(table, key, row)
        self._schedule(FLUSH_DELAY)

    def when_written(self, callback: Callable[[bool], None]) -> None:
        if not self._waiting or (self._journal is not None and self._journal.is_durable()):
            callback(True)
            return
        self._told.append(callback)
        if len(self._told) == 1:
            self._call_later(WRITING, self._write)

    def end(self) -> None:
        """The process ends in order: what waits is written."""
        self._write()

    def _schedule(self, delay: float) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._call_later(delay, self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        if self._journal is not None and not self._journal.is_durable():
            self._schedule(FLUSH_DELAY)
            return
        self._write()

    def _write(self) -> None:
        last = 0 if self._journal is None else self._journal.last
        waiting, self._waiting = self._waiting, {}
        for (table, key), row in waiting.items():
            rows = self.file.tables.setdefault(table, {})
            rows.pop(key, None)
            if row is not None:
                rows[key] = row
        if self._journal is not None:
            self.file.mark = self._journal.mark
            self._journal.written(last)
        told, self._told = self._told, []
        for callback in told:
            callback(True)
