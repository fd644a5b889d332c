"""Ranges of versions that two nodes say to each other, and the one that both have."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_WRITTEN = re.compile(r"([1-9][0-9]{0,4})-([1-9][0-9]{0,4})", re.ASCII)


class Range(NamedTuple):
    """What a node understands, written ``LOW-HIGH``."""

    low: int
    high: int

    @staticmethod
    @lru_cache(maxsize=64)
    def parse(text: str) -> Range:
        """Raises: ValueError when it is none."""
        found = _WRITTEN.fullmatch(text)
        if found is None or int(found[1]) > int(found[2]):
            raise ValueError(f"{text[:20]!r} is no range of versions")
        return Range(int(found[1]), int(found[2]))

    def agreed(self, other: Range) -> int | None:
        """The highest version in both."""
        highest = min(self.high, other.high)
        return highest if highest >= max(self.low, other.low) else None

    def __str__(self) -> str:
        return f"{self.low}-{self.high}"

    @property
    def words(self) -> str:
        """For people."""
        return f"version {self.low}" if self.low == self.high else f"versions {self.low} to {self.high}"


RANGES = 3
"""The first protocol in which nodes say which versions they have, and prove all that they have said."""
PROTOCOLS = Range(2, 3)
"""Versions of what nodes say to each other that this code has. The lowest is the last release's highest."""
FIRST = Range(1, 1)
"""Of the messages of an algorithm, where nothing is said."""
