"""Receipts: which messages have arrived, by origin and number, as bits.

The numbers of one origin grow by one with each message, so neighbouring numbers arrive at about the same
time. 256 numbers share a block, which is forgotten as a whole."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

__all__ = ["BLOCK_BYTES", "Receipts"]

BLOCK = 8
"""Binary logarithm of the numbers in a block."""
BLOCK_BYTES = 512
"""What a block takes at most, with the name of its origin (measured: 415 with a name of 36 characters)."""


class _Block:
    __slots__ = ("at", "bits")

    def __init__(self) -> None:
        self.bits = 0
        self.at = 0.0


class Receipts:
    """Remembers each number for ``period`` seconds, as far as ``max_bytes`` suffice."""

    def __init__(
        self, now: Callable[[], float], period: float, max_bytes: int, count: Callable[[str], None]
    ) -> None:
        self._now = now
        self._period = period
        self._most = max(1, max_bytes // BLOCK_BYTES)
        self._count = count
        self._blocks: OrderedDict[tuple[str, int], _Block] = OrderedDict()
        """The one longest without a new number first."""

    def __len__(self) -> int:
        """Blocks that are kept."""
        return len(self._blocks)

    def __contains__(self, message: tuple[str, int]) -> bool:
        """Whether a message, named by its origin and number, has come."""
        origin, number = message
        block = self._blocks.get((origin, number >> BLOCK))
        return block is not None and bool(block.bits >> (number & (1 << BLOCK) - 1) & 1)

    def add(self, origin: str, number: int) -> bool:
        """Remember a message; False: it had come before."""
        key = origin, number >> BLOCK
        bit = 1 << (number & (1 << BLOCK) - 1)
        block = self._blocks.get(key)
        if block is None:
            self._make_room()
            block = self._blocks[key] = _Block()
        elif block.bits & bit:
            return False
        else:
            self._blocks.move_to_end(key)
        block.bits |= bit
        block.at = self._now()
        return True

    def _make_room(self) -> None:
        """Forget old blocks. If there is no room, forget younger blocks too."""
        due = self._now() - self._period
        while self._blocks:
            oldest = next(iter(self._blocks))
            if self._blocks[oldest].at > due:
                if len(self._blocks) < self._most:
                    return
                self._count("seen_displaced")
            del self._blocks[oldest]
