"""Opening the state file: made if missing, brought to the present version, rescued when it is damaged."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from ildm.config import ConfigError
from ildm.core.tables import META, SESSIONS, SUBSCRIPTIONS, TABLES, UNRELEASED, Key, Row
from ildm.state.database import VERSION, Database
from ildm.text import reason

Log = Callable[..., None]
"""``log(level, event, **fields)``, as :meth:`ildm.core.driver.Driver.log`."""

_NO_SPACE = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def open_database(path: Path, log: Log) -> Database:
    """Open the file for the start of a node.

    A file that is damaged is kept beside as ``NAME.damaged-TIME``, and what can still be read of it, the
    node's identity first, goes into a new one: a node that lacks a part of its memory serves its clients,
    one that refuses to start does not. For the same reason a full disk does not keep it from starting: then
    the file is opened for reading alone, or, where there is none yet, an empty one in memory.

    Raises:
        ConfigError: it cannot be opened or made, or is of a later version.
    """
    try:
        try:
            return open_for_writing(path, log)
        except sqlite3.DatabaseError as error:
            if _is(error, _DAMAGED):
                return _rescued(path, log, str(error))
            if not _is(error, _NO_SPACE):
                raise
            log("error", "the state file cannot be written; the node starts all the same", reason=str(error))
            return _as_it_is(path)
    except (sqlite3.Error, OSError) as error:
        raise ConfigError(f"state_dir: {path} cannot be used: {reason(error)}") from error


def _is(error: sqlite3.Error, codes: tuple[int, ...]) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in codes


def _as_it_is(path: Path) -> Database:
    """To be read at the start of a node that cannot write."""
    rest = path.with_name(f"{path.name}-wal")
    whole = not (rest.exists() and rest.stat().st_size)  # else the file lacks what stands there
    if path.exists() and path.stat().st_size and whole:
        database = Database(path, unchanged=True)
        if database.meta("version") == VERSION:
            return database
        database.close()
    database = Database(Path(":memory:"))
    database.prepare()
    return database


def open_for_writing(path: Path, log: Log) -> Database:
    """Open the file, made if missing and brought to the present version.

    Raises:
        ConfigError: it is of a later version, or a symbolic link.
        sqlite3.Error, OSError: it cannot be opened, made, or written.
    """
    if path.is_symlink():  # what it links to would get the rights of the node's own
        raise ConfigError(f"state_dir: {path} is a symbolic link; put the file itself there")
    database = Database(path)
    try:
        path.chmod(0o600)
        found = database.execute("PRAGMA quick_check(1)")
        if found != [(b"ok",)]:
            raise _damage(found[0][0].decode(errors="replace"))
        _prepare(database, path, log)
    except BaseException:
        database.close()
        raise
    return database


def _damage(reason: str) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError(reason)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def _prepare(database: Database, path: Path, log: Log) -> None:
    database.prepare()
    version = database.meta("version")
    if version == "1":
        _from_version_1(database, log)
    elif version not in (None, VERSION):
        raise ConfigError(
            f"state_dir: {path} is of version {version}, this node knows {VERSION}: "
            "run the node that wrote it, or move the file away to begin anew"
        )
    if version != VERSION:
        database.set_meta("version", VERSION)
    if database.execute("SELECT name FROM sqlite_master WHERE name = 'unreleased'"):
        _from_packed_identifiers(database)


def _from_version_1(database: Database, log: Log) -> None:
    """Sessions had their filters in one JSON text."""
    sessions: dict[Key, Row | None] = {}
    filters: dict[Key, Row | None] = {}
    rows = database.execute("SELECT client_id, expires_at, expiry, filters FROM sessions ORDER BY rowid")
    for client_id, expires_at, expiry, text in rows:
        try:
            key = client_id.decode()
            granted = {str(topic_filter): int(qos) for topic_filter, qos in json.loads(text).items()}
        except (ValueError, AttributeError, TypeError) as error:
            log(
                "error",
                "a session saved by an earlier version is lost",
                key=repr(client_id),
                reason=str(error),
            )
            continue
        sessions[(key,)] = (expires_at, expiry)
        filters |= {(key, topic_filter): (qos,) for topic_filter, qos in granted.items()}
    database.write({SESSIONS: sessions, SUBSCRIPTIONS: filters})
    database.set_meta("version", VERSION)
    database.execute("DROP TABLE sessions")
    log("info", "state file brought to the present version", sessions=len(sessions), version=VERSION)


def _from_packed_identifiers(database: Database) -> None:
    """Unreleased messages stood in one row for each client, two bytes each."""
    rows: dict[Key, Row | None] = {}
    for client_id, packed in database.execute("SELECT client_id, packet_ids FROM unreleased"):
        for place in range(0, len(packed) - 1, 2):
            rows[client_id.decode(errors="replace"), int.from_bytes(packed[place : place + 2], "big")] = (
                None,
            )
    database.write({UNRELEASED: rows})
    database.execute("DROP TABLE unreleased")


def _rescued(path: Path, log: Log, reason: str) -> Database:
    aside = path.with_name(f"{path.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%SZ}")
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))
    damaged = Database(aside)
    try:
        rescued = {table: damaged.salvage(table) for table in TABLES}
    finally:
        damaged.close()
    database = open_for_writing(path, log)
    rescued[META].pop(("version",), None)
    database.write(rescued)
    log(
        "error",
        "the state file was damaged; a new one has what could be read of it",
        reason=reason,
        kept_as=str(aside),
        rescued={table.name: len(rows) for table, rows in rescued.items() if table is not META},
        identity=("node_id",) in rescued[META],
    )
    return database
