"""An input of the targets that read a byte stream: how it is sent, where it is cut, and what it says.

====== ======= =======================================================================================
byte 0         how the target is set up; each takes from it what it needs
byte 1         number ``n`` of cuts
``2 * n``      for each the distance from the one before, 16 bits
rest           the stream
====== ======= =======================================================================================

Every sequence of bytes is a case, and what is too short is filled up with zeros; so mutations need no care.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from ildm.mqtt import PacketType, decode_varint
from ildm.mqtt.errors import MqttError

MOST_CUTS = 16


class Case(NamedTuple):
    """See the module."""

    setup: int
    cuts: tuple[int, ...]
    """Distances from one cut to the next, in bytes; 0 and what lies beyond the end cuts nothing."""
    stream: bytes

    @classmethod
    def parse(cls, data: bytes) -> Case:
        setup, count = data[:1], data[1:2]
        end = 2 + 2 * (count[0] % (MOST_CUTS + 1) if count else 0)
        distances = data[2:end].ljust(end - 2, b"\0")
        cuts = tuple(int.from_bytes(distances[at : at + 2]) for at in range(0, end - 2, 2))
        return cls(setup[0] if setup else 0, cuts, data[end:])

    def encode(self) -> bytes:
        cuts = self.cuts[:MOST_CUTS]
        return bytes((self.setup, len(cuts))) + b"".join(cut.to_bytes(2) for cut in cuts) + self.stream

    def pieces(self, start: int = 0) -> list[bytes]:
        """The stream from ``start`` on as it is cut; without any cut frame by frame."""
        stream = self.stream[start:]
        if not self.cuts:
            return split(stream)
        borders = [0]
        for distance in self.cuts:
            border = borders[-1] + distance
            if borders[-1] < border < len(stream):
                borders.append(border)
        borders.append(len(stream))
        return [stream[a:b] for a, b in pairwise(borders) if a < b]


def split(stream: bytes) -> list[bytes]:
    """The packets of a stream by their fixed headers, whatever they are; the last may be incomplete."""
    found: list[bytes] = []
    pos, size = 0, len(stream)
    while pos < size:
        first = stream[pos + 1] if pos + 1 < size else 0x80
        if first < 0x80:  # as decode_varint, which most packets do not need
            end = pos + 2 + first
        else:
            try:
                length = decode_varint(stream, pos + 1)
            except MqttError:
                length = None
            end = size if length is None else length[1] + length[0]
        found.append(stream[pos:end])
        pos = end
    return found


def id_place(packet: bytes) -> int | None:
    """Where the packet identifier of a PUBLISH of QoS 1 or 2 is; None if it is none, or too short."""
    if not packet or packet[0] >> 4 != 3 or not packet[0] & 6:
        return None
    if len(packet) > 1 and packet[1] < 0x80:
        place = 4 + int.from_bytes(packet[2:4])
        return place if len(packet) >= 4 and place + 2 <= len(packet) else None
    try:
        length = decode_varint(packet, 1)
    except MqttError:
        return None
    if length is None or length[1] + 2 > len(packet):
        return None
    place = length[1] + 2 + int.from_bytes(packet[length[1] : length[1] + 2])
    return place if place + 2 <= len(packet) else None


def says_goodbye(stream: bytes) -> bool:
    """Whether there is a DISCONNECT in it."""
    return any(packet[0] >> 4 == PacketType.DISCONNECT for packet in split(stream))


def reuses_ids(stream: bytes) -> bool:
    """Whether two messages of QoS 1 and 2 have the same packet identifier, which a right sender does not do
    before the first is answered (MQTT-2.2.1-3)."""
    seen: set[bytes] = set()
    for packet in split(stream):
        place = id_place(packet)
        if place is not None:
            packet_id = packet[place : place + 2]
            if packet_id in seen:
                return True
            seen.add(packet_id)
    return False
