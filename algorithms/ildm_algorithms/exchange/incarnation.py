"""Incarnations: each start of a node has a greater number than all before, and its messages begin with it."""

from __future__ import annotations

__all__ = ["NUMBERS", "next_incarnation"]

NUMBERS = 32
"""Binary logarithm of the numbers of one incarnation; a later one has higher numbers."""


def next_incarnation(saved: bytes, size: int, clock: int, known: int = 0) -> int:
    """The incarnation of a node that starts, greater than any that is known.

    Args:
        saved: the last incarnation as the state has it, in ``size`` bytes; other lengths count as nothing.
        clock: reading at this start; it stands in for a state that is lost.
        known: newest incarnation in the node's own messages.
    """
    before = int.from_bytes(saved) if len(saved) == size else 0
    return max(clock, before + 1, known + 1)
