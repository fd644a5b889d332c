"""What all packets share, and the small ones: PINGREQ, PINGRESP, DISCONNECT, AUTH."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Self

from ildm.mqtt.constants import REASON_CODES, PacketType, Property, Version
from ildm.mqtt.errors import EncodeError, ProtocolViolation
from ildm.mqtt.limits import LARGEST, PacketLimits
from ildm.mqtt.properties import Properties, decode_properties, encode_properties
from ildm.mqtt.wire import check_end, put_frame


class ControlPacket:
    """Base of all packets; not an `ABC`, of which `isinstance` is a call in Python.

    ``properties`` must be empty in MQTT 3.x, and ``reason_code`` zero where 3.x has none.
    """

    __slots__ = ()
    type: ClassVar[PacketType]

    def encode(self, version: Version) -> bytes:
        """The whole packet, fixed header included.

        Raises:
            EncodeError: the standard forbids such a packet in that version.
        """
        raise NotImplementedError

    @classmethod
    def parse(cls, frame: bytes, pos: int, version: Version, limits: PacketLimits = LARGEST) -> Self:
        """Read the packet whose fixed header, already checked, ends at ``pos``. Raises: MqttError."""
        raise NotImplementedError


def check_reason_codes(type: PacketType, codes: Iterable[int], clause: str) -> None:
    """Raises: ProtocolViolation when MQTT 5 knows no such reason code in this packet."""
    allowed = REASON_CODES[type]
    for code in codes:
        if code not in allowed:
            raise ProtocolViolation(f"{type.name} with reason code 0x{code:02X}", clause=clause)


def put_reason_codes(type: PacketType, codes: Iterable[int], clause: str) -> bytes:
    """Raises: EncodeError when MQTT 5 knows no such reason code in this packet."""
    codes = list(codes)
    allowed = REASON_CODES[type]
    for code in codes:
        if code not in allowed:
            raise EncodeError(f"{type.name} with reason code {code!r}", clause=clause)
    return bytes(codes)


def require_plain(type: PacketType, version: Version, properties: Properties, reason_code: int = 0) -> None:
    """Raises: EncodeError when a packet for MQTT 3.x carries what only MQTT 5 has."""
    if properties:
        raise EncodeError(f"{type.name} of MQTT {version.name} has no properties")
    if reason_code:
        raise EncodeError(f"{type.name} of MQTT {version.name} has no reason code")


def reason_section(type: PacketType, reason_code: int, properties: Properties, clause: str) -> bytes:
    """Reason code and properties as far as they say anything (MQTT 5, 3.4.2.1, 3.14.2.1, 3.15.2.1)."""
    code = put_reason_codes(type, (reason_code,), clause)
    if properties:
        return code + encode_properties(properties, type)
    return code if reason_code else b""


def parse_reason_section(
    frame: bytes, pos: int, type: PacketType, clause: str, version: Version, limits: PacketLimits = LARGEST
) -> tuple[int, Properties]:
    """The inverse of ``reason_section``; up to the end of the frame. Raises: MqttError."""
    if pos == len(frame):
        return 0, {}
    if version is not Version.V5:
        check_end(frame, pos, type.name)
    reason_code = frame[pos]
    check_reason_codes(type, (reason_code,), clause)
    pos += 1
    if pos == len(frame):
        return reason_code, {}
    properties, pos = decode_properties(frame, pos, type, limits=limits)
    check_end(frame, pos, type.name)
    return reason_code, properties


@dataclass(slots=True, kw_only=True)
class PingReq(ControlPacket):
    """PINGREQ (MQTT 5, 3.12)."""

    type: ClassVar[PacketType] = PacketType.PINGREQ

    def encode(self, version: Version) -> bytes:
        return b"\xc0\0"

    @classmethod
    def parse(cls, frame: bytes, pos: int, version: Version, limits: PacketLimits = LARGEST) -> Self:
        check_end(frame, pos, "PINGREQ")
        return cls()


@dataclass(slots=True, kw_only=True)
class PingResp(ControlPacket):
    """PINGRESP (MQTT 5, 3.13)."""

    type: ClassVar[PacketType] = PacketType.PINGRESP

    def encode(self, version: Version) -> bytes:
        return b"\xd0\0"

    @classmethod
    def parse(cls, frame: bytes, pos: int, version: Version, limits: PacketLimits = LARGEST) -> Self:
        check_end(frame, pos, "PINGRESP")
        return cls()


@dataclass(slots=True, kw_only=True)
class Disconnect(ControlPacket):
    """DISCONNECT (MQTT 5, 3.14). That a server sends none in 3.x is for the caller to know."""

    type: ClassVar[PacketType] = PacketType.DISCONNECT
    reason_code: int = 0
    properties: Properties = field(default_factory=dict)

    def encode(self, version: Version) -> bytes:
        if version is not Version.V5:
            require_plain(self.type, version, self.properties, self.reason_code)
            return b"\xe0\0"
        return put_frame(0xE0, reason_section(self.type, self.reason_code, self.properties, "MQTT-3.14.2-1"))

    @classmethod
    def parse(cls, frame: bytes, pos: int, version: Version, limits: PacketLimits = LARGEST) -> Self:
        reason_code, properties = parse_reason_section(frame, pos, cls.type, "MQTT-3.14.2-1", version, limits)
        return cls(reason_code=reason_code, properties=properties)


@dataclass(slots=True, kw_only=True)
class Auth(ControlPacket):
    """AUTH (MQTT 5, 3.15); always with an authentication method (3.15.2.2.2, MQTT-4.12.0-5)."""

    type: ClassVar[PacketType] = PacketType.AUTH
    reason_code: int = 0
    properties: Properties = field(default_factory=dict)

    def encode(self, version: Version) -> bytes:
        if version is not Version.V5:
            raise EncodeError(f"MQTT {version.name} has no AUTH", clause="MQTT-2.1.2")
        if Property.AUTHENTICATION_METHOD not in self.properties:
            raise EncodeError("AUTH without an authentication method", clause="MQTT-3.15.2.2.2")
        return put_frame(0xF0, reason_section(self.type, self.reason_code, self.properties, "MQTT-3.15.2-1"))

    @classmethod
    def parse(cls, frame: bytes, pos: int, version: Version, limits: PacketLimits = LARGEST) -> Self:
        reason_code, properties = parse_reason_section(frame, pos, cls.type, "MQTT-3.15.2-1", version, limits)
        if Property.AUTHENTICATION_METHOD not in properties:
            raise ProtocolViolation("AUTH without an authentication method", clause="MQTT-3.15.2.2.2")
        return cls(reason_code=reason_code, properties=properties)
