"""The lock of a state directory, between processes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ildm.config import ConfigError
from ildm.state.lock import DirectoryLock, is_locked
from ildm.state.store import StateStore

HOLD = """
import sys
from pathlib import Path
from ildm.state.lock import DirectoryLock
lock = DirectoryLock(Path(sys.argv[1]))
assert lock.take()
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def holder(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has the lock until it is killed or its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()


def waiting(lock: DirectoryLock) -> asyncio.Future[str | None]:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[str | None] = loop.create_future()
    lock.wait(lambda why: loop.call_soon_threadsafe(future.set_result, why))
    return future


@pytest.mark.parametrize("end", ["kill", "exit"])
async def test_whoever_waits_gets_it_when_the_holder_ends(tmp_path: Path, end: str) -> None:
    with holder(tmp_path) as process:
        lock = DirectoryLock(tmp_path)
        assert not lock.take()
        assert is_locked(tmp_path)
        done = waiting(lock)
        assert not lock.held
        if end == "kill":
            process.kill()
        else:
            assert process.stdin is not None
            process.stdin.close()
        assert await asyncio.wait_for(done, 20) is None
        assert lock.held
    lock.release()
    assert not is_locked(tmp_path)


async def test_who_gives_up_waiting_holds_nothing_afterwards(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        lock = DirectoryLock(tmp_path)
        done = waiting(lock)
        lock.release()
        process.kill()
        process.wait()
        other = DirectoryLock(tmp_path)
        assert await asyncio.wait_for(waiting(other), 20) is None
        assert not lock.held
        assert not done.done()
        other.release()


async def test_a_store_gives_back_the_lock_that_it_was_handed(tmp_path: Path) -> None:
    lock, loop = DirectoryLock(tmp_path), asyncio.get_running_loop()
    assert lock.take()
    store = StateStore(tmp_path, loop.call_later, loop.call_soon_threadsafe, lambda *_, **__: None, lock=lock)
    with pytest.raises(ConfigError, match="in use by a running node"):
        StateStore(tmp_path, loop.call_later, loop.call_soon_threadsafe, lambda *_, **__: None)
    store.set_meta("node_id", "me")
    store.close()
    assert not is_locked(tmp_path)
