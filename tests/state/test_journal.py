"""Rows that are in the spool's journal and not yet in the state file."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ildm.config import SpoolConfig
from ildm.core.tables import META, NEIGHBORS, SESSIONS, SUBSCRIPTIONS, TABLES, WILLS, Key, Row, Table
from ildm.state.database import Changes, Database
from ildm.state.journal import decode, encode
from ildm.state.spool import FileSpool, OsDisk
from ildm.state.store import StateStore

VALUES = st.one_of(
    st.none(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(st.characters()),
    st.binary(),
)


class MemoryJournal:
    """What a spool does with entries; ``durable`` is what a crash leaves."""

    def __init__(self, entries: list[tuple[int, bytes]] | None = None, epoch: int = 1, last: int = 0) -> None:
        self.entries = entries or []
        self.epoch = epoch
        self.last = self.durable = last
        self.failing = False

    def commit(self) -> None:
        if not self.failing:
            self.durable = self.last

    def journal(self, entry: bytes) -> int:
        self.last += 1
        self.entries.append((self.last, entry))
        return self.last

    def journaled(self, lsn: int) -> None:
        self.entries = [each for each in self.entries if each[0] > lsn]

    def replay(self) -> Iterator[tuple[int, bytes]]:
        yield from list(self.entries)

    def after_crash(self) -> MemoryJournal:
        kept = [each for each in self.entries if each[0] <= self.durable]
        return MemoryJournal(kept, self.epoch + 1, self.durable)


class Machine:
    """One state directory and its journal, through crashes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.journal = MemoryJournal()
        self.logged: list[tuple[str, dict[str, Any]]] = []
        self.stores: list[StateStore] = []

    def open(self, journaled: bool = True) -> StateStore:
        loop = asyncio.get_running_loop()
        log = lambda level, event, **fields: self.logged.append((event, fields))  # noqa: E731
        store = StateStore(self.directory, loop.call_later, loop.call_soon_threadsafe, log)
        self.stores.append(store)
        if journaled:
            store.keep_journal(self.journal)
        return store

    def crash(self) -> None:
        """Everything goes on as after kill -9: with the files as they are now, in another directory."""
        image = self.directory.with_name(self.directory.name + "'")
        shutil.copytree(self.directory, image)
        self.directory = image
        self.journal = self.journal.after_crash()


@pytest.fixture
async def machine(tmp_path: Path) -> Any:
    machine = Machine(tmp_path / "state")
    yield machine
    for store in machine.stores:
        store.close()


async def flushed(machine: Machine) -> None:
    async with asyncio.timeout(120):
        while machine.journal.entries:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)


# entries ----------------------------------------------------------------------------------------


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(TABLES), st.data())
def test_a_change_is_read_as_it_was_written(table: Table, data: st.DataObject) -> None:
    key: Key = tuple(data.draw(VALUES) for _ in table.key)
    row: Row | None = data.draw(st.none() | st.tuples(*[VALUES for _ in table.columns]))
    assert decode(encode(table, key, row)) == (table, key, row)


@given(st.binary())
def test_what_is_no_entry_is_refused(entry: bytes) -> None:
    try:
        table, key, row = decode(entry)
    except ValueError:
        return
    assert decode(encode(table, key, row)) == (table, key, row)


@given(st.data())
def test_an_entry_that_is_cut_off_is_refused(data: st.DataObject) -> None:
    entry = encode(SESSIONS, ("c",), (17.5, 60))
    with pytest.raises(ValueError):  # noqa: PT011 - whatever is missing
        decode(entry[: data.draw(st.integers(0, len(entry) - 1))])


def test_a_column_added_since_is_null() -> None:
    older = Table(WILLS.name, WILLS.key, {"frame": bytes, "delay": int})
    assert decode(encode(older, ("c",), (b"x", 3))) == (WILLS, ("c",), (b"x", 3, None))


# crashes ----------------------------------------------------------------------------------------


