"""Cutting a byte stream into MQTT control packets without looking inside them (MQTT 5, 2.1).

A *frame* is one whole control packet, its original bytes, fixed header included.
"""

from __future__ import annotations

from ildm.mqtt.constants import MAX_REMAINING_LENGTH, PacketType, Version
from ildm.mqtt.errors import EncodeError, MalformedPacket, MqttError, PacketTooLarge
from ildm.mqtt.members import PACKET_TYPES

_SMALL = [bytes((n,)) for n in range(128)]
_FOLLOWED = [bytes((n | 128,)) for n in range(128)]

_FLAGS_2 = (PacketType.PUBREL, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE)

_FLAG_CLAUSES = {
    PacketType.PUBREL: "MQTT-3.6.1-1",
    PacketType.SUBSCRIBE: "MQTT-3.8.1-1",
    PacketType.UNSUBSCRIBE: "MQTT-3.10.1-1",
    PacketType.DISCONNECT: "MQTT-3.14.1-1",
    PacketType.AUTH: "MQTT-3.15.1-1",
}

_BOTH_WAYS = {
    PacketType.PUBLISH,
    PacketType.PUBACK,
    PacketType.PUBREC,
    PacketType.PUBREL,
    PacketType.PUBCOMP,
}
_FROM_CLIENT = _BOTH_WAYS | {
    PacketType.CONNECT,
    PacketType.SUBSCRIBE,
    PacketType.UNSUBSCRIBE,
    PacketType.PINGREQ,
    PacketType.DISCONNECT,
}
_FROM_SERVER = _BOTH_WAYS | {
    PacketType.CONNACK,
    PacketType.SUBACK,
    PacketType.UNSUBACK,
    PacketType.PINGRESP,
}


def decode_varint(data: bytes | bytearray | memoryview, pos: int) -> tuple[int, int] | None:
    """Read a variable byte integer (MQTT 5, 1.5.5) at ``pos``.

    Returns (value, position after it), or None when more bytes are needed. Forms longer than necessary
    are read: MQTT 3.1.1 allows them. ``decode`` refuses them in MQTT 5 (MQTT-1.5.5-1).

    Raises:
        MalformedPacket: a fifth byte would follow (section 1.5.5).
    """
    end = len(data)
    if pos >= end:
        return None
    byte = data[pos]
    pos += 1
    if byte < 128:
        return byte, pos
    value = byte & 127
    for shift in (7, 14, 21):
        if pos >= end:
            return None
        byte = data[pos]
        pos += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, pos
    raise MalformedPacket("variable byte integer of more than four bytes", clause="MQTT-1.5.5")


def encode_varint(n: int) -> bytes:
    """``n`` as a variable byte integer in the fewest bytes (MQTT-1.5.5-1).

    Raises:
        EncodeError: not within 0 to 268,435,455.
    """
    if 0 <= n < 128:
        return _SMALL[n]
    if 128 <= n < 16_384:
        return _FOLLOWED[n & 127] + _SMALL[n >> 7]
    if not 0 <= n <= MAX_REMAINING_LENGTH:
        raise EncodeError(f"{n} does not fit a variable byte integer", clause="MQTT-1.5.5")
    if n < 2_097_152:
        return bytes((n & 127 | 128, n >> 7 & 127 | 128, n >> 14))
    return bytes((n & 127 | 128, n >> 7 & 127 | 128, n >> 14 & 127 | 128, n >> 21))


def varint_size(n: int) -> int:
    """Bytes that ``encode_varint(n)`` takes."""
    return 1 if n < 128 else 2 if n < 16_384 else 3 if n < 2_097_152 else 4


def frame_length(data: bytes | bytearray | memoryview, pos: int = 0) -> int | None:
    """Length in bytes, header included, of the frame that begins at ``pos``.

    None while the fixed header is incomplete. Raises: MalformedPacket like ``decode_varint``.
    """
    length = decode_varint(data, pos + 1)
    return None if length is None else length[1] - pos + length[0]


def frame_bounds(data: bytes, pos: int) -> tuple[int, int]:
    """Where the variable header of the frame at ``pos`` begins, and where the frame ends.

    (0, 0) while the fixed header is incomplete. Raises: MalformedPacket like ``decode_varint``.
    """
    start, size = pos + 2, len(data)
    if start > size:
        return 0, 0
    remaining = data[pos + 1]
    if remaining < 128:
        return start, start + remaining
    if start < size and data[start] < 128:
        return start + 1, start + 1 + (remaining & 127 | data[start] << 7)
    length = decode_varint(data, pos + 1)
    return (0, 0) if length is None else (length[1], length[1] + length[0])


