"""The state directory: what survives, who may use it, and what happens when it cannot be written."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ildm.config import Address, ConfigError
from ildm.core.driver import SavedSession
from ildm.core.local.clients import NEVER
from ildm.state.store import StateStore


class Later:
    """Runs what was put off when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, Callable[[], None]]] = []
        self.failures: list[str] = []

    def call_later(self, delay: float, callback: Callable[[], None]) -> None:
        self.waiting.append((delay, callback))

    def run(self) -> None:
        waiting, self.waiting = self.waiting, []
        for _, callback in waiting:
            callback()


@pytest.fixture
def later() -> Later:
    return Later()


@pytest.fixture
def store(tmp_path: Path, later: Later) -> Iterator[StateStore]:
    made = StateStore(tmp_path / "state", later.call_later, later.failures.append)
    yield made
    made.close()


def reopened(store: StateStore, later: Later) -> StateStore:
    store.close()
    return StateStore(store.directory, later.call_later, later.failures.append)


def test_everything_survives(store: StateStore, later: Later) -> None:
    store.set_meta("node_id", "me")
    store.save_neighbor(Address("::1", 7), True)
    store.save_neighbor(Address("far", 8), True)
    store.save_neighbor(Address("far", 8), False)
    store.save_session("c", SavedSession({"a/#": 1, "ü\ufeff": 2}, 17.5, 60))
    store.save_session("forever", SavedSession({}, None, NEVER))
    store.save_session("gone", SavedSession({"x": 0}, None, NEVER))
    later.run()
    store.save_session("gone", None)
    again = reopened(store, later)
    assert again.meta("node_id") == "me"
    assert again.neighbors() == {Address("::1", 7): True, Address("far", 8): False}
    assert again.sessions() == {
        "c": SavedSession({"a/#": 1, "ü\ufeff": 2}, 17.5, 60),
        "forever": SavedSession({}, None, NEVER),
    }
    again.close()


def test_a_burst_of_changes_is_written_once_in_its_last_state(store: StateStore, later: Later) -> None:
    filters = {"a": 0}
    store.save_session("c", SavedSession(filters, None, NEVER))
    for i in range(100):
        filters[f"f{i}"] = 1
        store.save_session("c", SavedSession(filters, None, NEVER))
    assert len(later.waiting) == 1
    later.run()
    assert len(store.sessions()["c"].filters) == 101


def test_it_is_for_its_owner_only(store: StateStore) -> None:
    assert stat.S_IMODE(store.directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


def test_two_nodes_cannot_share_it(store: StateStore, later: Later) -> None:
    with pytest.raises(ConfigError, match="in use by a running node"):
        StateStore(store.directory, later.call_later, later.failures.append)


def test_a_file_that_is_no_database_is_named(tmp_path: Path, later: Later) -> None:
    (tmp_path / "state.sqlite").write_bytes(b"garbage" * 1000)
    with pytest.raises(ConfigError, match=r"state\.sqlite cannot be used"):
        StateStore(tmp_path, later.call_later, later.failures.append)


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path, later: Later) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"state_dir: .*file/state cannot be used"):
        StateStore(tmp_path / "file" / "state", later.call_later, later.failures.append)


def test_another_version_is_refused(store: StateStore, later: Later) -> None:
    store.set_meta("version", "99")
    with pytest.raises(ConfigError, match="of version 99"):
        reopened(store, later)


def test_a_full_disk_loses_nothing_and_is_tried_again(store: StateStore, later: Later) -> None:
    database = store._database
    pages = database.execute("PRAGMA page_count").fetchone()[0]
    database.execute(f"PRAGMA max_page_count = {pages}")  # what SQLite makes of a full disk
    store.save_session("c", SavedSession({f"filter/{i}": 1 for i in range(2000)}, None, NEVER))
    later.run()
    assert len(later.failures) == 1
    assert "full" in later.failures[0]
    assert store.sessions() == {}
    database.execute("PRAGMA max_page_count = 100000")
    later.run()
    assert len(store.sessions()["c"].filters) == 2000


def test_a_neighbour_that_cannot_be_saved_is_an_error(store: StateStore) -> None:
    store._database.execute("PRAGMA query_only = 1")
    with pytest.raises(ConfigError, match="cannot be written"):
        store.save_neighbor(Address("far", 8), True)


def test_sqlite_is_not_asked_to_sync_each_commit(store: StateStore) -> None:
    assert store._database.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert isinstance(store._database, sqlite3.Connection)


def test_what_cannot_be_written_at_the_end_is_said_and_given_up(store: StateStore, later: Later) -> None:
    store._database.execute("PRAGMA query_only = 1")
    store.save_session("c", SavedSession({"t": 1}, None, NEVER))
    store.close()
    assert len(later.failures) == 1
    assert later.waiting
    later.run()  # timers that were set before must not touch the closed database
    assert not later.waiting
    assert len(later.failures) == 1
    again = reopened(store, later)
    assert again.sessions() == {}
    again.close()
