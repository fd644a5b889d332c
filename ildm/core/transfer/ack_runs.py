"""Runs of PUBACK, PUBREC, PUBREL and PUBCOMP: read and written without a look at each.

Like messages (:mod:`ildm.core.frames`) acknowledgements come in runs, since a far end answers a chunk of
messages in a chunk.
"""

from __future__ import annotations

from collections.abc import Sequence

from ildm.core.frames import HIGH, LOW, alike, packet_ids
from ildm.mqtt import Version

PUBACK, PUBREC, PUBREL, PUBCOMP = 0x40, 0x50, 0x62, 0x70
"""First bytes (MQTT 5, 2.1.3)."""
ACKNOWLEDGEMENTS = bytes((PUBACK, PUBREC, PUBREL, PUBCOMP))
NO_MATCHING_SUBSCRIBERS = 0x10
"""The reason code of a message taken which nobody wanted (MQTT 5, 3.4.2.1)."""


def acknowledged_ids(
    data: bytes, pos: int, version: Version, first: int = PUBACK
) -> tuple[Sequence[int], int]:
    """The identifiers of acknowledgements with this first byte in a row from ``pos`` on, and where they end.

    Only those of one form: without reason code or, in MQTT 5, with one that means success and without
    properties (3.4.2.1, 3.4.2.2.1). Nothing, and ``pos``, when there is none of them.
    """
    if len(data) - pos < 4 or data[pos] != first:
        return (), pos
    size = data[pos + 1] + 2
    if size == 4 == len(data) - pos:  # one message at a time
        only = data[pos + 2] << 8 | data[pos + 3]
        return (range(only, only + 1), pos + 4) if only else ((), pos)
    if size == 4:
        count = alike(data, pos, 4, data[pos : pos + 2])
    elif size in (5, 6) and version is Version.V5 and len(data) - pos >= size:
        reason = data[pos + 4]
        if reason not in (0, NO_MATCHING_SUBSCRIBERS):
            return (), pos
        count = alike(data, pos, size, data[pos : pos + 2])
        for i, wanted in ((4, reason), (5, 0))[: size - 4]:
            column = data[pos + i : pos + count * size : size]
            count -= len(column.lstrip(bytes((wanted,))))
        if not count:
            return (), pos
    else:
        return (), pos
    end = pos + count * size
    ids = packet_ids(data[pos + 2 : end : size], data[pos + 3 : end : size])
    return ((), pos) if 0 in ids else (ids, end)  # 0 is malformed (MQTT-2.2.1-3)


def acknowledgements(first: int, high: bytes, low: bytes) -> bytes:
    """Packets of four bytes, whose first byte is given, with the two bytes of each identifier, joined."""
    packets = bytearray(bytes((first, 2, 0, 0)) * len(high))
    packets[2::4] = high
    packets[3::4] = low
    return bytes(packets)


def acknowledgements_of(first: int, ids: Sequence[int]) -> bytes:
    """The same of identifiers."""
    if len(ids) == 1:
        return bytes((first, 2, ids[0] >> 8, ids[0] & 0xFF))
    if isinstance(ids, range):
        return acknowledgements(first, HIGH[ids.start : ids.stop], LOW[ids.start : ids.stop])
    return acknowledgements(first, bytes([i >> 8 for i in ids]), bytes([i & 0xFF for i in ids]))
