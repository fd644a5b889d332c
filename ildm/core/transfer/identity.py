"""Which messages have come already, by who they are: the numbers that each origin has given them.

Of each origin the highest number that has come is kept, and the gaps below it: numbers of messages that went
elsewhere, are late on another session, or will never come. Gaps are bounded. Those forgotten for want of
room, the oldest first, leave a *floor*: whether a message below it has come nobody knows any more. It is
taken for new, since a message that comes twice does less harm than one that never does.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import NamedTuple

from ildm.core.spool import Identity

Stretches = list[tuple[int, int]]
"""Parts of a run: the place of the first message in it, and how many."""
FORGOTTEN = 8
"""Without room one in so many of the gaps of the origin with most of them is forgotten at once."""
made = tuple.__new__
"""What the constructor of a NamedTuple comes to, without the function around it that Python interprets."""
_HEAD = struct.Struct("<HQQI")
"""Bytes of the origin's name, floor, highest number, gaps."""


class Origin(NamedTuple):
    """Who messages are that come one after the other: the identities of the first of them."""

    identity: Identity | None
    reroute_id: Identity | None

    def at(self, place: int) -> Origin:
        """The same for the one at a place among them."""
        identity, reroute_id = self
        if not place or identity is None:
            return self
        origin, number = identity
        identity = made(Identity, (origin, number + place))
        return made(Origin, (identity, reroute_id and Identity(reroute_id.origin, reroute_id.number + place)))


UNKNOWN = Origin(None, None)
"""Nobody has said who they are: they begin here."""


class Numbers:
    """Of one origin. ``starts`` and ``ends``: the gaps, in ascending order; an end is beyond its gap."""

    __slots__ = ("ends", "floor", "highest", "starts")

    def __init__(self, floor: int = 0, highest: int = 0) -> None:
        self.floor = floor
        """Of those up to here nothing is known."""
        self.highest = highest
        self.starts: list[int] = []
        self.ends: list[int] = []

    def fill(self, number: int, end: int) -> Stretches:
        """Numbers up to ``end``, the first of which is not above the highest; answers those not known to have
        come, counted from the first."""
        fresh: Stretches = []
        position = min(max(number, self.floor + 1), end)
        _add(fresh, 0, position - number)
        limit = min(end, self.highest + 1)
        gap = bisect_right(self.ends, position)
        while gap < len(self.starts) and self.starts[gap] < limit:
            first, last = max(self.starts[gap], position), min(self.ends[gap], limit)
            _add(fresh, first - number, last - first)
            before, after = (self.starts[gap], first), (last, self.ends[gap])
            left = [piece for piece in (before, after) if piece[0] < piece[1]]
            self.starts[gap : gap + 1] = [start for start, _ in left]
            self.ends[gap : gap + 1] = [stop for _, stop in left]
            position = last
            gap += len(left)
            if after in left:
                break
        if end > limit:
            _add(fresh, limit - number, end - limit)
            self.highest = end - 1
        return fresh

    def has(self, number: int) -> bool | None:
        """Whether a number has come; None: it is not known any more."""
        if number <= self.floor:
            return None
        gap = bisect_right(self.ends, number)
        return number <= self.highest and (gap == len(self.starts) or number < self.starts[gap])

    def forget(self, count: int) -> None:
        """The oldest gaps."""
        self.floor = self.ends[count - 1] - 1
        del self.starts[:count], self.ends[:count]


class Identities:
    """See the module. ``limit``: gaps and origins that are remembered."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.forgotten = 0
        """Gaps forgotten for want of room."""
        self._origins: dict[str, Numbers] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def come(self, origin: str, number: int, count: int) -> Stretches:
        """Messages have come with ``count`` consecutive numbers; answers which of them are new."""
        numbers = self._origins.get(origin)
        if numbers is None:
            numbers = self._origins[origin] = Numbers()
            self._grow(1)
        next_number = numbers.highest + 1
        if number == next_number:
            numbers.highest += count
            return [(0, count)]
        if number > next_number:
            numbers.starts.append(next_number)
            numbers.ends.append(number)
            numbers.highest = number + count - 1
            self._grow(1)
            return [(0, count)]
        before = len(numbers.starts)
        fresh = numbers.fill(number, number + count)
        self._grow(len(numbers.starts) - before)
        return fresh

    def has(self, origin: str, number: int) -> bool | None:
        """Whether a message has come; None: it is not known any more."""
        numbers = self._origins.get(origin)
        if numbers is None:
            return None if self.forgotten else False
        return numbers.has(number)

    def _grow(self, by: int) -> None:
        self._size += by
        while self._size > self.limit:
            origin, numbers = max(self._origins.items(), key=lambda item: len(item[1].starts))
            if numbers.starts:
                count = -(-len(numbers.starts) // FORGOTTEN)
                numbers.forget(count)
            else:
                count = 1
                origin = next(iter(self._origins))
                del self._origins[origin]
            self._size -= count
            self.forgotten += count

    def check(self) -> None:
        """Count all again that is counted as it changes. Raises: AssertionError, it was counted wrong."""
        size = sum(1 + len(numbers.starts) for numbers in self._origins.values())
        assert size == self._size, f"{size} gaps and origins count {self._size}"

    # what outlives the process ------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """All of it, for :meth:`restore`."""
        parts: list[bytes] = []
        for origin, numbers in self._origins.items():
            name, gaps = origin.encode(), len(numbers.starts)
            parts += (_HEAD.pack(len(name), numbers.floor, numbers.highest, gaps), name)
            parts.append(struct.pack(f"<{2 * gaps}Q", *numbers.starts, *numbers.ends))
        return b"".join(parts)

    def restore(self, snapshot: bytes) -> None:
        """Begin with what an earlier life has known."""
        position = 0
        while position < len(snapshot):
            length, floor, highest, gaps = _HEAD.unpack_from(snapshot, position)
            position += _HEAD.size
            name = snapshot[position : position + length].decode()
            position += length
            numbers = self._origins[name] = Numbers(floor, highest)
            numbers.starts = list(struct.unpack_from(f"<{gaps}Q", snapshot, position))
            numbers.ends = list(struct.unpack_from(f"<{gaps}Q", snapshot, position + 8 * gaps))
            position += 16 * gaps
            self._grow(1 + gaps)

    def came(self, identity: Identity, count: int) -> None:
        """Messages have come in an earlier life."""
        self.come(identity.origin, identity.number, count)


def _add(stretches: Stretches, first: int, count: int) -> None:
    """Add a stretch behind the others, or make the last one longer."""
    if count <= 0:
        return
    if stretches and sum(stretches[-1]) == first:
        stretches[-1] = stretches[-1][0], stretches[-1][1] + count
    else:
        stretches.append((first, count))
