"""A local client as a publisher: what of its messages crosses, and when it gets its acknowledgements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING
from zlib import crc32

from ildm.api import Source
from ildm.core.local.requests import Requests
from ildm.core.local.unanswered import Taken, Unanswered, Waiting, WaitingRun
from ildm.core.session import BaseSession
from ildm.mqtt import (
    MqttError,
    OverLimit,
    ProtocolViolation,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    ReasonCode,
    decode,
    members,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ildm.api import Timer
    from ildm.core.local.aliases import TopicAliases
    from ildm.core.local.broker_session import BrokerSession
    from ildm.core.local.parts import ClientParts
    from ildm.core.local.record import ClientRecord
    from ildm.core.local.rules import ClientRules

PATIENCE = 1.0
"""Seconds, and up to as many more, which an answer that has overtaken others waits for theirs."""
ANY_NUMBER = 65535
"""Messages that a client may have under way where the broker sets no receive maximum (MQTT 5, 3.2.2.3.3)."""


class Publisher(BaseSession, ABC):
    """The part of a client's session that follows its messages to the broker's answer.

    Until it is accepted by the broker a client publishes nothing.
    """

    __slots__ = (
        "_aliases",
        "_holds",
        "_patience",
        "barrier",
        "dropped_qos2",
        "lane_index",
        "paired",
        "parts",
        "pending",
        "receive_maximum",
        "record",
        "rules",
        "told_unusable",
        "unanswered",
    )

    def __init__(self, parts: ClientParts) -> None:
        super().__init__(parts.driver)
        self.parts = parts
        self.paired: BrokerSession | None = None
        self.record: ClientRecord | None = None
        self.lane_index = -1
        self.told_unusable = False
        """The log has said that a message of this client cannot cross."""
        self.pending = Requests(parts.limits.subscription_bytes)
        self.rules: ClientRules | None = None
        """What may cross; None: everything."""
        self.unanswered: Unanswered | None = None
        """What is transferred once the broker has taken it; None: everything is at once."""
        self._patience: Timer | None = None
        """While messages wait whose answers have overtaken those of others."""
        self._holds = False
        self.receive_maximum: int | None = None
        """What the broker has told it; None: it knows of none, before MQTT 5."""
        self.barrier = 0
        """LSN up to which all has to be durable before the client gets the next acknowledgement."""
        self._aliases: TopicAliases | None = None
        self.dropped_qos2: set[int] | None = None
        """QoS 2 messages a filter has dropped and the client has not released."""

    @abstractmethod
    def fail(self, error: MqttError) -> None:
        """The client has broken the protocol."""

    def publisher_index(self) -> int:
        """The publisher's turn in the round-robin over sessions (thesis 5.4.1), kept for its order.

        With a spool it is the same for all connections of a client, in all lives of the node: what an earlier
        one has published may still wait.
        """
        if self.lane_index < 0:
            if self.parts.custody is not None and self.client_id:
                self.lane_index = crc32(self.client_id.encode()) & 0xFFFF
            else:
                self.lane_index = self.parts.router.next_publisher()
        return self.lane_index

    def _publish(self, frame: bytes) -> bool:
        """Transfer a PUBLISH that is not part of a run: of QoS 1 or 2, retained, or with properties.

        Whether it could be; what cannot be read is for the broker to judge, as it would be without the node.
        """
        try:
            packet = self._read_publish(frame)
        except MqttError as error:
            if self._aliases is not None:
                self._aliases.forget()
            self.parts.events.publish_unusable(self, error, 1)
            return False
        if self.rules is not None and not self._may_cross(packet.topic.encode(), 1):
            return True
        if packet.qos == 2 and self.record is not None and packet.packet_id is not None:
            if self.record.has_transferred(packet, packet.topic):
                self._bound_by(0)  # sent again, and transferred already, but that may not be durable yet
                return True
            if self.unanswered is None:
                self.parts.clients.transferred(self.record, packet)
            else:
                self.parts.clients.released(self.record, packet.packet_id)
        if packet.qos == 0 or self.unanswered is None:
            self.parts.router.publish(packet, self.publisher_index(), self)
            self._note_unreleased(packet)
        elif not packet.topic.startswith("$"):
            stamp = self.parts.retained.next_stamp() if packet.retain else None
            self.unanswered.add(packet, stamp, len(frame))
            self._watch()
        return True

    def _read_publish(self, frame: bytes) -> Publish:
        packet = decode(frame, self.version, self.parts.packet_limits)
        assert isinstance(packet, Publish)
        alias = packet.properties.pop(members.TOPIC_ALIAS, None)
        if alias is not None:
            assert self._aliases is not None  # MQTT 5, and accepted
            packet.topic = self._aliases.resolve(int(alias), packet.topic)
        if members.SUBSCRIPTION_IDENTIFIER in packet.properties:
            raise ProtocolViolation(
                "PUBLISH from a client has a subscription identifier", clause="MQTT-3.3.4-6"
            )
        return packet

    def _note_unreleased(self, message: Publish) -> None:
        """The broker applies a retained message of QoS 2 when the client releases it."""
        if message.qos == 2 and message.retain and self.record is not None and message.packet_id is not None:
            self.parts.retained.releases.sent(self.record.key, message.packet_id, message.topic)

    def _answer(self, packet: bytes) -> None:
        """Answer the client in the broker's place."""
        assert self.paired is not None
        self.paired.to_client(packet)

    def _pubrel(self, frame: bytes) -> bytes | None:
        packet_id = (frame[2] << 8) | frame[3] if len(frame) >= 4 else 0
        if self.unanswered is not None:
            self.unanswered.release_one(packet_id)
        if self.record is not None:
            before = self._before()
            self.parts.clients.released(self.record, packet_id)
            self._bound_by(before)
            self.parts.retained.releases.released(self.record.key, packet_id)
        if self.dropped_qos2 and packet_id in self.dropped_qos2:
            self.dropped_qos2.remove(packet_id)
            self._answer(PubComp(packet_id=packet_id).encode(self.version))
            return None
        self.parts.dispatch.arrived(Source.CLIENT, self, members.PUBREL, frame)
        return frame

    # rules ----------------------------------------------------------------------------------------

    def may_send(self, topic: str) -> bool:
        """Whether the node's rules let the client's messages on a topic cross."""
        return self.rules is None or self.rules.allow(topic)

    def _may_cross(self, topic: bytes, count: int) -> bool:
        assert self.rules is not None
        allowed = self.rules.allow_bytes(topic)
        if not allowed:
            self.parts.counters["publish_denied"] += count
        return allowed

    # what the broker has answered ---------------------------------------------------------------

    @property
    def expects_answers(self) -> bool:
        """Whether an acknowledgement of the broker's means something to the node."""
        if self.unanswered is None and self.parts.custody is not None:
            return True  # of what was transferred when it came
        return self.is_owed

    @property
    def is_owed(self) -> bool:
        """The broker has not answered all from which the node learns what it has: messages, subscriptions."""
        return bool(self.pending or self.unanswered)

    def _watch(self) -> None:
        if self.paired is not None:
            self.paired.watching = True

    def answered(self, ids: Sequence[int]) -> None:
        """The broker has taken messages."""
        if self.unanswered is None:
            self.barrier = self._before()
        else:
            self._transfer_all(self.unanswered.taken(ids))

    def answered_one(self, answer: PubAck | PubRec) -> None:
        """The broker has taken or refused one message."""
        if self.unanswered is None:
            self.barrier = self._before()
            return
        taken = answer.reason_code < 0x80
        handed = self.unanswered.answer(answer.packet_id, 1 if isinstance(answer, PubAck) else 2, taken=taken)
        if handed is not None:
            if not taken:
                self.parts.counters["refused_by_broker"] += 1
            self._transfer_all(handed)

    def _before(self) -> int:
        custody = self.parts.custody
        return 0 if custody is None else custody.last

    def _bound_by(self, before: int) -> None:
        """What the node has taken upon itself for the client since then is to be durable first."""
        custody = self.parts.custody
        if custody is not None and custody.last > before:
            self.barrier = custody.last
            self._watch()

    def _transfer_all(self, handed: Iterable[Taken | Waiting]) -> None:
        before = self._before()
        for taken in handed:
            self._transfer(taken)
        self._bound_by(before)
        self._fewer_unanswered()
        if self._patience is not None or (self.unanswered is not None and self.unanswered.early):
            self._keep_order()

    def _transfer(self, taken: Taken | Waiting) -> None:
        router, index = self.parts.router, self.publisher_index()
        if not isinstance(taken, Waiting):
            topic, frames, size = taken
            route = router.local.get(topic)
            if route is None:
                route = router.find(topic, None)
            if route:
                router.forward_frames(route, frames, size, index, self)
            return
        message = taken.message
        if message.qos == 2 and self.record is not None and message.packet_id is not None:
            if self.record.has_transferred(message, message.topic):
                self._bound_by(0)  # on an earlier connection, which has been answered meanwhile
                return
            if taken.released:
                self.parts.clients.released(self.record, message.packet_id)
            else:
                self.parts.clients.transferred(self.record, message)
        router.publish(message, index, self, stamp=taken.stamp)
        if not taken.released:
            self._note_unreleased(message)

    def _keep_order(self) -> None:
        """Nothing is acknowledged while messages wait whose answers have overtaken those of others.

        Else the client would have an acknowledgement of what a node that is killed now has nowhere, and might
        use its packet identifier for another message.
        """
        waiting = self.unanswered
        assert waiting is not None
        if waiting.early and self._patience is None:
            self.parts.counters["answers_out_of_order"] += 1
            self._patience = self.driver.call_later(PATIENCE, self._in_vain, waiting.held_up_by())
            if self.paired is not None:
                self.paired.gate.hold(waiting)
                self._watch()
        elif not waiting.early and self._patience is not None:
            self._patience.cancel()
            self._patience = None
            if self.paired is not None:
                self.paired.gate.release(waiting)

    def _in_vain(self, awaited: list[tuple[WaitingRun, int]]) -> None:
        """The broker has had its time to answer these, and may never do so."""
        assert self.unanswered is not None
        now = self.unanswered.held_up_by()
        if any(each in awaited for each in now):
            self.no_longer_in_order()
        else:
            self._patience = self.driver.call_later(PATIENCE, self._in_vain, now)

    def no_longer_in_order(self) -> None:
        """Do not wait for what the broker has not answered."""
        if self._patience is not None and self.unanswered is not None:
            self._transfer_all(self.unanswered.release())

    def _too_much_unanswered(self, share: int) -> bool:
        limits = self.parts.limits
        return self.unanswered is not None and (
            self.unanswered.messages * share > limits.unanswered_messages
            or self.unanswered.bytes * share > limits.unanswered_bytes
        )

    def _fewer_unanswered(self) -> None:
        if self._pauses and not self._too_much_unanswered(2):
            self.resume("unanswered")

    # acknowledgements that wait -----------------------------------------------------------------

    @property
    def credit(self) -> tuple[int, int]:
        link, limits = self.parts.config.link, self.parts.limits
        if self.unanswered is None:
            return link.inflight, link.inflight_bytes
        return link.inflight + limits.unanswered_messages, link.inflight_bytes + limits.unanswered_bytes

    def hold(self, reason: object) -> None:
        """Let the client wait for its PUBACK and PUBREC until every reason given is withdrawn.

        Reading from it goes on. One that does not stop by itself is read up to ``link.inflight`` messages of
        QoS 1 and 2, or ``link.inflight_bytes``, and no further until it is released.
        """
        if self.paired is not None and self.paired.is_open:
            self.paired.gate.hold(reason)
            self.paired.watching = self._holds = True

    def release(self, reason: object) -> None:
        if self._holds and self.paired is not None:
            self.paired.gate.release(reason)
            self._holds = bool(self.paired.gate.reasons - {self.unanswered})
            if not self._holds:
                self._released()

    @abstractmethod
    def _released(self) -> None:
        """Nothing holds the client any longer."""

    def _room(self, size: int) -> int:
        """How many more messages of QoS 1 and 2, of so many bytes each, are taken of a client that is held.

        What one that has gone has sent before is not kept for later: it gets no answer in any case.

        Raises:
            ProtocolViolation: it has sent as many as its receive maximum allows without an answer to any.
        """
        assert self.paired is not None
        gate, link = self.paired.gate, self.parts.config.link
        if self.transport is None:
            return ANY_NUMBER
        room = min(link.inflight - gate.since_closed, (link.inflight_bytes - gate.bytes_since_closed) // size)
        if self.receive_maximum is not None:
            left = self.receive_maximum - gate.since_closed
            if left <= 0:
                self.parts.counters["clients_over_inflight"] += 1
                raise ProtocolViolation(
                    f"more than {self.receive_maximum} messages sent while acknowledgements are withheld",
                    clause="MQTT-3.3.4-9",
                    reason=ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
                )
            room = min(room, left)
        return max(0, room)

    def _sent_while_held(self, count: int, size: int) -> None:
        assert self.paired is not None
        gate = self.paired.gate
        gate.since_closed += count
        gate.bytes_since_closed += count * size

    def _answered_at_once(self, size: int) -> None:
        """A message does not wait for its acknowledgement after all: the node itself gives it."""
        if self._holds and self.paired is not None and self.paired.gate.since_closed:
            self.paired.gate.since_closed -= 1
            self.paired.gate.bytes_since_closed -= size

    def overran(self) -> None:
        """It has sent more at once than there is room for; what was dropped of it is not acknowledged."""
        self.driver.call_soon(self._end_overrun)  # not amidst its messages

    def _end_overrun(self) -> None:
        if self.is_open:
            self.parts.counters["clients_over_inflight"] += 1
            text = "more messages at once than there is room for while acknowledgements are withheld"
            self.fail(OverLimit(text, clause="MQTT-4.13.2"))

    def too_much_withheld(self) -> None:
        """The broker has acknowledged more messages than there are packet identifiers."""
        error = ProtocolViolation("packet identifiers used while in use", clause="MQTT-2.2.1-3")
        self.driver.call_soon(self.fail, error)

    def _spelled_out(self, frame: bytes) -> bytes:
        # a filter may drop the message that sets an alias: the broker gets none
        if self._aliases is not None:
            return self._aliases.spelled_out(frame, self.parts.packet_limits)
        # a malformed message is the client's fault, not that of the filter
        decode(frame, self.version, self.parts.packet_limits)
        return frame
