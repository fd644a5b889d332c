"""Who owns a state directory: a word of the owner each moment, and the end of an owner that is silent.

The lock of the directory (:mod:`ildm.state.lock`) alone says who may write there. A process that stands still
keeps it, and would go on writing when it wakes. So nobody takes it over from a process that lives: the
process is ended with SIGKILL first, which a stopped one cannot put off. The kernel frees the lock when the
last of its threads is gone.

The file ``owner`` has the word, and a record lock of the owner (fcntl), by which the kernel names its process
in the numbers of whoever asks. So neither a number that was used again nor one of another container is taken
for the owner's.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ildm.core.pair.word import SIZE, WORDS, Word
from ildm.state.lock import DirectoryLock
from ildm.text import reason

NAME = "owner"
"""Of the file in the state directory."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
UNKNOWN = "unknown"
_FLOCK = "hhqqi0q"
"""``struct flock``: type, whence, start, length, process."""


def this_machine() -> str:
    """Names this start of this machine; two containers of one machine have the same."""
    try:
        return BOOT_ID.read_text().strip() or UNKNOWN
    except OSError:
        return UNKNOWN


class OwnerLock(DirectoryLock):
    """The lock of a member: while it is held, the member's word is said.

    A thread of its own says it, so that neither a long opening of the spool nor a busy event loop is taken
    for the end of the owner.

    Args:
        member: one of ``site.members``.
        claim_after: seconds of silence after which another member ends this process.
        log: ``log(level, event, **fields)``; called in the thread.
    """

    def __init__(self, directory: Path, member: str, claim_after: float, log: Callable[..., None]) -> None:
        super().__init__(directory)
        self.epoch = 0
        """Of the claim, once it is known; part of the next word."""
        self._member = member
        self._interval = claim_after / WORDS
        self._log = log
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def speak(self) -> None:
        """Begin with the words; to be called once, when the lock is held.

        Raises:
            OSError: the file cannot be written: nobody could tell this owner from one that stands still.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.open(self.directory / NAME, flags, 0o600)
        try:
            fcntl.fcntl(file, fcntl.F_SETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
            self._say(file, 0)
        except OSError:
            os.close(file)
            raise
        self._thread = threading.Thread(target=self._go_on, args=(file,), name="owner", daemon=True)
        self._thread.start()

    def _go_on(self, file: int) -> None:
        number, failed = 0, False
        while not self._ended.wait(self._interval):
            number += 1
            try:
                self._say(file, number)
            except OSError as error:
                if not failed:
                    self._log("error", "the owner's word cannot be written", reason=reason(error))
                failed = True
            else:
                failed = False
        os.close(file)

    def _say(self, file: int, number: int) -> None:
        os.pwrite(file, Word(self._member, self.epoch, number, this_machine()).encode(), 0)

    def release(self) -> None:
        """As of any lock. The last word is said by then: the next owner's is not written over."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        super().release()


class OwnerFile:
    """The owner as another member sees it."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME

    def word(self) -> Word | None:
        """What stands there now; None: nothing that is a word."""
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            return Word.decode(os.pread(file, SIZE, 0))
        except OSError:
            return None
        finally:
            os.close(file)

    def end(self, silent: Word | None) -> str | None:
        """End the process that has said ``silent`` last, unless it has said another word meanwhile.

        Returns:
            Why it cannot be ended from here; None: it has been, or need not be.
        """
        if silent is None:
            return "it has said no word"
        if UNKNOWN in (silent.machine, this_machine()):
            return "nobody can tell whether its process is on this machine: /proc/sys cannot be read"
        if silent.machine != this_machine():
            return f"member {silent.member} runs on another machine, or this one was started anew"
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            return f"{self._path}: {reason(error)}"
        try:
            return self._end(file, silent)
        except ProcessLookupError:
            return None
        except OSError as error:
            return f"its process cannot be ended: {reason(error)}"
        finally:
            os.close(file)

    def _end(self, file: int, silent: Word) -> str | None:
        process = _holder(file)
        if process is None:
            return "whoever has the lock says no word: it is just ending, or a node without site.members"
        if process <= 0:
            return (
                "its process is not to be seen from here: it is in another container, or on another machine"
            )
        handle = os.pidfd_open(process)
        try:
            # the number may have come to another process before the handle was there: then this one is not
            # the owner, or is the next one, which has said another word
            if _holder(file) == process and self.word() == silent:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            with suppress(OSError):
                os.close(handle)
        return None


def _holder(file: int) -> int | None:
    """Process that has the record lock, in the numbers of this one; 0 or less: it has none here."""
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, process = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else int(process)
