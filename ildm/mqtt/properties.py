"""Properties of MQTT 5 packets (2.2.2): one table drives reading, writing and checking."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

from ildm.mqtt import wire
from ildm.mqtt.constants import MAX_REMAINING_LENGTH, PacketType, Property, ReasonCode
from ildm.mqtt.errors import EncodeError, MalformedPacket, MqttError, OverLimit, ProtocolViolation
from ildm.mqtt.framing import encode_varint
from ildm.mqtt.limits import LARGEST, PacketLimits
from ildm.mqtt.validate import check_topic_name

Properties: TypeAlias = dict[Property, Any]
"""Property -> value: int, str or bytes; USER_PROPERTY: (name, value) pairs in the order sent;
SUBSCRIPTION_IDENTIFIER: list of int, also where only one is allowed."""


class _Kind(Enum):
    BYTE = "byte"
    U16 = "two byte integer"
    U32 = "four byte integer"
    VARINT = "variable byte integer"
    STRING = "UTF-8 string"
    BINARY = "binary data"
    PAIR = "UTF-8 string pair"


_PAIR: Final = _Kind.PAIR
"""A member of an enumeration takes long to look up."""

_WILL = 0
"""Stands for the will of CONNECT among the packet types."""


class _Rule(NamedTuple):
    property: Property
    kind: _Kind
    where: frozenset[int]
    low: int = 0
    high: int | None = None


_P = PacketType
_MESSAGE = (_P.PUBLISH, _WILL)
_CONNECTION = (_P.CONNECT, _P.CONNACK)
_REASONED = (
    _P.CONNACK,
    _P.PUBACK,
    _P.PUBREC,
    _P.PUBREL,
    _P.PUBCOMP,
    _P.SUBACK,
    _P.UNSUBACK,
    _P.DISCONNECT,
    _P.AUTH,
)
_EVERYWHERE = (_WILL, _P.CONNECT, _P.PUBLISH, _P.SUBSCRIBE, _P.UNSUBSCRIBE, *_REASONED)


def _rule(
    property: Property, kind: _Kind, *where: int, low: int = 0, high: int | None = None
) -> tuple[int, _Rule]:
    return int(property), _Rule(property, kind, frozenset(where), low, high)


_RULES: dict[int, _Rule] = dict(
    (
        _rule(Property.PAYLOAD_FORMAT_INDICATOR, _Kind.BYTE, *_MESSAGE, high=1),
        _rule(Property.MESSAGE_EXPIRY_INTERVAL, _Kind.U32, *_MESSAGE),
        _rule(Property.CONTENT_TYPE, _Kind.STRING, *_MESSAGE),
        _rule(Property.RESPONSE_TOPIC, _Kind.STRING, *_MESSAGE),
        _rule(Property.CORRELATION_DATA, _Kind.BINARY, *_MESSAGE),
        _rule(Property.SUBSCRIPTION_IDENTIFIER, _Kind.VARINT, _P.PUBLISH, _P.SUBSCRIBE, low=1),
        _rule(Property.SESSION_EXPIRY_INTERVAL, _Kind.U32, *_CONNECTION, _P.DISCONNECT),
        _rule(Property.ASSIGNED_CLIENT_IDENTIFIER, _Kind.STRING, _P.CONNACK),
        _rule(Property.SERVER_KEEP_ALIVE, _Kind.U16, _P.CONNACK),
        _rule(Property.AUTHENTICATION_METHOD, _Kind.STRING, *_CONNECTION, _P.AUTH),
        _rule(Property.AUTHENTICATION_DATA, _Kind.BINARY, *_CONNECTION, _P.AUTH),
        _rule(Property.REQUEST_PROBLEM_INFORMATION, _Kind.BYTE, _P.CONNECT, high=1),
        _rule(Property.WILL_DELAY_INTERVAL, _Kind.U32, _WILL),
        _rule(Property.REQUEST_RESPONSE_INFORMATION, _Kind.BYTE, _P.CONNECT, high=1),
        _rule(Property.RESPONSE_INFORMATION, _Kind.STRING, _P.CONNACK),
        _rule(Property.SERVER_REFERENCE, _Kind.STRING, _P.CONNACK, _P.DISCONNECT),
        _rule(Property.REASON_STRING, _Kind.STRING, *_REASONED),
        _rule(Property.RECEIVE_MAXIMUM, _Kind.U16, *_CONNECTION, low=1),
        _rule(Property.TOPIC_ALIAS_MAXIMUM, _Kind.U16, *_CONNECTION),
        _rule(Property.TOPIC_ALIAS, _Kind.U16, _P.PUBLISH, low=1),
        _rule(Property.MAXIMUM_QOS, _Kind.BYTE, _P.CONNACK, high=1),
        _rule(Property.RETAIN_AVAILABLE, _Kind.BYTE, _P.CONNACK, high=1),
        _rule(Property.USER_PROPERTY, _Kind.PAIR, *_EVERYWHERE),
        _rule(Property.MAXIMUM_PACKET_SIZE, _Kind.U32, *_CONNECTION, low=1),
        _rule(Property.WILDCARD_SUBSCRIPTION_AVAILABLE, _Kind.BYTE, _P.CONNACK, high=1),
        _rule(Property.SUBSCRIPTION_IDENTIFIER_AVAILABLE, _Kind.BYTE, _P.CONNACK, high=1),
        _rule(Property.SHARED_SUBSCRIPTION_AVAILABLE, _Kind.BYTE, _P.CONNACK, high=1),
    )
)

_SECTIONS: dict[int, str] = {
    _P.CONNECT: "MQTT-3.1.2.11",
    _WILL: "MQTT-3.1.3.2",
    _P.CONNACK: "MQTT-3.2.2.3",
    _P.PUBLISH: "MQTT-3.3.2.3",
    _P.PUBACK: "MQTT-3.4.2.2",
    _P.PUBREC: "MQTT-3.5.2.2",
    _P.PUBREL: "MQTT-3.6.2.2",
    _P.PUBCOMP: "MQTT-3.7.2.2",
    _P.SUBSCRIBE: "MQTT-3.8.2.1",
    _P.SUBACK: "MQTT-3.9.2.1",
    _P.UNSUBSCRIBE: "MQTT-3.10.2.1",
    _P.UNSUBACK: "MQTT-3.11.2.1",
    _P.DISCONNECT: "MQTT-3.14.2.2",
    _P.AUTH: "MQTT-3.15.2.2",
}
"""The section which says of each property of a packet how often and with which values it may occur."""

_LIMITS: dict[_Kind, int] = {
    _Kind.BYTE: 0xFF,
    _Kind.U16: 0xFFFF,
    _Kind.U32: 0xFFFF_FFFF,
    _Kind.VARINT: MAX_REMAINING_LENGTH,
}

_READERS: dict[_Kind, Callable[[bytes, int, str], tuple[Any, int]]] = {
    _Kind.BYTE: wire.read_byte,
    _Kind.U16: wire.read_u16,
    _Kind.U32: wire.read_u32,
    _Kind.VARINT: wire.read_varint,
    _Kind.STRING: wire.read_string,
    _Kind.BINARY: wire.read_binary,
}


def property_section(data: bytes, pos: int) -> tuple[int, int]:
    """Where the properties that begin with their length at ``pos`` lie: (first byte, byte after the last).

    Raises:
        MalformedPacket: MQTT-1.5.5-1, or the packet ends before them (2.1.4).
    """
    length, start = wire.read_varint(data, pos, "the property length")
    if start + length > len(data):
        raise wire.truncated("the properties")
    return start, start + length


def property_at(data: bytes, pos: int, wanted: Property) -> int:
    """Where a property's value lies among those that begin with their length at ``pos``; 0: it is not there.

    Raises:
        MalformedPacket: unknown, or cut off.
    """
    start, end = property_section(data, pos)
    data = data[:end]
    pos = start
    while pos < end:
        identifier, pos = wire.read_varint(data, pos, "a property identifier")
        if identifier == wanted:
            return pos
        rule = _RULES.get(identifier)
        if rule is None:
            raise MalformedPacket(f"property 0x{identifier:02X}", clause="MQTT-2.2.2.2")
        if rule.kind is _PAIR:
            pos = wire.read_string(data, pos, "the name of a user property")[1]
            pos = wire.read_string(data, pos, "the value of a user property")[1]
        else:
            pos = _READERS[rule.kind](data, pos, rule.property.name)[1]
    return 0


def decode_properties(
    data: bytes, pos: int, packet_type: PacketType, will: bool = False, limits: PacketLimits = LARGEST
) -> tuple[Properties, int]:
    """Read the properties of a packet, or with ``will`` those of its will, length included.

    Returns (properties, position after them).

    Raises:
        MalformedPacket: unknown or not allowed in this packet (2.2.2.2), cut off, text not valid.
        ProtocolViolation: twice, or a value out of range (the packet's section on properties, such as
            3.1.2.11; MQTT-3.3.2-8 for topic alias 0, MQTT-3.3.2-14 for a wildcard in a response topic).
        OverLimit: more of them than ``limits`` allow.
    """
    start, end = property_section(data, pos)
    properties: Properties = {}
    if start == end:
        return properties, end
    if end - start > limits.properties_bytes:
        raise OverLimit(
            f"{end - start} bytes of properties, the limit is {limits.properties_bytes}", clause="MQTT-4.13.2"
        )
    section = data[start:end]
    where = _WILL if will else packet_type
    pos = 0
    size = end - start
    pairs: list[tuple[str, str]] | None = None
    while pos < size:
        identifier = section[pos]
        if identifier < 0x80:
            pos += 1
        else:
            identifier, pos = wire.read_varint(section, pos, "a property identifier")
        rule = _RULES.get(identifier)
        if rule is None or where not in rule.where:
            raise MalformedPacket(
                f"property 0x{identifier:02X} in {_name(packet_type, will)}", clause="MQTT-2.2.2.2"
            )
        property, kind = rule.property, rule.kind
        if kind is _PAIR:
            name, pos = wire.read_string(section, pos, "the name of a user property")
            text, pos = wire.read_string(section, pos, "the value of a user property")
            if pairs is None:
                pairs = properties[property] = []
            _add(pairs, (name, text), property, limits)
            continue
        value, pos = _READERS[kind](section, pos, property.name)
        if kind in _LIMITS and (value < rule.low or (rule.high is not None and value > rule.high)):
            raise _out_of_range(property, value, where)
        if property is Property.SUBSCRIPTION_IDENTIFIER and packet_type is PacketType.PUBLISH:
            _add(properties.setdefault(property, []), value, property, limits)
            continue
        if property in properties:
            raise ProtocolViolation(f"{property.name} more than once", clause=_SECTIONS[where])
        if property is Property.RESPONSE_TOPIC:
            _check_response_topic(value)
        properties[property] = [value] if property is Property.SUBSCRIPTION_IDENTIFIER else value
    return properties, end


def _add(values: list[Any], value: Any, property: Property, limits: PacketLimits) -> None:
    if len(values) >= limits.properties:
        raise OverLimit(f"{property.name} more than {limits.properties} times", clause="MQTT-4.13.2")
    values.append(value)


def encode_properties(
    properties: Mapping[Property, Any] | None, packet_type: PacketType | None = None, will: bool = False
) -> bytes:
    """The properties with their length in front, in the order of the mapping (MQTT-2.2.2-1).

    With ``packet_type`` they are also checked to be allowed in that packet, or in its will.

    Raises:
        EncodeError: not allowed there, out of range, or of a wrong type.
    """
    if not properties:
        return b"\0"
    where = None if packet_type is None else _WILL if will else packet_type
    parts: list[bytes] = []
    for property, value in properties.items():
        rule = _RULES.get(property)
        if rule is None or (where is not None and where not in rule.where):
            place = "MQTT" if packet_type is None else _name(packet_type, will)
            raise EncodeError(f"no property {property!r} in {place}", clause="MQTT-2.2.2.2")
        try:
            _encode_one(rule, value, packet_type, parts)
        except (TypeError, AttributeError, ValueError) as error:
            if isinstance(error, EncodeError):
                raise
            raise EncodeError(f"{rule.property.name} is {value!r}, not a {rule.kind.value}") from error
    body = b"".join(parts)
    return encode_varint(len(body)) + body


def _encode_one(rule: _Rule, value: Any, packet_type: PacketType | None, parts: list[bytes]) -> None:
    property = rule.property
    head = _SMALL_ID[property]
    if rule.kind is _PAIR:
        what = property.name
        for name, text in value:
            parts += (head, wire.put_string(name, what), wire.put_string(text, what))
    elif property is Property.SUBSCRIPTION_IDENTIFIER:
        values = list(value)
        if len(values) > 1 and packet_type is PacketType.SUBSCRIBE:
            raise EncodeError("more than one subscription identifier", clause="MQTT-3.8.2.1")
        for number in values:
            _check_range(rule, number)
            parts += (head, encode_varint(number))
    elif rule.kind is _Kind.STRING:
        if property is Property.RESPONSE_TOPIC:
            parts += (head, wire.put_topic(value, property.name))
        else:
            parts += (head, wire.put_string(value, property.name))
    elif rule.kind is _Kind.BINARY:
        parts += (head, wire.put_binary(bytes(memoryview(value)), property.name))
    else:
        _check_range(rule, value)
        width = 1 if rule.kind is _Kind.BYTE else 2 if rule.kind is _Kind.U16 else 4
        parts += (head, int(value).to_bytes(width))


_SMALL_ID = {property: bytes((property,)) for property in Property}


def _check_range(rule: _Rule, value: int) -> None:
    high = _LIMITS[rule.kind] if rule.high is None else rule.high
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no integer")
    if not rule.low <= value <= high:
        raise EncodeError(f"{rule.property.name} is {value}, not within {rule.low} to {high}")


def _check_response_topic(topic: str) -> None:
    try:
        check_topic_name(topic)
    except MqttError as error:
        clause = "MQTT-3.3.2-14" if topic else error.clause
        raise ProtocolViolation(f"response topic: {error.message}", clause=clause) from None


def _out_of_range(property: Property, value: int, where: int) -> ProtocolViolation:
    message = f"{property.name} is {value}"
    if property is Property.TOPIC_ALIAS:
        return ProtocolViolation(message, clause="MQTT-3.3.2-8", reason=ReasonCode.TOPIC_ALIAS_INVALID)
    return ProtocolViolation(message, clause=_SECTIONS[where])


def _name(packet_type: PacketType, will: bool) -> str:
    return "the will" if will else packet_type.name
