"""Named counters."""

from __future__ import annotations


class Counters(dict[str, int]):
    """Name -> count; a counter begins to exist when it is first used."""

    def __missing__(self, key: str) -> int:
        return 0
