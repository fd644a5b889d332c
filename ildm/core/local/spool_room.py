"""A local client whose messages find no room in the spool, where the configuration wants them refused.

MQTT 5 has a reason for it (0x97, quota exceeded): the client knows at once, and the broker does not get the
message either, so that no site has it. Clients of MQTT 3 wait for room, as all do with ``spool.full: hold``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ildm.core.local.actions import client_actions
from ildm.core.local.decisions import FilteredClient
from ildm.mqtt import MqttError, Property, PubAck, Publish, PubRec, ReasonCode, Version, decode

if TYPE_CHECKING:
    from ildm.core.transfer.custody import Custody
    from ildm.mqtt import PacketType

TEXT = "no room to keep the message for other sites"


class Refusal:
    """Of a node that refuses. While it does, each PUBLISH of MQTT 5 is looked at.

    Args:
        looked_at: types of packets which plugins want to see.
    """

    def __init__(self, custody: Custody, looked_at: frozenset[PacketType]) -> None:
        self.custody = custody
        self.actions = client_actions(Version.V5, routing=True, looked_at=looked_at, whole=True)


class RefusingClient(FilteredClient):
    """The part of a client's session that refuses messages."""

    __slots__ = ()

    @property
    def refuses(self) -> bool:
        """Whether each message of this client has to be looked at, to be refused or after one was."""
        refusal = self.parts.refusal
        return (
            refusal is not None
            and self._aliases is not None  # MQTT 5, and accepted
            and (refusal.custody.full or bool(self._aliases.missing))
        )

    def hold(self, reason: object) -> None:
        if reason is not self.parts.custody or self.parts.refusal is None or self._aliases is None:
            super().hold(reason)

    def _unless_refused(self, frame: bytes) -> bytes | None:
        """What the broker gets of a message; None: it was refused."""
        assert self.parts.refusal is not None
        assert self._aliases is not None
        try:
            packet = decode(frame, Version.V5, self.parts.packet_limits)
            assert isinstance(packet, Publish)
            alias = int(packet.properties.get(Property.TOPIC_ALIAS, 0))
            topic = self._aliases.resolve(alias, packet.topic) if alias else packet.topic
        except MqttError:
            return frame  # for the broker to judge
        if not (packet.qos and self.parts.refusal.custody.full and self._would_cross(packet, topic)):
            return self._aliases.made_known(packet, frame)
        if alias and packet.topic:
            self._aliases.missing |= {alias}
        self.parts.counters["spool_refused"] += 1
        self._kept_back()
        self._answered_at_once(len(frame))
        acknowledgement = PubAck if packet.qos == 1 else PubRec
        assert packet.packet_id is not None
        refused = acknowledgement(packet_id=packet.packet_id, reason_code=int(ReasonCode.QUOTA_EXCEEDED))
        self._answer(self.with_reason(refused, TEXT))
        return None

    def _would_cross(self, packet: Publish, topic: str) -> bool:
        if not self.may_send(topic) or topic.startswith("$"):
            return False
        if packet.qos == 2 and self.record is not None and self.record.has_transferred(packet, topic):
            return False  # it has been transferred already
        parts = self.parts
        if parts.has_overlay or parts.dispatch.asks_each:
            return True
        return bool(parts.router.route(topic.encode(), packet.retain))
