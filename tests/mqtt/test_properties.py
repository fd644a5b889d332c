"""Properties of MQTT 5: each where it may stand, how often, and with which values (2.2.2)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ildm.mqtt import (
    EncodeError,
    MalformedPacket,
    MqttError,
    PacketType,
    Property,
    ProtocolViolation,
    ReasonCode,
    decode_properties,
    encode_properties,
    encode_varint,
)
from tests.mqtt.packet_strategies import ALLOWED, VALUES, WILL

SECTIONS = {
    PacketType.CONNECT: "3.1.2.11",
    WILL: "3.1.3.2",
    PacketType.CONNACK: "3.2.2.3",
    PacketType.PUBLISH: "3.3.2.3",
    PacketType.PUBACK: "3.4.2.2",
    PacketType.PUBREC: "3.5.2.2",
    PacketType.PUBREL: "3.6.2.2",
    PacketType.PUBCOMP: "3.7.2.2",
    PacketType.SUBSCRIBE: "3.8.2.1",
    PacketType.SUBACK: "3.9.2.1",
    PacketType.UNSUBSCRIBE: "3.10.2.1",
    PacketType.UNSUBACK: "3.11.2.1",
    PacketType.DISCONNECT: "3.14.2.2",
    PacketType.AUTH: "3.15.2.2",
}

# One valid value of each property, as bytes after the identifier and as decoded.
SAMPLES: dict[Property, tuple[str, Any]] = {
    Property.PAYLOAD_FORMAT_INDICATOR: ("01", 1),
    Property.MESSAGE_EXPIRY_INTERVAL: ("00010002", 65_538),
    Property.CONTENT_TYPE: ("00026869", "hi"),
    Property.RESPONSE_TOPIC: ("0003612f62", "a/b"),
    Property.CORRELATION_DATA: ("0002ff00", b"\xff\0"),
    Property.SUBSCRIPTION_IDENTIFIER: ("8001", [128]),
    Property.SESSION_EXPIRY_INTERVAL: ("ffffffff", 4_294_967_295),
    Property.ASSIGNED_CLIENT_IDENTIFIER: ("000163", "c"),
    Property.SERVER_KEEP_ALIVE: ("0100", 256),
    Property.AUTHENTICATION_METHOD: ("00016d", "m"),
    Property.AUTHENTICATION_DATA: ("0000", b""),
    Property.REQUEST_PROBLEM_INFORMATION: ("00", 0),
    Property.WILL_DELAY_INTERVAL: ("00000000", 0),
    Property.REQUEST_RESPONSE_INFORMATION: ("01", 1),
    Property.RESPONSE_INFORMATION: ("000172", "r"),
    Property.SERVER_REFERENCE: ("000173", "s"),
    Property.REASON_STRING: ("0000", ""),
    Property.RECEIVE_MAXIMUM: ("0001", 1),
    Property.TOPIC_ALIAS_MAXIMUM: ("0000", 0),
    Property.TOPIC_ALIAS: ("ffff", 65_535),
    Property.MAXIMUM_QOS: ("01", 1),
    Property.RETAIN_AVAILABLE: ("00", 0),
    Property.USER_PROPERTY: ("00016b000176", [("k", "v")]),
    Property.MAXIMUM_PACKET_SIZE: ("00000001", 1),
    Property.WILDCARD_SUBSCRIPTION_AVAILABLE: ("00", 0),
    Property.SUBSCRIPTION_IDENTIFIER_AVAILABLE: ("01", 1),
    Property.SHARED_SUBSCRIPTION_AVAILABLE: ("00", 0),
}

PLACES = list(ALLOWED)


def _raw(property: Property) -> bytes:
    return bytes((property,)) + bytes.fromhex(SAMPLES[property][0])


def _decode(where: PacketType | str, body: bytes) -> dict[Property, Any]:
    will = where == WILL
    type = PacketType.CONNECT if will else PacketType(where)
    data = b"before" + encode_varint(len(body)) + body + b"after"
    found, pos = decode_properties(data, 6, type, will=will)
    assert data[pos:] == b"after"
    return found


def _encode(where: PacketType | str, properties: dict[Property, Any]) -> bytes:
    will = where == WILL
    return encode_properties(properties, PacketType.CONNECT if will else PacketType(where), will=will)


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("property", Property)
def test_each_property_in_each_packet(property: Property, where: PacketType | str) -> None:
    raw = _raw(property)
    value = SAMPLES[property][1]
    if property in ALLOWED[where]:
        assert _decode(where, raw) == {property: value}
        assert _encode(where, {property: value}) == bytes((len(raw),)) + raw
    else:
        with pytest.raises(MalformedPacket) as caught:
            _decode(where, raw)
        assert caught.value.clause == "MQTT-2.2.2.2"
        with pytest.raises(EncodeError):
            _encode(where, {property: value})


@pytest.mark.parametrize("where", PLACES)
def test_twice(where: PacketType | str) -> None:
    for property in ALLOWED[where]:
        raw = _raw(property) * 2
        value = SAMPLES[property][1]
        repeatable = property is Property.USER_PROPERTY or (
            property is Property.SUBSCRIPTION_IDENTIFIER and where is PacketType.PUBLISH
        )
        if repeatable:
            assert _decode(where, raw) == {property: value * 2}
        else:
            with pytest.raises(ProtocolViolation) as caught:
                _decode(where, raw)
            assert caught.value.clause == "MQTT-" + SECTIONS[where]


@pytest.mark.parametrize("where", PLACES)
def test_every_way_of_cutting_off(where: PacketType | str) -> None:
    type = PacketType.CONNECT if where == WILL else PacketType(where)
    for property in ALLOWED[where]:
        raw = _raw(property)
        for cut in range(1, len(raw)):
            with pytest.raises(MalformedPacket) as caught:
                _decode(where, raw[:cut])
            assert caught.value.clause == "MQTT-2.1.4"
            # the length says more than the packet has
            with pytest.raises(MalformedPacket):
                decode_properties(bytes((len(raw),)) + raw[:cut], 0, type, will=where == WILL)


OUT_OF_RANGE = [
    (PacketType.PUBLISH, Property.PAYLOAD_FORMAT_INDICATOR, 2, "02", "MQTT-3.3.2.3"),
    (WILL, Property.PAYLOAD_FORMAT_INDICATOR, 255, "ff", "MQTT-3.1.3.2"),
    (PacketType.PUBLISH, Property.SUBSCRIPTION_IDENTIFIER, [0], "00", "MQTT-3.3.2.3"),
    (PacketType.SUBSCRIBE, Property.SUBSCRIPTION_IDENTIFIER, [0], "00", "MQTT-3.8.2.1"),
    (PacketType.CONNECT, Property.REQUEST_PROBLEM_INFORMATION, 2, "02", "MQTT-3.1.2.11"),
    (PacketType.CONNECT, Property.REQUEST_RESPONSE_INFORMATION, 2, "02", "MQTT-3.1.2.11"),
    (PacketType.CONNECT, Property.RECEIVE_MAXIMUM, 0, "0000", "MQTT-3.1.2.11"),
    (PacketType.CONNACK, Property.RECEIVE_MAXIMUM, 0, "0000", "MQTT-3.2.2.3"),
    (PacketType.CONNECT, Property.MAXIMUM_PACKET_SIZE, 0, "00000000", "MQTT-3.1.2.11"),
    (PacketType.CONNACK, Property.MAXIMUM_PACKET_SIZE, 0, "00000000", "MQTT-3.2.2.3"),
    (PacketType.PUBLISH, Property.TOPIC_ALIAS, 0, "0000", "MQTT-3.3.2-8"),
    (PacketType.CONNACK, Property.MAXIMUM_QOS, 2, "02", "MQTT-3.2.2.3"),
    (PacketType.CONNACK, Property.RETAIN_AVAILABLE, 2, "02", "MQTT-3.2.2.3"),
    (PacketType.CONNACK, Property.WILDCARD_SUBSCRIPTION_AVAILABLE, 2, "02", "MQTT-3.2.2.3"),
    (PacketType.CONNACK, Property.SUBSCRIPTION_IDENTIFIER_AVAILABLE, 2, "02", "MQTT-3.2.2.3"),
    (PacketType.CONNACK, Property.SHARED_SUBSCRIPTION_AVAILABLE, 2, "02", "MQTT-3.2.2.3"),
    (PacketType.PUBLISH, Property.RESPONSE_TOPIC, "+", "00012b", "MQTT-3.3.2-14"),
    (WILL, Property.RESPONSE_TOPIC, "a/#", "0003612f23", "MQTT-3.3.2-14"),
    (PacketType.PUBLISH, Property.RESPONSE_TOPIC, "", "0000", "MQTT-4.7.3-1"),
]


@pytest.mark.parametrize(("where", "property", "value", "wire", "clause"), OUT_OF_RANGE)
def test_out_of_range(
    where: PacketType | str, property: Property, value: Any, wire: str, clause: str
) -> None:
    with pytest.raises(ProtocolViolation) as caught:
        _decode(where, bytes((property,)) + bytes.fromhex(wire))
    assert caught.value.clause == clause
    alias = property is Property.TOPIC_ALIAS
    assert caught.value.reason is (ReasonCode.TOPIC_ALIAS_INVALID if alias else ReasonCode.PROTOCOL_ERROR)
    with pytest.raises(EncodeError):
        _encode(where, {property: value})


@pytest.mark.parametrize(
    ("body", "clause"),
    [
        ("00", "MQTT-2.2.2.2"),  # unknown identifier
        ("7f", "MQTT-2.2.2.2"),
        ("800126", "MQTT-2.2.2.2"),  # identifier of two bytes
        ("a600" + "00016b000176", "MQTT-1.5.5-1"),  # a known one, longer than needed
        ("0b8100", "MQTT-1.5.5-1"),
        ("0bffffffff7f", "MQTT-1.5.5"),
        ("030001ff", "MQTT-1.5.4-1"),  # not UTF-8
        ("030003eda080", "MQTT-1.5.4-1"),  # a surrogate
        ("030002c080", "MQTT-1.5.4-1"),  # U+0000 in two bytes
        ("0300020061", "MQTT-1.5.4-2"),
        ("26000100000161", "MQTT-1.5.4-2"),
        ("26000161000100", "MQTT-1.5.4-2"),
    ],
)
def test_malformed(body: str, clause: str) -> None:
    with pytest.raises(MalformedPacket) as caught:
        _decode(PacketType.PUBLISH, bytes.fromhex(body))
    assert caught.value.clause == clause


@pytest.mark.parametrize("data", ["", "80", "8000", "01"])
def test_malformed_length(data: str) -> None:
    with pytest.raises(MalformedPacket):
        decode_properties(bytes.fromhex(data), 0, PacketType.PUBLISH)


def test_none_and_empty_have_length_zero() -> None:
    assert encode_properties(None) == encode_properties({}) == b"\0"
    assert decode_properties(b"\0", 0, PacketType.AUTH) == ({}, 1)


def test_tuples_are_as_good_as_lists() -> None:
    as_lists = {Property.USER_PROPERTY: [("a", "b")], Property.SUBSCRIPTION_IDENTIFIER: [1, 2]}
    as_tuples = {Property.USER_PROPERTY: (("a", "b"),), Property.SUBSCRIPTION_IDENTIFIER: (1, 2)}
    assert encode_properties(as_lists) == encode_properties(as_tuples)


@pytest.mark.parametrize(
    ("property", "value"),
    [
        (Property.CONTENT_TYPE, "a" * 65_536),
        (Property.CORRELATION_DATA, bytes(65_536)),
        (Property.SUBSCRIPTION_IDENTIFIER, [268_435_456]),
        (Property.TOPIC_ALIAS, 65_536),
        (Property.MESSAGE_EXPIRY_INTERVAL, -1),
        (Property.USER_PROPERTY, [("a", 1)]),
        (Property.USER_PROPERTY, None),
        (4, 1),
    ],
)
def test_encode_refuses(property: Any, value: Any) -> None:
    with pytest.raises(EncodeError):
        encode_properties({property: value})


@given(
    st.dictionaries(st.sampled_from(sorted(ALLOWED[PacketType.CONNACK])), st.none(), max_size=9), st.data()
)
def test_order_of_properties_is_kept(chosen: dict[Property, None], data: st.DataObject) -> None:
    properties = {each: data.draw(VALUES[each]) for each in chosen}
    raw = _encode(PacketType.CONNACK, properties)
    found, pos = decode_properties(raw, 0, PacketType.CONNACK)
    assert list(found.items()) == list(properties.items())
    assert pos == len(raw)


@given(st.sampled_from(PLACES), st.binary(max_size=60))
def test_any_bytes_raise_nothing_but_mqtt_errors(where: PacketType | str, body: bytes) -> None:
    try:
        found = _decode(where, body)
    except MqttError:
        return
    assert _decode(where, _encode(where, found)[1:]) == found
