"""Keys, ranges of keys and membership vectors of a Skip Graph (thesis 2.2.4).

A key is a plain ``bytes`` object, compared as bytes and unique in the graph. A membership vector is an
integer of 64 bits, one for each physical node. Its digits in any base are those of the fraction ``vector /
2**64``. So one vector serves graphs of every base.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ildm.api import Peer

__all__ = ["EVERYTHING", "VECTOR_BITS", "Range", "Ref", "common_digits", "prefix"]

VECTOR_BITS = 64
"""Length of a membership vector in bits."""


class Range(NamedTuple):
    """The keys from ``low`` to ``high``, ``low`` included and ``high`` not."""

    low: bytes
    high: bytes

    def __contains__(self, key: object) -> bool:
        return isinstance(key, bytes) and self.low <= key < self.high

    @property
    def empty(self) -> bool:
        """Whether no key can be in the range."""
        return self.low >= self.high

    def below(self, key: bytes) -> Range:
        """The part with the keys less than ``key``."""
        return self if key >= self.high else Range(self.low, key)

    def from_(self, key: bytes) -> Range:
        """The part with ``key`` and the keys greater than it."""
        return self if key <= self.low else Range(key, self.high)

    def beyond(self, key: bytes) -> Range:
        """The part with the keys greater than ``key``."""
        # No key lies between a key and the same key with a zero byte behind it.
        return self.from_(key + b"\0")


EVERYTHING = Range(b"", b"\xff" * 8)
"""All keys: none begins with eight bytes of 0xff."""


class Ref(NamedTuple):
    """A virtual node somewhere: its key, and the physical node that has it."""

    key: bytes
    peer: Peer
    vector: int
    """Membership vector of the physical node, 0 <= vector < 2**64."""


def prefix(vector: int, digits: int, base: int = 2) -> int:
    """The first ``digits`` digits of a membership vector in ``base`` (at least 2), as one number.

    Two nodes are in the same list of level i if their prefixes of i digits are equal.
    """
    power: int = base**digits
    return (vector * power) >> VECTOR_BITS


def common_digits(a: int, b: int, base: int = 2) -> int:
    """How many leading digits two membership vectors share: the highest level they can meet at.

    Equal vectors share as many digits as ``base`` can tell apart within 64 bits.
    """
    if base == 2:
        return VECTOR_BITS - (a ^ b).bit_length()
    limit = 1 << VECTOR_BITS
    power = base
    digits = 0
    while power <= limit and (a * power) >> VECTOR_BITS == (b * power) >> VECTOR_BITS:
        digits += 1
        power *= base
    return digits
