"""The right to write a state directory, which one process has at a time."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ildm.config import ConfigError
from ildm.text import reason

NAME = "lock"
"""Of the file in the directory."""


class DirectoryLock:
    """An exclusive ``flock`` on a file of the state directory.

    The kernel gives it back when the process ends, however it ends, after the last of its threads: so whoever
    gets it next finds files that nobody writes any more. A process that ends in order gives it back itself,
    when everything is written and closed (:meth:`ildm.state.store.StateStore.close`).

    Args:
        directory: made if it is missing, readable by its owner only.

    Raises:
        ConfigError: the directory cannot be made or used.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.held = False
        """Whether this object has it."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = os.open(directory / NAME, flags, 0o600)
        except OSError as error:
            raise ConfigError(f"state_dir: {directory} cannot be used: {reason(error)}") from error

    def take(self) -> bool:
        """Take it if nobody has it; answers whether this object has it now."""
        if not self.held and self._file >= 0:
            with suppress(OSError):
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.held = True
        return self.held

    def wait(self, done: Callable[[str | None], None]) -> None:
        """Wait until nobody else has it, and take it.

        A thread of its own waits in the kernel, so that no time passes between the end of one holder and the
        beginning of the next. ``done`` is called in that thread: with None, or why there is no waiting. After
        :meth:`release` it may not be called any more, and nothing is held.
        """
        file = os.dup(self._file)  # a second name for the lock: whoever releases it may close the first one
        threading.Thread(target=self._wait, args=(file, done), name="lock", daemon=True).start()

    def _wait(self, file: int, done: Callable[[str | None], None]) -> None:
        why = None
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            why = reason(error)
        finally:
            os.close(file)  # with it goes the lock, if it was released meanwhile
        if self._file >= 0:
            self.held = why is None
            done(why)

    def release(self) -> None:
        """Let the next one have it; a second call does nothing."""
        file, self._file, self.held = self._file, -1, False
        if file >= 0:
            os.close(file)


def is_locked(directory: Path) -> bool:
    """Whether a process has the lock of a directory, as far as can be seen without making anything."""
    try:
        file = os.open(directory / NAME, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False
