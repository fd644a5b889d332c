"""The owner of a state directory, its word, and its end when it stands still, between processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ildm.core.pair.word import Word
from ildm.state.lock import DirectoryLock, is_locked
from ildm.state.owner import OwnerFile, OwnerLock, this_machine

PATIENCE = 60.0
OWN = """
import sys
from pathlib import Path
from ildm.state.owner import OwnerLock
lock = OwnerLock(Path(sys.argv[1]), "a", 0.2, print)
assert lock.take()
lock.speak()
lock.epoch = 7
print("owns", flush=True)
sys.stdin.read()
lock.release()
print("released", flush=True)
sys.stdin = None
import time
time.sleep(600)
"""


@contextmanager
def owner(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """Member a, in a process that owns the directory until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWN, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "owns\n"
        yield process
    finally:
        process.kill()
        process.wait()


def heard(file: OwnerFile, after: Word | None = None) -> Word:
    """The next word but ``after``."""
    give_up = time.monotonic() + PATIENCE
    while (word := file.word()) is None or word == after:
        assert time.monotonic() < give_up
        time.sleep(0.01)
    return word


def test_the_owner_says_another_word_each_moment_and_its_epoch(tmp_path: Path) -> None:
    with owner(tmp_path):
        file = OwnerFile(tmp_path)
        first = heard(file)
        assert (first.member, first.machine) == ("a", this_machine())
        word = first
        while word.epoch != 7:
            word = heard(file, word)
        assert heard(file, word).number > first.number
    assert (tmp_path / "owner").stat().st_mode & 0o777 == 0o600


def test_an_owner_that_stands_still_is_ended_and_never_wakes(tmp_path: Path) -> None:
    with owner(tmp_path) as process:
        file = OwnerFile(tmp_path)
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(0.2)  # it may be writing a word
        word = heard(file)
        next_one = DirectoryLock(tmp_path)
        assert not next_one.take()
        assert file.end(word) is None
        assert process.wait(PATIENCE) == -signal.SIGKILL
        assert next_one.take()
        next_one.release()


def test_an_owner_that_has_said_another_word_meanwhile_is_left_alone(tmp_path: Path) -> None:
    with owner(tmp_path) as process:
        file = OwnerFile(tmp_path)
        word = heard(file)
        newer = heard(file, word)
        assert file.end(word) is None
        assert heard(file, newer) != newer
        assert process.poll() is None


def test_an_owner_of_another_machine_is_spared(tmp_path: Path) -> None:
    with owner(tmp_path) as process:
        file = OwnerFile(tmp_path)
        word = heard(file)
        said = file.end(word._replace(machine="elsewhere"))
        assert said is not None
        assert "another machine" in said
        assert process.poll() is None


def test_a_process_that_has_the_lock_and_no_record_lock_is_spared(tmp_path: Path) -> None:
    """Such as a node without members, in a directory where a member was before."""
    lock = DirectoryLock(tmp_path)
    assert lock.take()
    stale = Word("a", 1, 1, this_machine())
    (tmp_path / "owner").write_bytes(stale.encode())
    assert "says no word" in str(OwnerFile(tmp_path).end(stale))
    assert OwnerFile(tmp_path).end(None) == "it has said no word"
    lock.release()


def test_after_the_release_no_word_is_said_and_the_process_is_not_taken_for_the_owner(tmp_path: Path) -> None:
    with owner(tmp_path) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        assert process.stdout.readline() == "released\n"
        assert not is_locked(tmp_path)
        file = OwnerFile(tmp_path)
        word = file.word()
        assert word is not None
        mine = OwnerLock(tmp_path, "b", 60.0, lambda *_, **__: None)
        assert mine.take()
        mine.speak()
        assert heard(file, word).member == "b"
        time.sleep(0.5)
        now = file.word()
        assert now is not None
        assert now.member == "b"
        assert process.poll() is None
        mine.release()


@pytest.mark.parametrize("name", ["owner"])
def test_no_link_is_followed(tmp_path: Path, name: str) -> None:
    other = tmp_path / "other"
    other.write_text("precious")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / name).symlink_to(other)
    lock = OwnerLock(tmp_path / "state", "a", 1.0, lambda *_, **__: None)
    assert lock.take()
    with pytest.raises(OSError, match="symbolic"):
        lock.speak()
    lock.release()
    assert other.read_text() == "precious"
