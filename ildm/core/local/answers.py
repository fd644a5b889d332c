"""What a client is told in the broker's place, or in other words than the broker's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ildm.mqtt import (
    ConnAck,
    ConnectReturnCode,
    PubAck,
    PubRec,
    ReasonCode,
    SubAck,
    decode,
    decode_varint,
    encode_varint,
    members,
)
from ildm.mqtt.constants import MAX_REMAINING_LENGTH
from ildm.mqtt.properties import property_at, property_section

if TYPE_CHECKING:
    from ildm.config import LimitsConfig
    from ildm.mqtt import Connect
    from ildm.mqtt.properties import Properties

ANY_SIZE = 0xFFFFFFFF
"""Bytes of a packet for a client that has set no maximum."""
LARGEST_PACKET = MAX_REMAINING_LENGTH + 5
"""Bytes of the largest that there is (2.1.4)."""

_NEAREST = {
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION: ConnectReturnCode.UNACCEPTABLE_PROTOCOL_VERSION,
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: ConnectReturnCode.IDENTIFIER_REJECTED,
    ReasonCode.BAD_USER_NAME_OR_PASSWORD: ConnectReturnCode.BAD_USER_NAME_OR_PASSWORD,
    ReasonCode.BAD_AUTHENTICATION_METHOD: ConnectReturnCode.BAD_USER_NAME_OR_PASSWORD,
    ReasonCode.UNSPECIFIED_ERROR: ConnectReturnCode.SERVER_UNAVAILABLE,
    ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR: ConnectReturnCode.SERVER_UNAVAILABLE,
    ReasonCode.SERVER_UNAVAILABLE: ConnectReturnCode.SERVER_UNAVAILABLE,
    ReasonCode.SERVER_BUSY: ConnectReturnCode.SERVER_UNAVAILABLE,
    ReasonCode.QUOTA_EXCEEDED: ConnectReturnCode.SERVER_UNAVAILABLE,
    ReasonCode.USE_ANOTHER_SERVER: ConnectReturnCode.SERVER_UNAVAILABLE,
    ReasonCode.SERVER_MOVED: ConnectReturnCode.SERVER_UNAVAILABLE,
    ReasonCode.CONNECTION_RATE_EXCEEDED: ConnectReturnCode.SERVER_UNAVAILABLE,
}


def return_code(reason: ReasonCode) -> ConnectReturnCode:
    """The return code of CONNACK before MQTT 5 (3.1.1, 3.2.2.3) that is nearest to a reason.

    What says that it may be otherwise later is "server unavailable", what does not, "not authorized".
    """
    return _NEAREST.get(reason, ConnectReturnCode.NOT_AUTHORIZED)


def with_packet_size(frame: bytes, limit: int) -> bytes:
    """A CONNACK of MQTT 5 that tells a maximum packet size of ``limit`` at most (3.2.2.3.6).

    All else in it is the same bytes.

    Raises:
        MalformedPacket: its properties cannot be read.
    """
    length = decode_varint(frame, 1)
    if length is None or limit >= LARGEST_PACKET:
        return frame
    body = length[1]
    begin = body + 2
    told = limit.to_bytes(4, "big")
    at = property_at(frame, begin, members.MAXIMUM_PACKET_SIZE)
    if at:
        return frame if frame[at : at + 4] <= told else frame[:at] + told + frame[at + 4 :]
    start, end = property_section(frame, begin)
    properties = frame[start:end] + bytes((members.MAXIMUM_PACKET_SIZE,)) + told
    rest = frame[body:begin] + encode_varint(len(properties)) + properties + frame[end:]
    return frame[:1] + encode_varint(len(rest)) + rest


class Answers:
    """What a client allows in acknowledgements, and those that follow from it.

    Args:
        connect: of MQTT 5, as the client has sent it (MQTT-3.1.2-29); None: it is of an older version.
    """

    __slots__ = ("_changed", "_limits", "_packet_room", "_version", "_wants_reasons")

    def __init__(self, limits: LimitsConfig, connect: Connect | None = None) -> None:
        self._limits = limits
        self._version = members.V311 if connect is None else connect.version
        self._changed: tuple[Connect, Connect] | None = None
        """Its CONNECT of MQTT 5 as it has sent it and as the broker got it, until CONNACK."""
        self._packet_room = ANY_SIZE
        """The largest packet that it takes."""
        self._wants_reasons = False
        if connect is not None:
            self._wants_reasons = bool(connect.properties.get(members.REQUEST_PROBLEM_INFORMATION, 1))
            self._packet_room = int(connect.properties.get(members.MAXIMUM_PACKET_SIZE, ANY_SIZE))

    def connect_changed(self, sent: Connect, passed: Connect) -> None:
        """The broker gets another CONNECT than the client has sent."""
        if sent.version is members.V5:
            self._changed = sent, passed

    def connack(self, frame: bytes) -> bytes:
        """The broker's CONNACK, with what the client must know of the node and the broker does not say."""
        changed, self._changed = self._changed, None
        if changed is not None:
            frame = self._told_otherwise(frame, *changed)
        if self._version is not members.V5:
            return frame
        amended = with_packet_size(frame, self._limits.packet_size)
        return amended if len(amended) <= self._packet_room else frame

    def _told_otherwise(self, frame: bytes, sent: Connect, passed: Connect) -> bytes:
        """With what a server tells that does not do as the client has asked.

        MQTT-3.1.2-21, MQTT-3.2.2-16 and 3.2.2.3.2; the broker does not know that it does otherwise.
        """
        packet = decode(frame, self._version)
        assert isinstance(packet, ConnAck)
        told: Properties = {}
        if not sent.client_id and passed.client_id:
            told[members.ASSIGNED_CLIENT_IDENTIFIER] = passed.client_id
        if sent.keep_alive != passed.keep_alive:
            told[members.SERVER_KEEP_ALIVE] = passed.keep_alive
        expiry = members.SESSION_EXPIRY_INTERVAL
        if sent.properties.get(expiry, 0) != passed.properties.get(expiry, 0):
            told[expiry] = passed.properties.get(expiry, 0)
        packet.properties = {**told, **packet.properties}
        amended = packet.encode(self._version)
        return amended if told and len(amended) <= self._packet_room else frame

    def suback(self, packet_id: int, codes: list[int], text: str, properties: Properties) -> bytes:
        """A SUBACK with these codes; the rest as far as the client has room for it (MQTT-3.9.2-1, -2)."""
        packet = SubAck(packet_id=packet_id, reason_codes=codes, properties=dict(properties))
        encoded = self.with_reason(packet, "" if members.REASON_STRING in properties else text)
        if len(encoded) > self._packet_room:
            packet.properties.clear()
            encoded = packet.encode(self._version)
        return encoded

    def with_reason(self, packet: ConnAck | PubAck | PubRec | SubAck, text: str) -> bytes:
        """The packet with a reason string, if the client takes it there and has room for it.

        MQTT-3.1.2-29, MQTT-3.2.2-19, MQTT-3.4.2-2, MQTT-3.5.2-2, MQTT-3.9.2-1.
        """
        if text and (self._wants_reasons or (self._version is members.V5 and isinstance(packet, ConnAck))):
            packet.properties[members.REASON_STRING] = text
            encoded = packet.encode(self._version)
            if len(encoded) <= self._packet_room:
                return encoded
            del packet.properties[members.REASON_STRING]
        return packet.encode(self._version)
