"""Rows that ask for ranges of the same attributes, none of which excludes much by itself, searched together.

Each attribute is cut into slabs at the bounds of the rows. A slab has a bit for each row that has something
of it, and another for each row that has the whole of it. A message lies in one slab of each attribute. Rows
that have something of all these slabs may match the message. Rows that have the whole of them do.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Generic, NamedTuple, Protocol, TypeVar

__all__ = ["BitTable", "Placed"]


class Placed(Protocol):
    """A row of a table.

    Attributes:
        ranges: (attribute, least, greatest number), of the same attributes in all rows of a table.
        place: where it is in the table, which alone looks at it.
    """

    place: tuple[object, int] | None

    @property
    def ranges(self) -> tuple[tuple[str, float, float], ...]: ...


Row = TypeVar("Row", bound=Placed)

SLABS = 64
YOUNG = 128
"""Rows that are looked at one by one before they become a block."""
BLOCK = 4096
"""Rows of a block at most: to make one takes some milliseconds, to add a row a part of that."""
_DIGITS = bytes.maketrans(b"01", b"\x00\x01")


class _Column(NamedTuple):
    """One attribute of a block. Slab ``n`` is what is below ``edges[n]`` and not below the edge before it."""

    edges: list[float]
    some: list[int]
    """For each slab, the rows that have something of it."""
    whole: list[int]


class _Block(Generic[Row]):
    """Rows that have been sorted into slabs; one that is taken out leaves its bit behind."""

    __slots__ = ("columns", "living", "rows")

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self.living = (1 << len(rows)) - 1
        ranges = [row.ranges for row in rows]
        self.columns = [_column([each[at][1:] for each in ranges]) for at in range(len(ranges[0]))]
        for bit, row in enumerate(rows):
            row.place = self, bit

    def picked(self, bits: int) -> list[Row]:
        """The rows with these bits."""
        rows = self.rows
        if bits.bit_count() * 8 > len(rows):
            digits = format(bits, "b").encode().translate(_DIGITS)
            return list(compress(rows, reversed(digits)))
        found = []
        while bits:
            bit = bits.bit_length() - 1
            found.append(rows[bit])
            bits ^= 1 << bit
        return found

    def alive(self) -> list[Row]:
        return self.picked(self.living)

    def search(self, values: Sequence[float], sure: list[Row], unsure: list[Row]) -> None:
        some = whole = self.living
        for (edges, any_of, all_of), value in zip(self.columns, values, strict=True):
            slab = bisect_right(edges, value)
            some &= any_of[slab]
            if not some:
                return
            whole &= all_of[slab]
        if whole:
            sure += self.picked(whole)
        if some != whole:
            unsure += self.picked(some ^ whole)

    def meeting(self, bounds: Sequence[tuple[float, float] | None]) -> list[Row]:
        bits = self.living
        for (edges, any_of, _), between in zip(self.columns, bounds, strict=True):
            if between is not None:
                low, high = between
                within = 0
                for some in any_of[bisect_right(edges, low) : bisect_right(edges, high) + 1]:
                    within |= some
                bits &= within
        return self.picked(bits)


class BitTable(Generic[Row]):
    """The table. On average ``add`` and ``remove`` cost O(log BLOCK) slabs, ``search`` a bit for each row.

    Args:
        young: see :data:`YOUNG`.
        block: see :data:`BLOCK`.
    """

    __slots__ = ("_block", "_blocks", "_most_young", "_young")

    def __init__(self, young: int = YOUNG, block: int = BLOCK) -> None:
        self._most_young = young
        self._block = block
        self._young: dict[Row, None] = {}
        self._blocks: list[_Block[Row]] = []
        """Smaller ones behind larger ones, so that few are made anew often."""

    def __bool__(self) -> bool:
        """Whether there are rows."""
        return bool(self._young or self._blocks)

    def __iter__(self) -> Iterator[Row]:
        yield from self._young
        for block in self._blocks:
            yield from block.alive()

    def add(self, row: Row) -> None:
        """Enter a row."""
        row.place = None
        self._young[row] = None
        if len(self._young) < self._most_young:
            return
        rows = list(self._young)
        self._young.clear()
        while self._blocks and len(self._blocks[-1].rows) <= len(rows):
            if len(self._blocks[-1].rows) + len(rows) > self._block:
                break
            rows += self._blocks.pop().alive()
        self._blocks.append(_Block(rows))

    def remove(self, row: Row) -> None:
        """Take out a row that was entered."""
        if row.place is None:
            del self._young[row]
            return
        block, bit = row.place
        assert isinstance(block, _Block)
        block.living ^= 1 << bit
        left = block.living.bit_count()
        if 2 * left > len(block.rows):
            return
        at = self._blocks.index(block)
        if left >= self._most_young:
            self._blocks[at] = _Block(block.alive())
            return
        del self._blocks[at]
        for each in block.alive():
            self.add(each)

    def search(self, values: Sequence[float]) -> tuple[list[Row], list[Row]]:
        """The rows whose ranges hold a message's values, in the order of their ranges, and rows that may.

        Returns:
            (those that do, those that are to be looked at)
        """
        sure: list[Row] = []
        unsure = list(self._young)
        for block in self._blocks:
            block.search(values, sure, unsure)
        return sure, unsure

    def meeting(self, bounds: Sequence[tuple[float, float] | None]) -> Iterator[list[Row]]:
        """The rows that may have numbers in common with ranges in the order of theirs (None: any)."""
        yield list(self._young)
        for block in self._blocks:
            yield block.meeting(bounds)


def _column(ranges: list[tuple[float, float]]) -> _Column:
    """Slabs of one attribute, from the (least, greatest) of each row."""
    begins = [low for low, _ in ranges]
    ends = [math.nextafter(high, math.inf) for _, high in ranges]  # the first number behind it
    bounds = sorted({bound for bound in (*begins, *ends) if math.isfinite(bound)})
    step = max(1.0, len(bounds) / (SLABS - 1))
    edges = [bounds[int(at * step)] for at in range(min(len(bounds), SLABS - 1))]
    size = len(ranges) // 8 + 1
    some = [bytearray(size) for _ in range(len(edges) + 2)]
    whole = [bytearray(size) for _ in range(len(edges) + 2)]
    for number, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        byte, bit = number >> 3, 1 << (number & 7)
        first, last = bisect_right(edges, begin), bisect_left(edges, end)
        some[first][byte] ^= bit
        some[last + 1][byte] ^= bit
        if begin != -math.inf and (first == 0 or edges[first - 1] != begin):
            first += 1
        if end != math.inf and (last == len(edges) or edges[last] != end):
            last -= 1
        if first <= last:
            whole[first][byte] ^= bit
            whole[last + 1][byte] ^= bit
    return _Column(edges, _accumulated(some), _accumulated(whole))


def _accumulated(changes: list[bytearray]) -> list[int]:
    """Bits that change from slab to slab -> the bits of each slab; the last changes are behind all slabs."""
    bits = 0
    found = []
    for change in changes[:-1]:
        bits ^= int.from_bytes(change, "little")
        found.append(bits)
    return found
