"""Reading CONNECT (MQTT 5, 3.1): apart from its class, which is a dataclass and so cannot be compiled."""

from __future__ import annotations

from typing import Final

from ildm.mqtt import members
from ildm.mqtt.constants import ReasonCode, Version
from ildm.mqtt.errors import MalformedPacket, ProtocolViolation, UnsupportedVersion
from ildm.mqtt.limits import PacketLimits
from ildm.mqtt.properties import Properties, decode_properties
from ildm.mqtt.validate import check_topic_name
from ildm.mqtt.wire import check_end, check_shortest, read_binary, read_byte, read_string, read_u16

WillFields = tuple[str, bytes, int, bool, Properties]
"""Topic, payload, QoS, retain, properties."""
ConnectFields = tuple[str, Version, bool, int, str | None, bytes | None, WillFields | None, Properties, bool]
"""Client identifier, version, clean start, keep alive, user name, password, will, properties, bridge."""

BRIDGE: Final = 0x80
"""Bit of the level by which Mosquitto's bridges mark themselves."""
PROTOCOL_NAMES: Final = {
    Version.V31: b"\0\x06MQIsdp",
    Version.V311: b"\0\x04MQTT",
    Version.V5: b"\0\x04MQTT",
}
_LEVELS: Final = {(b"MQIsdp", 3): Version.V31, (b"MQTT", 4): Version.V311, (b"MQTT", 5): Version.V5}
_BRIDGE_LEVELS: Final = (BRIDGE | 3, BRIDGE | 4)
_HEADS: Final = {
    PROTOCOL_NAMES[version] + bytes((version,)): version for version in (Version.V311, Version.V5)
}
"""How the variable header of nearly every CONNECT begins."""


def read_connect(frame: bytes, pos: int, limits: PacketLimits) -> ConnectFields:
    """The fields of the CONNECT whose variable header begins at ``pos``.

    Raises:
        MalformedPacket, ProtocolViolation, UnsupportedVersion: with the clause that is broken.
        OverLimit: more properties than ``limits`` allow.
    """
    header = pos
    bridge = False
    known = _HEADS.get(frame[pos : pos + 7])
    if known is None:
        version, bridge, pos = _read_level(frame, pos)
    else:
        version, pos = known, pos + 7
    v5 = version is members.V5
    if v5:
        check_shortest(header - 1, len(frame) - header, "the remaining length")
    flags, pos = read_byte(frame, pos, "the connect flags")
    _check_flags(flags, version)
    keep_alive, pos = read_u16(frame, pos, "the keep alive")
    properties: Properties = {}
    if v5:
        properties, pos = decode_properties(frame, pos, members.CONNECT, limits=limits)
        if data_without_method(properties):
            raise ProtocolViolation("authentication data without a method", clause="MQTT-3.1.2.11.10")
    client_id, pos = read_string(frame, pos, "the client identifier")
    clean_start = bool(flags & 2)
    if not client_id and not v5 and (version is members.V31 or not clean_start):
        raise ProtocolViolation(
            "empty client identifier",
            clause="MQTT-3.1.3-8 (3.1.1)",
            reason=ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
        )
    will: WillFields | None = None
    if flags & 4:
        will, pos = _read_will(frame, pos, flags, v5, limits)
    # MQTT 3.1 (3.1): the remaining length takes precedence over the two flags.
    lenient = version is members.V31
    username: str | None = None
    password: bytes | None = None
    if flags & 0x80 and not (lenient and pos == len(frame)):
        username, pos = read_string(frame, pos, "the user name")
    if flags & 0x40 and not (lenient and pos == len(frame)):
        password, pos = read_binary(frame, pos, "the password")
    check_end(frame, pos, "CONNECT")
    return client_id, version, clean_start, keep_alive, username, password, will, properties, bridge


def data_without_method(properties: Properties) -> bool:
    return members.AUTHENTICATION_DATA in properties and members.AUTHENTICATION_METHOD not in properties


def _read_level(frame: bytes, pos: int) -> tuple[Version, bool, int]:
    name, pos = read_binary(frame, pos, "the protocol name")
    if name not in (b"MQTT", b"MQIsdp"):
        raise ProtocolViolation(
            f"protocol name {name[:16]!r}",
            clause="MQTT-3.1.2-1",
            reason=ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
        )
    level, pos = read_byte(frame, pos, "the protocol level")
    bridge = level in _BRIDGE_LEVELS
    version = _LEVELS.get((name, level & ~BRIDGE if bridge else level))
    if version is None:
        raise UnsupportedVersion(f"{name.decode()} of level {level}", level=level)
    return version, bridge, pos


def _check_flags(flags: int, version: Version) -> None:
    if flags & 1 and version is not members.V31:
        raise MalformedPacket("reserved connect flag is set", clause="MQTT-3.1.2-3")
    will_qos = flags >> 3 & 3
    if flags & 4:
        if will_qos == 3:
            raise MalformedPacket("will QoS 3", clause="MQTT-3.1.2-12")
    elif will_qos:
        raise ProtocolViolation("will QoS without will", clause="MQTT-3.1.2-11")
    elif flags & 0x20:
        raise ProtocolViolation("will retain without will", clause="MQTT-3.1.2-13")
    if flags & 0xC0 == 0x40 and version is not members.V5:
        raise MalformedPacket("password without user name", clause="MQTT-3.1.2-22 (3.1.1)")


def _read_will(frame: bytes, pos: int, flags: int, v5: bool, limits: PacketLimits) -> tuple[WillFields, int]:
    properties: Properties = {}
    if v5:
        properties, pos = decode_properties(frame, pos, members.CONNECT, will=True, limits=limits)
    topic, pos = read_string(frame, pos, "the will topic")
    check_topic_name(topic)
    payload, pos = read_binary(frame, pos, "the will payload")
    return (topic, payload, flags >> 3 & 3, bool(flags & 0x20), properties), pos
