"""One SQLite file in the state directory: identity, neighbours, interest of persistent sessions."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path

from ildm.config import Address, ConfigError, parse_address
from ildm.core.driver import SavedSession

FLUSH_DELAY = 0.1
"""Seconds until a change of a session is written; a burst of changes is one transaction."""
RETRY_DELAY = 5.0

SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS neighbors (address TEXT PRIMARY KEY, wanted INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS retained (topic TEXT PRIMARY KEY, frame BLOB NOT NULL, expires_at REAL);
CREATE TABLE IF NOT EXISTS sessions (client_id TEXT PRIMARY KEY, expires_at REAL, expiry INTEGER NOT NULL,
    filters TEXT NOT NULL);
"""
VERSION = 1


class StateStore:
    """Implements :class:`ildm.core.driver.Store`.

    Args:
        directory: made if it is missing, readable by its owner only.
        call_later: runs ``callback`` after a delay in seconds.
        failed: called with a text when writing fails (full disk); what is not written stays in memory
            and is tried again.

    Raises:
        ConfigError: the directory or file cannot be used, or belongs to a running node.
    """

    def __init__(
        self,
        directory: Path,
        call_later: Callable[[float, Callable[[], None]], object],
        failed: Callable[[str], None],
    ) -> None:
        self.directory = directory
        self.path = directory / "state.sqlite"
        self._call_later = call_later
        self._failed = failed
        self._dirty: dict[str, SavedSession | None] = {}
        self._dirty_retained: dict[str, tuple[bytes, float | None] | None] = {}
        self._scheduled = False
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"state_dir: {directory} cannot be used: {error}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise ConfigError(f"state_dir: {directory} is in use by a running node") from None
        try:
            self._database = sqlite3.connect(self.path, isolation_level=None)
            self.path.chmod(0o600)
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=NORMAL")
            self._database.executescript(SCHEMA)
            self._check_version()
        except (sqlite3.Error, OSError) as error:
            os.close(self._lock)
            raise ConfigError(f"state_dir: {self.path} cannot be used: {error}") from error

    def _check_version(self) -> None:
        found = self.meta("version")
        if found is None:
            self.set_meta("version", str(VERSION))
        elif found != str(VERSION):
            raise sqlite3.DatabaseError(f"it is of version {found}, this node knows {VERSION}")

    def close(self) -> None:
        """Write what waits and let another node use the directory; a second call does nothing."""
        if self._lock >= 0:
            self._flush()
            self._database.close()
            os.close(self._lock)
            self._lock = -1

    # identity ---------------------------------------------------------------------------------

    def meta(self, key: str) -> str | None:
        row = self._database.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def set_meta(self, key: str, value: str) -> None:
        self._database.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    # neighbours -------------------------------------------------------------------------------

    def neighbors(self) -> dict[Address, bool]:
        """Neighbours added (True) or removed (False) at run time."""
        rows = self._database.execute("SELECT address, wanted FROM neighbors").fetchall()
        return {parse_address(address): bool(wanted) for address, wanted in rows}

    def save_neighbor(self, address: Address, wanted: bool) -> None:
        """Raises: ConfigError when it cannot be written."""
        try:
            self._database.execute(
                "INSERT OR REPLACE INTO neighbors VALUES (?, ?)", (str(address), int(wanted))
            )
        except sqlite3.Error as error:
            raise ConfigError(f"{self.path} cannot be written: {error}") from error

    # persistent sessions ----------------------------------------------------------------------

    def sessions(self) -> Mapping[str, SavedSession]:
        rows = self._database.execute(
            "SELECT client_id, filters, expires_at, expiry FROM sessions"
        ).fetchall()
        return {row[0]: SavedSession(json.loads(row[1]), *row[2:]) for row in rows}

    def save_session(self, client_id: str, session: SavedSession | None) -> None:
        # the mapping is kept, not copied: what is written is its state at the time of writing
        self._dirty[client_id] = session
        self._schedule(FLUSH_DELAY)

    # retained messages ------------------------------------------------------------------------

    def retained(self) -> list[tuple[bytes, float | None]]:
        return self._database.execute("SELECT frame, expires_at FROM retained ORDER BY rowid").fetchall()

    def save_retained(self, topic: str, frame: bytes | None, expires_at: float | None) -> None:
        self._dirty_retained[topic] = None if frame is None else (frame, expires_at)
        self._schedule(FLUSH_DELAY)

    # writing ----------------------------------------------------------------------------------

    def _schedule(self, delay: float) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._call_later(delay, self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        if self._lock < 0:
            return  # closed; what could not be written then is lost
        if not (self._dirty or self._dirty_retained):
            return
        gone = [(client_id,) for client_id, session in self._dirty.items() if session is None]
        kept = [
            (client_id, session.expires_at, session.expiry, json.dumps(dict(session.filters)))
            for client_id, session in self._dirty.items()
            if session is not None
        ]
        try:
            self._database.execute("BEGIN")
            self._database.executemany("DELETE FROM sessions WHERE client_id = ?", gone)
            self._database.executemany("INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?)", kept)
            self._database.executemany(
                "DELETE FROM retained WHERE topic = ?", [(topic,) for topic in self._dirty_retained]
            )
            self._database.executemany(
                "INSERT INTO retained VALUES (?, ?, ?)",
                [(topic, *kept) for topic, kept in self._dirty_retained.items() if kept is not None],
            )
            self._database.execute("COMMIT")
        except sqlite3.Error as error:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            self._failed(f"{self.path} cannot be written: {error}")
            self._schedule(RETRY_DELAY)
            return
        self._dirty.clear()
        self._dirty_retained.clear()
