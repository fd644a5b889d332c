"""The state directory: what survives, who may use it, and what happens when it cannot be written."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ildm.config import ConfigError
from ildm.core.tables import (
    META,
    NEIGHBORS,
    RETAINED,
    SESSIONS,
    SUBSCRIPTIONS,
    TABLES,
    UNRELEASED,
    Table,
)
from ildm.state.database import VERSION, Changes, Database
from ildm.state.store import OVERHEAD, StateStore


class Opened:
    """Opens stores in one directory, and has what they logged."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.logged: list[tuple[str, str, dict[str, Any]]] = []
        self.stores: list[StateStore] = []

    def __call__(self, **arguments: Any) -> StateStore:
        loop = asyncio.get_running_loop()
        store = StateStore(self.directory, loop.call_later, loop.call_soon_threadsafe, self.log, **arguments)
        self.stores.append(store)
        return store

    def log(self, level: str, event: str, **fields: Any) -> None:
        self.logged.append((level, event, fields))

    def events(self) -> list[str]:
        return [event for _, event, _ in self.logged]


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Opened]:
    opened = Opened(tmp_path / "state")
    yield opened
    for store in opened.stores:
        store.close()


async def written(store: StateStore) -> bool:
    """Wait until what was put is on the disk, or could not be written."""
    done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    store.when_written(done.set_result)
    return await done


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not reached():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """``full_disk(True)``: writing fails from now on, as on a full disk; ``False``: no longer."""
    really = Database.write

    def write(self: Database, changes: Changes) -> Any:
        raise sqlite3.OperationalError("database or disk is full")

    return lambda full: monkeypatch.setattr(Database, "write", write if full else really)


async def test_everything_survives(opened: Opened) -> None:
    store = opened()
    store.set_meta("node_id", "me")
    store.put(NEIGHBORS, ("[::1]:7",), (1,))
    store.put(NEIGHBORS, ("far:8",), (1,))
    store.put(NEIGHBORS, ("far:8",), (0,))
    store.put(SESSIONS, ("c",), (17.5, 60))
    store.put(SESSIONS, ("gone",), (None, 5))
    store.put(SUBSCRIPTIONS, ("c", "ü\ufeff/#"), (2,))
    store.put(RETAINED, ("b",), (b"\x00\xff", None, None))
    assert await written(store)
    store.put(RETAINED, ("a",), (b"", 1.0, None))
    store.put(RETAINED, ("b",), (b"new", None, None))
    store.put(SESSIONS, ("gone",), None)
    store.close()
    again = opened()
    assert again.meta("node_id") == "me"
    assert again.load(NEIGHBORS) == [(("[::1]:7",), (1,)), (("far:8",), (0,))]
    assert again.load(SESSIONS) == [(("c",), (17.5, 60))]
    assert again.load(SUBSCRIPTIONS) == [(("c", "ü\ufeff/#"), (2,))]
    by_last_change = [(("a",), (b"", 1.0, None)), (("b",), (b"new", None, None))]
    assert again.load(RETAINED) == by_last_change


