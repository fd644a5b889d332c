"""PUBLISH, its lazy view for the data path, and the acknowledgements (MQTT 5, 3.3 to 3.7)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Self

from ildm.mqtt.constants import MAX_REMAINING_LENGTH, PacketType, Property, Version
from ildm.mqtt.control import ControlPacket, parse_reason_section, reason_section, require_plain
from ildm.mqtt.errors import EncodeError, ProtocolViolation
from ildm.mqtt.framing import decode_varint, encode_varint
from ildm.mqtt.limits import LARGEST, PacketLimits
from ildm.mqtt.properties import Properties, decode_properties, encode_properties, property_section
from ildm.mqtt.validate import check_topic_name
from ildm.mqtt.wire import put_frame, put_packet_id, put_topic, read_packet_id, text_of, truncated

_PLAIN = b"\x30\x32"
"""First bytes of PUBLISH with QoS 0 and 1, without DUP and RETAIN."""


@dataclass(slots=True, kw_only=True)
class Publish(ControlPacket):
    """PUBLISH (MQTT 5, 3.3). ``packet_id`` is None exactly when ``qos`` is 0 (MQTT-2.2.1-2, -3).

    ``topic`` may be empty in MQTT 5 when the properties have a topic alias (3.3.2.1).
    """

    type: ClassVar[PacketType] = PacketType.PUBLISH
    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int | None = None
    properties: Properties = field(default_factory=dict)

    def copy(self) -> Publish:
        """The same message, which shares nothing that could be changed."""
        properties = self.properties
        if properties:
            properties = {
                name: value.copy() if isinstance(value, list) else value for name, value in properties.items()
            }
        else:
            properties = {}
        return Publish(
            topic=self.topic,
            payload=self.payload,
            qos=self.qos,
            retain=self.retain,
            dup=self.dup,
            packet_id=self.packet_id,
            properties=properties,
        )

    def encode(self, version: Version) -> bytes:
        qos = self.qos
        topic = self.topic
        first = 0x31 if self.retain else 0x30
        if topic:
            head = put_topic(topic, "topic name")
        elif version is Version.V5 and Property.TOPIC_ALIAS in self.properties:
            head = b"\0\0"
        else:
            raise EncodeError("PUBLISH without topic name and topic alias", clause="MQTT-3.3.2.1")
        if qos == 0:
            if self.dup:
                raise EncodeError("DUP with QoS 0", clause="MQTT-3.3.1-2")
            if self.packet_id is not None:
                raise EncodeError("packet identifier with QoS 0", clause="MQTT-2.2.1-2")
        else:
            if qos not in (1, 2):
                raise EncodeError(f"PUBLISH with QoS {qos}", clause="MQTT-3.3.1-4")
            first |= qos << 1 | (8 if self.dup else 0)
            head += put_packet_id(self.packet_id, "PUBLISH")
        if version is Version.V5:
            head += encode_properties(self.properties, PacketType.PUBLISH) if self.properties else b"\0"
        elif self.properties:
            require_plain(self.type, version, self.properties)
        payload = self.payload
        length = len(head) + len(payload)
        if length > MAX_REMAINING_LENGTH:
            raise EncodeError(f"remaining length of {length} bytes", clause="MQTT-2.1.4")
        return b"".join((bytes((first,)), encode_varint(length), head, payload))

    @classmethod
    def parse(cls, frame: bytes, pos: int, version: Version, limits: PacketLimits = LARGEST) -> Self:
        first = frame[0]
        end = len(frame)
        if pos + 2 > end:
            raise truncated("the topic name")
        start = pos + 2
        pos = start + (frame[pos] << 8 | frame[pos + 1])
        if pos > end:
            raise truncated("the topic name")
        topic = text_of(frame[start:pos], "the topic name")
        if topic or version is not Version.V5:
            check_topic_name(topic)
        qos = first >> 1 & 3
        packet_id = None
        if qos:
            packet_id, pos = read_packet_id(frame, pos, "PUBLISH")
        properties: Properties = {}
        if version is Version.V5:
            if pos < end and frame[pos] == 0:
                pos += 1
            else:
                properties, pos = decode_properties(frame, pos, PacketType.PUBLISH, limits=limits)
            if not topic and Property.TOPIC_ALIAS not in properties:
                raise ProtocolViolation("PUBLISH without topic name and topic alias", clause="MQTT-3.3.2.1")
        return cls(
            topic=topic,
            payload=frame[pos:],
            qos=qos,
            retain=first & 1 == 1,
            dup=first & 8 == 8,
            packet_id=packet_id,
            properties=properties,
        )


def encoded_size(message: Publish) -> int:
    """Bytes of a message as a PUBLISH of MQTT 5, properties included; built is only what has properties.

    Raises:
        EncodeError: a property that cannot be encoded.
    """
    length = 2 + len(message.topic.encode()) + len(message.payload) + (2 if message.qos else 0)
    if message.properties:
        length += len(encode_properties(message.properties))
    else:
        length += 1
    return 2 + length if length < 128 else 1 + len(encode_varint(length)) + length


def plain_topic(frame: bytes) -> bytes | None:
    """The topic, which is not checked, of a whole PUBLISH of MQTT 5 that can be passed on as it is.

    None for any other packet: one of QoS 2, with DUP, RETAIN or properties, with packet identifier 0
    (MQTT-2.2.1-3), or of another length than it says.
    """
    size = len(frame)
    if size < 5 or frame[0] not in _PLAIN:
        return None
    if frame[1] < 128:
        start = 2
        remaining = frame[1]
    else:
        length = decode_varint(frame, 1)
        if length is None or length[0] < 128:  # MQTT-1.5.5-1
            return None
        remaining, start = length
    if start + remaining != size or remaining < 3:
        return None
    end = body = start + 2 + (frame[start] << 8 | frame[start + 1])
    if frame[0] != 0x30:
        body += 2
        if body > size or not (frame[end] or frame[end + 1]):
            return None
    return None if body >= size or frame[body] else frame[start + 2 : end]


class PublishView:
    """A PUBLISH that is looked at without being decoded; ``frame`` stays as it came.

    The frame must be a whole PUBLISH with legal flags. Each attribute is worked out when it is asked
    for, and checks no more than it needs: ``decode`` is what checks a packet completely.
    """

    __slots__ = ("_body", "_topic_end", "first", "frame", "version")

    def __init__(self, frame: bytes, version: Version) -> None:
        self.frame = frame
        self.version = version
        self.first = frame[0]
        self._topic_end = 0
        self._body = 0

    @property
    def qos(self) -> int:
        return self.first >> 1 & 3

    @property
    def retain(self) -> bool:
        return self.first & 1 == 1

    @property
    def dup(self) -> bool:
        return self.first & 8 == 8

    @property
    def topic_bytes(self) -> bytes:
        """The topic name as on the wire, perhaps empty. Raises: MalformedPacket when cut off."""
        frame = self.frame
        length = decode_varint(frame, 1)
        if length is None or length[1] + 2 > len(frame):
            raise truncated("the topic name")
        pos = length[1]
        end = pos + 2 + (frame[pos] << 8 | frame[pos + 1])
        if end > len(frame):
            raise truncated("the topic name")
        self._topic_end = end
        return frame[pos + 2 : end]

    @property
    def topic(self) -> str:
        """The topic name; empty only in MQTT 5. Raises: MalformedPacket when it is none."""
        topic = text_of(self.topic_bytes, "the topic name")
        if topic or self.version is not Version.V5:
            check_topic_name(topic)
        return topic

    @property
    def packet_id(self) -> int | None:
        """None for QoS 0. Raises: MqttError when cut off or 0."""
        if not self.first & 6:
            return None
        return read_packet_id(self.frame, self._after_topic(), "PUBLISH")[0]

    @property
    def properties(self) -> Properties:
        """Empty in MQTT 3.x. Raises: MqttError like ``decode_properties``."""
        if self.version is not Version.V5:
            return {}
        return decode_properties(self.frame, self._properties_start(), PacketType.PUBLISH)[0]

    @property
    def properties_bytes(self) -> bytes:
        """The properties as on the wire, without their length; empty in MQTT 3.x."""
        if self.version is not Version.V5:
            return b""
        start, self._body = property_section(self.frame, self._properties_start())
        return self.frame[start : self._body]

    @property
    def payload(self) -> bytes:
        """Raises: MalformedPacket when the fields before it are cut off."""
        if not self._body:
            start = self._properties_start()
            self._body = property_section(self.frame, start)[1] if self.version is Version.V5 else start
        return self.frame[self._body :]

    def _after_topic(self) -> int:
        if not self._topic_end:
            _ = self.topic_bytes
        return self._topic_end

    def _properties_start(self) -> int:
        start = self._after_topic() + (2 if self.first & 6 else 0)
        if start > len(self.frame):
            raise truncated("the packet identifier of PUBLISH")
        return start


@dataclass(slots=True, kw_only=True)
class _Acknowledgement(ControlPacket):
    """PUBACK, PUBREC, PUBREL and PUBCOMP have one form (MQTT 5, 3.4 to 3.7)."""

    packet_id: int
    reason_code: int = 0
    properties: Properties = field(default_factory=dict)

    def encode(self, version: Version) -> bytes:
        type = self.type
        head = put_packet_id(self.packet_id, type.name)
        if version is Version.V5:
            head += reason_section(type, self.reason_code, self.properties, _REASON_CLAUSES[type])
        else:
            require_plain(type, version, self.properties, self.reason_code)
        return put_frame(type << 4 | (2 if type is PacketType.PUBREL else 0), head)

    @classmethod
    def parse(cls, frame: bytes, pos: int, version: Version, limits: PacketLimits = LARGEST) -> Self:
        type = cls.type
        packet_id, pos = read_packet_id(frame, pos, type.name)
        reason_code, properties = parse_reason_section(
            frame, pos, type, _REASON_CLAUSES[type], version, limits
        )
        return cls(packet_id=packet_id, reason_code=reason_code, properties=properties)


_REASON_CLAUSES = {
    PacketType.PUBACK: "MQTT-3.4.2-1",
    PacketType.PUBREC: "MQTT-3.5.2-1",
    PacketType.PUBREL: "MQTT-3.6.2-1",
    PacketType.PUBCOMP: "MQTT-3.7.2-1",
}


@dataclass(slots=True, kw_only=True)
class PubAck(_Acknowledgement):
    """PUBACK (MQTT 5, 3.4): answer to a PUBLISH of QoS 1."""

    type: ClassVar[PacketType] = PacketType.PUBACK


@dataclass(slots=True, kw_only=True)
class PubRec(_Acknowledgement):
    """PUBREC (MQTT 5, 3.5): first answer to a PUBLISH of QoS 2."""

    type: ClassVar[PacketType] = PacketType.PUBREC


@dataclass(slots=True, kw_only=True)
class PubRel(_Acknowledgement):
    """PUBREL (MQTT 5, 3.6): answer to PUBREC."""

    type: ClassVar[PacketType] = PacketType.PUBREL


@dataclass(slots=True, kw_only=True)
class PubComp(_Acknowledgement):
    """PUBCOMP (MQTT 5, 3.7): answer to PUBREL."""

    type: ClassVar[PacketType] = PacketType.PUBCOMP
