"""What the standard calls malformed or a protocol error, class by class, with the clause it breaks."""

from __future__ import annotations

import pytest

from ildm.mqtt import (
    MalformedPacket,
    MqttError,
    ProtocolViolation,
    PublishView,
    ReasonCode,
    UnsupportedVersion,
    Version,
    decode,
)

V31, V311, V5 = Version.V31, Version.V311, Version.V5
ALL, V3 = (V31, V311, V5), (V31, V311)
M, V = MalformedPacket, ProtocolViolation

MQTT4 = "0004 4d515454 04 "
MQTT5 = "0004 4d515454 05 "
MQTT3 = "0006 4d5149736470 03 "

# (name, first byte, what follows the remaining length, versions, error, clause)
CASES: list[tuple[str, int, str, tuple[Version, ...], type[MqttError], str]] = [
    ("type 0", 0x00, "", ALL, M, "MQTT-2.1.2"),
    ("AUTH before 5", 0xF0, "", V3, M, "MQTT-2.1.2"),
    ("flags of CONNECT", 0x11, MQTT4 + "02 003c 0001 63", ALL, M, "MQTT-2.1.3-1"),
    ("flags of CONNACK", 0x21, "00 00", ALL, M, "MQTT-2.1.3-1"),
    ("flags of PUBACK", 0x42, "0001", ALL, M, "MQTT-2.1.3-1"),
    ("flags of PUBREL", 0x60, "0001", ALL, M, "MQTT-3.6.1-1"),
    ("DUP of PUBREL", 0x6A, "0001", (V311, V5), M, "MQTT-3.6.1-1"),
    ("flags of SUBSCRIBE", 0x80, "0001 0001 61 00", ALL, M, "MQTT-3.8.1-1"),
    ("flags of UNSUBSCRIBE", 0xA0, "0001 0001 61", ALL, M, "MQTT-3.10.1-1"),
    ("flags of PINGREQ", 0xC1, "", ALL, M, "MQTT-2.1.3-1"),
    ("flags of DISCONNECT", 0xE1, "", ALL, M, "MQTT-3.14.1-1"),
    ("flags of AUTH", 0xF1, "", (V5,), M, "MQTT-3.15.1-1"),
    # CONNECT
    ("protocol name", 0x10, "0004 4d515458 04 02 003c 0001 63", ALL, V, "MQTT-3.1.2-1"),
    ("no protocol name", 0x10, "", ALL, M, "MQTT-2.1.4"),
    ("level 6", 0x10, "0004 4d515454 06 02 003c 0001 63", ALL, UnsupportedVersion, "MQTT-3.1.2-2"),
    ("level 3 of MQTT", 0x10, "0004 4d515454 03 02 003c 0001 63", ALL, UnsupportedVersion, "MQTT-3.1.2-2"),
    ("level 4 of MQIsdp", 0x10, "0006 4d5149736470 04 02", ALL, UnsupportedVersion, "MQTT-3.1.2-2"),
    ("bridge bit in 5", 0x10, "0004 4d515454 85 02 003c", ALL, UnsupportedVersion, "MQTT-3.1.2-2"),
    ("reserved connect flag", 0x10, MQTT4 + "03 003c 0001 63", ALL, M, "MQTT-3.1.2-3"),
    ("reserved connect flag in 5", 0x10, MQTT5 + "03 003c 00 0001 63", ALL, M, "MQTT-3.1.2-3"),
    ("will QoS 3", 0x10, MQTT4 + "1e 003c 0001 63 0001 77 0000", ALL, M, "MQTT-3.1.2-12"),
    ("will QoS without will", 0x10, MQTT4 + "0a 003c 0001 63", ALL, V, "MQTT-3.1.2-11"),
    ("will retain without will", 0x10, MQTT4 + "22 003c 0001 63", ALL, V, "MQTT-3.1.2-13"),
    ("password alone", 0x10, MQTT4 + "42 003c 0001 63 0001 70", ALL, M, "MQTT-3.1.2-22 (3.1.1)"),
    ("no keep alive", 0x10, MQTT4 + "02 00", ALL, M, "MQTT-2.1.4"),
    ("no client identifier", 0x10, MQTT4 + "02 003c", ALL, M, "MQTT-2.1.4"),
    ("client identifier is not UTF-8", 0x10, MQTT4 + "02 003c 0001 ff", ALL, M, "MQTT-1.5.4-1"),
    ("client identifier has U+0000", 0x10, MQTT4 + "02 003c 0001 00", ALL, M, "MQTT-1.5.4-2"),
    ("empty client identifier kept", 0x10, MQTT4 + "00 003c 0000", ALL, V, "MQTT-3.1.3-8 (3.1.1)"),
    ("empty client identifier in 3.1", 0x10, MQTT3 + "02 003c 0000", ALL, V, "MQTT-3.1.3-8 (3.1.1)"),
    ("no will", 0x10, MQTT4 + "06 003c 0001 63", ALL, M, "MQTT-2.1.4"),
    ("will topic with wildcard", 0x10, MQTT4 + "06 003c 0001 63 0001 23 0000", ALL, M, "MQTT-3.3.2-2"),
    ("empty will topic", 0x10, MQTT4 + "06 003c 0001 63 0000 0000", ALL, M, "MQTT-4.7.3-1"),
    ("no user name", 0x10, MQTT4 + "82 003c 0001 63", ALL, M, "MQTT-2.1.4"),
    ("user name is a surrogate", 0x10, MQTT4 + "82 003c 0001 63 0003 edbfbf", ALL, M, "MQTT-1.5.4-1"),
    ("no password", 0x10, MQTT4 + "c2 003c 0001 63 0001 75", ALL, M, "MQTT-2.1.4"),
    ("more than CONNECT", 0x10, MQTT4 + "02 003c 0001 63 00", ALL, M, "MQTT-2.1.4"),
    ("no properties in 5", 0x10, MQTT5 + "02 003c", ALL, M, "MQTT-2.1.4"),
    ("property not for CONNECT", 0x10, MQTT5 + "02 003c 02 2401 0001 63", ALL, M, "MQTT-2.2.2.2"),
    ("data without method", 0x10, MQTT5 + "02 003c 03 160000 0001 63", ALL, V, "MQTT-3.1.2.11.10"),
    (
        "property not for a will",
        0x10,
        MQTT5 + "06 003c 00 0001 63 03 230001 0001 77 0000",
        ALL,
        M,
        "MQTT-2.2.2.2",
    ),
    (
        "will delay outside the will",
        0x10,
        MQTT5 + "02 003c 05 1800000001 0001 63",
        ALL,
        M,
        "MQTT-2.2.2.2",
    ),
    # CONNACK
    ("acknowledge flags", 0x20, "02 00", (V311,), M, "MQTT-3.2.2-1"),
    ("acknowledge flags in 5", 0x20, "80 00 00", (V5,), M, "MQTT-3.2.2-1"),
    ("session present in refusal", 0x20, "01 05", (V311,), V, "MQTT-3.2.2-6"),
    ("session present in refusal in 5", 0x20, "01 87 00", (V5,), V, "MQTT-3.2.2-6"),
    ("return code 6", 0x20, "00 06", V3, V, "MQTT-3.2.2.3 (3.1.1)"),
    ("reason code of 3.1.1 in 5", 0x20, "00 05 00", (V5,), V, "MQTT-3.2.2-8"),
    ("CONNACK of one byte", 0x20, "00", ALL, M, "MQTT-2.1.4"),
    ("CONNACK without properties", 0x20, "00 00", (V5,), M, "MQTT-2.1.4"),
    ("CONNACK with more", 0x20, "00 00 00", V3, M, "MQTT-2.1.4"),
    # PUBLISH
    ("QoS 3", 0x36, "0001 61 0001 00", ALL, M, "MQTT-3.3.1-4"),
    ("DUP at QoS 0", 0x38, "0001 61 00", ALL, M, "MQTT-3.3.1-2"),
    ("no topic", 0x30, "", ALL, M, "MQTT-2.1.4"),
    ("topic of one byte of length", 0x30, "00", ALL, M, "MQTT-2.1.4"),
    ("topic cut off", 0x30, "0002 61", ALL, M, "MQTT-2.1.4"),
    ("topic is not UTF-8", 0x30, "0002 c3 28 00", ALL, M, "MQTT-1.5.4-1"),
    ("topic has a surrogate", 0x30, "0003 eda080 00", ALL, M, "MQTT-1.5.4-1"),
    ("topic has U+0000", 0x30, "0002 6100 00", ALL, M, "MQTT-1.5.4-2"),
    ("topic is over-long UTF-8", 0x30, "0002 c080 00", ALL, M, "MQTT-1.5.4-1"),
    ("topic with +", 0x30, "0003 612f2b 00", ALL, M, "MQTT-3.3.2-2"),
    ("topic with #", 0x30, "0002 6123 00", ALL, M, "MQTT-3.3.2-2"),
    ("empty topic", 0x30, "0000 00", V3, M, "MQTT-4.7.3-1"),
    ("empty topic without alias", 0x30, "0000 00", (V5,), V, "MQTT-3.3.2.1"),
    ("topic alias 0", 0x30, "0000 03 230000", (V5,), V, "MQTT-3.3.2-8"),
    ("packet identifier 0", 0x32, "0001 61 0000 00", ALL, V, "MQTT-2.2.1-3"),
    ("no packet identifier", 0x32, "0001 61 00", ALL, M, "MQTT-2.1.4"),
    ("no properties", 0x30, "0001 61", (V5,), M, "MQTT-2.1.4"),
    ("properties cut off", 0x30, "0001 61 05 0101", (V5,), M, "MQTT-2.1.4"),
    ("unknown property", 0x30, "0001 61 02 0500", (V5,), M, "MQTT-2.2.2.2"),
    ("property twice", 0x30, "0001 61 04 01010101", (V5,), V, "MQTT-3.3.2.3"),
    # PUBACK to PUBCOMP
    *[
        case
        for first, name, section in (
            (0x40, "PUBACK", "4"),
            (0x50, "PUBREC", "5"),
            (0x62, "PUBREL", "6"),
            (0x70, "PUBCOMP", "7"),
        )
        for case in (
            (f"{name} of one byte", first, "00", ALL, M, "MQTT-2.1.4"),
            (f"{name} for 0", first, "0000", ALL, V, "MQTT-2.2.1-3"),
            (f"{name} with more", first, "0001 00", V3, M, "MQTT-2.1.4"),
            (f"{name} with more in 5", first, "0001 00 00 00", (V5,), M, "MQTT-2.1.4"),
            (f"reason code of {name}", first, "0001 01", (V5,), V, f"MQTT-3.{section}.2-1"),
            (f"property not for {name}", first, "0001 00 02 0101", (V5,), M, "MQTT-2.2.2.2"),
        )
    ],
    # SUBSCRIBE, UNSUBSCRIBE
    ("SUBSCRIBE for 0", 0x82, "0000 0001 61 00", ALL, V, "MQTT-2.2.1-3"),
    ("no filter", 0x82, "0001", V3, V, "MQTT-3.8.3-2"),
    ("no filter in 5", 0x82, "0001 00", (V5,), V, "MQTT-3.8.3-2"),
    ("no options", 0x82, "0001 0001 61", V3, M, "MQTT-2.1.4"),
    ("second filter cut off", 0x82, "0001 0001 61 00 0002 62", V3, M, "MQTT-2.1.4"),
    ("QoS 3 asked", 0x82, "0001 0001 61 03", V3, M, "MQTT-3-8.3-4 (3.1.1)"),
    ("options of 5 in 3.1.1", 0x82, "0001 0001 61 04", V3, M, "MQTT-3-8.3-4 (3.1.1)"),
    ("QoS 3 asked in 5", 0x82, "0001 00 0001 61 03", (V5,), V, "MQTT-3.8.3.1"),
    ("retain handling 3", 0x82, "0001 00 0001 61 30", (V5,), V, "MQTT-3.8.3.1"),
    ("reserved options", 0x82, "0001 00 0001 61 40", (V5,), M, "MQTT-3.8.3-5"),
    ("empty filter", 0x82, "0001 0000 00", V3, M, "MQTT-4.7.3-1"),
    ("filter is not UTF-8", 0x82, "0001 0001 80 00", V3, M, "MQTT-1.5.4-1"),
    ("# not last", 0x82, "0001 0003 232f61 00", V3, M, "MQTT-4.7.1-1"),
    ("# in a level", 0x82, "0001 0002 6123 00", V3, M, "MQTT-4.7.1-1"),
    ("+ in a level", 0x82, "0001 0002 612b 00", V3, M, "MQTT-4.7.1-2"),
    ("no share name", 0x82, "0001 00 0009 2473686172652f2f61 00", (V5,), M, "MQTT-4.8.2-1"),
    ("wildcard in share name", 0x82, "0001 00 000a 2473686172652f2b2f61 00", (V5,), M, "MQTT-4.8.2-2"),
    ("share without filter", 0x82, "0001 00 0008 2473686172652f67 00", (V5,), M, "MQTT-4.8.2-2"),
    ("share with empty filter", 0x82, "0001 00 0009 2473686172652f672f 00", (V5,), M, "MQTT-4.8.2-2"),
    ("no local on shared", 0x82, "0001 00 000a 2473686172652f672f61 04", (V5,), V, "MQTT-3.8.3-4"),
    ("two subscription identifiers", 0x82, "0001 04 0b010b02 0001 61 00", (V5,), V, "MQTT-3.8.2.1"),
    ("UNSUBSCRIBE without filter", 0xA2, "0001", V3, V, "MQTT-3.10.3-2"),
    ("UNSUBSCRIBE without filter in 5", 0xA2, "0001 00", (V5,), V, "MQTT-3.10.3-2"),
    ("UNSUBSCRIBE for 0", 0xA2, "0000 0001 61", ALL, V, "MQTT-2.2.1-3"),
    ("UNSUBSCRIBE from '#a'", 0xA2, "0001 0002 2361", V3, M, "MQTT-4.7.1-1"),
    ("UNSUBSCRIBE cut off", 0xA2, "0001 0002 61", V3, M, "MQTT-2.1.4"),
    # SUBACK, UNSUBACK
    ("SUBACK for 0", 0x90, "0000 00", ALL, V, "MQTT-2.2.1-3"),
    ("SUBACK without codes", 0x90, "0001", V3, V, "MQTT-3.8.4-6"),
    ("SUBACK without codes in 5", 0x90, "0001 00", (V5,), V, "MQTT-3.8.4-6"),
    ("return code 3", 0x90, "0001 03", V3, V, "MQTT-3.9.3-2 (3.1.1)"),
    ("reason code of SUBACK", 0x90, "0001 00 00 11", (V5,), V, "MQTT-3.9.3-2"),
    ("UNSUBACK with more", 0xB0, "0001 00", V3, M, "MQTT-2.1.4"),
    ("UNSUBACK without codes", 0xB0, "0001 00", (V5,), V, "MQTT-3.11.3-1"),
    ("reason code of UNSUBACK", 0xB0, "0001 00 01", (V5,), V, "MQTT-3.11.3-2"),
    # the small ones
    ("PINGREQ with more", 0xC0, "00", ALL, M, "MQTT-2.1.4"),
    ("PINGRESP with more", 0xD0, "00", ALL, M, "MQTT-2.1.4"),
    ("DISCONNECT with more", 0xE0, "00", V3, M, "MQTT-2.1.4"),
    ("DISCONNECT with more in 5", 0xE0, "00 00 00", (V5,), M, "MQTT-2.1.4"),
    ("reason code of DISCONNECT", 0xE0, "01", (V5,), V, "MQTT-3.14.2-1"),
    ("property not for DISCONNECT", 0xE0, "00 03 210001", (V5,), M, "MQTT-2.2.2.2"),
    ("empty AUTH", 0xF0, "", (V5,), V, "MQTT-3.15.2.2.2"),
    ("AUTH without method", 0xF0, "18 00", (V5,), V, "MQTT-3.15.2.2.2"),
    ("reason code of AUTH", 0xF0, "80 04 150001 6d", (V5,), V, "MQTT-3.15.2-1"),
]

