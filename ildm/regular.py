"""Opening files that the configuration names: regular ones alone, and never in wait for somebody else."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def open_regular(path: Path, flags: int = os.O_RDONLY) -> int:
    """A descriptor. A FIFO in the file's place would be waited for until somebody writes to it.

    Raises:
        OSError: it cannot be opened, or is no regular file.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise OSError(errno.EINVAL, "it is no regular file")


def read_regular(path: Path) -> bytes:
    """All of a file.

    Raises:
        OSError: as :func:`open_regular`, or it cannot be read.
    """
    with os.fdopen(open_regular(path), "rb") as file:
        return file.read()