async def test_what_was_put_outlives_a_crash_once_it_is_durable(machine: Machine) -> None:
    store = machine.open()
    told: list[bool] = []
    store.put(SESSIONS, ("c",), (None, 60))
    store.put(SUBSCRIPTIONS, ("c", "a"), (1,))
    store.put(SUBSCRIPTIONS, ("c", "b"), (1,))
    store.put(SUBSCRIPTIONS, ("c", "a"), None)
    store.when_written(told.append)
    assert told == [True]  # at once: nobody waits for the state file
    machine.crash()
    store = machine.open()
    assert store.load(SESSIONS) == [(("c",), (None, 60))]
    assert store.load(SUBSCRIPTIONS) == [(("c", "b"), (1,))]
    assert machine.journal.entries == []


async def test_it_is_durable_without_being_asked(machine: Machine) -> None:
    store = machine.open()
    store.put(NEIGHBORS, ("far:8",), (1,))
    assert machine.journal.durable == 0
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert machine.journal.durable == 1


async def test_without_the_journal_it_counts_as_written_once_the_file_has_it(machine: Machine) -> None:
    store = machine.open()
    machine.journal.failing = True
    told: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    store.put(SESSIONS, ("c",), (None, 60))
    store.when_written(told.set_result)
    assert not told.done()
    assert await told
    machine.crash()
    assert machine.open().load(SESSIONS) == [(("c",), (None, 60))]


async def test_the_journal_is_told_what_the_file_has(machine: Machine) -> None:
    store = machine.open()
    for i in range(10):
        store.put(SUBSCRIPTIONS, ("c", f"f{i}"), (1,))
    assert len(machine.journal.entries) == 10
    await flushed(machine)
    store.put(SUBSCRIPTIONS, ("c", "f0"), None)
    machine.crash()
    assert len(machine.open().load(SUBSCRIPTIONS)) == 10  # what was not durable is lost, and nothing else


async def test_entries_that_the_file_has_are_passed_over(machine: Machine) -> None:
    """A crash between the commit of the file and the word of it to the journal."""
    store = machine.open()
    store.put(SESSIONS, ("c",), (None, 1))
    kept = list(machine.journal.entries)
    await flushed(machine)
    machine.journal.commit()
    machine.crash()
    machine.journal.entries = kept
    with sqlite3.connect(machine.directory / "state.sqlite") as file:
        file.execute("UPDATE client_sessions SET expiry = 2")
    file.close()
    assert machine.open().load(SESSIONS) == [(("c",), (None, 2))]


async def test_a_journal_begun_anew_counts_from_its_beginning(machine: Machine) -> None:
    store = machine.open()
    for i in range(20):
        store.put(SUBSCRIPTIONS, ("c", f"f{i}"), (1,))
    await flushed(machine)
    machine.crash()
    machine.journal = MemoryJournal()  # somebody has emptied its directory
    store = machine.open()
    store.put(SUBSCRIPTIONS, ("c", "new"), (1,))
    machine.journal.commit()
    machine.crash()
    assert len(machine.open().load(SUBSCRIPTIONS)) == 21


async def test_what_a_journal_held_before_a_life_without_it_is_old(machine: Machine) -> None:
    store = machine.open()
    store.put(SESSIONS, ("c",), (None, 1))
    machine.journal.commit()
    kept = list(machine.journal.entries)
    await flushed(machine)
    machine.crash()
    store = machine.open(journaled=False)
    store.put(SESSIONS, ("c",), (None, 2))
    store.close()
    machine.journal.entries = kept
    store = machine.open()
    assert store.load(SESSIONS) == [(("c",), (None, 2))]
    store.put(SESSIONS, ("c",), (None, 3))
    machine.journal.commit()
    machine.crash()
    assert machine.open().load(SESSIONS) == [(("c",), (None, 3))]


async def test_entries_nobody_understands_are_counted_and_the_others_taken(machine: Machine) -> None:
    store = machine.open()
    store.put(SESSIONS, ("c",), (None, 1))
    machine.journal.journal(b"\xff of a later version")
    store.put(SESSIONS, ("d",), (None, 1))
    machine.journal.commit()
    machine.crash()
    store = machine.open()
    assert len(store.load(SESSIONS)) == 2
    assert store.counters["state_rows_damaged"] == 1
    assert machine.logged[-1][1]["table"] == "journal"


