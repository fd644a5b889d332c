"""Numbers of messages that a link has let go, told to the neighbour so that it does not wait for them.

A neighbour remembers which numbers of an origin have not come (:mod:`ildm.core.transfer.identity`), and its
memory is bounded. A number that never comes would stay there for ever. So a PUBLISH of QoS 0 to
``$ildm/skipped`` names such numbers, where both ends have the feature ``skipped``. Its payload::

    stretches u16 | stretches x (first u64, count u32) | origin

Integers are big-endian, the name is UTF-8. A stretch is of one incarnation of the origin. The packet goes out
when all is durable that has been taken by then, since the newer messages are among that.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ildm.core.transfer.share import Share
from ildm.mqtt import MalformedPacket, Publish, Version

if TYPE_CHECKING:
    from collections.abc import Collection

    from ildm.core.counters import Counters
    from ildm.core.transfer.queue import Entry

SKIPPED = "$ildm/skipped"
FEATURE = "skipped"
MOST = 4096
"""Stretches that wait to be told."""
TOLD_AT_ONCE: Final = 256
"""Stretches of a packet."""
MOST_ORIGIN: Final = 1024
"""Bytes of an origin's name."""
_HEAD = struct.Struct(">H")
_STRETCH = struct.Struct(">QI")
_MOST_COUNT: Final = (1 << 32) - 1


class Skipped:
    """Of one link: what the neighbour is to be told."""

    __slots__ = ("_count", "_counters", "_stretches", "_tells")

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._stretches: dict[str, list[tuple[int, int]]] = {}
        self._count = 0
        self._tells = True

    def connected(self, features: Collection[str]) -> None:
        """The neighbour has these features."""
        self._tells = FEATURE in features
        if not self._tells:
            self._clear()

    def _clear(self) -> None:
        self._stretches = {}
        self._count = 0

    def add(self, entry: Entry, count: int) -> None:
        """The first messages of an entry are let go."""
        share = entry.receipt
        if not self._tells or not isinstance(share, Share) or share.identity is None:
            return
        origin, number = share.identity
        number += entry.whole.first_id - 1 + entry.first
        stretches = self._stretches.get(origin)
        if stretches:
            first, before = stretches[-1]
            if first + before == number and before + count <= _MOST_COUNT:
                stretches[-1] = first, before + count
                return
        if self._count >= MOST:
            self._counters["link_skipped_untold"] += count
            return
        self._count += 1
        if stretches is None:
            self._stretches[origin] = [(number, count)]
        else:
            stretches.append((number, count))

    def tell(self, write: Callable[[bytes], None]) -> None:
        """Tell the neighbour all, if there is anything."""
        if not self._count:
            return
        found = self._stretches
        self._clear()
        for origin, stretches in found.items():
            for begin in range(0, len(stretches), TOLD_AT_ONCE):
                payload = encoded(origin, stretches[begin : begin + TOLD_AT_ONCE])
                write(Publish(topic=SKIPPED, payload=payload).encode(Version.V5))


def encoded(origin: str, stretches: list[tuple[int, int]]) -> bytes:
    """The payload."""
    parts = [_STRETCH.pack(first, count) for first, count in stretches]
    return _HEAD.pack(len(parts)) + b"".join(parts) + origin.encode()


def decoded(payload: bytes) -> tuple[str, list[tuple[int, int]]]:
    """The origin, and the stretches: first number and count. Raises: MalformedPacket."""
    try:
        (number,) = _HEAD.unpack_from(payload)
        if not 0 < number <= TOLD_AT_ONCE:
            raise _malformed(f"{number} stretches")
        end = _HEAD.size + number * _STRETCH.size
        stretches = [_STRETCH.unpack_from(payload, at) for at in range(_HEAD.size, end, _STRETCH.size)]
        origin = payload[end:].decode()
    except (struct.error, UnicodeDecodeError):
        raise _malformed("it is cut, or its origin is not UTF-8") from None
    if not 0 < len(origin.encode()) <= MOST_ORIGIN:
        raise _malformed(f"an origin of {len(payload) - end} bytes")
    for first, count in stretches:
        if not first or not count or first >> 32 != (first + count - 1) >> 32:
            raise _malformed(f"{count} numbers from {first} on")
    return origin, [(first, count) for first, count in stretches]


def _malformed(why: str) -> MalformedPacket:
    return MalformedPacket(f"malformed message about numbers that are skipped: {why}", clause="MQTT-4.13")
