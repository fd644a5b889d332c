"""Publishing transferred messages into the local broker through the node's own sessions (thesis 5.4.1)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ildm.api import Injections
from ildm.core.backoff import Backoff
from ildm.core.broker.audit import Auditor
from ildm.core.broker.delivery import Delivery
from ildm.core.broker.injection_session import InjectionSession
from ildm.core.broker.last_address import LastAddress
from ildm.core.broker.older_sessions import OlderSessions
from ildm.core.broker.own_ids import OwnIds
from ildm.core.broker.retained_order import RetainedOrder
from ildm.core.broker.same_broker import SameBroker
from ildm.core.broker.version_probe import VersionProbe
from ildm.core.transfer.back_pressure import limits_of
from ildm.core.transfer.batch import Batch, single
from ildm.core.transfer.ports import LocalBroker
from ildm.core.transfer.sender import Sender, total
from ildm.mqtt import (
    Version,
)

if TYPE_CHECKING:
    from ildm.api import Timer
    from ildm.core.broker.parts import BrokerParts
    from ildm.core.transfer.custody import Destination
    from ildm.core.transfer.receipt import Receipt


class Injector(LocalBroker):
    """The node's own sessions with the local broker: as many as a link has."""

    def __init__(self, parts: BrokerParts) -> None:
        self.parts = parts
        config = parts.config
        count = config.link.sessions
        limits = limits_of(config.link, count)
        self.custody = custody = parts.custody
        self.senders = [
            Sender(
                parts.driver,
                limits,
                parts.counters,
                "injection",
                i,
                None if custody is None else custody.queue(f"injection/{i}"),
                custody,
            )
            for i in range(count)
        ]
        self.sessions: list[InjectionSession] = []
        versions = {"auto": None, "3.1.1": Version.V311, "5": Version.V5}
        self._fixed_version = versions[config.broker.protocol]
        self.version = self._fixed_version
        """MQTT version spoken with the broker; None until one was accepted."""
        self.last_refusal: str | None = None
        self.ids = OwnIds(parts.node_id, count, parts.driver.log)
        self.client_ids = self.ids.all if parts.cooperates else frozenset()
        """Both kinds of all own sessions; no client may have one."""
        self._probe: VersionProbe | None = None
        self.order = RetainedOrder(parts.retained, self.senders)
        self.last_address = LastAddress(parts, self.ids)
        self._backoff = Backoff(parts.driver.random, config.broker.reconnect_min, config.broker.reconnect_max)
        self._moves = 0  # to other addresses since a session was accepted, or the last pause
        self._restart: Timer | None = None
        self.auditor = Auditor(self)
        self.asks_for_sessions = False
        """Whether the broker is to be asked for sessions whose clients are away, at the first contact."""
        self._older: OlderSessions | None = None
        self.hung_up = False
        """The broker has, after it was sent messages, and was there ever since."""
        self.delivery = Delivery(self)
        self.same_broker = SameBroker(self)
        self._under_way: set[int] = set()
        for sender in self.senders:
            sender.pressure.lost = parts.retained.contention.contest
            sender.isolation.poisonous = self.auditor.poisonous
            sender.wire.sent_counter = "injected"
            if custody is not None:
                sender.spooled.make = partial(self.order.read_back, sender)
                sender.resumption.forgotten = partial(self._sends_anew, sender)
        if custody is not None:
            for name, index in custody.left_over("injection", count):
                custody.adopt(name, self.senders[index % count].spooled)
        self._given = self.queued_messages
        """Messages up to now, with what earlier lives have left."""

    @property
    def password(self) -> bytes | None:
        password = self.parts.password
        return None if password is None else password.encode()

    def start(self) -> None:
        self.delivery.restore()
        self.last_address.restore()
        self._begin()

    def _begin(self) -> None:
        self._restart = None
        if self._fixed_version is not None:
            self.found_version(self._fixed_version)
        else:
            self._probe = VersionProbe(self)
            self._probe.dial()

    def found_version(self, version: Version) -> None:
        """The broker's MQTT version is known: open the sessions."""
        self.version = version
        self._probe = None
        goes_on = self.last_address.goes_on
        self.sessions = [InjectionSession(self, sender, goes_on=goes_on(sender)) for sender in self.senders]
        for session in self.sessions:
            session.dial()

    def broker_came(self) -> None:
        """The first session was accepted."""
        self._moves = 0
        self._backoff.reset()
        self.same_broker.broker_came()
        if self.asks_for_sessions:
            self.asks_for_sessions = False
            self._older = OlderSessions(self)
            self._older.dial()
        self.auditor.broker_came()
        if self.parts.custody is not None and self.parts.config.link.qos == 2:
            self.delivery.broker_came()

    def broker_is_there(self) -> None:
        """A local client has reached the broker."""
        if self._probe is not None:
            self._probe.broker_is_there()
        if self._restart is not None:
            self._restart.cancel()
            self._begin()
        for session in self.sessions:
            session.broker_is_there()

    def broker_moved(self) -> None:
        """The broker is looked for at another address, which may speak another version."""
        self.auditor.broker_moved()
        self.delivery.broker_moved()
        self.same_broker.broker_moved()
        if self._probe is not None or not self.sessions:
            return  # it asks for the address each time; or a pause has to end first
        for session in self.sessions:
            session.leave()
        self.sessions = []
        pause = 0.0
        self._moves += 1
        if self._moves >= len(self.parts.brokers.addresses):  # all have been tried
            self._moves = 0
            pause = self._backoff.next()
        self._restart = self.parts.driver.call_later(pause, self._begin)

    def _sends_anew(self, sender: Sender, released: bool) -> bool:
        return self.delivery.sends_anew(released, self.last_address.of(sender))

    def broker_absent(self) -> None:
        """Nobody listens at its address: who does so next may take what it did not."""
        self.hung_up = False
        self.auditor.broker_absent()

    def inject_newest(self, topic: str) -> bool:
        """Inject what the broker should have on a topic; False: nothing is known of it."""
        found = self.parts.retained.wanted(topic)
        if found is None:
            return False
        message, expires_at = found
        if self.hung_up and message.qos == 0:
            message = replace(message, qos=1)  # one of QoS 0 is never found to be why
        self.send(single(message, message.qos, expires_at), 0, None)
        return True

    def stop(self) -> None:
        if self._probe is not None:
            self._probe.stop()
        if self._restart is not None:
            self._restart.cancel()
        self.auditor.stop()
        self.delivery.stop()
        self.same_broker.stop()
        if self._older is not None:
            self._older.stop()
        for session in self.sessions:
            session.stop(session.sender.index in self._under_way)

    @property
    def idle(self) -> bool:
        """Nothing is to be done here before the node may stop; without the broker, what neighbours still have
        does not count."""
        return all(sender.at_rest for sender in self.senders)

    def give_up(self) -> int:
        """The node stops; answers how many messages are lost by that, each counted."""
        if self.parts.custody is not None:
            self._under_way = {sender.index for sender in self.senders if sender.inflight}
        return sum(sender.give_up() for sender in self.senders)

    @property
    def injections(self) -> Injections:
        """See :attr:`ildm.api.NodeApi.injections`."""
        return Injections(self._given, self._given - self.queued_messages - total(self.senders, "inflight"))

    @property
    def queued_messages(self) -> int:
        return total(self.senders, "queued_messages")

    @property
    def is_behind(self) -> bool:
        """Messages for the broker wait on the disk alone: the newest of any topic may be among them, and
        would come twice if it was injected anew."""
        return self.custody is not None and not all(each.spooled.all_in_memory for each in self.senders)

    @property
    def connected(self) -> bool:
        return any(sender.open for sender in self.senders)

    @property
    def keeps_retained(self) -> bool:
        """Whether the broker says that it keeps retained messages (MQTT 5, 3.2.2.3.5), as far as is known."""
        return all(sender.wire.retain_available for sender in self.senders)

    @property
    def contested(self) -> str | None:
        """Who else uses a client identifier of the node's, for people; None: nobody, as far as is known."""
        now = self.parts.driver.now()
        return next(filter(None, (session.contention.reason(now) for session in self.sessions)), None)

    def refused(self, reason_code: int) -> None:
        """The broker has denied an injected message (MQTT 5, 3.4.2.1): one log line, then counted."""
        text = f"PUBLISH refused with reason 0x{reason_code:02X}"
        if text != self.last_refusal:
            self.last_refusal = text
            self.parts.driver.log("warning", "the broker refuses transferred messages", reason=text)

    def send(self, batch: Batch, index: int, receipt: Receipt | None) -> None:
        """Inject a batch; ``receipt`` is told when messages of it are disposed of."""
        sender = self.senders[index % len(self.senders)]
        self._given += batch.count
        if batch.retain:
            batch = self.order.newest(sender, batch)
        sender.send(batch, None, receipt)
        if receipt is not None and receipt.pressed:
            self._ease(sender, receipt)

    def destination(self, index: int, qos: int, messages: int) -> Destination:
        """How so many messages that this node has custody of get into the broker."""
        self._given += messages
        return self.senders[index % len(self.senders)], qos, 0

    def _ease(self, sender: Sender, receipt: Receipt) -> None:
        """Give credit back to a neighbour; the broker has not kept pace with it."""
        if sender.limits.overflow == "drop":
            sender.own(lambda: receipt.eased)
