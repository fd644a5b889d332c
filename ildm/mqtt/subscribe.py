"""SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK (MQTT 5, 3.8 to 3.11)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Self

from ildm.mqtt.constants import PacketType, Version
from ildm.mqtt.control import ControlPacket, check_reason_codes, put_reason_codes, require_plain
from ildm.mqtt.errors import EncodeError, MalformedPacket, OverLimit, ProtocolViolation
from ildm.mqtt.limits import LARGEST, PacketLimits
from ildm.mqtt.properties import Properties, decode_properties, encode_properties
from ildm.mqtt.validate import check_topic_filter
from ildm.mqtt.wire import (
    check_end,
    put_filter,
    put_frame,
    put_packet_id,
    read_byte,
    read_packet_id,
    read_string,
)

_RETURN_CODES = {0, 1, 2, 0x80}
_SHARE = "$share/"


@dataclass(slots=True, kw_only=True)
class Subscription:
    """One topic filter of a SUBSCRIBE with its options (MQTT 5, 3.8.3.1); 3.x has only ``qos``.

    ``retain_handling``: 0 send retained messages, 1 only for a new subscription, 2 never.
    """

    topic_filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0

    def options(self, version: Version) -> int:
        """The options byte. Raises: EncodeError for what is not allowed, or not in that version."""
        if self.qos not in (0, 1, 2):
            raise EncodeError(f"subscription with QoS {self.qos}", clause="MQTT-3.8.3.1")
        if version is not Version.V5:
            if self.no_local or self.retain_as_published or self.retain_handling:
                raise EncodeError(f"MQTT {version.name} has no subscription option but QoS")
            return self.qos
        if self.retain_handling not in (0, 1, 2):
            raise EncodeError(f"retain handling {self.retain_handling}", clause="MQTT-3.8.3.1")
        if self.no_local and self.topic_filter.startswith(_SHARE):
            raise EncodeError("no local on a shared subscription", clause="MQTT-3.8.3-4")
        return (
            self.qos
            | bool(self.no_local) << 2
            | bool(self.retain_as_published) << 3
            | self.retain_handling << 4
        )

    @classmethod
    def parse(cls, topic_filter: str, options: int, version: Version) -> Self:
        """Raises: MqttError when ``options`` is not allowed."""
        qos = options & 3
        if version is not Version.V5:
            # 3.1.1 numbers this statement with a hyphen too many; this is its id as printed there.
            if options > 2:
                raise MalformedPacket(f"subscription options {options:08b}", clause="MQTT-3-8.3-4 (3.1.1)")
            return cls(topic_filter=topic_filter, qos=qos)
        if options & 0xC0:
            raise MalformedPacket(f"subscription options {options:08b}", clause="MQTT-3.8.3-5")
        handling = options >> 4 & 3
        if qos == 3 or handling == 3:
            raise ProtocolViolation(f"subscription options {options:08b}", clause="MQTT-3.8.3.1")
        if options & 4 and topic_filter.startswith(_SHARE):
            raise ProtocolViolation("no local on a shared subscription", clause="MQTT-3.8.3-4")
        return cls(
            topic_filter=topic_filter,
            qos=qos,
            no_local=bool(options & 4),
            retain_as_published=bool(options & 8),
            retain_handling=handling,
        )


@dataclass(slots=True, kw_only=True)
class Subscribe(ControlPacket):
    """SUBSCRIBE (MQTT 5, 3.8)."""

    type: ClassVar[PacketType] = PacketType.SUBSCRIBE
    packet_id: int
    subscriptions: list[Subscription]
    properties: Properties = field(default_factory=dict)

    def encode(self, version: Version) -> bytes:
        if not self.subscriptions:
            raise EncodeError("SUBSCRIBE without a topic filter", clause="MQTT-3.8.3-2")
        parts = _head(self.type, self.packet_id, self.properties, version)
        shared = version is Version.V5
        for subscription in self.subscriptions:
            parts.append(put_filter(subscription.topic_filter, shared))
            parts.append(bytes((subscription.options(version),)))
        return put_frame(0x82, b"".join(parts))

    @classmethod
    def parse(cls, frame: bytes, pos: int, version: Version, limits: PacketLimits = LARGEST) -> Self:
        packet_id, properties, pos = _parse_head(frame, pos, cls.type, version, limits)
        if pos == len(frame):
            raise ProtocolViolation("SUBSCRIBE without a topic filter", clause="MQTT-3.8.3-2")
        shared = version is Version.V5
        subscriptions: list[Subscription] = []
        while pos < len(frame):
            if len(subscriptions) >= limits.filters:
                raise _too_many(limits)
            topic_filter, pos = read_string(frame, pos, "a topic filter")
            check_topic_filter(topic_filter, shared=shared)
            options, pos = read_byte(frame, pos, "subscription options")
            subscriptions.append(Subscription.parse(topic_filter, options, version))
        return cls(packet_id=packet_id, subscriptions=subscriptions, properties=properties)


@dataclass(slots=True, kw_only=True)
class SubAck(ControlPacket):
    """SUBACK (MQTT 5, 3.9): one reason code for each topic filter, in order (MQTT-3.9.3-1)."""

    type: ClassVar[PacketType] = PacketType.SUBACK
    packet_id: int
    reason_codes: list[int]
    properties: Properties = field(default_factory=dict)

    def encode(self, version: Version) -> bytes:
        if not self.reason_codes:
            raise EncodeError("SUBACK without a reason code", clause="MQTT-3.8.4-6")
        parts = _head(self.type, self.packet_id, self.properties, version)
        if version is not Version.V5 and not set(self.reason_codes) <= _RETURN_CODES:
            raise EncodeError(f"SUBACK with {self.reason_codes}", clause="MQTT-3.9.3-2 (3.1.1)")
        parts.append(put_reason_codes(self.type, self.reason_codes, "MQTT-3.9.3-2"))
        return put_frame(0x90, b"".join(parts))

    @classmethod
    def parse(cls, frame: bytes, pos: int, version: Version, limits: PacketLimits = LARGEST) -> Self:
        packet_id, properties, pos = _parse_head(frame, pos, cls.type, version, limits)
        codes = frame[pos:]
        if not codes:
            raise ProtocolViolation("SUBACK without a reason code", clause="MQTT-3.8.4-6")
        if len(codes) > limits.filters:
            raise _too_many(limits)
        if version is Version.V5:
            check_reason_codes(cls.type, codes, "MQTT-3.9.3-2")
        elif not set(codes) <= _RETURN_CODES:
            raise ProtocolViolation("SUBACK with a reserved return code", clause="MQTT-3.9.3-2 (3.1.1)")
        return cls(packet_id=packet_id, reason_codes=list(codes), properties=properties)


@dataclass(slots=True, kw_only=True)
class Unsubscribe(ControlPacket):
    """UNSUBSCRIBE (MQTT 5, 3.10)."""

    type: ClassVar[PacketType] = PacketType.UNSUBSCRIBE
    packet_id: int
    topic_filters: list[str]
    properties: Properties = field(default_factory=dict)

    def encode(self, version: Version) -> bytes:
        if not self.topic_filters:
            raise EncodeError("UNSUBSCRIBE without a topic filter", clause="MQTT-3.10.3-2")
        parts = _head(self.type, self.packet_id, self.properties, version)
        shared = version is Version.V5
        parts += [put_filter(topic_filter, shared) for topic_filter in self.topic_filters]
        return put_frame(0xA2, b"".join(parts))

    @classmethod
    def parse(cls, frame: bytes, pos: int, version: Version, limits: PacketLimits = LARGEST) -> Self:
        packet_id, properties, pos = _parse_head(frame, pos, cls.type, version, limits)
        if pos == len(frame):
            raise ProtocolViolation("UNSUBSCRIBE without a topic filter", clause="MQTT-3.10.3-2")
        shared = version is Version.V5
        topic_filters: list[str] = []
        while pos < len(frame):
            if len(topic_filters) >= limits.filters:
                raise _too_many(limits)
            topic_filter, pos = read_string(frame, pos, "a topic filter")
            check_topic_filter(topic_filter, shared=shared)
            topic_filters.append(topic_filter)
        return cls(packet_id=packet_id, topic_filters=topic_filters, properties=properties)


@dataclass(slots=True, kw_only=True)
class UnsubAck(ControlPacket):
    """UNSUBACK (MQTT 5, 3.11): one reason code for each topic filter (MQTT-3.11.3-1), none in 3.x."""

    type: ClassVar[PacketType] = PacketType.UNSUBACK
    packet_id: int
    reason_codes: list[int] = field(default_factory=list)
    properties: Properties = field(default_factory=dict)

    def encode(self, version: Version) -> bytes:
        parts = _head(self.type, self.packet_id, self.properties, version)
        if version is Version.V5:
            if not self.reason_codes:
                raise EncodeError("UNSUBACK without a reason code", clause="MQTT-3.11.3-1")
            parts.append(put_reason_codes(self.type, self.reason_codes, "MQTT-3.11.3-2"))
        elif self.reason_codes:
            raise EncodeError(f"UNSUBACK of MQTT {version.name} has no reason codes")
        return put_frame(0xB0, b"".join(parts))

    @classmethod
    def parse(cls, frame: bytes, pos: int, version: Version, limits: PacketLimits = LARGEST) -> Self:
        packet_id, properties, pos = _parse_head(frame, pos, cls.type, version, limits)
        if version is not Version.V5:
            check_end(frame, pos, "UNSUBACK")
            return cls(packet_id=packet_id)
        codes = frame[pos:]
        if not codes:
            raise ProtocolViolation("UNSUBACK without a reason code", clause="MQTT-3.11.3-1")
        if len(codes) > limits.filters:
            raise _too_many(limits)
        check_reason_codes(cls.type, codes, "MQTT-3.11.3-2")
        return cls(packet_id=packet_id, reason_codes=list(codes), properties=properties)


def _too_many(limits: PacketLimits) -> OverLimit:
    return OverLimit(f"more than {limits.filters} topic filters in a packet", clause="MQTT-4.13.2")


def _head(type: PacketType, packet_id: int, properties: Properties, version: Version) -> list[bytes]:
    parts = [put_packet_id(packet_id, type.name)]
    if version is Version.V5:
        parts.append(encode_properties(properties, type))
    else:
        require_plain(type, version, properties)
    return parts


def _parse_head(
    frame: bytes, pos: int, type: PacketType, version: Version, limits: PacketLimits
) -> tuple[int, Properties, int]:
    packet_id, pos = read_packet_id(frame, pos, type.name)
    if version is not Version.V5:
        return packet_id, {}, pos
    properties, pos = decode_properties(frame, pos, type, limits=limits)
    return packet_id, properties, pos
