"""Items in the order of numbers, for questions after all between two of them, and after ranges."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Generic, TypeVar

__all__ = ["OrderedItems"]

T = TypeVar("T")
Key = tuple[float, int]

CHUNK = 512
"""Items that are kept together; twice as many are split. It bounds what one insertion moves."""


class OrderedItems(Generic[T]):
    """Each item has a key: the number it is sorted by, and one that tells it from others with the same.

    A range has the number where it ends besides. Those are kept apart from the items, close to each other: to
    read them takes less time than to reach the items.

    ``add`` and ``remove`` cost O(log n + CHUNK), ``between`` O(log n) and what it finds.
    """

    __slots__ = ("_ends", "_items", "_keys", "_last")

    def __init__(self) -> None:
        self._keys: list[list[Key]] = []
        self._items: list[list[T]] = []
        self._ends: list[array[float]] = []
        self._last: list[Key] = []
        """The greatest key of each chunk."""

    def __len__(self) -> int:
        return sum(map(len, self._keys))

    def add(self, key: Key, item: T, end: float = math.inf) -> None:
        """Enter an item under a key that is not there yet."""
        if not self._keys:
            self._keys.append([key])
            self._items.append([item])
            self._ends.append(array("d", [end]))
            self._last.append(key)
            return
        at = min(bisect_left(self._last, key), len(self._last) - 1)
        keys, items, ends = self._keys[at], self._items[at], self._ends[at]
        place = bisect_left(keys, key)
        keys.insert(place, key)
        items.insert(place, item)
        ends.insert(place, end)
        self._last[at] = keys[-1]
        if len(keys) >= 2 * CHUNK:
            self._keys[at : at + 1] = [keys[:CHUNK], keys[CHUNK:]]
            self._items[at : at + 1] = [items[:CHUNK], items[CHUNK:]]
            self._ends[at : at + 1] = [ends[:CHUNK], ends[CHUNK:]]
            self._last.insert(at, keys[CHUNK - 1])

    def remove(self, key: Key) -> None:
        """Take out the item of a key, which is there."""
        at = bisect_left(self._last, key)
        keys = self._keys[at]
        place = bisect_left(keys, key)
        assert keys[place] == key
        del keys[place], self._items[at][place], self._ends[at][place]
        if keys:
            self._last[at] = keys[-1]
        else:
            del self._keys[at], self._items[at], self._ends[at], self._last[at]

    def between(self, low: float = -math.inf, high: float = math.inf) -> Iterator[list[T]]:
        """The items whose number is not below ``low`` and not above ``high``, in their order, in lists.

        The lists are not to be changed; there are at most as many as chunks.
        """
        for at, first, behind in self._places(low, high):
            items = self._items[at]
            yield items if behind - first == len(items) else items[first:behind]

    def meeting(self, low: float, high: float, width: float) -> Iterator[list[T]]:
        """The ranges, none wider than ``width``, that have a number from ``low`` to ``high``, likewise."""
        for at, first, behind in self._places(low - width, high):
            ends = self._ends[at][first:behind]
            yield [item for item, end in zip(self._items[at][first:behind], ends, strict=True) if end >= low]

    def _places(self, low: float, high: float) -> Iterator[tuple[int, int, int]]:
        """(chunk, first place, place behind the last)."""
        for at in range(bisect_left(self._last, (low, -1)), len(self._last)):
            keys = self._keys[at]
            if keys[0][0] > high:
                return
            first = 0 if keys[0][0] >= low else bisect_left(keys, (low, -1))
            behind = len(keys) if keys[-1][0] <= high else bisect_right(keys, (high, math.inf))
            if first < behind:
                yield at, first, behind