def check_first_byte(first: int, version: Version) -> PacketType:
    """The packet type a first byte stands for, in either direction.

    Raises:
        MalformedPacket: a reserved type (2.1.2) or wrong flags (MQTT-2.1.3-1 and the packet's own clause).
    """
    type = PACKET_TYPES[first >> 4]
    if type is None or (type is PacketType.AUTH and version is not Version.V5):
        raise MalformedPacket(f"reserved packet type {first >> 4}", clause="MQTT-2.1.2")
    flags = first & 15
    if type is PacketType.PUBLISH:
        qos = flags >> 1 & 3
        if qos == 3:
            raise MalformedPacket("PUBLISH with QoS 3", clause="MQTT-3.3.1-4")
        if qos == 0 and flags & 8:
            raise MalformedPacket("PUBLISH of QoS 0 with DUP", clause="MQTT-3.3.1-2")
        return type
    expected = 2 if type in _FLAGS_2 else 0
    # MQTT 3.1 (2.1) sets DUP on a repeated PUBREL, SUBSCRIBE or UNSUBSCRIBE.
    if flags == expected or (version is Version.V31 and expected and flags == 10):
        return type
    clause = _FLAG_CLAUSES.get(type, "MQTT-2.1.3-1")
    raise MalformedPacket(f"{type.name} with flags {flags:04b}", clause=clause)


def _table(types: set[PacketType], version: Version) -> bytes:
    table = bytearray(256)
    for first in range(256):
        try:
            table[first] = check_first_byte(first, version) in types
        except MalformedPacket:
            table[first] = False
    return bytes(table)


_V5_ONLY = {PacketType.AUTH, PacketType.DISCONNECT}

CLIENT_FIRST_BYTE: dict[Version, bytes] = {
    Version.V31: _table(_FROM_CLIENT, Version.V31),
    Version.V311: _table(_FROM_CLIENT, Version.V311),
    Version.V5: _table(_FROM_CLIENT | _V5_ONLY, Version.V5),
}
"""For each version 256 truth values: may a client send a packet with this first byte to a server?"""

SERVER_FIRST_BYTE: dict[Version, bytes] = {
    Version.V31: _table(_FROM_SERVER, Version.V31),
    Version.V311: _table(_FROM_SERVER, Version.V311),
    Version.V5: _table(_FROM_SERVER | _V5_ONLY, Version.V5),
}
"""For each version 256 truth values: may a server send a packet with this first byte to a client?"""


class Framer:
    """Puts the frames of one connection together from the chunks it arrives in.

    Holds at most one incomplete frame, so memory is bounded by ``max_packet_size`` bytes and a chunk.
    """

    __slots__ = ("_error", "_held", "_need", "max_packet_size")

    def __init__(self, max_packet_size: int = MAX_REMAINING_LENGTH + 5) -> None:
        self.max_packet_size = max_packet_size
        """Largest frame accepted, in bytes, fixed header included (MQTT 5, 3.1.2.11.4)."""
        self._held = bytearray()
        self._need = 2
        self._error: MqttError | None = None

    @property
    def pending(self) -> int:
        """Bytes held of a frame that is not complete."""
        return len(self._held)

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next chunk; return the frames it completed, in order, as they came.

        Raises:
            PacketTooLarge: as soon as a header announces more than ``max_packet_size`` (MQTT-3.1.2-24).
            MalformedPacket: a remaining length of more than four bytes (section 1.5.5).
                Both carry the frames that were complete before the fault in ``frames``. The stream
                cannot be resynchronised: every further call raises the same error, without frames.
        """
        if self._error is not None:
            failed = self._error
            raise type(failed)(failed.message, clause=failed.clause, reason=failed.reason)
        if self._held:
            self._held += data
            if len(self._held) < self._need:
                return []
            data = bytes(self._held)
            self._held = bytearray()
        frames: list[bytes] = []
        pos = 0
        end = len(data)
        self._need = 2
        try:
            while pos + 2 <= end:
                remaining = data[pos + 1]
                if remaining < 128:
                    next_pos = pos + 2 + remaining
                else:
                    length = decode_varint(data, pos + 1)
                    if length is None:
                        break
                    next_pos = length[1] + length[0]
                if next_pos - pos > self.max_packet_size:
                    raise PacketTooLarge(
                        f"packet of {next_pos - pos} bytes, {self.max_packet_size} allowed",
                        clause="MQTT-3.1.2-24",
                    )
                if next_pos > end:
                    self._need = next_pos - pos
                    break
                frames.append(data[pos:next_pos])
                pos = next_pos
        except MqttError as error:
            error.frames = frames
            self._error = error
            raise
        if pos < end:
            self._held += data[pos:]
        return frames
