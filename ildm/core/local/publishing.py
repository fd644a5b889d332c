"""A local client as a publisher: what of its messages crosses, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from ildm.core.frames import know_properties
from ildm.core.local.acknowledgements import OUT_OF_ORDER
from ildm.core.local.requests import Requests, granted_filters
from ildm.core.local.unanswered import Taken, Unanswered, UnansweredBatch, UnansweredMessage
from ildm.core.transfer.batch import CONSTANT, Batch
from ildm.mqtt import (
    MqttError,
    ProtocolViolation,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    Subscription,
    Unsubscribe,
    decode,
    members,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ildm.api import Timer
    from ildm.core.local.acknowledgements import Acknowledgements
    from ildm.core.local.aliases import TopicAliases
    from ildm.core.local.parts import ClientParts
    from ildm.core.local.record import ClientRecord
    from ildm.core.local.requests import Rejections
    from ildm.core.local.rules import ClientRules
    from ildm.core.local.wire import ClientWire
    from ildm.mqtt import SubAck, UnsubAck

PATIENCE = 1.0
"""Seconds, and up to as many more, which an answer that has overtaken others waits for theirs."""


class Publishing:
    """What the broker has not answered of one client's, and its order.

    Until it is accepted by the broker a client publishes nothing.
    """

    __slots__ = (
        "_acks",
        "_index",
        "_parts",
        "_patience",
        "_pending",
        "_told_unusable",
        "_wire",
        "aliases",
        "dropped_qos2",
        "record",
        "rules",
        "unanswered",
    )

    def __init__(self, parts: ClientParts, wire: ClientWire, acks: Acknowledgements) -> None:
        self._parts = parts
        self._wire = wire
        self._acks = acks
        self._index = -1
        self._told_unusable = False
        """The log has said that a message of this client cannot cross."""
        self._patience: Timer | None = None
        """While messages wait whose answers have overtaken those of others."""
        self.record: ClientRecord | None = None
        self._pending: Requests | None = None
        self.rules: ClientRules | None = None
        """What may cross; None: everything."""
        self.unanswered: Unanswered | None = None
        """What is transferred once the broker has taken it; None: everything is at once."""
        self.aliases: TopicAliases | None = None
        """Of MQTT 5, once the broker has accepted the client."""
        self.dropped_qos2: set[int] | None = None
        """QoS 2 messages a filter has dropped and the client has not released."""

    @property
    def pending(self) -> Requests:
        """SUBSCRIBE and UNSUBSCRIBE that the broker has not answered; made for the first."""
        pending = self._pending
        if pending is None:
            pending = self._pending = Requests(self._parts.limits.subscription_bytes)
        return pending

    def accepted(self) -> None:
        """The client may publish from now on."""
        if self._parts.transfers_acknowledged:
            self.unanswered = Unanswered()
        elif self.expects_answers:
            self._wire.watching = True

    def client_gone(self) -> None:
        """Whether the broker has the rest is unknown: a client that wants it sent will send it again."""
        self.no_longer_in_order()
        if self.unanswered:
            self._parts.counters["unanswered_by_broker"] += self.unanswered.messages
            self.unanswered = None

    def publisher_index(self) -> int:
        """The publisher's turn in the round-robin over sessions (thesis 5.4.1), kept for its order.

        With a spool it is the same for all connections of a client, in all incarnations of the node: what an
        earlier one has published may still wait.
        """
        if self._index < 0:
            if self._parts.custody is not None and self._wire.client_id:
                self._index = crc32(self._wire.client_id.encode()) & 0xFFFF
            else:
                self._index = self._parts.router.next_publisher()
        return self._index

    def publish(self, frame: bytes) -> bool:
        """Transfer a PUBLISH that is not part of a run: of QoS 1 or 2, retained, or with properties.

        Whether it could be; what cannot be read is for the broker to judge, as it would be without the node.
        """
        try:
            packet = self._read_publish(frame)
        except MqttError as error:
            if self.aliases is not None:
                self.aliases.forget()
            self.unusable(error, 1)
            return False
        if self.rules is not None and not self.may_cross(packet.topic.encode(), 1):
            return True
        if packet.qos == 2 and self.record is not None and packet.packet_id is not None:
            if self.record.has_transferred(packet, packet.topic):
                self._acks.bound_by(0)  # sent again, and transferred already, but that may not be durable yet
                return True
            if self.unanswered is None:
                self._parts.clients.transferred(self.record, packet)
            else:
                self._parts.clients.reused(self.record, packet.packet_id)
        if packet.qos == 0 or self.unanswered is None:
            self._parts.router.publish(packet, self.publisher_index(), self._acks)
            self._note_unreleased(packet)
        elif not packet.topic.startswith("$"):
            stamp = self._parts.retained.next_stamp() if packet.retain else None
            self.unanswered.add(packet, stamp, len(frame))
            self._wire.watching = True
        return True

    def _read_publish(self, frame: bytes) -> Publish:
        packet = decode(frame, self._wire.version, self._parts.packet_limits)
        assert isinstance(packet, Publish)
        if packet.properties and CONSTANT.issuperset(packet.properties):
            know_properties(frame)
        alias = packet.properties.pop(members.TOPIC_ALIAS, None)
        if alias is not None:
            assert self.aliases is not None  # MQTT 5, and accepted
            packet.topic = self.aliases.resolve(int(alias), packet.topic)
        if members.SUBSCRIPTION_IDENTIFIER in packet.properties:
            raise ProtocolViolation(
                "PUBLISH from a client has a subscription identifier", clause="MQTT-3.3.4-6"
            )
        return packet

    def _note_unreleased(self, message: Publish) -> None:
        """The broker applies a retained message of QoS 2 when the client releases it."""
        if message.qos == 2 and message.retain and self.record is not None and message.packet_id is not None:
            self._parts.retained.releases.sent(self.record.key, message.packet_id, message.topic)

    def pubrel(self, frame: bytes) -> bytes | None:
        packet_id = (frame[2] << 8) | frame[3] if len(frame) >= 4 else 0
        if self.unanswered is not None:
            self.unanswered.release_one(packet_id)
        if self.record is not None:
            before = self._acks.before()
            self._parts.clients.released(self.record, packet_id)
            self._acks.bound_by(before)
            self._parts.retained.releases.released(self.record.key, packet_id)
        if self.dropped_qos2 and packet_id in self.dropped_qos2:
            self.dropped_qos2.remove(packet_id)
            self._wire.to_client(PubComp(packet_id=packet_id).encode(self._wire.version))
            return None
        return frame

    def unusable(self, error: MqttError, messages: int) -> None:
        """Messages were relayed that cannot cross; what becomes of them is for the broker."""
        self._parts.counters["transfer_dropped_unusable"] += messages
        if self._told_unusable:
            return
        self._told_unusable = True
        self._parts.driver.log(
            "warning",
            "message relayed that cannot cross",
            client_id=self._wire.client_id,
            peer=self._wire.peer,
            clause=error.clause,
            error=str(error),
        )

    def would_cross(self, packet: Publish, topic: str) -> bool:
        """Whether a message is wanted elsewhere, and has not been transferred already."""
        if not self.may_send(topic) or topic.startswith("$"):
            return False
        if packet.qos == 2 and self.record is not None and self.record.has_transferred(packet, topic):
            return False
        parts = self._parts
        if parts.has_overlay or parts.dispatch.asks_each:
            return True
        return bool(parts.router.routes.route(topic.encode(), packet.retain))

    # rules --------------------------------------------------------------------------------------

    def may_send(self, topic: str) -> bool:
        """Whether the node's rules let the client's messages on a topic cross."""
        return self.rules is None or self.rules.allow(topic)

    def may_cross(self, topic: bytes, count: int) -> bool:
        assert self.rules is not None
        allowed = self.rules.allow_bytes(topic)
        if not allowed:
            self._parts.counters["publish_denied"] += count
        return allowed

    # SUBSCRIBE and UNSUBSCRIBE -----------------------------------------------------------------

    def unsubscribing(self, frame: bytes) -> None:
        """An UNSUBSCRIBE goes to the broker."""
        packet = decode(frame, self._wire.version, self._parts.packet_limits)
        assert isinstance(packet, Unsubscribe)
        self.pending.add(packet.packet_id, packet.topic_filters, len(frame))
        self._wire.watching = True

    def subscribed(self, suback: SubAck) -> tuple[dict[str, int], Rejections | None]:
        """The broker has answered a SUBSCRIBE: the filters it grants, and what it did not know of."""
        rejections = self.pending.rejections(suback.packet_id)
        request = self.pending.take(suback.packet_id)
        if not request or self.record is None:
            return {}, rejections
        granted = granted_filters([s for s in request if isinstance(s, Subscription)], suback.reason_codes)
        self._parts.clients.subscribed(self.record, granted)
        return granted, rejections

    def unsubscribed(self, unsuback: UnsubAck) -> None:
        """The broker has answered an UNSUBSCRIBE."""
        request = self.pending.take(unsuback.packet_id)
        if request and self.record is not None:
            codes = unsuback.reason_codes or [0] * len(request)
            gone = [f for f, code in zip(request, codes, strict=False) if code < 0x80 and isinstance(f, str)]
            self._parts.clients.unsubscribed(self.record, gone)

    # what the broker has answered ---------------------------------------------------------------

    @property
    def expects_answers(self) -> bool:
        """Whether an acknowledgement of the broker's means something to the node."""
        if self.unanswered is None and self._parts.custody is not None:
            return True  # of what was transferred when it came
        return self.is_owed

    @property
    def is_owed(self) -> bool:
        """The broker has not answered all from which the node learns what it has: messages, subscriptions."""
        return (self._pending is not None and len(self._pending) > 0) or bool(self.unanswered)

    def taken(self, ids: Sequence[int], qos: int) -> list[Taken | UnansweredMessage] | None:
        """The broker has taken messages: those to be transferred now; None: they were as they came."""
        if self.unanswered is None:
            self._acks.bound_by_all()
            return None
        return self.unanswered.taken(ids, qos)

    def answered_one(self, answer: PubAck | PubRec) -> None:
        """The broker has taken or refused one message."""
        if self.unanswered is None:
            self._acks.bound_by_all()
            return
        taken = answer.reason_code < 0x80
        handed = self.unanswered.answer(answer.packet_id, 1 if isinstance(answer, PubAck) else 2, taken=taken)
        if handed is not None:
            if not taken:
                self._parts.counters["refused_by_broker"] += 1
            self.transfer(handed)

    def transfer(self, handed: Sequence[Taken | UnansweredMessage]) -> None:
        """Transfer what the broker has taken."""
        acks, router = self._acks, self._parts.router
        before, index, gathering = acks.before(), self.publisher_index(), router.gathering
        alone = len(handed) == 1 and gathering.idle and router.recorder is None
        for taken in handed:
            message, since = None, None
            if isinstance(taken, UnansweredMessage):
                message = taken.message
                if message.qos == 2 and self._has_crossed(taken):
                    continue
                if not router.joins(message):
                    router.publish(message, index, acks, stamp=taken.stamp)
                    if not taken.released:
                        self._note_unreleased(message)
                    continue
                topic, frames, size = message.topic.encode(), b"", 0
            else:
                topic, frames, size = taken
            route = router.routes.local.get(topic)
            if route is None:
                route = router.routes.find(topic, None)
            if not route:
                continue
            if message is not None:
                batch = router.encoded(message, "link", len(route))
                if batch is None:
                    continue
                frames, size, since = batch.frames, batch.size, batch.since
            count = len(frames) // size
            if alone:
                router.forward(route, Batch(frames, count, size, since), index, acks)
            else:
                gathering.add(route, frames, size, count, index, acks, since=since)
        if not alone:
            gathering.send()
        acks.bound_by(before)
        self._fewer_unanswered()
        if self._patience is not None or (self.unanswered is not None and self.unanswered.early):
            self._keep_order()

    def _has_crossed(self, taken: UnansweredMessage) -> bool:
        """Whether a message of QoS 2 was transferred before. If not, it is from now on, until its PUBREL."""
        message, record = taken.message, self.record
        if record is None or message.packet_id is None:
            return False
        if record.has_transferred(message, message.topic):
            self._acks.bound_by(0)  # on an earlier connection, which has been answered meanwhile
            return True
        if taken.released:
            self._parts.clients.released(record, message.packet_id)
        else:
            self._parts.clients.transferred(record, message)
        return False

    def _keep_order(self) -> None:
        """Nothing is acknowledged while messages wait whose answers have overtaken those of others.

        Else the client would have an acknowledgement of what a node that is killed now has nowhere, and might
        use its packet identifier for another message.
        """
        waiting = self.unanswered
        assert waiting is not None
        if waiting.early and self._patience is None:
            self._parts.counters["answers_out_of_order"] += 1
            self._patience = self._parts.driver.call_later(PATIENCE, self._in_vain, waiting.held_up_by())
            if self._wire.broker is not None:
                self._acks.gate.hold(OUT_OF_ORDER)
                self._wire.watching = True
        elif not waiting.early and self._patience is not None:
            self._patience.cancel()
            self._patience = None
            if self._wire.broker is not None:
                self._acks.gate.release(OUT_OF_ORDER)

    def _in_vain(self, awaited: list[tuple[UnansweredBatch, int]]) -> None:
        """The broker has had its time to answer these, and may never do so."""
        assert self.unanswered is not None
        now = self.unanswered.held_up_by()
        if any(each in awaited for each in now):
            self.no_longer_in_order()
        else:
            self._patience = self._parts.driver.call_later(PATIENCE, self._in_vain, now)

    def no_longer_in_order(self) -> None:
        """Do not wait for what the broker has not answered."""
        if self._patience is not None and self.unanswered is not None:
            self.transfer(self.unanswered.release())

    def _too_much(self, share: int) -> bool:
        limits = self._parts.limits
        return self.unanswered is not None and (
            self.unanswered.messages * share > limits.unanswered_messages
            or self.unanswered.bytes * share > limits.unanswered_bytes
        )

    def pause_if_too_much(self) -> None:
        """Read nothing more of a client whose broker does not answer."""
        if self.unanswered is not None and self.unanswered.messages and self._too_much(1):
            self._wire.pause("unanswered")

    def _fewer_unanswered(self) -> None:
        client = self._wire.client
        if client is not None and client.paused and not self._too_much(2):
            client.resume("unanswered")

    def spelled_out(self, frame: bytes) -> bytes:
        # a filter may drop the message that sets an alias: the broker gets none
        if self.aliases is not None:
            return self.aliases.spelled_out(frame, self._parts.packet_limits)
        # a malformed message is the client's fault, not that of the filter
        decode(frame, self._wire.version, self._parts.packet_limits)
        return frame
