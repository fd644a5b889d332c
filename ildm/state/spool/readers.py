"""Segments are read through files that are opened when they are needed; some stay open."""

from __future__ import annotations

import errno
from collections.abc import Callable

from ildm.state.spool.disk import SCARCE, Disk, File
from ildm.state.spool.segments import Segment

FILES = 64
"""Segments whose files are kept open."""
PAGE = 4096
"""When a part of a file cannot be read, the rest is, in pieces of so many bytes."""


class Readers:
    """The open files of segments.

    Args:
        busy: whether a segment is still being written, so that its file stays open.
    """

    def __init__(self, disk: Disk, busy: Callable[[Segment], bool]) -> None:
        self._disk = disk
        self._busy = busy
        self._open: dict[Segment, None] = {}
        """Those that are open, the one least recently used first."""

    def read(self, segment: Segment, offset: int, size: int) -> bytes:
        """Bytes of a segment, also of those not written yet; zeros in place of what cannot be read.

        Raises:
            OSError: descriptors or memory lack just now.
        """
        data = b""
        if offset < segment.safe:
            wanted = min(size, segment.safe - offset)
            data = read_past(self.file(segment), offset, wanted)
            data += bytes(wanted - len(data))  # the file was cut short
        if len(data) < size and segment.tail:
            begin = offset + len(data) - segment.safe
            data += b"".join(segment.tail)[begin : begin + size - len(data)]
        return data

    def file(self, segment: Segment) -> File:
        """The file of a segment, opened if it is not.

        Raises:
            OSError: descriptors or memory lack just now.
        """
        if segment.file is None:
            segment.file = self._opened(segment.name)
        self.took(segment)
        return segment.file

    def took(self, segment: Segment) -> None:
        """A segment has its file."""
        self._open.pop(segment, None)
        self._open[segment] = None
        if len(self._open) > FILES:
            self._close_one(segment)

    def close(self, segment: Segment) -> None:
        self._open.pop(segment, None)
        if segment.file is not None:
            segment.file.close()
            segment.file = None

    def _opened(self, name: str) -> File:
        while True:
            try:
                return self._disk.open(name)
            except OSError as error:
                if error.errno not in SCARCE:
                    return _NOTHING
                if not self._close_one(None):
                    raise

    def _close_one(self, kept: Segment | None) -> bool:
        for segment in self._open:
            if segment is not kept and not self._busy(segment):
                self.close(segment)
                return True
        return False


def read_past(file: File, offset: int, size: int) -> bytes:
    """Bytes of a file, zeros in place of what cannot be read.

    Raises:
        OSError: descriptors or memory lack just now.
    """
    try:
        return file.read(offset, size)
    except OSError as error:
        if error.errno in SCARCE:
            raise
    pieces = []
    for begin in range(offset, offset + size, PAGE):
        wanted = min(PAGE, offset + size - begin)
        try:
            pieces.append(file.read(begin, wanted))
        except OSError:
            pieces.append(bytes(wanted))
    return b"".join(pieces)


class _Nothing:
    """In place of a file that is gone, or cannot be opened."""

    def size(self) -> int:
        return 0

    def read(self, offset: int, size: int) -> bytes:
        return b""

    def write(self, offset: int, data: bytes) -> int:
        raise FileNotFoundError(errno.ENOENT, "gone")

    def truncate(self, size: int) -> None:
        raise FileNotFoundError(errno.ENOENT, "gone")

    def sync(self) -> None:
        raise FileNotFoundError(errno.ENOENT, "gone")

    def close(self) -> None:
        pass


_NOTHING = _Nothing()
