"""Reading and writing the field types of MQTT (MQTT 5, 1.5): integers, UTF-8 strings, binary data.

Readers take a position and return (value, position after it); running past the end of the data is a
MalformedPacket with the section on the remaining length, since that is what disagrees.
"""

from __future__ import annotations

from ildm.mqtt.constants import MAX_REMAINING_LENGTH, MAX_STRING
from ildm.mqtt.errors import EncodeError, MalformedPacket, MqttError, ProtocolViolation
from ildm.mqtt.framing import decode_varint, encode_varint, varint_size
from ildm.mqtt.validate import check_topic_filter, check_topic_name


def truncated(what: str) -> MalformedPacket:
    """The error for a field that ends beyond its packet."""
    return MalformedPacket(f"packet ends within {what}", clause="MQTT-2.1.4")


def check_end(data: bytes, pos: int, what: str) -> None:
    """Raises: MalformedPacket when bytes are left over after the last field."""
    if pos != len(data):
        raise MalformedPacket(f"{len(data) - pos} bytes after the end of {what}", clause="MQTT-2.1.4")


def read_byte(data: bytes, pos: int, what: str) -> tuple[int, int]:
    """An integer of one byte."""
    if pos >= len(data):
        raise truncated(what)
    return data[pos], pos + 1


def read_u16(data: bytes, pos: int, what: str) -> tuple[int, int]:
    """An integer of two bytes, big-endian (MQTT 5, 1.5.2)."""
    if pos + 2 > len(data):
        raise truncated(what)
    return data[pos] << 8 | data[pos + 1], pos + 2


def read_u32(data: bytes, pos: int, what: str) -> tuple[int, int]:
    """An integer of four bytes, big-endian (MQTT 5, 1.5.3)."""
    if pos + 4 > len(data):
        raise truncated(what)
    return int.from_bytes(data[pos : pos + 4]), pos + 4


def read_varint(data: bytes, pos: int, what: str) -> tuple[int, int]:
    """A variable byte integer in its shortest form (MQTT-1.5.5-1)."""
    found = decode_varint(data, pos)
    if found is None:
        raise truncated(what)
    check_shortest(found[1] - pos, found[0], what)
    return found


def check_shortest(size: int, value: int, what: str) -> None:
    """Raises: MalformedPacket when a variable byte integer took more bytes than needed (MQTT-1.5.5-1)."""
    if size != varint_size(value):
        raise MalformedPacket(f"{what} takes more bytes than it needs", clause="MQTT-1.5.5-1")


def read_binary(data: bytes, pos: int, what: str) -> tuple[bytes, int]:
    """Binary data after a length of two bytes (MQTT 5, 1.5.6)."""
    if pos + 2 > len(data):
        raise truncated(what)
    end = pos + 2 + (data[pos] << 8 | data[pos + 1])
    if end > len(data):
        raise truncated(what)
    return data[pos + 2 : end], end


def read_string(data: bytes, pos: int, what: str) -> tuple[str, int]:
    """A UTF-8 string after a length of two bytes (MQTT-1.5.4-1, -2). U+FEFF stays (MQTT-1.5.4-3)."""
    start = pos + 2
    if start > len(data):
        raise truncated(what)
    end = start + (data[pos] << 8 | data[pos + 1])
    if end > len(data):
        raise truncated(what)
    return text_of(data[start:end], what), end


def text_of(raw: bytes, what: str) -> str:
    """Text of the bytes of a UTF-8 string. Raises: MalformedPacket, MQTT-1.5.4-1 or -2."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise MalformedPacket(f"{what} is not well-formed UTF-8", clause="MQTT-1.5.4-1") from None
    if "\0" in text:
        raise MalformedPacket(f"{what} contains U+0000", clause="MQTT-1.5.4-2")
    return text


def read_packet_id(data: bytes, pos: int, what: str) -> tuple[int, int]:
    """A packet identifier, never 0 (MQTT-2.2.1-3)."""
    value, pos = read_u16(data, pos, f"the packet identifier of {what}")
    if value == 0:
        raise ProtocolViolation(f"{what} with packet identifier 0", clause="MQTT-2.2.1-3")
    return value, pos


def put_u16(value: int, what: str) -> bytes:
    """Raises: EncodeError when it does not fit."""
    if not 0 <= value <= 0xFFFF:
        raise EncodeError(f"{what} is {value}, not within 0 to 65535")
    return value.to_bytes(2)


def put_binary(value: bytes, what: str) -> bytes:
    """Raises: EncodeError when longer than 65,535 bytes."""
    if len(value) > MAX_STRING:
        raise EncodeError(f"{what} has {len(value)} bytes, at most 65535 are possible", clause="MQTT-1.5.6")
    return len(value).to_bytes(2) + value


def put_string(text: str, what: str) -> bytes:
    """Raises: EncodeError when too long, or with U+0000 or surrogates (MQTT-1.5.4-1, -2)."""
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raise EncodeError(f"{what} contains a surrogate", clause="MQTT-1.5.4-1") from None
    if "\0" in text:
        raise EncodeError(f"{what} contains U+0000", clause="MQTT-1.5.4-2")
    if len(raw) > MAX_STRING:
        raise EncodeError(f"{what} has {len(raw)} bytes, at most 65535 are possible", clause="MQTT-1.5.4")
    return len(raw).to_bytes(2) + raw


def put_topic(topic: str, what: str) -> bytes:
    """A topic name. Raises: EncodeError."""
    try:
        check_topic_name(topic)
    except MqttError as error:
        raise EncodeError(f"{what}: {error.message}", clause=error.clause) from None
    return put_string(topic, what)


def put_filter(filter: str, shared: bool) -> bytes:
    """A topic filter. Raises: EncodeError."""
    try:
        check_topic_filter(filter, shared=shared)
    except MqttError as error:
        raise EncodeError(f"topic filter {filter!r}: {error.message}", clause=error.clause) from None
    return put_string(filter, "topic filter")


def put_packet_id(value: int | None, what: str) -> bytes:
    """Raises: EncodeError unless within 1 to 65,535 (MQTT-2.2.1-3)."""
    if value is None or not 1 <= value <= 0xFFFF:
        raise EncodeError(f"{what} with packet identifier {value}", clause="MQTT-2.2.1-3")
    return value.to_bytes(2)


def put_frame(first: int, body: bytes) -> bytes:
    """Fixed header and ``body``. Raises: EncodeError when larger than MQTT allows (2.1.4)."""
    if len(body) > MAX_REMAINING_LENGTH:
        raise EncodeError(f"remaining length of {len(body)} bytes", clause="MQTT-2.1.4")
    return bytes((first,)) + encode_varint(len(body)) + body
