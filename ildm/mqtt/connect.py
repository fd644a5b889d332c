"""CONNECT with its will, and CONNACK (MQTT 5, 3.1 and 3.2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Self

from ildm.mqtt import members
from ildm.mqtt.connect_fields import BRIDGE, PROTOCOL_NAMES, WillFields, data_without_method, read_connect
from ildm.mqtt.constants import ConnectReturnCode, PacketType, ReasonCode, Version
from ildm.mqtt.control import ControlPacket, check_reason_codes, put_reason_codes, require_plain
from ildm.mqtt.errors import EncodeError, MalformedPacket, ProtocolViolation
from ildm.mqtt.framing import decode_varint
from ildm.mqtt.limits import LARGEST, PacketLimits
from ildm.mqtt.properties import Properties, decode_properties, encode_properties
from ildm.mqtt.wire import check_end, put_binary, put_frame, put_string, put_topic, put_u16, read_byte

_LAST_CODE = max(ConnectReturnCode)
CANNOT_SERVE = (ConnectReturnCode.SERVER_UNAVAILABLE, ReasonCode.SERVER_UNAVAILABLE)
"""Codes in a CONNACK of a broker that is there and does not work (3.1.1: 3.2.2.3; 5: 3.2.2.2)."""


@dataclass(slots=True, kw_only=True)
class Will:
    """The message a server publishes when the connection ends abnormally (MQTT 5, 3.1.2.5)."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: Properties = field(default_factory=dict)

    @classmethod
    def of(cls, read: WillFields) -> Self:
        """Made of what was read."""
        topic, payload, qos, retain, properties = read
        return cls(topic=topic, payload=payload, qos=qos, retain=retain, properties=properties)


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
        elif data_without_method(self.properties):
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
            PROTOCOL_NAMES[own],
            bytes((own | (BRIDGE if self.bridge else 0), flags)),
            put_u16(self.keep_alive, "keep alive"),
        ]
        if v5:
            head.append(encode_properties(self.properties, self.type))
        return put_frame(0x10, b"".join(head + tail))

    @classmethod
    def parse(cls, frame: bytes, pos: int, version: Version, limits: PacketLimits = LARGEST) -> Self:
        """Read CONNECT; ``version`` is not used, the packet has its own."""
        made = cls.__new__(cls)  # __init__ with as many keywords takes longer than to read them all
        (
            made.client_id,
            made.version,
            made.clean_start,
            made.keep_alive,
            made.username,
            made.password,
            will,
            made.properties,
            made.bridge,
        ) = read_connect(frame, pos, limits)
        made.will = None if will is None else Will.of(will)
        return made


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


def connack_code(frame: bytes) -> int:
    """The return or reason code of a CONNACK, which stands at the same place in all versions.

    To be asked before decoding: a broker of 3.1.1 refuses a CONNECT of version 5 with code 1, in the form of
    3.1.1 (3.1.1, 3.1.2.2) or, as Moquette does, with the empty properties of version 5. 0 for a packet too
    short to have one.
    """
    length = decode_varint(frame, 1)
    return frame[length[1] + 1] if length is not None and len(frame) > length[1] + 1 else 0
