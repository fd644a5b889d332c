"""The mark: what the newest segment has held, in a file of its own, for the case that its end gets lost.

A batch takes it along now and then and writes it after its entries, so that the mark is never ahead of these.
It is not synced, because an older one tells less and nothing wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple
from zlib import crc32

from ildm.state.spool.batch import write_all
from ildm.state.spool.disk import Disk, File
from ildm.state.spool.records import PREFIX, Body, DamageError
from ildm.state.spool.segments import MARK

_MAGIC = b"M1"
_HEAD = struct.Struct("<8sQIQQI")
_SHARE = struct.Struct("<IQI")
_MOST = 1 << 24
"""Bytes that are read of it."""


class Share(NamedTuple):
    """What a consumer had not freed of the segment."""

    number: int
    name: str
    messages: int


class Mark(NamedTuple):
    key: bytes
    """Of the spool."""
    segment: int
    epoch: int
    """Of the incarnation that has written it."""
    end: int
    """Bytes of the segment."""
    last: int
    """Highest LSN in it."""
    shares: Sequence[Share]


def encode_mark(mark: Mark) -> bytes:
    """The whole file, with its checksum."""
    parts = [_MAGIC, _HEAD.pack(*mark[:-1], len(mark.shares))]
    for share in mark.shares:
        name = share.name.encode()
        parts += [_SHARE.pack(share.number, share.messages, len(name)), name]
    body = b"".join(parts)
    return PREFIX.pack(len(body), crc32(body)) + body


def decode_mark(data: bytes) -> Mark:
    """The mark in a file, the rest of which may be of a longer one before.

    Raises:
        DamageError: there is none.
    """
    if len(data) < PREFIX.size:
        raise DamageError("it is too short")
    length, check = PREFIX.unpack_from(data)
    entry = data[PREFIX.size : PREFIX.size + length]
    if not entry.startswith(_MAGIC) or len(entry) < length or crc32(entry) != check:
        raise DamageError("its checksum is not that of its bytes")
    body = Body(entry)
    key, segment, epoch, end, last, count = body.take(_HEAD)
    shares = []
    for _ in range(count):
        number, messages, size = body.take(_SHARE)
        try:
            shares.append(Share(number, body.raw(size).decode(), messages))
        except UnicodeError as error:
            raise DamageError(str(error)) from error
    return Mark(key, segment, epoch, end, last, shares)


def read_mark(disk: Disk) -> Mark | None:
    """The mark on a disk; None: there is none.

    Raises:
        OSError: it cannot be read.
        DamageError: it is not whole.
    """
    try:
        file = disk.open(MARK)
    except FileNotFoundError:
        return None
    try:
        return decode_mark(file.read(0, min(file.size(), _MOST)))
    finally:
        file.close()


class Marker:
    """Writes the mark, in whichever thread carries out a batch."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._file: File | None = None

    def write(self, data: bytes) -> None:
        """Put a mark in the place of the one before.

        Raises:
            OSError: it cannot be written. Then there is none, for the former one would not hold any more.
        """
        try:
            if self._file is None:
                self._file = self._disk.create(MARK, len(data))
            write_all(self._file, 0, data)
        except OSError:
            self.remove()
            raise

    def remove(self) -> None:
        self.close()
        with suppress(OSError):
            self._disk.remove(MARK)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