async def test_a_burst_of_changes_is_one_transaction_of_last_states(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions: list[dict[Table, Any]] = []
    really = Database.write

    def write(self: Database, changes: Changes) -> Any:
        transactions.append({table: dict(rows) for table, rows in changes.items()})
        return really(self, changes)

    store = opened()
    monkeypatch.setattr(Database, "write", write)
    for i in range(100):
        store.put(SUBSCRIPTIONS, ("c", f"f{i % 10}"), (i % 3,))
    assert store.waiting_rows == 10
    assert await written(store)
    assert [len(batch[SUBSCRIPTIONS]) for batch in transactions] == [10]
    assert store.waiting_rows == store.waiting_bytes == 0


async def test_it_is_written_without_being_asked(opened: Opened) -> None:
    store = opened()
    store.put(SESSIONS, ("c",), (None, 60))
    reader = Database(store.path)
    await until(lambda: bool(reader.load(SESSIONS)[0]))
    reader.close()


async def test_the_loop_goes_on_while_the_disk_takes_its_time(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred thousand filters are written while callbacks of the loop run in between."""
    reached, go_on = threading.Event(), threading.Event()
    really = Database.write

    def write(self: Database, changes: Changes) -> Any:
        reached.set()
        assert go_on.wait(30)
        return really(self, changes)

    store = opened()
    monkeypatch.setattr(Database, "write", write)
    for i in range(100_000):
        store.put(SUBSCRIPTIONS, ("c", f"f/{i}"), (1,))
    done = asyncio.ensure_future(written(store))
    await asyncio.to_thread(reached.wait, 30)
    store.put(SUBSCRIPTIONS, ("c", "f/0"), None)  # meanwhile somebody unsubscribes
    for _ in range(100):
        await asyncio.sleep(0)
    assert not done.done()
    assert store.waiting_rows == 100_001
    go_on.set()
    assert await done
    assert await written(store)
    store.close()
    assert len(opened().load(SUBSCRIPTIONS)) == 99_999


async def test_it_is_for_its_owner_only(opened: Opened) -> None:
    store = opened()
    assert stat.S_IMODE(store.directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["path", "lock"])
async def test_no_link_is_followed_to_a_file_of_others(opened: Opened, tmp_path: Path, name: str) -> None:
    store = opened()
    store.close()
    other = tmp_path / "other"
    other.write_text("precious")
    other.chmod(0o644)
    own = store.path if name == "path" else store.directory / "lock"
    own.unlink()
    own.symlink_to(other)
    with pytest.raises(ConfigError, match=r"state_dir: .*symbolic link"):
        opened()
    assert stat.S_IMODE(other.stat().st_mode) == 0o644
    assert other.read_text() == "precious"


async def test_two_nodes_cannot_share_it(opened: Opened) -> None:
    opened()
    with pytest.raises(ConfigError, match="in use by a running node"):
        opened()


async def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"state_dir: .*file/state cannot be used"):
        Opened(tmp_path / "file" / "state")()


async def test_a_later_version_is_refused_and_said_what_to_do(opened: Opened) -> None:
    store = opened()
    store.set_meta("version", "99")
    store.close()
    with pytest.raises(ConfigError, match=r"of version 99.*move the file away"):
        opened()


# what cannot be written ------------------------------------------------------------------------


async def test_a_full_disk_loses_nothing_and_is_tried_again(
    opened: Opened, full_disk: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ildm.state.store.RETRY_DELAY", 0.01)
    store = opened()
    full_disk(True)
    for i in range(2000):
        store.put(SUBSCRIPTIONS, ("c", f"filter/{i}"), (1,))
    assert not await written(store)
    assert store.failure == "database or disk is full"
    store.put(SUBSCRIPTIONS, ("c", "filter/7"), None)  # what has changed since is not undone
    store.put(SUBSCRIPTIONS, ("c", "filter/8"), (2,))
    assert not await written(store)
    assert store.waiting_rows == 2000
    assert store.waiting_bytes < 2000 * (OVERHEAD + 20)
    full_disk(False)
    await until(lambda: store.failure is None)  # without being asked
    assert store.waiting_rows == store.waiting_bytes == 0
    assert store.counters["state_write_failures"] >= 2
    assert [event for event in opened.events() if "not saved" in event] == ["state not saved, will try again"]
    assert opened.events()[-1] == "state saved again"
    store.close()
    rows = dict(opened().load(SUBSCRIPTIONS))
    assert len(rows) == 1999
    assert rows["c", "filter/8"] == (2,)


async def test_what_waits_is_bounded_and_said(opened: Opened, full_disk: Callable[[bool], None]) -> None:
    store = opened(limit=100 * (OVERHEAD + 10))
    full_disk(True)
    for i in range(1000):
        store.put(RETAINED, (f"topic/{i:04}",), (b"", None, None))
    assert not await written(store)
    assert store.waiting_rows == 100
    assert store.waiting_bytes <= store.limit
    assert store.counters["state_rows_dropped"] == 900
    assert opened.events().count("state is lost to a restart: too much waits to be written") == 1
    store.put(RETAINED, ("topic/0001",), (b"", 1.0, None))  # one that waits may change
    assert store.counters["state_rows_dropped"] == 900
    full_disk(False)
    assert await written(store)
    store.put(RETAINED, ("topic/0999",), (b"", None, None))
    assert await written(store)
    store.close()
    assert len(opened().load(RETAINED)) == 101


async def test_what_cannot_be_written_at_the_end_is_said(
    opened: Opened, full_disk: Callable[[bool], None]
) -> None:
    store = opened()
    full_disk(True)
    store.put(SESSIONS, ("c",), (None, 60))
    store.close()
    assert opened.logged[-1] == (
        "error",
        "state not saved at the end",
        {"rows": 1, "reason": "database or disk is full"},
    )
    full_disk(False)
    await asyncio.sleep(0.15)  # timers that were set before must not touch the closed file
    assert opened().load(SESSIONS) == []


async def test_closing_does_not_wait_for_a_disk_that_hangs(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ildm.state.store.CLOSE_TIMEOUT", 0.01)
    hanging = threading.Event()
    really = Database.write

    def write(self: Database, changes: Changes) -> Any:
        hanging.wait(30)
        return really(self, changes)

    store = opened()
    monkeypatch.setattr(Database, "write", write)
    store.put(SESSIONS, ("c",), (None, 60))
    store.close()
    assert opened.logged[-1][1:] == ("state not saved at the end", {"rows": 1, "reason": "no answer"})
    hanging.set()


async def test_a_row_no_file_can_take_does_not_hold_up_the_others(opened: Opened) -> None:
    store = opened()
    store.put(SUBSCRIPTIONS, ("c", "good"), (1,))
    store.put(SUBSCRIPTIONS, ("c", "huge"), (1 << 80,))
    store.put(SUBSCRIPTIONS, ("c", "also good"), (1,))
    assert await written(store)
    assert store.counters["state_rows_refused"] == 1
    assert store.waiting_rows == 0
    assert [key for key, _ in store.load(SUBSCRIPTIONS)] == [("c", "good"), ("c", "also good")]


# what is damaged -------------------------------------------------------------------------------


async def test_damaged_rows_are_set_aside_and_the_others_are_there(opened: Opened) -> None:
    store = opened()
    for name in "abcd":
        store.put(SESSIONS, (name,), (None, 60))
        store.put(SUBSCRIPTIONS, (name, "t"), (1,))
    store.close()
    with sqlite3.connect(store.path) as database:
        database.execute("UPDATE client_sessions SET expiry = 'soon' WHERE client_id = 'a'")
        database.execute("UPDATE client_sessions SET client_id = CAST(x'ff' AS TEXT) WHERE client_id = 'b'")
        database.execute("UPDATE client_sessions SET expiry = NULL WHERE client_id = 'c'")
    database.close()
    store = opened()
    assert store.load(SESSIONS) == [(("d",), (None, 60))]
    assert store.counters["state_rows_damaged"] == 3
    assert [fields["key"] for level, _, fields in opened.logged if level == "error"] == [
        "(b'a',)",
        "(b'\\xff',)",
        "(b'c',)",
    ]
    store.set_aside(SUBSCRIPTIONS, ("a", "t"), "its owner does not like it")
    store.close()
    store = opened()
    assert len(store.load(SESSIONS)) == 1
    assert len(store.load(SUBSCRIPTIONS)) == 3
    assert store.counters == {}
    with sqlite3.connect(store.path) as database:
        kept = database.execute("SELECT of_table, reason FROM damaged").fetchall()
    database.close()
    assert len(kept) == 4
    assert kept[3] == ("subscriptions", "its owner does not like it")


async def test_a_file_that_is_no_database_is_kept_and_a_new_one_begun(opened: Opened) -> None:
    opened.directory.mkdir()
    (opened.directory / "state.sqlite").write_bytes(b"garbage" * 1000)
    store = opened()
    assert all(not store.load(table) for table in TABLES if table is not META)
    level, event, fields = opened.logged[0]
    assert (level, event) == ("error", "the state file was damaged; a new one has what could be read of it")
    with open(fields["kept_as"], "rb") as kept:  # noqa: ASYNC230
        assert kept.read() == b"garbage" * 1000
    store.put(SESSIONS, ("c",), (None, 60))
    assert await written(store)


async def test_what_can_be_read_of_a_damaged_file_is_rescued(opened: Opened) -> None:
    """A stretch in the middle of the file is overwritten: identity and ends of the tables are there."""
    store = opened()
    store.set_meta("node_id", "me")
    for i in range(5000):
        store.put(SUBSCRIPTIONS, ("c", f"{i:05}" + "x" * 100), (1,))
    store.close()
    raw = bytearray(store.path.read_bytes())
    begin, end = (len(raw) * part // 10 // 4096 * 4096 for part in (5, 6))
    raw[begin:end] = b"\xee" * (end - begin)
    store.path.write_bytes(raw)
    store = opened()
    assert store.meta("node_id") == "me"
    assert store.meta("version") == VERSION
    rescued = store.load(SUBSCRIPTIONS)
    assert 1000 < len(rescued) < 5000
    assert [key[1] for key, _ in rescued] == sorted(key[1] for key, _ in rescued)
    fields = opened.logged[0][2]
    assert fields["rescued"]["subscriptions"] == len(rescued)
    assert fields["identity"]


async def test_sessions_of_version_1_are_taken_over(opened: Opened) -> None:
    opened.directory.mkdir()
    with sqlite3.connect(opened.directory / "state.sqlite") as database:
        database.executescript(
            """
            CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
            CREATE TABLE neighbors (address TEXT PRIMARY KEY, wanted INTEGER NOT NULL);
            CREATE TABLE retained (topic TEXT PRIMARY KEY, frame BLOB NOT NULL, expires_at REAL);
            CREATE TABLE sessions (client_id TEXT PRIMARY KEY, expires_at REAL, expiry INTEGER NOT NULL,
                filters TEXT NOT NULL);
            INSERT INTO meta VALUES ('version', '1'), ('node_id', 'me');
            INSERT INTO neighbors VALUES ('far:8', 1);
            INSERT INTO retained VALUES ('t', x'3003', NULL);
            INSERT INTO sessions VALUES ('c', 17.5, 60, '{"a/#": 1, "b": 2}'), ('d', NULL, 7, 'not JSON');
            """
        )
    database.close()
    for _ in range(2):
        store = opened()
        assert store.meta("node_id") == "me"
        assert store.meta("version") == VERSION
        assert store.load(NEIGHBORS) == [(("far:8",), (1,))]
        assert store.load(RETAINED) == [(("t",), (b"\x30\x03", None, None))]
        assert store.load(SESSIONS) == [(("c",), (17.5, 60))]
        assert store.load(SUBSCRIPTIONS) == [(("c", "a/#"), (1,)), (("c", "b"), (2,))]
        store.close()
    assert opened.events() == [
        "a session saved by an earlier version is lost",
        "state file brought to the present version",
    ]


async def test_identifiers_of_unreleased_messages_are_taken_over(opened: Opened) -> None:
    """They stood in one row for each client."""
    opened().close()
    with sqlite3.connect(opened.directory / "state.sqlite") as database:
        database.executescript(
            """
            CREATE TABLE unreleased (client_id TEXT PRIMARY KEY, packet_ids BLOB);
            INSERT INTO unreleased VALUES ('c', x'0001ffff'), ('d', x'000703');
            """
        )
    database.close()
    for _ in range(2):
        store = opened()
        assert [key for key, _ in store.load(UNRELEASED)] == [("c", 1), ("c", 65535), ("d", 7)]
        store.close()


async def test_a_column_added_later_is_null_in_older_rows(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened()
    store.put(SESSIONS, ("c",), (None, 60))
    store.close()
    later = Table(SESSIONS.name, SESSIONS.key, {**SESSIONS.columns, "note": str | None})
    monkeypatch.setattr("ildm.state.database.TABLES", (META, later))
    store = opened()
    assert store.load(later) == [(("c",), (None, 60, None))]
    store.put(later, ("d",), (None, 60, "ü"))
    assert await written(store)
    assert store.load(later)[1] == (("d",), (None, 60, "ü"))


# processes -------------------------------------------------------------------------------------

WRITING = """
import asyncio, sys
from pathlib import Path
from ildm.core.tables import SUBSCRIPTIONS
from ildm.state.store import StateStore

async def main():
    loop = asyncio.get_running_loop()
    store = StateStore(Path(sys.argv[1]), loop.call_later, loop.call_soon_threadsafe, lambda *a, **f: None)
    for i in range(1_000_000):
        store.put(SUBSCRIPTIONS, ("c", str(i)), (1,))
        done = loop.create_future()
        store.when_written(done.set_result)
        assert await done
        print(i, flush=True)

asyncio.run(main())
"""


async def test_what_was_written_outlives_kill_9(opened: Opened) -> None:
    process = subprocess.Popen(  # noqa: ASYNC220 - nothing else is to go on
        [sys.executable, "-c", WRITING, str(opened.directory)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    for _ in range(50):
        process.stdout.readline()
    process.kill()
    said = process.communicate()[0].split()
    last = int(said[-1]) if said else 49
    found = [int(str(key[1])) for key, _ in opened().load(SUBSCRIPTIONS)]
    assert found[: last + 1] == list(range(last + 1))
    assert opened.events() == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    mounted = tmp_path / "disk"
    mounted.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mounted)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a file system is not allowed")
    yield mounted
    subprocess.run(["umount", "-l", str(mounted)], check=True)


def fill(disk: Path) -> Path:
    """A file that takes all the space."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096):
            pass
    return filler


@pytest.mark.parametrize("before", [True, False])
async def test_a_node_starts_on_a_full_disk(
    before: bool, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what it has saved before, if anything; what it saves from then on is written when it can be."""
    monkeypatch.setattr("ildm.state.store.RETRY_DELAY", 0.02)
    opened = Opened(small_disk / "state")
    if before:
        store = opened()
        store.put(SUBSCRIPTIONS, ("c", "before"), (1,))
        store.close()
    else:
        opened.directory.mkdir()
        (opened.directory / "lock").touch()
    filler = fill(small_disk)
    store = opened()
    assert opened.events() == ["the state file cannot be written; the node starts all the same"]
    assert [key for key, _ in store.load(SUBSCRIPTIONS)] == [("c", "before")] * before
    store.set_meta("node_id", "me")
    store.put(SUBSCRIPTIONS, ("c", "since"), (1,))
    assert not await written(store)
    filler.unlink()
    await until(lambda: store.failure is None)
    store.close()
    store = opened()
    assert [key[1] for key, _ in store.load(SUBSCRIPTIONS)] == ["before"] * before + ["since"]
    assert store.meta("node_id") == "me"
    store.close()


async def test_a_real_disk_that_is_full(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ildm.state.store.RETRY_DELAY", 0.02)
    opened = Opened(small_disk / "state")
    store = opened()
    filler = fill(small_disk)
    for i in range(1000):
        store.put(SUBSCRIPTIONS, ("c", f"{i:05}" + "x" * 100), (1,))
    assert not await written(store)
    assert store.waiting_rows == 1000
    filler.unlink()
    await until(lambda: store.failure is None)  # without being asked
    store.close()
    again = opened()
    assert len(again.load(SUBSCRIPTIONS)) == 1000
    again.close()


async def test_after_the_end_nothing_more_is_taken_and_who_waits_is_told(opened: Opened) -> None:
    store = opened()
    told: list[bool] = []
    store.put(SESSIONS, ("before",), (None, 60))
    store.when_written(told.append)
    finish = store.end()
    store.put(SESSIONS, ("after",), (None, 60))
    store.when_written(told.append)
    assert told == [False, False]
    assert store.counters["state_rows_dropped"] == 1
    await asyncio.to_thread(finish)
    assert opened().load(SESSIONS) == [(("before",), (None, 60))]
