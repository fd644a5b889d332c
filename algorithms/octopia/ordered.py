"""Items in the order of numbers, for questions after all between two of them."""

from __future__ import annotations

import math
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

    ``add`` and ``remove`` cost O(log n + CHUNK), ``between`` O(log n) and what it finds.
    """

    __slots__ = ("_items", "_keys", "_last", "_size")

    def __init__(self) -> None:
        self._keys: list[list[Key]] = []
        self._items: list[list[T]] = []
        self._last: list[Key] = []
        """The greatest key of each chunk."""
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, key: Key, item: T) -> None:
        """Enter an item under a key that is not there yet."""
        self._size += 1
        if not self._keys:
            self._keys.append([key])
            self._items.append([item])
            self._last.append(key)
            return
        at = min(bisect_left(self._last, key), len(self._last) - 1)
        keys, items = self._keys[at], self._items[at]
        place = bisect_left(keys, key)
        keys.insert(place, key)
        items.insert(place, item)
        self._last[at] = keys[-1]
        if len(keys) >= 2 * CHUNK:
            self._keys[at : at + 1] = [keys[:CHUNK], keys[CHUNK:]]
            self._items[at : at + 1] = [items[:CHUNK], items[CHUNK:]]
            self._last.insert(at, keys[CHUNK - 1])

    def remove(self, key: Key) -> None:
        """Take out the item of a key, which is there."""
        at = bisect_left(self._last, key)
        keys = self._keys[at]
        place = bisect_left(keys, key)
        assert keys[place] == key
        del keys[place], self._items[at][place]
        self._size -= 1
        if keys:
            self._last[at] = keys[-1]
        else:
            del self._keys[at], self._items[at], self._last[at]

    def between(self, low: float = -math.inf, high: float = math.inf) -> Iterator[list[T]]:
        """The items whose number is not below ``low`` and not above ``high``, in their order, in lists.

        The lists are not to be changed; there are at most as many as chunks.
        """
        for at in range(bisect_left(self._last, (low, -1)), len(self._last)):
            keys = self._keys[at]
            if keys[0][0] > high:
                return
            if keys[0][0] >= low and keys[-1][0] <= high:
                yield self._items[at]
                continue
            first, behind = bisect_left(keys, (low, -1)), bisect_right(keys, (high, math.inf))
            if first < behind:
                yield self._items[at][first:behind]
