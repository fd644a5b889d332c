"""How nodes tell each other, on a session of a link, who the next message is.

A PUBLISH of QoS 0 to ``$ildm/from`` says of the next message of QoS 1 or 2 on that session which identity it
has, and whether it is rerouted. The one after it has the next number, and so on; so runs go without
a word, and nothing is added to any message. Its payload::

    nothing                                                 the next message has no identity
    number u64 | 0 u8 | origin                              the next one is this
    number u64 | 1 u8 | again u64 | bytes u8 | sender | origin    the same, sent anew by ``sender``

Numbers are big-endian, names UTF-8. Nothing has been said on a new connection.
"""

from __future__ import annotations

import struct

from ildm.core.spool import Identity
from ildm.core.transfer.identity import UNKNOWN, Origin
from ildm.mqtt import MalformedPacket, encode_varint

FROM = "$ildm/from"
FROM_HEAD = len(FROM).to_bytes(2) + FROM.encode() + b"\0"
"""What stands between the fixed header of such a PUBLISH and its payload: topic, no properties."""
_NUMBER = struct.Struct(">QB")
_AGAIN = struct.Struct(">QB")
NOBODY = b"\x30" + encode_varint(len(FROM_HEAD)) + FROM_HEAD
"""The next message has no identity."""


def message_id(identity: Identity, reroute_id: Identity | None) -> bytes:
    """The packet that says who the next message is."""
    if reroute_id is None:
        payload = _NUMBER.pack(identity.number, 0) + identity.origin.encode()
    else:
        sender = reroute_id.origin.encode()
        payload = _NUMBER.pack(identity.number, 1) + _AGAIN.pack(reroute_id.number, len(sender)) + sender
        payload += identity.origin.encode()
    return b"\x30" + encode_varint(len(FROM_HEAD) + len(payload)) + FROM_HEAD + payload


class ReceivedIds:
    """What the far end of one session has said of the next message."""

    __slots__ = ("origin",)

    def __init__(self) -> None:
        self.origin = UNKNOWN

    def clear(self) -> None:
        self.origin = UNKNOWN

    def told(self, payload: bytes) -> None:
        """Raises: MalformedPacket."""
        if not payload:
            self.clear()
            return
        try:
            number, more = _NUMBER.unpack_from(payload)
            rest = payload[_NUMBER.size :]
            reroute_id = None
            if more:
                again_number, length = _AGAIN.unpack_from(rest)
                end = _AGAIN.size + length
                reroute_id = Identity(rest[_AGAIN.size : end].decode(), again_number)
                rest = rest[end:]
            self.origin = Origin(Identity(rest.decode(), number), reroute_id)
        except (struct.error, UnicodeDecodeError):
            raise MalformedPacket("malformed message_id of a message", clause="MQTT-4.13") from None

    def take(self, count: int) -> Origin:
        """Who the messages are, ``count`` of them, that come now."""
        origin = self.origin
        if origin.identity is not None:
            self.origin = origin.at(count)
        return origin


class SentIds:
    """What this end has said on the connection that is there."""

    __slots__ = ("_number", "_origin", "_reroute_id")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """There is a new connection."""
        self._origin = ""
        self._number = 0
        self._reroute_id: Identity | None = None

    def needed(self, identity: Identity | None, reroute_id: Identity | None, place: int, count: int) -> bytes:
        """What has to be said before ``count`` messages from that place on of a record whose first has these
        identities; empty: nothing."""
        if identity is None:
            if not self._origin:
                return b""
            self.clear()
            return NOBODY
        origin, number = identity
        number += place
        if reroute_id is not None:
            reroute_id = Identity(reroute_id.origin, reroute_id.number + place)
        known = number == self._number and origin == self._origin and reroute_id == self._reroute_id
        self._origin, self._number = origin, number + count
        self._reroute_id = (
            None if reroute_id is None else Identity(reroute_id.origin, reroute_id.number + count)
        )
        return b"" if known else message_id(Identity(origin, number), reroute_id)
