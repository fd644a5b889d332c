"""The receiving side of QoS 1 and 2 on a link session."""

from __future__ import annotations

from collections import deque

from ildm.core.transfer.qos1 import acknowledgements
from ildm.mqtt import ProtocolViolation, PubAck, PubComp, PubRec, ReasonCode, Version


class Inbound:
    """Decides which PUBLISH is new; outlives the TCP connection, bounded by the window granted.

    QoS 2 is MQTT's own handshake (MQTT-4.3.3-2). For QoS 1 MQTT allows duplicates after a
    reconnection; the identifiers of the last two windows are remembered to avoid them: a sender that
    counts its identifiers up does not come back to one within that distance.
    """

    __slots__ = ("_recent", "_recent_set", "_unreleased", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._unreleased: set[int] = set()
        self._recent: deque[int] = deque()
        self._recent_set: set[int] = set()

    def publish(self, packet_id: int, qos: int, dup: bool) -> tuple[bool, bytes]:
        """Whether a PUBLISH of QoS 1 or 2 is new, and the answer to it.

        Raises:
            ProtocolViolation: more unreleased QoS 2 messages than granted (MQTT-3.3.4-9).
        """
        if qos == 1:
            new = not (dup and packet_id in self._recent_set)
            if new:
                self._remember(packet_id)
            return new, PubAck(packet_id=packet_id).encode(Version.V5)
        new = packet_id not in self._unreleased
        if new:
            if len(self._unreleased) >= self.limit:
                raise ProtocolViolation(
                    "more messages under way than the receive maximum",
                    clause="MQTT-3.3.4-9",
                    reason=ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
                )
            self._unreleased.add(packet_id)
        return new, PubRec(packet_id=packet_id).encode(Version.V5)

    def publish_run(self, frames: bytes, size: int) -> bytes:
        """The answers to a run of QoS 1 without DUP, which therefore is new."""
        ids, answers = acknowledgements(frames, size)
        distinct = isinstance(ids, range) or len(set(ids)) == len(ids)
        if distinct and self._recent_set.isdisjoint(ids):
            self._recent.extend(ids)
            self._recent_set.update(ids)
            for _ in range(len(self._recent) - 2 * self.limit):
                self._recent_set.discard(self._recent.popleft())
        else:
            for packet_id in ids:
                self._remember(packet_id)
        return answers

    def pubrel(self, packet_id: int) -> bytes:
        """The answer to PUBREL."""
        self._unreleased.discard(packet_id)
        return PubComp(packet_id=packet_id).encode(Version.V5)

    def reset(self) -> None:
        """The far end has restarted and counts its identifiers anew."""
        self._unreleased.clear()
        self._recent.clear()
        self._recent_set.clear()

    def _remember(self, packet_id: int) -> None:
        if packet_id in self._recent_set:
            self._recent.remove(packet_id)
        elif len(self._recent) >= 2 * self.limit:
            self._recent_set.discard(self._recent.popleft())
        self._recent.append(packet_id)
        self._recent_set.add(packet_id)
