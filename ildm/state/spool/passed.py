"""Records of one consumer behind its cursor that are in hand or done with: intervals of LSNs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

MOST: Final = 1 << 14
"""Intervals, from which on nothing more is taken out of turn: a checkpoint has 16 bytes for each."""
FORGOTTEN: Final = 64
"""So many are removed at a time."""


class Passed:
    """In order. Between two records of an interval there is no other record of the consumer."""

    __slots__ = ("_begin", "_first", "_last")

    def __init__(self, intervals: Iterable[tuple[int, int]] = ()) -> None:
        pairs = list(intervals)
        self._first = [first for first, _ in pairs]
        self._last = [last for _, last in pairs]
        self._begin = 0
        """Place of the first that counts yet."""

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter([(self._first[at], self._last[at]) for at in range(self._begin, len(self._first))])

    @property
    def count(self) -> int:
        return len(self._first) - self._begin

    @property
    def full(self) -> bool:
        return self.count >= MOST

    def clear(self) -> None:
        self._first.clear()
        self._last.clear()
        self._begin = 0

    def append(self, lsn: int, before: int) -> None:
        """A record newer than all; ``before``: the LSN of the one before it."""
        if self._last and self._last[-1] == before:
            self._last[-1] = lsn
        else:
            self._first.append(lsn)
            self._last.append(lsn)

    def add(self, lsn: int, before: int) -> None:
        """A record that is in none; ``before``: the LSN of one that is, without another between; or 0."""
        at = bisect_right(self._first, lsn) - 1
        if before and at >= self._begin and self._first[at] <= before <= self._last[at]:
            self._last[at] = max(self._last[at], lsn)
        else:
            self._first.insert(at + 1, lsn)
            self._last.insert(at + 1, lsn)

    def join(self, lsn: int, before: int) -> None:
        """Both are in one, and there is no other record between."""
        at = bisect_right(self._first, lsn) - 1
        if at > self._begin and self._first[at] > before:
            self._last[at - 1] = self._last[at]
            del self._first[at], self._last[at]

    def has(self, lsn: int) -> bool:
        at = bisect_right(self._first, lsn, self._begin) - 1
        return at >= self._begin and lsn <= self._last[at]

    def forget_before(self, lsn: int) -> None:
        """The cursor is at this LSN."""
        begin = bisect_left(self._last, lsn, self._begin)
        if begin - self._begin and begin >= FORGOTTEN:
            del self._first[:begin], self._last[:begin]
            begin = 0
        self._begin = begin
