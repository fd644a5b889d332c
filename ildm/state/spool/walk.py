"""Entries of a segment one after the other, past what is damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from zlib import crc32

from ildm.state.spool.records import KINDS, MARK, PREFIX, SMALLEST

DAMAGE = 0
"""In place of a kind: no entry can be read here, but one after it."""
TAIL = -1
"""In place of a kind: nothing can be read from here to the end."""
WINDOW = 256 << 10
EFFORT = 16
"""So many times the bytes of a segment are checked at most to find where it goes on."""

Read = Callable[[int, int], bytes]
"""``read(offset, size)``: so many bytes, fewer at the end."""
Found = tuple[int, int, int, bytes]
"""Offset, offset of the end, kind, and the entry from its mark on (empty for damage)."""


def walk(read: Read, start: int, end: int, salt: int, window: int = WINDOW) -> Iterator[Found]:
    """Every entry between two offsets. Damage is answered as one piece that begins and ends at an entry.

    A tail of zeros is the room a segment has still got, and is not answered.
    """
    data, base = b"", start  # data is what stands at base
    at = start
    size_of, header = PREFIX.unpack_from, PREFIX.size
    while at + header + SMALLEST <= end:
        place = at - base
        if len(data) - place < header:
            data, base, place = read(at, window), at, 0
            if len(data) < header:
                break
        length, check = size_of(data, place)
        stop = place + header + length
        if length < SMALLEST or at + header + length > end:
            found = None
        else:
            if stop > len(data):
                data, base, place = read(at, max(window, header + length)), at, 0
                stop = header + length
            found = data[place + header : stop]
        if found and len(found) == length and found[0] == MARK and crc32(found, salt) == check:
            following = base + stop
            yield at, following, found[1], found
            at = following
            continue
        resumed = _resume(read, at + 1, end, salt, window)
        if resumed is None:
            break
        yield at, resumed, DAMAGE, b""
        at = resumed
    if at < end and not _blank(read, at, end, window):
        yield at, end, TAIL, b""


def _resume(read: Read, start: int, end: int, salt: int, window: int) -> int | None:
    """Where the next entry that is whole begins."""
    effort = EFFORT * (end - start)
    base = start
    while base < end:
        data = read(base, window)
        if not data:
            return None
        mark = data.find(MARK, PREFIX.size)
        while mark != -1 and mark + 1 < len(data):
            place = mark - PREFIX.size
            length, check = PREFIX.unpack_from(data, place)
            if data[mark + 1] in KINDS and SMALLEST <= length <= end - base - mark:
                entry = data[mark : mark + length]
                if len(entry) < length:
                    entry = read(base + mark, length)
                effort -= length
                if crc32(entry, salt) == check and len(entry) == length:
                    return base + place
                if effort < 0:
                    return None
            mark = data.find(MARK, mark + 1)
        step = len(data) - PREFIX.size - 1  # an entry may begin in this window and have its mark in the next
        if step <= 0 or base + len(data) >= end:
            return None
        base += step
    return None


def _blank(read: Read, start: int, end: int, window: int) -> bool:
    while start < end:
        data = read(start, min(window, end - start))
        if data.count(0) != len(data):
            return False
        if not data:
            return True
        start += len(data)
    return True


def data_ends(read: Read, start: int, end: int) -> int:
    """Where the zeros at the end begin."""
    last = start
    for base in range(start, end, WINDOW):
        data = read(base, min(WINDOW, end - base)).rstrip(b"\0")
        if data:
            last = base + len(data)
    return last
