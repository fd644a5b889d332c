"""CONNECT with its will, and CONNACK (MQTT 5, 3.1 and 3.2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Self

from ildm.mqtt import members
from ildm.mqtt.constants import ConnectReturnCode, PacketType, ReasonCode, Version
from ildm.mqtt.control import ControlPacket, check_reason_codes, put_reason_codes, require_plain
from ildm.mqtt.errors import EncodeError, MalformedPacket, ProtocolViolation, UnsupportedVersion
from ildm.mqtt.limits import LARGEST, PacketLimits
from ildm.mqtt.properties import Properties, decode_properties, encode_properties
from ildm.mqtt.validate import check_topic_name
from ildm.mqtt.wire import (
    check_end,
    check_shortest,
    put_binary,
    put_frame,
    put_string,
    put_topic,
    put_u16,
    read_binary,
    read_byte,
    read_string,
    read_u16,
)

_PROTOCOL_NAMES = {Version.V31: b"\0\x06MQIsdp", Version.V311: b"\0\x04MQTT", Version.V5: b"\0\x04MQTT"}
_LEVELS = {(b"MQIsdp", 3): Version.V31, (b"MQTT", 4): Version.V311, (b"MQTT", 5): Version.V5}
_BRIDGE = 0x80
_BRIDGE_LEVELS = (_BRIDGE | 3, _BRIDGE | 4)
_HEADS = {_PROTOCOL_NAMES[version] + bytes((version,)): version for version in (Version.V311, Version.V5)}
"""How the variable header of nearly every CONNECT begins."""
_LAST_CODE = max(ConnectReturnCode)


@dataclass(slots=True, kw_only=True)
class Will:
    """The message a server publishes when the connection ends abnormally (MQTT 5, 3.1.2.5)."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Connect(ControlPacket):
    """CONNECT (MQTT 5, 3.1), which carries its version itself.

    ``keep_alive`` is in seconds, 0 for none. ``clean_start`` is the clean session flag of 3.x.
    ``bridge`` is the top bit of the protocol level by which Mosquitto's bridges of 3.1 and 3.1.1 mark
    themselves; it is outside the standard, servers accept it.
    """

    type: ClassVar[PacketType] = PacketType.CONNECT
    client_id: str
    version: Version = Version.V311
    clean_start: bool = True
    keep_alive: int = 60
    username: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties = field(default_factory=dict)
    bridge: bool = False

    def encode(self, version: Version | None = None) -> bytes:
        """The whole packet in its own version; ``version``, if given, must be the same.

        Raises:
            EncodeError: the standard forbids such a packet.
        """
        own = self.version
        if version is not None and version != own:
            raise EncodeError(f"CONNECT of {own.name} asked for as {Version(version).name}")
        v5 = own is members.V5
        if self.bridge and v5:
            raise EncodeError("the bridge bit exists for MQTT 3.1 and 3.1.1 only")
        if not v5:
            require_plain(self.type, own, self.properties)
            if self.password is not None and self.username is None:
                raise EncodeError("password without user name", clause="MQTT-3.1.2-22 (3.1.1)")
            if not self.client_id and (own is members.V31 or not self.clean_start):
                raise EncodeError("empty client identifier", clause="MQTT-3.1.3-7 (3.1.1)")
        elif _data_without_method(self.properties):
            raise EncodeError("authentication data without a method", clause="MQTT-3.1.2.11.10")
        flags = 2 if self.clean_start else 0
        if self.username is not None:
            flags |= 0x80
        if self.password is not None:
            flags |= 0x40
        tail = [put_string(self.client_id, "client identifier")]
        will = self.will
        if will is not None:
            if will.qos not in (0, 1, 2):
                raise EncodeError(f"will QoS {will.qos}", clause="MQTT-3.1.2-12")
            flags |= 4 | will.qos << 3 | bool(will.retain) << 5
            if v5:
                tail.append(encode_properties(will.properties, self.type, will=True))
            elif will.properties:
                raise EncodeError(f"a will of MQTT {own.name} has no properties")
            tail.append(put_topic(will.topic, "will topic"))
            tail.append(put_binary(will.payload, "will payload"))
        if self.username is not None:
            tail.append(put_string(self.username, "user name"))
        if self.password is not None:
            tail.append(put_binary(self.password, "password"))
        head = [
            _PROTOCOL_NAMES[own],
            bytes((own | (_BRIDGE if self.bridge else 0), flags)),
            put_u16(self.keep_alive, "keep alive"),
        ]
        if v5:
            head.append(encode_properties(self.properties, self.type))
        return put_frame(0x10, b"".join(head + tail))

    @classmethod
    def parse(cls, frame: bytes, pos: int, version: Version, limits: PacketLimits = LARGEST) -> Self:
        """Read CONNECT; ``version`` is not used, the packet has its own."""
        header = pos
        bridge = False
        known = _HEADS.get(frame[pos : pos + 7])
        if known is None:
            version, bridge, pos = _parse_level(frame, pos)
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
            properties, pos = decode_properties(frame, pos, cls.type, limits=limits)
            if _data_without_method(properties):
                raise ProtocolViolation("authentication data without a method", clause="MQTT-3.1.2.11.10")
        client_id, pos = read_string(frame, pos, "the client identifier")
        clean_start = bool(flags & 2)
        if not client_id and not v5 and (version is members.V31 or not clean_start):
            raise ProtocolViolation(
                "empty client identifier",
                clause="MQTT-3.1.3-8 (3.1.1)",
                reason=ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
            )
        will = None
        if flags & 4:
            will, pos = _parse_will(frame, pos, flags, v5, limits)
        # MQTT 3.1 (3.1): the remaining length takes precedence over the two flags.
        lenient = version is members.V31
        username = password = None
        if flags & 0x80 and not (lenient and pos == len(frame)):
            username, pos = read_string(frame, pos, "the user name")
        if flags & 0x40 and not (lenient and pos == len(frame)):
            password, pos = read_binary(frame, pos, "the password")
        check_end(frame, pos, "CONNECT")
        return cls(
            client_id=client_id,
            version=version,
            clean_start=clean_start,
            keep_alive=keep_alive,
            username=username,
            password=password,
            will=will,
            properties=properties,
            bridge=bridge,
        )


