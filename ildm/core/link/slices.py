"""A neighbour's SUBSCRIBE or UNSUBSCRIBE, taken some filters at a time: all others wait while it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ildm.core.link.interest import FILTERS_PER_PACKET
from ildm.mqtt import (
    MalformedPacket,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
    Version,
    decode,
    decode_varint,
    encode_varint,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

FILTERS_AT_ONCE = 50
"""A tenth of the largest packet."""
SUBSCRIBE = 0x82
"""First byte (3.8.1)."""


def sliced(frame: bytes, header_end: int, most: int = FILTERS_AT_ONCE) -> list[bytes]:
    """The packet as packets of ``most`` filters at most. One that is malformed stays whole.

    Args:
        header_end: where its fixed header ends (2.1).

    Raises:
        MalformedPacket: it has more filters than any node sends.
    """
    behind = 1 if frame[0] == SUBSCRIBE else 0  # subscription options (3.8.3.1)
    size = len(frame)
    properties = decode_varint(frame, header_end + 2)
    if properties is None:
        return [frame]
    pos = begin = properties[0] + properties[1]
    cuts: list[int] = []
    count = 0
    while pos + 2 <= size:
        if count and count % most == 0:
            cuts.append(pos)
        count += 1
        pos += 2 + (frame[pos] << 8 | frame[pos + 1]) + behind
    if count > FILTERS_PER_PACKET:
        raise MalformedPacket(f"{count} filters in a packet on a link", clause="MQTT-4.13")
    if pos != size or not cuts:
        return [frame]
    parts = []
    head = frame[header_end:begin]
    for end in [*cuts, size]:
        parts.append(frame[:1] + encode_varint(len(head) + end - begin) + head + frame[begin:end])
        begin = end
    return parts


class Slices:
    """What is left of one packet."""

    __slots__ = ("_codes", "_left", "_packet_id", "frame")

    def __init__(self, frame: bytes, header_end: int) -> None:
        """Raises: MalformedPacket."""
        self.frame = frame
        self._left = sliced(frame, header_end)
        self._left.reverse()
        self._codes: list[int] = []
        self._packet_id = 0

    @property
    def is_taken(self) -> bool:
        """No filters are left."""
        return not self._left

    def take(self) -> Subscribe | Unsubscribe:
        """The next filters. Raises: MqttError, as the decoder."""
        packet = decode(self._left.pop(), Version.V5)
        assert isinstance(packet, (Subscribe, Unsubscribe))
        self._packet_id = packet.packet_id
        return packet

    def answered(self, codes: Iterable[int]) -> None:
        """Reason codes of the filters that were taken last."""
        self._codes += codes

    def acknowledgement(self) -> bytes:
        """SUBACK or UNSUBACK of all filters."""
        kind = SubAck if self.frame[0] == SUBSCRIBE else UnsubAck
        return kind(packet_id=self._packet_id, reason_codes=self._codes).encode(Version.V5)
