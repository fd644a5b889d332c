"""What the spool needs of a disk, and the real one."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from ildm.regular import open_regular
from ildm.state.spool.segments import is_own
from ildm.state.writer import Writer

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
SCARCE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN})
"""The process lacks something just now; the file is not to blame."""
_UNSUPPORTED = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ENODEV})
CLOSE_TIMEOUT = 5.0
"""Seconds that closing waits for the thread."""


def unfit(directory: Path) -> str | None:
    """Why an existing directory is none for a spool: its files are not mixed with those of others."""
    mode = directory.lstat().st_mode
    if stat.S_ISLNK(mode):
        return "it is a symbolic link; name the directory itself"
    if not stat.S_ISDIR(mode):
        return "it is no directory"
    foreign = next((name for name in os.listdir(directory) if not is_own(name)), None)
    if foreign is not None:
        return f"it holds {foreign!r}, which is not of a spool; name a directory of its own"
    return None


class File(Protocol):
    """One open file. Every method but ``close`` may raise ``OSError``."""

    def size(self) -> int: ...

    def read(self, offset: int, size: int) -> bytes:
        """Fewer bytes at the end of the file alone."""

    def write(self, offset: int, data: bytes) -> int:
        """How many of the bytes were written: one at least, perhaps not all."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Return when what was written survives the loss of power. To be called by any thread."""

    def close(self) -> None: ...


class Disk(Protocol):
    """One directory. Methods may raise ``OSError``."""

    def names(self) -> list[str]: ...

    def create(self, name: str, size: int) -> File:
        """A new file, of zeros and with room for so many bytes; replaces one of this name."""

    def open(self, name: str) -> File: ...

    def remove(self, name: str) -> None: ...

    def rename(self, name: str, to: str) -> None: ...

    def sync_names(self) -> None:
        """Return when files made, removed and renamed survive the loss of power as such."""

    def later(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Do ``work`` beside the caller, one after the other, then call ``done`` as an event of its own.

        ``work`` does not raise.
        """

    def token(self, size: int) -> bytes:
        """So many bytes nobody can guess."""

    def close(self) -> None:
        """Wait for what :meth:`later` was given, a few seconds at most; its ``done`` may not be called."""


class OsFile:
    """Implements :class:`File` on a descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def read(self, offset: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, offset)
        while data and len(data) < size:
            more = os.pread(self._descriptor, size - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def write(self, offset: int, data: bytes) -> int:
        return os.pwrite(self._descriptor, data, offset)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with suppress(OSError):  # what matters was synced before; there is nothing to be done
                os.close(descriptor)

    __del__ = close


class OsDisk:
    """Implements :class:`Disk` in a directory, with a thread for what waits for the disk.

    Args:
        directory: made if it is missing, for its owner alone.
        call_threadsafe: runs a callback in the event loop's thread, called from another.

    Raises:
        OSError: the directory cannot be made or used, or is not the spool's own.
    """

    def __init__(self, directory: Path, call_threadsafe: Callable[[Callable[[], None]], object]) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        why = unfit(directory)
        if why is not None:
            raise NotADirectoryError(errno.ENOTDIR, why)
        self.directory = directory
        self._call_threadsafe = call_threadsafe
        self._writer: Writer | None = None
        self._closed = False

    def names(self) -> list[str]:
        return os.listdir(self.directory)

    def create(self, name: str, size: int) -> File:
        path = self.directory / name
        with suppress(FileNotFoundError):
            path.unlink()  # whatever it is, its bytes and those it links to are not written over
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.posix_fallocate(file, 0, size)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                os.close(file)
                with suppress(OSError):
                    path.unlink()
                raise
        return OsFile(file)

    def open(self, name: str) -> File:
        return OsFile(open_regular(self.directory / name, os.O_RDWR | os.O_NOFOLLOW))

    def remove(self, name: str) -> None:
        os.unlink(self.directory / name)

    def rename(self, name: str, to: str) -> None:
        os.rename(self.directory / name, self.directory / to)

    def sync_names(self) -> None:
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def later(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        if self._writer is None:
            self._writer = Writer("spool")

        def tell(future: Future[None]) -> None:
            if not self._closed:
                with suppress(RuntimeError):  # the loop has ended meanwhile, and nobody waits
                    self._call_threadsafe(done)

        self._writer.submit(work).add_done_callback(tell)

    def token(self, size: int) -> bytes:
        return secrets.token_bytes(size)

    def close(self) -> None:
        self._closed = True
        if self._writer is not None:
            self._writer.stop(CLOSE_TIMEOUT)