def _data_without_method(properties: Properties) -> bool:
    return members.AUTHENTICATION_DATA in properties and members.AUTHENTICATION_METHOD not in properties


def _parse_level(frame: bytes, pos: int) -> tuple[Version, bool, int]:
    name, pos = read_binary(frame, pos, "the protocol name")
    if name not in (b"MQTT", b"MQIsdp"):
        raise ProtocolViolation(
            f"protocol name {name[:16]!r}",
            clause="MQTT-3.1.2-1",
            reason=ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
        )
    level, pos = read_byte(frame, pos, "the protocol level")
    bridge = level in _BRIDGE_LEVELS
    version = _LEVELS.get((name, level & ~_BRIDGE if bridge else level))
    if version is None:
        raise UnsupportedVersion(f"{name.decode()} of level {level}", level=level)
    return version, bridge, pos


def _check_flags(flags: int, version: Version) -> None:
    if flags & 1 and version is not Version.V31:
        raise MalformedPacket("reserved connect flag is set", clause="MQTT-3.1.2-3")
    will_qos = flags >> 3 & 3
    if flags & 4:
        if will_qos == 3:
            raise MalformedPacket("will QoS 3", clause="MQTT-3.1.2-12")
    elif will_qos:
        raise MalformedPacket("will QoS without will", clause="MQTT-3.1.2-11")
    elif flags & 0x20:
        raise MalformedPacket("will retain without will", clause="MQTT-3.1.2-13")
    if flags & 0xC0 == 0x40 and version is not Version.V5:
        raise MalformedPacket("password without user name", clause="MQTT-3.1.2-22 (3.1.1)")


def _parse_will(frame: bytes, pos: int, flags: int, v5: bool, limits: PacketLimits) -> tuple[Will, int]:
    properties: Properties = {}
    if v5:
        properties, pos = decode_properties(frame, pos, members.CONNECT, will=True, limits=limits)
    topic, pos = read_string(frame, pos, "the will topic")
    check_topic_name(topic)
    payload, pos = read_binary(frame, pos, "the will payload")
    will = Will(
        topic=topic,
        payload=payload,
        qos=flags >> 3 & 3,
        retain=bool(flags & 0x20),
        properties=properties,
    )
    return will, pos


@dataclass(slots=True, kw_only=True)
class ConnAck(ControlPacket):
    """CONNACK (MQTT 5, 3.2); ``reason_code`` is a ReasonCode in MQTT 5, a ConnectReturnCode in 3.x."""

    type: ClassVar[PacketType] = PacketType.CONNACK
    session_present: bool = False
    reason_code: int = 0
    properties: Properties = field(default_factory=dict)

    def encode(self, version: Version) -> bytes:
        if self.session_present and self.reason_code != 0:
            raise EncodeError("session present in a refusal", clause="MQTT-3.2.2-6")
        flags = bytes((bool(self.session_present),))
        if version is members.V5:
            code = put_reason_codes(self.type, (self.reason_code,), "MQTT-3.2.2-8")
            return put_frame(0x20, flags + code + encode_properties(self.properties, self.type))
        require_plain(self.type, version, self.properties)
        if version is members.V31 and self.session_present:
            raise EncodeError("MQTT 3.1 has no session present flag")
        if not 0 <= self.reason_code <= _LAST_CODE:
            raise EncodeError(f"CONNACK with return code {self.reason_code}", clause="MQTT-3.2.2.3 (3.1.1)")
        return b"\x20\x02" + flags + bytes((self.reason_code,))

    @classmethod
    def parse(cls, frame: bytes, pos: int, version: Version, limits: PacketLimits = LARGEST) -> Self:
        flags, pos = read_byte(frame, pos, "the connect acknowledge flags")
        reason_code, pos = read_byte(frame, pos, "the reason code")
        # MQTT 3.1 (3.2) does not use this byte at all.
        if version is members.V31:
            flags = 0
        if flags > 1:
            raise MalformedPacket(f"connect acknowledge flags {flags:08b}", clause="MQTT-3.2.2-1")
        if flags and reason_code != 0:
            raise ProtocolViolation("session present in a refusal", clause="MQTT-3.2.2-6")
        properties: Properties = {}
        if version is members.V5:
            check_reason_codes(cls.type, (reason_code,), "MQTT-3.2.2-8")
            properties, pos = decode_properties(frame, pos, cls.type, limits=limits)
        elif reason_code > _LAST_CODE:
            raise ProtocolViolation(f"CONNACK with return code {reason_code}", clause="MQTT-3.2.2.3 (3.1.1)")
        check_end(frame, pos, "CONNACK")
        return cls(session_present=bool(flags), reason_code=reason_code, properties=properties)
