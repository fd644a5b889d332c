"""Comparing the local broker's retained messages with what the node remembers, topic by topic.

A broker may come back without its store, or with an older one; a node may be killed between saving a
message and injecting it; and what reached a broker on two connections at once it may have taken in
another order (:mod:`ildm.core.transfer.contention`). So the node looks: everything after each connection
of its own session, else what is contested. It subscribes to exact names, as not every broker has retained
messages for wildcards, and injects what is missing or different, and deletes what should be gone. A value
which a client has set behind the node's back, at the broker itself, is overruled that way.

Of a PUBLISH that comes then only the retain flag tells whether the broker kept it or somebody has just
published it; Moquette clears the flag of all. A message without it counts when it is as it should be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ildm.api import Stamp, Unreachable
from ildm.core.backoff import Backoff
from ildm.core.local.broker_session import connack_code
from ildm.core.transfer.asking import AskingSession
from ildm.core.transfer.contention import SETTLE
from ildm.mqtt import (
    Disconnect,
    PacketType,
    Publish,
    SubAck,
    Subscribe,
    Subscription,
    Unsubscribe,
    Version,
    decode,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ildm.core.transfer.injection import Injector

VALUES = 100
"""Values asked for at once: some brokers drop what they cannot send at once."""
DELETIONS = 1000
BATCH_BYTES = 32_768
"""Bytes of topics in one SUBSCRIBE."""
QUIET = 1.0
"""Seconds without an answer after which the broker has nothing more to say."""
AT_START = 3.0
"""Seconds after the first connection: neighbours may know something newer, and tell it first."""
IDLE = 5.0
"""Seconds after which a connection is closed that nothing was asked over."""
ATTEMPTS = 3
"""Connections that may be lost over one batch."""
KEEP_ALIVE = 60


class Auditor:
    """Decides what is looked at; :class:`AuditSession` looks."""

    def __init__(self, injector: Injector) -> None:
        self.injector = injector
        self.node = injector.node
        self.driver = injector.node.driver
        self.retained = injector.node.retained
        config = injector.node.config.broker
        self.enabled = config.audit
        self.rate = config.audit_rate
        self.agenda: dict[str, bool] = {}
        """Topics to look at, and whether each was contested."""
        self.session: AuditSession | None = None
        self.looked_at = 0
        self.repaired = 0
        self._failed = 0
        self._denied = False
        self._backoff = Backoff(self.driver.random, config.reconnect_min, config.reconnect_max)
        self._first = True
        self._waiting: Any = None
        self._checking = False
        self._alarm: Any = None
        self._stopped = False
        self.retained.contention.wake = self._contested
        self.retained.expired = self._expired
        self.retained.scheduled = self._expiry_ahead

    # why to look ------------------------------------------------------------------------------

    def broker_came(self) -> None:
        """The node's own session has been accepted: what the broker has is uncertain."""
        delay, self._first = (AT_START if self._first else SETTLE), False
        if self.enabled and not self._stopped:
            if self._waiting is not None:
                self._waiting.cancel()
            self._waiting = self.driver.call_later(delay, self._everything)

    def _everything(self) -> None:
        self._waiting = None
        self.agenda = {
            **dict.fromkeys([*self.retained.values, *self.retained.deletions], False),
            **self.agenda,
        }
        self.looked_at = self.repaired = 0
        self._failed = 0
        self._look()

    def _contested(self) -> None:
        if not self._checking and not self._stopped:
            self._checking = True
            self.driver.call_later(SETTLE, self._check)

    def _check(self) -> None:
        """Look at contested topics that have come to rest."""
        self._checking = False
        if not self.injector.connected:
            self._contested()
            return
        quiet = self.retained.contention.take_quiet()
        if self.enabled:
            self.agenda.update(dict.fromkeys(quiet, True))
            self._look()
        else:
            for topic in quiet:
                self.repair(topic)
        if self.retained.contention.contested:
            self._contested()

    def _expired(self, topic: str) -> None:
        if self.injector.version is not Version.V5:  # else the broker sees to it
            self.repair(topic)

    def _expiry_ahead(self, at: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        if not self._stopped:
            self._alarm = self.driver.call_later(max(0.0, at - self.driver.now()), self._look_for_expired)

    def _look_for_expired(self) -> None:
        self._alarm = None
        self.retained.look_for_expired()

    def broker_moved(self) -> None:
        """The broker is looked for elsewhere."""
        if self.session is not None:
            self.session.abort()

    def stop(self) -> None:
        self._stopped = True
        for timer in (self._waiting, self._alarm):
            if timer is not None:
                timer.cancel()
        self.agenda.clear()
        if self.session is not None:
            self.session.end()

    # looking ----------------------------------------------------------------------------------

    def _look(self) -> None:
        if self._stopped or not self.agenda or not self.injector.connected:
            return
        if self.session is None:
            self.session = AuditSession(self)
            config = self.node.config.broker
            self.driver.dial(self.node.broker_address, self.session, config.connect_timeout)
        else:
            self.session.go_on()

    def batch(self) -> dict[str, bool]:
        """The next topics to look at: values, or deletions, which are told by silence."""
        batch: dict[str, bool] = {}
        size = 0
        deletions: bool | None = None
        done: list[str] = []
        for topic, contested in self.agenda.items():
            if self.retained.newest(topic) is None:
                done.append(topic)  # forgotten meanwhile
                continue
            if self._is_on_its_way(topic):
                done.append(topic)
                continue
            deleted = topic in self.retained.deletions
            if deletions is None:
                deletions = deleted
            if deleted is not deletions:
                continue
            size += len(topic.encode()) + 3
            if batch and (size > BATCH_BYTES or len(batch) >= (DELETIONS if deletions else VALUES)):
                break
            batch[topic] = contested
        for topic in [*done, *batch]:
            del self.agenda[topic]
        return batch

    def looked(self, count: int, wrong: Iterable[str]) -> None:
        """A batch has been looked at; ``wrong`` are topics whose message is missing or another."""
        self._failed = 0
        self._backoff.reset()
        self.looked_at += count
        for topic in wrong:
            self.repaired += 1
            self.repair(topic)
        if not self.agenda:
            level = "info" if self.repaired else "debug"
            self.driver.log(
                level,
                "compared the broker's retained messages",
                topics=self.looked_at,
                repaired=self.repaired,
            )
            self.looked_at = self.repaired = 0

    def denied(self, topic: str, contested: bool) -> None:
        """The broker does not let the node subscribe to a topic."""
        self.node.counters["retained_audit_denied"] += 1
        if not self._denied:
            self._denied = True
            self.driver.log(
                "warning", "the broker does not let the node see its retained messages", topic=topic
            )
        if contested:
            self.repair(topic)

    def failed(self, batch: dict[str, bool]) -> None:
        """The connection has ended, or could not be made, with this left to look at."""
        self.session = None
        if self._stopped:
            return
        self.agenda = {**batch, **self.agenda}
        if not self.agenda:
            return
        self._failed += 1
        if self._failed >= ATTEMPTS and batch:
            self._failed = 0
            self.node.counters["retained_audit_failed"] += len(batch)
            self.driver.log(
                "warning", "retained messages of the broker cannot be compared", topics=len(batch)
            )
            for topic, contested in batch.items():
                del self.agenda[topic]
                if contested:
                    self.repair(topic)
        if self.injector.connected:  # else everything is looked at when it is
            self.driver.call_later(self._backoff.next(), self._look)

    def _is_on_its_way(self, topic: str) -> bool:
        """Whether the broker is about to get what it should have on a topic; if so, it is looked at later."""
        on_its_way = self.retained.contention.is_open(topic) or self.retained.releases.awaits(topic)
        if on_its_way:
            self.retained.contention.contest(topic)
        return on_its_way

    def repair(self, topic: str) -> None:
        """Inject what the broker should have on a topic, unless a client is about to release just that."""
        if not self._is_on_its_way(topic) and self.injector.inject_newest(topic):
            self.node.counters["retained_repaired"] += 1


class AuditSession(AskingSession):
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
        node, injector = auditor.node, auditor.injector
        version = injector.version or Version.V311
        super().__init__(injector, f"ildm-{node.node_id}-audit", version, node.config.limits.packet_size)
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
        self._set_timer(self.auditor.node.config.broker.connect_timeout, self.abort)

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
            if connack_code(frame) == 0:
                self._accepted = True
                self.go_on()
            else:
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
        self._set_timer(self.auditor.node.config.broker.connack_timeout, self.abort)

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
        wanted = retained.wanted(topic)
        assert wanted is not None
        payload = wanted[0].payload
        if payload and message.payload == payload:
            self._confirmed.add(topic)
            self._wrong.pop(topic, None)
        elif message.retain and message.payload:
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
        wrong = []
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
            else:
                wrong.append(topic)
        if batch:
            packet = Unsubscribe(
                packet_id=65535 if self._packet_id != 65535 else 1, topic_filters=list(self._stamps)
            )
            self.write(packet.encode(self.version))
        self.auditor.looked(len(batch), wrong)
        self._set_timer(max(0.001, len(self._stamps) / self.auditor.rate), self.go_on)
