"""What has become of a consumer's records, found from the newest segment to the oldest."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque


class Fate:
    """What is known of a consumer, more of it with every older segment."""

    def __init__(self) -> None:
        self.known = False
        """A newer segment has said everything before it."""
        self.floor = 0
        self.cursor = 0
        self.passed: list[tuple[int, int]] = []
        self.kept: dict[int, int] = {}
        self.freed: dict[int, int] = {}
        """LSN from the floor on: places, one bit each."""
        self.notes: dict[int, dict[int, int]] = {}
        """LSN: place and value."""
        # what comes out of it
        self.first = 0
        """LSN of the oldest record it has not done with, as far as was looked."""
        self.oldest: float | None = None
        """Unix time at which that was written."""
        self.newest = 0
        self.gaps: deque[list[int]] = deque()
        """First and last LSN of its records that are done with, from the first on."""
        self.gap: list[int] | None = None
        """The one that is not known to have anything before it."""
        self.partial: dict[int, int] = {}
        self.marked: dict[int, dict[int, int]] = {}
        self._limit = 1024

    def free(self, floor: int, ranges: list[tuple[int, int, int]]) -> None:
        self.floor = max(self.floor, floor)
        freed = self.freed
        for lsn, first, count in ranges:
            if lsn >= self.floor:
                freed[lsn] = freed.get(lsn, 0) | ((1 << count) - 1) << first
        if len(freed) > self._limit:
            self.freed = {lsn: places for lsn, places in freed.items() if lsn >= self.floor}
            self._limit = 2 * len(self.freed) + 1024

    def of(self, lsn: int, messages: int) -> int | None:
        """The places of a record that are freed; None: all."""
        if lsn < self.floor:
            return None
        kept = self.kept.get(lsn)
        freed = self.freed.get(lsn, 0) | (kept or 0)
        if freed.bit_count() >= messages:
            return None
        if kept is None and (lsn < self.cursor or self._is_passed(lsn)):
            return None
        return freed

    @property
    def lowest(self) -> int:
        """There is nothing it has not done with before this LSN."""
        return max(self.floor, min([self.cursor, *self.kept]))

    def _is_passed(self, lsn: int) -> bool:
        before = bisect_right(self.passed, (lsn, 1 << 64)) - 1
        return before >= 0 and lsn <= self.passed[before][1]

    def uniform(self, first: int, last: int) -> bool | None:
        """Whether all records from one LSN to another are done with (True), or nothing of them (False); None:
        that is to be asked of each."""
        if last < self.floor:
            return True
        if self.floor > first or not all(
            lsn < first or lsn > last for known in (self.kept, self.freed, self.notes) for lsn in known
        ):
            return None
        if last < self.cursor:
            return True
        before = bisect_right(self.passed, (last, 1 << 64)) - 1
        if first < self.cursor or (before >= 0 and self.passed[before][1] >= first):
            return None
        return False

    def meet_all(self, done: bool, first: int, last: int, written: float) -> None:
        """All its records between two LSNs, older than all before, of which :meth:`uniform` has said what has
        become; ``written``: the oldest of them."""
        self.newest = self.newest or last
        if done:
            if self.gap is None:
                self.gap = [first, last]
            else:
                self.gap[0] = first
            return
        if self.gap is not None:
            self.gaps.appendleft(self.gap)
            self.gap = None
        self.first, self.oldest = first, written

    def meet(self, lsn: int, messages: int, written: float) -> int:
        """A record for it, older than all before; answers how many messages of it are left."""
        self.newest = self.newest or lsn
        freed = self.of(lsn, messages)
        if freed is None:
            if self.gap is None:
                self.gap = [lsn, lsn]
            else:
                self.gap[0] = lsn
            return 0
        if self.gap is not None:
            self.gaps.appendleft(self.gap)
            self.gap = None
        self.first, self.oldest = lsn, written
        if freed:
            self.partial[lsn] = freed
        if lsn in self.notes:
            notes = self.notes[lsn]
            self.marked[lsn] = {place: value for place, value in notes.items() if not freed >> place & 1}
        return messages - freed.bit_count()
