"""The connection over which the broker's retained messages are looked at, see :mod:`.audit`.

Of a PUBLISH that comes here only the retain flag tells whether the broker kept it or somebody has just
published it; Moquette clears the flag of all. A message without it counts when it is as it should be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ildm.api import Stamp, Unreachable
from ildm.core.broker.broker_query import BrokerQuery
from ildm.core.broker.own_ids import AUDIT
from ildm.mqtt import (
    Disconnect,
    PacketType,
    Publish,
    SubAck,
    Subscribe,
    Subscription,
    Unsubscribe,
    Version,
    connack_code,
    decode,
)

if TYPE_CHECKING:
    from ildm.core.broker.audit import Auditor

QUIET = 1.0
"""Seconds without an answer after which the broker has nothing more to say."""
IDLE = 5.0
"""Seconds after which a connection is closed that nothing was asked over."""
KEEP_ALIVE = 60


class AuditSession(BrokerQuery):
    """A connection of its own to the broker, over which nothing is published."""

    __slots__ = (
        "_accepted",
        "_batch",
        "_confirmed",
        "_ended",
        "_flagged",
        "_packet_id",
        "_stamps",
        "_subscribed",
        "_suspects",
        "_wrong",
        "auditor",
    )

    def __init__(self, auditor: Auditor) -> None:
        parts, injector = auditor.parts, auditor.injector
        version = injector.version or Version.V311
        super().__init__(injector, injector.ids.of(AUDIT), version, parts.config.limits.packet_size)
        self.auditor = auditor
        self._accepted = False
        self._ended = False
        self._flagged = False  # the broker marks retained messages as such
        self._packet_id = 0
        self._subscribed = False
        self._batch: dict[str, bool] = {}
        self._stamps: dict[str, Stamp | None] = {}
        self._confirmed: set[str] = set()
        self._wrong: dict[str, None] = {}
        self._suspects: set[str] = set()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if self._ended:
            self.abort()
            return
        self._greet(KEEP_ALIVE)
        self._set_timer(self.auditor.parts.config.broker.connect_timeout, self.abort)

    def dial_failed(self, reason: str, why: Unreachable = Unreachable.NO_ANSWER) -> None:
        super().dial_failed(reason)
        self.auditor.failed({})

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        batch, self._batch = self._batch, {}
        self.auditor.failed(batch)

    def end(self) -> None:
        """Close the connection, whatever is left to look at."""
        self._ended = True
        self._batch = {}
        self._set_timer(None)
        if self.is_open:
            self.write(Disconnect().encode(self.version))
        self.close()

    def _packet(self, frame: bytes) -> None:
        kind = frame[0] >> 4
        if kind == PacketType.CONNACK:
            code = connack_code(frame)
            if code == 0:
                self._accepted = True
                self.go_on()
            else:
                self.injector.ids.refused(self.client_id, code)
                self.abort()
        elif kind == PacketType.SUBACK:
            packet = decode(frame, self.version)
            assert isinstance(packet, SubAck)
            self._suback(packet)
        elif kind == PacketType.PUBLISH:
            message = decode(frame, self.version)
            assert isinstance(message, Publish)
            self._message(message)

    # a batch ----------------------------------------------------------------------------------

    @property
    def is_looking(self) -> bool:
        """Whether a batch is being looked at."""
        return bool(self._batch)

    def go_on(self) -> None:
        """Look at the next batch, unless one is being looked at."""
        if not self._accepted or self._batch or self._ended:
            return
        self._batch = self.auditor.batch()
        if not self._batch:
            self._set_timer(IDLE, self.end)
            return
        self._stamps = {topic: self.auditor.retained.newest(topic) for topic in self._batch}
        self._confirmed, self._wrong, self._suspects = set(), {}, set()
        self._subscribed = False
        subscriptions = [Subscription(topic_filter=topic, qos=0) for topic in self._batch]
        self._packet_id = self._packet_id % 65535 + 1
        packet = Subscribe(packet_id=self._packet_id, subscriptions=subscriptions)
        self.write(packet.encode(self.version))
        self._set_timer(self.auditor.parts.config.broker.connack_timeout, self.abort)

    def _suback(self, packet: SubAck) -> None:
        if packet.packet_id != self._packet_id or not self._batch:
            return
        self._subscribed = True
        for topic, code in zip(list(self._batch), packet.reason_codes, strict=False):
            if code >= 0x80:
                self.auditor.denied(topic, self._batch.pop(topic))
        self._set_timer(QUIET, self._done)
        self._done_if_complete()

    def _message(self, message: Publish) -> None:
        topic, retained = message.topic, self.auditor.retained
        if topic not in self._batch or retained.newest(topic) != self._stamps[topic]:
            return
        self._flagged |= message.retain
        if message.payload:
            self.auditor.seen(topic)
        wanted = retained.wanted(topic)
        assert wanted is not None
        payload = wanted[0].payload
        if payload and message.payload == payload:
            self._confirmed.add(topic)
            self._wrong.pop(topic, None)
        elif message.retain and message.payload:
            if self.auditor.overrules(topic, message):
                self._stamps[topic] = retained.newest(topic)
                self._confirmed.add(topic)
            else:
                self._wrong[topic] = None
        elif message.payload:
            self._suspects.add(topic)
        if self._subscribed:
            self._set_timer(QUIET, self._done)
            self._done_if_complete()

    def _done_if_complete(self) -> None:
        """Values that have all been seen need no further waiting; that of a deletion is silence."""
        if all(topic in self._confirmed or topic in self._wrong for topic in self._batch):
            self._done()

    def _done(self) -> None:
        retained = self.auditor.retained
        batch, self._batch = self._batch, {}
        wrong: list[str] = []
        unseen: list[str] = []
        for topic in batch:
            if retained.newest(topic) != self._stamps[topic] or retained.contention.is_open(topic):
                continue  # something newer is there, or about to be
            deleted = topic in retained.deletions
            suspected = deleted and topic in self._suspects and not self._flagged
            missing = not deleted and topic not in self._confirmed
            if not (topic in self._wrong or missing or suspected):
                continue
            if retained.contention.is_settling(topic):
                retained.contention.contest(topic)  # to be looked at once more
            elif topic in self._wrong or suspected or topic in self._suspects:
                wrong.append(topic)
            else:
                unseen.append(topic)
        if batch:
            packet = Unsubscribe(
                packet_id=65535 if self._packet_id != 65535 else 1, topic_filters=list(self._stamps)
            )
            self.write(packet.encode(self.version))
        self.auditor.looked(batch, len(batch), wrong, unseen)
        self._set_timer(max(0.001, len(self._stamps) / self.auditor.rate), self.go_on)