SPECIAL_REASONS = {
    "protocol name": ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
    "empty client identifier kept": ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
    "empty client identifier in 3.1": ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
    "topic alias 0": ReasonCode.TOPIC_ALIAS_INVALID,
}


def _frame(first: int, body: str) -> bytes:
    raw = bytes.fromhex(body)
    assert len(raw) < 128
    return bytes((first, len(raw))) + raw


@pytest.mark.parametrize(
    ("name", "first", "body", "versions", "error", "clause"), CASES, ids=[case[0] for case in CASES]
)
def test_refused_with_its_clause(
    name: str, first: int, body: str, versions: tuple[Version, ...], error: type[MqttError], clause: str
) -> None:
    for version in versions:
        with pytest.raises(MqttError) as caught:
            decode(_frame(first, body), version)
        assert type(caught.value) is error
        assert caught.value.clause == clause
        assert clause in str(caught.value)
        assert caught.value.reason is SPECIAL_REASONS.get(name, error.default_reason)


def test_default_reasons() -> None:
    assert MalformedPacket("x", clause="c").reason == 0x81
    assert ProtocolViolation("x", clause="c").reason == 0x82
    assert UnsupportedVersion("x", level=9).reason == 0x84


def test_unsupported_level_is_told() -> None:
    with pytest.raises(UnsupportedVersion) as caught:
        decode(_frame(0x10, "0004 4d515454 06"), V311)
    assert caught.value.level == 6


