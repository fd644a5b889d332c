"""All MQTT control packets of 3.1, 3.1.1 and 5 in one model: reading and making them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields
from typing import Any, TypeAlias

from ildm.mqtt.connect import ConnAck, Connect, Will
from ildm.mqtt.constants import PacketType, Version
from ildm.mqtt.control import Auth, ControlPacket, Disconnect, PingReq, PingResp
from ildm.mqtt.errors import EncodeError, MalformedPacket
from ildm.mqtt.framing import check_first_byte, decode_varint
from ildm.mqtt.limits import LARGEST, PacketLimits
from ildm.mqtt.publish import PubAck, PubComp, Publish, PubRec, PubRel
from ildm.mqtt.subscribe import SubAck, Subscribe, Subscription, UnsubAck, Unsubscribe
from ildm.mqtt.wire import check_shortest, truncated

Packet: TypeAlias = (
    Connect
    | ConnAck
    | Publish
    | PubAck
    | PubRec
    | PubRel
    | PubComp
    | Subscribe
    | SubAck
    | Unsubscribe
    | UnsubAck
    | PingReq
    | PingResp
    | Disconnect
    | Auth
)
"""Any control packet."""

PLAIN_PUBLISH = 0x30
"""First byte of a PUBLISH of QoS 0 without flags: by far the most frequent one."""

_CLASSES: dict[
    PacketType,
    type[Connect]
    | type[ConnAck]
    | type[Publish]
    | type[PubAck]
    | type[PubRec]
    | type[PubRel]
    | type[PubComp]
    | type[Subscribe]
    | type[SubAck]
    | type[Unsubscribe]
    | type[UnsubAck]
    | type[PingReq]
    | type[PingResp]
    | type[Disconnect]
    | type[Auth],
] = {
    PacketType.CONNECT: Connect,
    PacketType.CONNACK: ConnAck,
    PacketType.PUBLISH: Publish,
    PacketType.PUBACK: PubAck,
    PacketType.PUBREC: PubRec,
    PacketType.PUBREL: PubRel,
    PacketType.PUBCOMP: PubComp,
    PacketType.SUBSCRIBE: Subscribe,
    PacketType.SUBACK: SubAck,
    PacketType.UNSUBSCRIBE: Unsubscribe,
    PacketType.UNSUBACK: UnsubAck,
    PacketType.PINGREQ: PingReq,
    PacketType.PINGRESP: PingResp,
    PacketType.DISCONNECT: Disconnect,
    PacketType.AUTH: Auth,
}


def _by_first_byte(version: Version) -> list[Any]:
    classes: list[Any] = [None] * 256
    for first in range(256):
        with suppress(MalformedPacket):
            classes[first] = _CLASSES[check_first_byte(first, version)]
    return classes


_BY_FIRST_BYTE = {version: _by_first_byte(version) for version in Version}
"""The class of a packet by its first byte; None for one that is not legal."""


def decode(frame: bytes, version: Version, limits: PacketLimits = LARGEST) -> Packet:
    """Read one whole packet, whoever sent it, and check it against the standard.

    ``frame`` is exactly one packet, fixed header included. ``version`` is that of the connection; a
    CONNECT is read in the version it states itself. Which side may send a packet, and when, is not
    decided here: see ``CLIENT_FIRST_BYTE`` and ``SERVER_FIRST_BYTE``.

    Raises:
        MalformedPacket, ProtocolViolation, UnsupportedVersion: with the clause that is broken.
        OverLimit: more in it than ``limits`` allow; found before the work is done.
    """
    if not frame:
        raise truncated("the fixed header")
    first = frame[0]
    # The flags of CONNECT and the existence of its type do not depend on the version.
    cls = _BY_FIRST_BYTE[version][first] or _CLASSES[check_first_byte(first, version)]
    length = decode_varint(frame, 1)
    if length is None:
        raise truncated("the fixed header")
    remaining, pos = length
    if pos + remaining != len(frame):
        raise MalformedPacket(
            f"remaining length {remaining}, but {len(frame) - pos} bytes follow", clause="MQTT-2.1.4"
        )
    if pos > 2 and version is Version.V5:
        check_shortest(pos - 1, remaining, "the remaining length")
    return cls.parse(frame, pos, version, limits)


def create_message(type: PacketType, version: Version, **params: Any) -> bytes:
    """Build a packet of any type from keywords named like the fields of its class.

    This is ``createMqttMessage`` of the thesis (Table 5.1). ``will`` may be a mapping of the fields of
    ``Will``, each of ``subscriptions`` a mapping of the fields of ``Subscription``.

    Raises:
        EncodeError: an unknown or missing parameter, by name, or a packet the standard forbids.
    """
    try:
        cls = _CLASSES[PacketType(type)]
        version = Version(version)
    except ValueError as error:
        raise EncodeError(str(error)) from None
    if cls is Connect:
        params["version"] = version
    will = params.get("will")
    if isinstance(will, Mapping):
        params["will"] = _build(Will, will)
    subscriptions = params.get("subscriptions")
    if isinstance(subscriptions, Iterable):
        params["subscriptions"] = [
            _build(Subscription, each) if isinstance(each, Mapping) else each for each in subscriptions
        ]
    packet: ControlPacket = _build(cls, params)
    try:
        return packet.encode(version)
    except (TypeError, AttributeError, KeyError, ValueError) as error:
        if isinstance(error, EncodeError):
            raise
        raise EncodeError(f"{cls.__name__} with a parameter of a wrong type: {error}") from error


def _build(cls: Any, params: Mapping[str, Any]) -> Any:
    known = [each.name for each in fields(cls)]
    for name in params:
        if name not in known:
            allowed = ", ".join(known) or "none"
            raise EncodeError(f"{cls.__name__} has no parameter {name!r}, only: {allowed}")
    try:
        return cls(**params)
    except TypeError as error:
        raise EncodeError(str(error)) from None
