"""How much one packet may hold, beside its size: what bounds the work of reading it."""

from __future__ import annotations

from typing import NamedTuple


class PacketLimits(NamedTuple):
    """Bounds that a receiver sets; the standard has none. More is an ``OverLimit``."""

    properties: int
    """User properties and subscription identifiers, the only properties that may come more than once."""
    properties_bytes: int
    """All properties of a packet, or of a will, in bytes without their length."""
    filters: int
    """Topic filters of a SUBSCRIBE or UNSUBSCRIBE, reason codes of the answer."""


LARGEST = PacketLimits(properties=2016, properties_bytes=(1 << 20) + 65_536, filters=2000)
"""What any node reads: above all that a node can be configured to take from clients and to pass on, with
room for what it adds itself. Some ten milliseconds of work."""
