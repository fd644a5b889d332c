"""What a node saves, in one SQLite file in the state directory; the event loop never waits for the disk."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from pathlib import Path
from typing import Any

from ildm.config import ConfigError
from ildm.core.counters import Counters
from ildm.core.tables import META, Key, Row, Table
from ildm.state.database import Database
from ildm.state.journal import PASSED, Journal, RowJournal, decode
from ildm.state.lock import DirectoryLock
from ildm.state.opening import Log, open_database, open_for_writing
from ildm.state.writer import Writer

FLUSH_DELAY = 0.1
"""Seconds until a change is written; a burst of changes is one transaction."""
RETRY_DELAY = 5.0
CLOSE_TIMEOUT = 5.0
"""Seconds that closing waits for the disk, for what is being written and again for the rest."""
DEFAULT_LIMIT = 64 << 20
OVERHEAD = 300
"""Bytes that a row which waits is taken to need besides its texts."""

MARK = "journal"
"""Key in the table ``meta`` of how far the file has the journal (:class:`~ildm.state.journal.RowJournal`)."""

_Batch = dict[Table, dict[Key, Row | None]]
_ABSENT: Any = object()


class StateStore:
    """Implements :class:`ildm.core.driver.Store`. Its methods belong to the event loop's thread.

    Changes wait in memory, one for each row, until a thread of its own writes them; while the disk is full
    they go on waiting, up to ``limit`` bytes, and are tried again. Rows beyond the bound are not saved:
    counted as ``state_rows_dropped``. What waits is lost if the process is killed, unless there is a journal
    (:meth:`keep_journal`).

    Args:
        directory: made if it is missing, readable by its owner only.
        call_later: runs a callback after a delay in seconds.
        call_threadsafe: runs a callback in the event loop's thread, called from another.
        log: ``log(level, event, **fields)``.
        limit: bytes that may wait to be written.
        lock: that of the directory, if the caller has it already; it is given back at the end of the store.

    Raises:
        ConfigError: the directory or file cannot be used, or belongs to a running node.
    """

    def __init__(
        self,
        directory: Path,
        call_later: Callable[[float, Callable[[], None]], object],
        call_threadsafe: Callable[[Callable[[], None]], object],
        log: Log,
        limit: int = DEFAULT_LIMIT,
        lock: DirectoryLock | None = None,
    ) -> None:
        self.directory = directory
        self.path = directory / "state.sqlite"
        self.limit = limit
        self.counters = Counters()
        self.failure: str | None = None
        """Why the last attempt to write has failed; None when it has not."""
        self._call_later = call_later
        self._call_threadsafe = call_threadsafe
        self._log = log
        self._waiting: _Batch = {}
        self._bytes = 0
        self._told: list[Callable[[bool], None]] = []
        self._writing: tuple[_Batch, int, list[Callable[[bool], None]], Future[Any], int] | None = None
        self._scheduled = False
        self._full = False
        self._ended = False
        self._lock = _taken(directory) if lock is None else lock
        self.is_new = not self.path.exists()
        """Nothing was saved here before."""
        try:
            self._database = open_database(self.path, log)
        except BaseException:
            self._lock.release()
            raise
        self._target: Database | None = None
        self._writer = Writer("state")
        self._journal: RowJournal | None = None
        self._close_journal: Callable[[], None] | None = None
        self._synced = False
        self._found_mark = self._database.meta(MARK)

    # the journal ------------------------------------------------------------------------------

    def keep_journal(
        self, journal: Journal, *, synced: bool = False, close: Callable[[], None] | None = None
    ) -> None:
        """Take up what a journal has beyond the file, and keep each change there until the file has it.

        To be said once, before anybody loads. ``synced``: the file is to outlive the loss of power, too.
        ``close`` is called at the end, while no other process may use the directory yet.
        """
        self._close_journal = close
        self._synced = synced
        self._journal = RowJournal(journal, self._found_mark, self._call_later)
        for entry in self._journal.beyond():
            try:
                table, key, row = decode(entry)
            except ValueError as error:
                self._count_damaged("journal", repr(entry[:50]), str(error))
                continue
            self._let_wait(table, key, row)
        last = self._mark()
        if self._database.path == self.path:
            try:
                self._database.tune(synced=synced)
                self._database.write(self._waiting)
            except sqlite3.Error as error:
                self._failed(error)
            else:
                self._waiting, self._bytes = {}, 0
                self._journal.written(last)
                return
        self._schedule(RETRY_DELAY)  # until then :meth:`load` answers what waits

    def _mark(self) -> int:
        """How far the file has the journal goes with what waits; answers the LSN."""
        if self._journal is not None:
            mark, last = self._journal.mark, self._journal.last
        elif self._found_mark in (None, PASSED):
            return 0
        else:
            self._found_mark, mark, last = PASSED, PASSED, 0
        self._let_wait(META, (MARK,), (mark,))
        return last

    # identity ---------------------------------------------------------------------------------

    def meta(self, key: str) -> str | None:
        return self._database.meta(key)

    def set_meta(self, key: str, value: str) -> None:
        """Written at once, if that can be: for the start of the node, before it serves anybody."""
        try:
            self._database.set_meta(key, value)
        except sqlite3.Error as error:
            self._failed(error)
        if self._database.path != self.path or self.failure is not None:
            self.put(META, (key,), (value,))

    # rows -------------------------------------------------------------------------------------

    def load(self, table: Table) -> list[tuple[Key, Row]]:
        """What earlier runs have saved, in the order of its last change; to be asked at the start.

        Rows that do not fit the table are counted (``state_rows_damaged``), logged, and set aside in the
        table ``damaged`` of the file.
        """
        try:
            rows, damaged = self._database.load(table)
        except sqlite3.Error as error:
            raise ConfigError(f"{self.path} cannot be read: {error}") from error
        for row in damaged:
            self._count_damaged(table.name, row.key, row.reason)
        newer = self._waiting.get(table)
        if newer:  # the file could not be written at the start
            rows = [row for row in rows if row[0] not in newer]
            rows += [(key, row) for key, row in newer.items() if row is not None]
        return rows

    def set_aside(self, table: Table, key: Key, reason: str) -> None:
        """A row that :meth:`load` gave makes no sense to its owner."""
        self._count_damaged(table.name, repr(key), reason)
        try:
            self._database.set_aside(table, key, reason)
        except sqlite3.Error as error:
            self._failed(error)

    def put(self, table: Table, key: Key, row: Row | None) -> None:
        """Save or, with None, remove a row: soon, in its last state by then."""
        if self._ended:
            self.counters["state_rows_dropped"] += 1
            return
        if not self._let_wait(table, key, row, self.limit):
            self._overflow(table)
            return
        if self._journal is not None:
            self._journal.add(table, key, row)
        if not self._scheduled:
            self._schedule(FLUSH_DELAY)

    def _let_wait(self, table: Table, key: Key, row: Row | None, limit: float = math.inf) -> bool:
        """Keep a change until it is written; False if that would be more than the limit."""
        waiting = self._waiting.get(table)
        if waiting is None:
            waiting = self._waiting[table] = {}
        old = waiting.pop(key, _ABSENT)
        if old is not _ABSENT:
            self._bytes -= size_of(key, old)
        size = size_of(key, row)
        if self.waiting_bytes + size > limit:
            return False
        self._bytes += size
        waiting[key] = row
        return True

    def when_written(self, callback: Callable[[bool], None]) -> None:
        """Write without delay what was put up to now, and tell whether that has succeeded.

        What could not be written goes on waiting. Many that ask share one transaction. What is durable in
        the journal is as good as written.
        """
        if self._ended:
            callback(False)
        elif self._journal is not None and self._journal.is_durable():
            callback(True)
        elif self._bytes:
            self._told.append(callback)
            if len(self._told) == 1:
                self._schedule(0.0)
        elif self._writing is not None:
            self._writing[2].append(callback)
        else:
            callback(True)

    @property
    def waiting_rows(self) -> int:
        batches = [self._waiting] if self._writing is None else [self._waiting, self._writing[0]]
        return sum(len(rows) for batch in batches for rows in batch.values())

    @property
    def waiting_bytes(self) -> int:
        return self._bytes if self._writing is None else self._bytes + self._writing[1]

    # writing ----------------------------------------------------------------------------------

    def _schedule(self, delay: float) -> None:
        self._scheduled = True
        self._call_later(delay, self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        if self._ended:
            return
        if self._journal is not None and not self._told and not self._journal.is_durable():
            # or the file would say of messages that they have come, and after a loss of power the spool not
            self._schedule(FLUSH_DELAY)
            return
        self._hand_over()

    def _hand_over(self) -> None:
        if self._writing is not None or not self._bytes:
            return  # what waits while something is written follows when that is done
        last = self._mark()
        batch = self._waiting
        future = self._writer.submit(lambda: self._write(batch))
        self._writing = (batch, self._bytes, self._told, future, last)
        self._waiting, self._bytes, self._told = {}, 0, []
        future.add_done_callback(self._done)

    def _write(self, batch: _Batch) -> list[tuple[Table, Key, str]]:
        """In the writer's thread, which has a connection of its own."""
        if self._target is None:
            self._target = open_for_writing(self.path, self._log)
            if self._synced:
                self._target.tune(synced=True)
        return self._target.write(batch)

    def _done(self, future: Future[Any]) -> None:
        """In the writer's thread: the rest is done in that of the event loop."""
        try:
            self._call_threadsafe(lambda: None if self._ended else self._settle(future))
        except RuntimeError:
            return  # the loop has ended; closing asks the future itself

    def _settle(self, future: Future[Any]) -> None:
        """A batch was written, or not."""
        if self._writing is None or self._writing[3] is not future:
            return
        batch, size, told, _, last = self._writing
        self._writing = None
        error = future.exception()
        if error is None:
            for table, key, why in future.result():
                self.counters["state_rows_refused"] += 1
                self._log(
                    "error", "a row of state cannot be saved", table=table.name, key=repr(key), reason=why
                )
            if self.failure is not None:
                self.failure = None
                self._log("info", "state saved again")
            self._full = False
            if self._journal is not None and not self._ended:
                self._journal.written(last)
            if self._bytes and not self._ended:
                self._schedule(0.0 if self._told else FLUSH_DELAY)
        else:
            self._merge(batch, size)
            self._failed(error)
            if not self._ended:
                self._schedule(0.0 if self._told else RETRY_DELAY)
        for callback in told:
            callback(error is None)

    def _merge(self, batch: _Batch, size: int) -> None:
        """Put back what could not be written, under what has changed since."""
        self._bytes += size
        for table, newer in self._waiting.items():
            older = batch.setdefault(table, {})
            for key in newer:
                replaced = older.pop(key, _ABSENT)
                if replaced is not _ABSENT:
                    self._bytes -= size_of(key, replaced)
            older.update(newer)
        self._waiting = batch

    def _failed(self, error: BaseException) -> None:
        self.counters["state_write_failures"] += 1
        before, self.failure = self.failure, str(error)
        if self.failure != before:
            self._log("error", "state not saved, will try again", file=str(self.path), reason=self.failure)

    def _overflow(self, table: Table) -> None:
        self.counters["state_rows_dropped"] += 1
        if not self._full:
            self._full = True
            self._log(
                "error",
                "state is lost to a restart: too much waits to be written",
                table=table.name,
                rows=self.waiting_rows,
                bytes=self.waiting_bytes,
                reason=self.failure,
            )

    def _count_damaged(self, table: str, key: str, reason: str) -> None:
        self.counters["state_rows_damaged"] += 1
        self._log("error", "a damaged row of state was set aside", table=table, key=key, reason=reason)

    # the end ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Write what waits and let another node use the directory; a second call does nothing.

        Waits for the disk for at most three times :data:`CLOSE_TIMEOUT`; what is not written then is said.
        """
        self.end()()

    def end(self) -> Callable[[], None]:
        """Take nothing more; answers the rest of :meth:`close`, which any thread may do."""
        if self._ended:
            return lambda: None
        self._ended = True
        told, self._told = self._told, []
        if self._writing is not None:
            told = self._writing[2] + told
            self._writing[2].clear()
        for callback in told:
            callback(False)
        return self._finish

    def _finish(self) -> None:
        if self._writing is not None:
            self._wait()
        self._hand_over()
        if self._writing is not None:
            self._wait()
        lost = self.waiting_rows
        if lost:
            self.counters["state_rows_dropped"] += lost
            self._log("error", "state not saved at the end", rows=lost, reason=self.failure or "no answer")
        self._writer.submit(self._close_files)  # the last to close tidies the file up, which takes time, too
        self._writer.stop(CLOSE_TIMEOUT)
        if self._close_journal is not None:
            self._close_journal()
        self._lock.release()

    def _wait(self) -> None:
        assert self._writing is not None
        future = self._writing[3]
        wait_for([future], CLOSE_TIMEOUT)
        if future.done():
            self._settle(future)

    def _close_files(self) -> None:
        if self._target is not None:
            self._target.close()
        self._database.close()


def size_of(key: Key, row: Row | None) -> int:
    """Bytes that a row which waits needs, roughly."""
    size = OVERHEAD
    for value in key if row is None else key + row:
        if value.__class__ is str or value.__class__ is bytes:
            size += len(value)
    return size


def _taken(directory: Path) -> DirectoryLock:
    """The lock of a directory that no other process has."""
    lock = DirectoryLock(directory)
    if not lock.take():
        lock.release()
        raise ConfigError(f"state_dir: {directory} is in use by a running node")
    return lock