@pytest.mark.parametrize("version", ALL)
@pytest.mark.parametrize("wire", ["", "c0", "c080", "c001", "c00000", "30ffffffff7f"])
def test_remaining_length_disagrees_with_the_frame(wire: str, version: Version) -> None:
    with pytest.raises(MalformedPacket) as caught:
        decode(bytes.fromhex(wire), version)
    assert caught.value.clause == ("MQTT-1.5.5" if len(wire) > 8 else "MQTT-2.1.4")


@pytest.mark.parametrize("wire", ["c08000", "30840000016100", "e0818000" + "00", "4082000001"])
def test_remaining_length_longer_than_needed(wire: str) -> None:
    with pytest.raises(MalformedPacket) as caught:
        decode(bytes.fromhex(wire), V5)
    assert caught.value.clause == "MQTT-1.5.5-1"


def test_connect_of_5_is_held_to_5_whatever_the_connection() -> None:
    body = bytes.fromhex(MQTT5 + "02 003c 00 0001 63")
    with pytest.raises(MalformedPacket) as caught:
        decode(bytes((0x10, 0x80 | len(body), 0)) + body, V311)
    assert caught.value.clause == "MQTT-1.5.5-1"


VIEWS = [
    ("3000", "topic_bytes", "MQTT-2.1.4"),
    ("30", "topic_bytes", "MQTT-2.1.4"),
    ("3003000261", "topic", "MQTT-2.1.4"),
    ("3003000123", "topic", "MQTT-3.3.2-2"),
    ("30030001ff", "topic", "MQTT-1.5.4-1"),
    ("320400016100", "packet_id", "MQTT-2.1.4"),
    ("32050001610000", "packet_id", "MQTT-2.2.1-3"),
    ("320400016100", "payload", "MQTT-2.1.4"),
    ("3003000161", "payload", "MQTT-2.1.4"),
    ("3003000161", "properties", "MQTT-2.1.4"),
    ("30050001610201", "properties_bytes", "MQTT-2.1.4"),
]


@pytest.mark.parametrize(("wire", "attribute", "clause"), VIEWS)
def test_view_refuses_what_it_cannot_read(wire: str, attribute: str, clause: str) -> None:
    with pytest.raises(MqttError) as caught:
        getattr(PublishView(bytes.fromhex(wire), V5), attribute)
    assert caught.value.clause == clause


def test_view_of_an_empty_topic() -> None:
    assert PublishView(b"\x30\x03\0\0\0", V5).topic == ""
    with pytest.raises(MalformedPacket):
        _ = PublishView(b"\x30\x03\0\0x", V311).topic