async def test_a_file_that_cannot_be_written_at_the_start_is_made_good_in_memory(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = machine.open()
    store.put(SESSIONS, ("old",), (None, 1))
    store.put(SESSIONS, ("gone",), (None, 1))
    await flushed(machine)
    store.put(SESSIONS, ("old",), (None, 2))
    store.put(SESSIONS, ("gone",), None)
    store.put(SESSIONS, ("new",), (None, 1))
    machine.journal.commit()
    machine.crash()
    really = Database.write

    def write(self: Database, changes: Changes) -> Any:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Database, "write", write)
    monkeypatch.setattr("ildm.state.store.RETRY_DELAY", 0.01)
    store = machine.open()
    assert store.load(SESSIONS) == [(("old",), (None, 2)), (("new",), (None, 1))]
    assert len(machine.journal.entries) == 3
    monkeypatch.setattr(Database, "write", really)
    await flushed(machine)
    assert Database(store.path).load(SESSIONS)[0] == store.load(SESSIONS)


async def test_with_power_the_file_is_synced(machine: Machine) -> None:
    synced: list[Any] = []
    store = machine.open(journaled=False)
    store.keep_journal(machine.journal, synced=True)
    really = Database.write

    def write(self: Database, changes: Changes) -> Any:
        synced.append(self.execute("PRAGMA synchronous")[0][0])
        return really(self, changes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "write", write)
        store.put(META, ("k",), ("v",))
        await flushed(machine)
    assert synced == [2]


# processes --------------------------------------------------------------------------------------

PUTTING = """
import asyncio, sys, time
from pathlib import Path
from ildm.config import SpoolConfig
from ildm.core.tables import SUBSCRIPTIONS
from ildm.state.spool import FileSpool, OsDisk
from ildm.state.store import StateStore

async def main():
    loop = asyncio.get_running_loop()
    log = lambda *a, **f: None
    store = StateStore(Path(sys.argv[1]), loop.call_later, loop.call_soon_threadsafe, log)
    disk = OsDisk(Path(sys.argv[1]) / "spool", loop.call_soon_threadsafe)
    config = SpoolConfig(mode="process")
    spool = FileSpool(disk, config, wall=time.time, call_later=loop.call_later, log=log, expiry=1e9)
    store.keep_journal(spool)
    print("ready", flush=True)
    for i in range(1_000_000):
        store.put(SUBSCRIPTIONS, ("c", str(i)), (1,))
        told = []
        store.when_written(told.append)
        assert told == [True]
        print(i, flush=True)
        await asyncio.sleep(0)

asyncio.run(main())
"""


async def test_what_a_process_has_put_outlives_kill_9(tmp_path: Path) -> None:
    """Each row counts as written at once; most are in no transaction of the file by then."""
    directory = tmp_path / "state"
    process = subprocess.Popen(  # noqa: ASYNC220 - nothing else is to go on
        [sys.executable, "-c", PUTTING, str(directory)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    last = 0
    while last < 300:
        last = int(process.stdout.readline().replace(b"ready", b"0"))
    process.kill()
    last = int((process.communicate()[0].split() or [last])[-1])
    with sqlite3.connect(directory / "state.sqlite") as file:
        in_file = file.execute("SELECT count(*) FROM subscriptions").fetchone()[0]
    file.close()
    assert in_file < last
    loop = asyncio.get_running_loop()
    store = StateStore(directory, loop.call_later, loop.call_soon_threadsafe, lambda *a, **f: None)
    spool = FileSpool(
        OsDisk(directory / "spool", loop.call_soon_threadsafe),
        SpoolConfig(mode="process"),
        wall=time.time,
        call_later=loop.call_later,
        log=lambda *a, **f: None,
        expiry=1e9,
    )
    store.keep_journal(spool)
    found = [int(str(key[1])) for key, _ in store.load(SUBSCRIPTIONS)]
    assert found[: last + 1] == list(range(last + 1))
    store.close()
    spool.close()
