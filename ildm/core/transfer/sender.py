"""The sending side of one session that carries transferred messages: to a neighbour or into the broker.

A sender outlives its TCP connection. It joins what is written in one loop iteration, or within a delay, holds
a bounded queue while the session is down, slow or has its window full, keeps the QoS 1 and 2 handshakes
(MQTT-4.3.2, 4.3.3, 4.4.0-1) and counts down the message expiry of what waits (MQTT-3.3.2-6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ildm.core.frames import DUP, PUBLISH_QOS_2, RETAIN, id_offset
from ildm.core.spool import NEVER, Waiting
from ildm.core.transfer.ack_runs import PUBREL, acknowledgements_of
from ildm.core.transfer.allowance import Allowance
from ildm.core.transfer.back_pressure import BackPressure, QueueLimits
from ildm.core.transfer.batch import Batch, without_retain
from ildm.core.transfer.catching_up import CatchingUp
from ildm.core.transfer.classes import HIGHEST_PRIORITY, LinkClasses
from ildm.core.transfer.conflating import append
from ildm.core.transfer.custody import Custody, SpooledSender
from ildm.core.transfer.poison_isolation import PoisonIsolation
from ildm.core.transfer.queue import Backlog, Entry, Queue
from ildm.core.transfer.receipt import Holdable, Receipt
from ildm.core.transfer.resumption import Resumption
from ildm.core.transfer.sender_state import (
    ALL,
    ATTACHED,
    AWAY,
    DETACHED,
    HELD,
    KEPT,
    OPEN,
    RESUMED,
    STATES,
    SUSPENDED,
    TAKES,
    SenderEvent,
    SenderState,
    Takes,
)
from ildm.core.transfer.starvation import Starvation
from ildm.core.transfer.window import Inflight, Window
from ildm.core.transfer.wire import Wire
from ildm.mqtt import PubRel, Version

if TYPE_CHECKING:
    from ildm.core.counters import Counters
    from ildm.core.declared import Left
    from ildm.core.driver import Driver, Transport
    from ildm.core.transfer.spooled_queue import SpooledQueue

FLUSHED = 256 << 10
"""Bytes written at once from a queue."""


class Sender(SpooledSender):
    """See the module; ``name`` begins the names of its counters (``link`` or ``injection``)."""

    __slots__ = (
        "_catching_up",
        "_classes",
        "_spooled",
        "_starvation",
        "_window",
        "allowance",
        "counters",
        "driver",
        "index",
        "isolation",
        "last_refusal",
        "limits",
        "name",
        "open",
        "pressure",
        "queue",
        "resumption",
        "state",
        "takes",
        "wire",
    )

    def __init__(
        self,
        driver: Driver,
        limits: QueueLimits,
        counters: Counters,
        name: str,
        index: int,
        queue: SpooledQueue | None = None,
        custody: Custody | None = None,
    ) -> None:
        self.driver = driver
        self.limits = limits
        self.counters = counters
        self.name = name
        self.index = index
        self.queue: Queue = Backlog()
        if queue is not None:
            self.queue = queue
        self._spooled = queue
        self._classes: LinkClasses | None = None
        self._starvation = Starvation(counters)
        self._catching_up = CatchingUp()
        self.state: SenderState = AWAY
        self.takes: Takes = ALL
        self.open = False
        """``state`` is OPEN; each message looks at it."""
        self.last_refusal: str | None = None
        tells_ids = queue is not None and name == "link"
        self.wire = Wire(driver, counters, name, custody, tells_ids, self.drain, self._still_valid)
        self.wire.delay = limits.delay
        self._window = Window(limits.inflight, limits.inflight_bytes)
        noted = [] if queue is None or tells_ids else queue.consumer.noted()
        noting = queue is not None and name == "injection"
        self.resumption = Resumption(driver, self._window, self.wire, custody, noting, noted)
        self.isolation = PoisonIsolation(self.queue, self._window, self.wire, self.resumption)
        self.pressure = BackPressure(limits, self.queue, self.wire)
        self.allowance = Allowance(driver, limits, self.queue, self.pressure, queue is not None)

    @property
    def spooled(self) -> SpooledQueue:
        """The queue of a sender that is a consumer of the spool."""
        assert self._spooled is not None
        return self._spooled

    @property
    def kept(self) -> bool:
        """The spool keeps what is for this sender."""
        return self._spooled is not None

    def follow_classes(self, classes: LinkClasses | None) -> None:
        """How messages wait from now on."""
        self._classes = classes
        if self._spooled is not None:
            self._spooled.classes = classes

    # the session beneath ----------------------------------------------------------------------

    def attach(
        self,
        transport: Transport,
        *,
        version: Version = Version.V5,
        window: int = 65535,
        window_bytes: int = 1 << 62,
        max_packet_size: int = 1 << 28,
        max_qos: int = 2,
        retain_available: bool = True,
    ) -> None:
        """Use a new connection; the arguments are what its far end allows."""
        self._window.size = min(window, self.limits.inflight)
        self._window.max_bytes = min(window_bytes, self.limits.inflight_bytes)
        self.step(ATTACHED)  # a connection that follows another at once has to resend as well
        self.wire.attach(transport, version, max_packet_size, max_qos, retain_available)
        self.resumption.attach()

    def resume(self, session_present: bool = True) -> None:
        """Begin to send: first what was not acknowledged (MQTT-4.4.0-1), then what waits.

        With ``session_present`` False the far end has forgotten the handshakes: what was under way is sent
        as new. That includes messages it had received (PUBREC): brokers deliver at PUBREL, and one that
        has forgotten the session has lost what was not released.
        """
        if self.state is not HELD:
            return
        self.step(RESUMED)
        self._starvation.begin()
        self.resumption.begin(session_present)
        if self.isolation.active:
            if not session_present:
                self.resumption.forget_handshakes()
            self.isolation.begin(dup=session_present)
        else:
            self.queue.put_back(self.resumption.resend(session_present))
        if self._classes is not None and self._classes.after_live:
            self._classes.count_behind(self.queue.set_back(self._classes.goes_back))
            self._catching_up.begin()
        self.drain()

    def suspend(self) -> None:
        """Stop sending messages; acknowledgements may still pass."""
        self.wire.flush()
        self.step(SUSPENDED)

    def detach(self) -> None:
        """The connection is gone."""
        self.step(DETACHED)
        self.wire.detach()

    def step(self, event: SenderEvent) -> None:
        """Change the state by the tables; the methods above do so by themselves."""
        self.state = STATES[self.state].get(event, self.state)
        self.takes = TAKES[self.takes].get(event, self.takes)
        self.open = self.state is OPEN

    def _still_valid(self, packet: bytes) -> bytes:
        if packet[0] & ~DUP != PUBLISH_QOS_2 | RETAIN:
            return packet
        place = id_offset(packet)
        item = self._window.get(packet[place] << 8 | packet[place + 1])
        if item is None or item.messages.ordered is None:
            return packet
        frame = item.messages.ordered.outgoing(item.messages.frames)
        return packet if frame and frame[0] & RETAIN else without_retain(packet)

    # sending ----------------------------------------------------------------------------------

    def send(
        self,
        batch: Batch,
        source: Holdable | None = None,
        receipt: Receipt | None = None,
        priority: int = 0,
        waited: Entry | None = None,
    ) -> int:
        """Send a batch, of QoS 1 and 2 as far as the window allows; what cannot go at once waits.

        ``waited``: the batch's entry at the beginning of the queue; its rest stays there. Answers how many
        messages need not wait.
        """
        wire, window = self.wire, self._window
        if waited is None:
            first, count = 0, batch.count
            may_go = self.open and wire.writable and not self.queue and not self.isolation.active
        else:
            first, count, may_go = waited.first, waited.count, True
        if may_go and batch.ordered is not None:
            may_go = batch.ordered.may_go()
        most = count if may_go else 0
        if most and wire.pacer is not None:
            if batch.qos and wire.max_qos:  # the pacer would ask again and again where the window is full
                most = window.takes_of(batch, first, most)
            if most:
                most = wire.pacer.fitting(batch, first, most)
        sent = 0
        if most and not (batch.qos and wire.max_qos):
            wire.write_qos_0(batch.part(first, most).at_qos(0))
            batch.settle(receipt, first, most)
            sent = most
        while sent < most and (room := window.takes_of(batch, first + sent, most - sent)):
            packet_id, number = window.next_ids(room)
            for piece in wire.pieces(batch.part(first + sent, number)):
                if wire.write_batch(piece, packet_id, receipt):
                    window.add(Inflight(piece, packet_id, receipt, priority))
                    wire.count_sent(piece.count)
                    if min(piece.qos, wire.max_qos) == 2:
                        self.resumption.note_sent(receipt, piece.first_id, packet_id, piece.count)
                packet_id += piece.count
            sent += number
        if sent < count and waited is None:
            rest = batch.part(sent, count - sent)
            self._enqueue(Entry(rest, receipt if rest.qos else None, priority), source)
        return sent

    def new_packet_id(self) -> int:
        """A packet identifier for SUBSCRIBE or UNSUBSCRIBE; free again with :meth:`release_packet_id`."""
        return self._window.reserve_id()

    def release_packet_id(self, packet_id: int) -> None:
        self._window.free_id(packet_id)

    # acknowledgements -------------------------------------------------------------------------

    def acknowledged(self, packet_ids: Sequence[int]) -> None:
        """The far end has taken messages of QoS 1 (several PUBACK without an error)."""
        self._window.acknowledged(packet_ids)
        if self.wire.watch is not None:
            self.wire.watch.acknowledged(packet_ids)
        if self.queue or self.isolation.active:
            self.drain()

    def on_puback(self, packet_id: int, reason_code: int = 0) -> None:
        # a broker that grants QoS 1 at most answers a QoS 2 PUBLISH with PUBACK; that completes it
        if self._window.get(packet_id) is not None and not self._window.is_released(packet_id):
            self._complete(packet_id, reason_code)

    def on_pubrec(self, packet_id: int, reason_code: int = 0) -> None:
        if reason_code >= 0x80 and self._window.get(packet_id) is not None:
            self._complete(packet_id, reason_code)
        else:
            self.received((packet_id,))

    def received(self, packet_ids: Sequence[int]) -> None:
        """The far end has messages of QoS 2 (several PUBREC without an error): release them."""
        window, wire = self._window, self.wire
        self.resumption.answer_timeout.answered(packet_ids)
        known = packet_ids
        if not all(map(window.release, packet_ids)):
            known = [i for i in packet_ids if window.is_released(i)]
            for packet_id in packet_ids:
                if not window.is_released(packet_id):
                    reason = 0x92 if wire.version is Version.V5 else 0
                    wire.write(PubRel(packet_id=packet_id, reason_code=reason).encode(wire.version))
        if known:
            wire.write(acknowledgements_of(PUBREL, known))
            self.resumption.note_released(known)

    def completed(self, packet_ids: Sequence[int]) -> None:
        """The far end is done with messages of QoS 2 (several PUBCOMP)."""
        self.resumption.answer_timeout.answered(packet_ids)
        self._window.completed(packet_ids)
        if self.wire.watch is not None:
            self.wire.watch.acknowledged(packet_ids)
        if self.queue or self.isolation.active:
            self.drain()

    def _complete(self, packet_id: int, reason_code: int) -> None:
        self.resumption.answer_timeout.answered((packet_id,))
        self._window.complete(packet_id)
        if self.wire.watch is not None and reason_code < 0x80:
            self.wire.watch.acknowledged((packet_id,))
        if reason_code >= 0x80:
            self.counters[f"{self.name}_refused"] += 1
            self.last_refusal = f"PUBLISH refused with reason 0x{reason_code:02X}"
        if self.queue or self.isolation.active:
            self.drain()

    # queue ------------------------------------------------------------------------------------

    def bound(self, window_bytes: int, widens: bool) -> None:
        """No more bytes than that may be under way from now on; ``widens``: perhaps more than before."""
        before = self.limits.inflight_bytes if widens else self._window.max_bytes
        self._window.max_bytes = min(before, window_bytes)

    @property
    def sent(self) -> int:
        return self.wire.sent

    @property
    def dropped(self) -> int:
        return self.wire.dropped

    @property
    def inflight(self) -> int:
        """Messages under way without their acknowledgement."""
        return len(self._window)

    @property
    def queued_messages(self) -> int:
        return self.queue.messages

    @property
    def queued_bytes(self) -> int:
        return self.queue.bytes

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing is unacknowledged."""
        return not (self.queue or self._window) and self.wire.idle

    @property
    def at_rest(self) -> bool:
        """The node need not wait for it to stop: what it has is kept, or a neighbour's still, and does not go
        at once."""
        if self.idle:
            return True
        at_once = self.open and (self._spooled is None or self._spooled.all_in_memory)
        # whether all it has are messages which neighbours still have, too
        unacknowledged_only = (
            self.queue.messages == self.queue.unacknowledged_messages and self._window.unacknowledged_only
        )
        return unacknowledged_only and not at_once

    def drain(self) -> None:
        """Send from the queue as far as the session and the window allow."""
        queue = self.queue
        if self.isolation.active and self.open:
            self.isolation.send_next()
        if self._classes is not None and queue and self.open:
            self._starvation.look(queue, self.driver.now())
        written = 0
        after_live = self._classes is not None and self._classes.after_live and queue.has_behind
        while self.open and self.wire.writable and queue and not self.isolation.active:
            entry = queue.first
            if entry.priority > HIGHEST_PRIORITY and self._let_go(entry):
                continue
            written += entry.size
            sent = self._transmit(entry)
            if not sent:
                break
            if entry.priority > HIGHEST_PRIORITY:
                self._note_late(entry, sent)
            if after_live:
                self._remove(entry, sent)
            else:
                queue.remove(sent)
            if written > FLUSHED:
                written = 0
                self.wire.flush()  # lets the transport say when it is full
        if self._classes is not None and self.open:
            self._classes.tell(self.wire.write_durable)
        self.pressure.ease()
        self.allowance.tell_soon()

    def _remove(self, entry: Entry, count: int) -> None:
        """So many messages of an entry have left, and others have to wait for newer ones."""
        size = entry.size if count == entry.count else entry.whole.bytes_of(entry.first, count)
        behind = entry.behind
        self.queue.remove(count)
        if self._classes is not None:
            self._catching_up.sent(self.queue, self._classes.backlog, size, behind)

    def _let_go(self, entry: Entry) -> bool:
        """Forget what its class lets go."""
        if self._classes is None:
            return False
        count = entry.count
        if self._is_outdated(entry, self._classes):
            self._classes.conflated(entry, count)
            self.queue.remove(count)
            return True
        if not self._classes.lets_go(entry, self.driver.now()):
            return False
        entry.settle()
        self.queue.remove(count)
        self.wire.drop(count, "aged")
        if entry.whole.retain:
            self.pressure.tell_lost(entry.whole.topic)
        return True

    def _is_outdated(self, entry: Entry, classes: LinkClasses) -> bool:
        """Whether its class conflates, and a newer message of its topic waits on disk."""
        spooled = self._spooled
        return spooled is not None and classes.conflates(entry) and spooled.newest_on_disk.outdates(entry)

    def _note_late(self, entry: Entry, count: int) -> None:
        """Messages of an entry have left, which has waited."""
        if self._classes is not None:
            late = self._classes.count_late(entry, count, self.driver.now())
            if late:
                self.counters["link_deadline_missed"] += late

    def clear(self, reason: Left) -> Waiting:
        """Forget what waits and what is unacknowledged; counted as dropped, by QoS. What was on disk alone is
        counted apart, and answered."""
        for entry in self.take_all():
            self.wire.drop(entry.count, f"{reason}_qos{entry.qos}")
            entry.settle()
        if self._spooled is None:
            return Waiting(0, 0, None)
        waiting = self._spooled.retire()
        self.wire.drop(waiting.messages, f"{reason}_spooled")
        return waiting

    def adopt(self, entries: Iterable[Entry]) -> None:
        """Send what another sender has given up."""
        for entry in entries:
            self._enqueue(entry, None)
        self.drain()

    def under_way(self) -> list[Entry]:
        """What the far end has not received, as far as is known; it stays under way."""
        return self._window.entries()

    def leave_all(self) -> list[Entry]:
        """Give up what the spool does not keep; what it keeps, whether under way or not, is left to whoever
        takes the queue next."""
        self.spooled.put_back(self.resumption.take_under_way())
        self.isolation.end()
        return self.spooled.take_loose()

    def give_up(self) -> int:
        """The node stops: count what it had to send, but for what is kept or neighbours still have; answers
        how much."""
        before = self.dropped
        if self._spooled is not None:
            entries = self._spooled.take_loose()  # what is under way goes on in the next life
        else:
            entries = self.take_all()
        for entry in entries:
            if entry.receipt is None or entry.receipt.is_void:
                self.wire.drop(entry.count, f"shutdown_qos{entry.qos}")
        return self.dropped - before

    def take_all(self) -> list[Entry]:
        """Give up all that waits in memory or is unacknowledged, in order, but for what the far end has
        received."""
        entries = [*self.resumption.take_under_way(), *self.queue.take_all()]
        self.isolation.end()
        self.drain()
        return entries

    def own(self, enough: Callable[[], bool]) -> None:
        """Answer the senders of the oldest messages before these are disposed of, until it is enough."""
        self.counters["acknowledged_early"] += self._window.own(enough) + self.queue.own(enough)
        if self.pressure.over(1):
            self.pressure.trim()

    def _enqueue(self, entry: Entry, source: Holdable | None) -> None:
        queue = self.queue
        if self.takes is not ALL:
            if self.takes is not KEPT:
                self.wire.drop(entry.count, f"neighbor_expired_qos{entry.qos}")
                entry.settle()
                return
            if entry.receipt is None:
                self.wire.drop(entry.count, f"other_path_qos{entry.qos}")
                return
        if entry.receipt is not None and self._spooled is None:
            entry.receipt.when_void = queue.disown
        if self._classes is not None and entry.since == NEVER:
            entry.since = self.driver.now()
        if self.wire.pacer is not None:
            self.wire.pacer.waits(entry.size)
        last: Entry | None = entry
        if self._classes is not None and self._classes.conflates(entry):
            last = append(queue, entry, self._classes)
        else:
            queue.append(entry)
        if self.pressure.over(1):
            self.pressure.make_room(entry, None if last is None else source)
        if last is not None and self.open and self.wire.writable and queue.overtakes(last):
            self.drain()  # what it has overtaken may wait for room in the window, not for the connection

    def _transmit(self, entry: Entry) -> int:
        """Send what has waited; with what an earlier life has noted it is a single message."""
        note = self.resumption.noted(entry)
        if note is not None:
            if not self._window.takes(entry.size):
                return 0
            if self.resumption.take_up(entry, note):
                return 1
        return self.send(entry.whole, None, entry.receipt, entry.priority, entry)

    def end_unanswered(self) -> None:
        """The far end has answered a PINGREQ: what it should have answered before is taken for answered."""
        for packet_id, released in self.resumption.answer_timeout.unanswered():
            self.counters[f"{self.name}_unanswered"] += 1
            if released:
                self.completed((packet_id,))
            else:
                self.on_pubrec(packet_id)


def total(senders: Iterable[Sender], attribute: str) -> int:
    """Sum of an integer attribute over senders."""
    return sum(getattr(sender, attribute) for sender in senders)
