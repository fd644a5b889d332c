"""A client whose messages find no room: it is refused, or nothing more of it is read.

MQTT 5 has a reason for it (0x97, quota exceeded): the client knows at once, and the broker does not get the
message either, so that no site has it. Clients of MQTT 3 wait for room, as all do with ``spool.full: hold``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ildm.core.frames import PUBLISH
from ildm.mqtt import MqttError, PubAck, Publish, PubRec, ReasonCode, Version, decode, members

if TYPE_CHECKING:
    from ildm.api import Timer
    from ildm.core.local.acknowledgements import Acknowledgements
    from ildm.core.local.parts import ClientParts
    from ildm.core.local.publishing import Publishing
    from ildm.core.local.wire import ClientWire

TEXT = "no room to keep the message for other sites"


class SpoolRoom:
    """Refuses messages of one client, or lets the client wait, until there is room for more."""

    __slots__ = ("_acks", "_no_room", "_parts", "_pinging", "_publishing", "_wire")

    def __init__(
        self, parts: ClientParts, wire: ClientWire, acks: Acknowledgements, publishing: Publishing
    ) -> None:
        self._parts = parts
        self._wire = wire
        self._acks = acks
        self._publishing = publishing
        self._no_room = False
        """What has been put off waits until the client is released."""
        self._pinging: Timer | None = None

    # wait ---------------------------------------------------------------------------------------

    def must_wait(self, first: int, size: int) -> bool:
        """Whether there is no room for a packet that begins so, while acknowledgements are deferred."""
        return first & 0xF0 == PUBLISH and first & 6 != 0 and not self._acks.room(size)

    def wait(self) -> None:
        """Nothing more of the client is read until it is released; the broker is not to miss it meanwhile."""
        if not self._no_room:
            self._no_room = True
            self._acks.when_released = self.room_again
            self._parts.counters["clients_unread"] += 1
            self._ping_in_time()
        self._wire.pause("room")

    def _ping_in_time(self) -> None:
        if self._wire.keep_alive:
            after = self._wire.keep_alive / 3
            self._pinging = self._parts.driver.call_later(after, self._ping_meanwhile)

    def _ping_meanwhile(self) -> None:
        if self._wire.has_broker:
            self._wire.ping()
            self._ping_in_time()

    def room_again(self) -> None:
        """There is room, or the client has gone: what has waited for it goes on."""
        waited, self._no_room = self._no_room, False
        self._acks.when_released = None
        if self._pinging is not None:
            self._pinging.cancel()
            self._pinging = None
        if waited:
            self._parts.driver.call_soon(self._wire.go_on)  # not amid what has made room

    # refuse -------------------------------------------------------------------------------------

    @property
    def refuses(self) -> bool:
        """Whether each message of this client has to be looked at, to be refused or after one was."""
        refusal, aliases = self._parts.refusal, self._publishing.aliases
        return (
            refusal is not None
            and aliases is not None  # MQTT 5, and accepted
            and (refusal.custody.full or bool(aliases.missing))
        )

    def unless_refused(self, frame: bytes) -> bytes | None:
        """What the broker gets of a message; None: it was refused."""
        refusal, aliases = self._parts.refusal, self._publishing.aliases
        assert refusal is not None
        assert aliases is not None
        try:
            packet = decode(frame, Version.V5, self._parts.packet_limits)
            assert isinstance(packet, Publish)
            alias = int(packet.properties.get(members.TOPIC_ALIAS, 0))
            topic = aliases.resolve(alias, packet.topic) if alias else packet.topic
        except MqttError:
            return frame  # for the broker to judge
        if not (packet.qos and refusal.custody.full and self._publishing.would_cross(packet, topic)):
            return aliases.made_known(packet, frame)
        if alias and packet.topic:
            aliases.missing |= {alias}
        self._parts.counters["spool_refused"] += 1
        self._wire.kept_back()
        self._acks.answered_at_once(len(frame))
        acknowledgement = PubAck if packet.qos == 1 else PubRec
        assert packet.packet_id is not None
        refused = acknowledgement(packet_id=packet.packet_id, reason_code=int(ReasonCode.QUOTA_EXCEEDED))
        self._wire.to_client(self._wire.answers.with_reason(refused, TEXT))
        return None
