"""The sending side of one session that carries transferred messages: to a neighbour or into the broker.

A sender outlives its TCP connection. It joins what is written in one loop iteration, or within a delay, holds
a bounded queue while the session is down, slow or has its window full, keeps the QoS 1 and 2 handshakes
(MQTT-4.3.2, 4.3.3, 4.4.0-1) and counts down the message expiry of what waits (MQTT-3.3.2-6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ildm.core.frames import PUBLISH, frames_to_qos_0, id_offset, runs_of
from ildm.core.spool import Outlet, Waiting
from ildm.core.transfer.deposit import RELEASED, Deposit
from ildm.core.transfer.introduction import Introducer
from ildm.core.transfer.queue import Backlog, Entry, Queue, RunEntry
from ildm.core.transfer.receipt import Holdable, Receipt
from ildm.core.transfer.silence import Silence
from ildm.core.transfer.suspects import Suspects
from ildm.core.transfer.window import Inflight, InflightRun, Window, consecutive
from ildm.core.transfer.wire import DUP, PUBLISH_2, RETAIN, Wire
from ildm.mqtt import Publish, PubRel, Version, decode

if TYPE_CHECKING:
    from ildm.core.counters import Counters
    from ildm.core.declared import Left
    from ildm.core.driver import Driver, Transport
    from ildm.core.transfer.custody import Custody
    from ildm.core.transfer.spooled_queue import SpooledQueue

FLUSHED = 256 << 10
"""Bytes written at once from a queue."""
HARD_LIMIT = 2
"""With overflow ``block`` a queue may grow to this many times its bound, and by the credit of the neighbours
it makes wait: sources stop with a delay. One that does not is ended."""


@dataclass(frozen=True)
class QueueLimits:
    """Bounds of one sender."""

    messages: int = 10_000
    bytes: int = 8 << 20
    inflight: int = 1000
    inflight_bytes: int = 8 << 20
    overflow: Literal["drop", "block"] = "drop"
    delay: float = 0.0
    """Seconds, see :attr:`Wire.delay`."""


class Sender(Wire):
    """See the module; ``name`` begins the names of its counters (``link`` or ``injection``)."""

    __slots__ = (
        "_at_once",
        "_bytes_at_once",
        "_flowing",
        "_held",
        "_noted",
        "_notes",
        "_refused",
        "_spooled",
        "_suspects",
        "_telling",
        "_window",
        "forgotten",
        "given_up",
        "index",
        "last_refusal",
        "limits",
        "lost",
        "open",
        "outlet",
        "passed_by",
        "poisonous",
        "queue",
        "silence",
        "writable_again",
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
        super().__init__(driver, counters, name, custody)
        self.limits = limits
        self.delay = limits.delay
        self.index = index
        self.queue: Queue = Backlog()
        if queue is not None:
            self.queue = queue
        self._spooled = queue
        self.outlet: Outlet
        """Of the spool; only with a queue that has one."""
        if queue is not None:
            self.outlet = queue.outlet
        self.open = False
        """Messages may be sent: the session is established and, on a link, part of the cooperation."""
        self.passed_by = False
        """While the session is not there, what the spool does not keep goes another way."""
        self.given_up = False
        """The far end has been away for too long: what is for it is dropped."""
        self.last_refusal: str | None = None
        self.lost: Callable[[Publish], None] | None = None
        """Told of each single message that was dropped for want of room."""
        self.poisonous: Callable[[Publish], None] | None = None
        """Told of each message that was dropped as the far end hangs up on it."""
        self.writable_again: Callable[[], None] | None = None
        """Called once there is room after something was refused (:meth:`admit`)."""
        self._refused = self._telling = False
        self._at_once = self._bytes_at_once = 0
        self._flowing = True
        """The connection takes more."""
        self._window = Window(limits.inflight, limits.inflight_bytes)
        self._suspects = Suspects()
        self.silence = Silence(driver, self._window)
        self._held: set[Holdable] = set()
        self.forgotten: Callable[[bool], bool] = lambda released: True
        """Asked of a QoS 2 message that was under way in a session which the far end has forgotten, and
        whether it had answered it with PUBREC: is it to be sent anew, or done?"""
        self._noted: set[int] = set()
        """Packet identifiers of messages that were under way at the end of an earlier life."""
        self._notes = queue is not None and name == "injection"
        if queue is not None and name == "link":
            self._introducer = Introducer()
        elif queue is not None:
            self._noted.update(note & 0xFFFF for note in queue.outlet.noted())
            self._window.free_reserved(self._noted)

    @property
    def spooled(self) -> SpooledQueue:
        """The queue of a sender with an outlet of the spool."""
        assert self._spooled is not None
        return self._spooled

    def make_entry(
        self, message: Publish, qos: int, expires_at: float | None, receipt: Receipt, priority: int
    ) -> Entry:
        """What waits here for one message of the spool."""
        return self.spooled.make(message, qos, expires_at, receipt, priority)

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
        self.transport = transport
        self.version = version
        self._window.size = min(window, self.limits.inflight)
        self._window.max_bytes = min(window_bytes, self.limits.inflight_bytes)
        self.max_packet_size = max_packet_size
        self.max_qos = max_qos
        self.retain_available = retain_available
        self.writable = self._flowing = True
        self.unread = 0
        self.open = False  # a connection that follows another at once has to resend as well
        self._forget_output()
        self.silence.clear()
        self._window.free_reserved(self._noted)
        if self._introducer is not None:
            self._introducer.clear()

    def resume(self, session_present: bool = True) -> None:
        """Begin to send: first what was not acknowledged (MQTT-4.4.0-1), then what waits.

        With ``session_present`` False the far end has forgotten the handshakes: what was under way is sent
        as new. That includes messages it had received (PUBREC): brokers deliver at PUBREL, and one that
        has forgotten the session has lost what was not released.
        """
        if self.transport is None or self.open:
            return
        self.open = True
        self.passed_by = False
        if not session_present and self._noted:
            self._window.free_reserved()
            self._noted.clear()
        if self._suspects.active:
            if not session_present:
                self._forget_handshakes()
            self._suspects.begin(self._window.ids, dup=session_present)
            self.drain()
            return
        again: list[Entry] = []
        for item, ids in self._window.take_all():
            packet_id = ids[0]
            if isinstance(item, InflightRun):
                again += self._resume_run(item, ids, session_present)
            elif item.released and session_present:
                self._window.add(packet_id, item)
                self.silence.taken_up(packet_id, item)
                self.write(PubRel(packet_id=packet_id).encode(self.version))
                self._guard(item.entry)
            elif session_present and self._window.takes(item.size, 1):
                if min(item.entry.qos, self.max_qos) == 0:
                    again.append(item.entry)
                elif size := self.send_with_id(item.entry, packet_id, dup=True):
                    item = Inflight(item.entry, size)  # noqa: PLW2901 - as it is on this connection
                    self._window.add(packet_id, item)
                    if min(item.entry.qos, self.max_qos) == 2:
                        self._guard(item.entry)
                        self.silence.taken_up(packet_id, item)
            elif session_present or item.entry.qos < 2 or self.forgotten(item.released):
                again.append(item.entry)
            else:
                item.entry.settle()
        self.queue.put_back(again)
        self.drain()

    def _forget_handshakes(self) -> None:
        """Nothing is released at the far end; what is done there all the same leaves the window."""
        for packet_id in self._window.ids:
            item = self._window.get(packet_id)
            if not isinstance(item, Inflight):
                continue
            if item.entry.qos < 2 or self.forgotten(item.released):
                item.released = False
            else:
                self._window.take(packet_id)
                item.entry.settle()

    def _resume_run(self, run: InflightRun, ids: list[int], session_present: bool) -> list[Entry]:
        """Send again what is left of a run, as far as the window allows; answers what has to wait."""
        room = self._window.takes(run.size, len(ids)) if session_present and self.max_qos else 0
        for first_id, count in consecutive(ids[:room]):
            part = run.part(first_id, count)
            if self.write_run(part, run.size, first_id, run.receipt, dup=True):
                self._window.add_run(InflightRun(part, run.size, first_id, run.receipt, run.priority))
        return [run.entry(first_id, count) for first_id, count in consecutive(ids[room:])]

    def suspend(self) -> None:
        """Stop sending messages; acknowledgements may still pass."""
        self.flush()
        self.open = False

    def detach(self) -> None:
        """The connection is gone."""
        self.open = False
        self.transport = None
        self._forget_output()

    def _forget_output(self) -> None:
        """What was not written is sent again on the next connection, or asked for again by the far end."""
        self._out = []
        self._answers.clear()
        self._marks, self._sealed, self._guarded = [], [], []
        self._barrier = 0
        self._forget_patience()

    @property
    def accuses(self) -> bool:
        """A message under suspicion is alone under way: if the far end hangs up now, it is for that."""
        return self._window.get(self._suspects.alone) is not None

    def blame(self) -> bool:
        """The far end ends the connection, perhaps because it did not like a message; whether one was found
        to be why."""
        guilty = self._suspects.hung_up(self._window.ids)
        if guilty:
            self._poison(guilty)
        return guilty != 0

    def _poison(self, packet_id: int) -> None:
        """The far end has hung up twice on this message alone: it is in the way of all that follow."""
        item = self._window.get(packet_id)
        assert item is not None
        entry = item.entry(packet_id, 1) if isinstance(item, InflightRun) else item.entry
        message = entry.message or decode(entry.frames[: item.size], Version.V5)
        assert isinstance(message, Publish)
        self.driver.log(
            "error",
            "message dropped: the far end hangs up on it",
            of=self.name,
            topic=message.topic,
            size=item.size,
            qos=entry.qos,
        )
        self.drop(1, "poison")
        self._window.complete(packet_id)
        if self.poisonous is not None:
            self.poisonous(message)

    def set_writable(self, writable: bool) -> None:
        self._flowing = writable
        self.writable = writable and not self.stalled
        self.unread = 0
        if self.writable:
            self.drain()

    def go_on(self) -> None:
        self.set_writable(self._flowing)

    def still_valid(self, packet: bytes) -> bytes:
        if packet[0] & ~DUP != PUBLISH_2 | RETAIN:
            return packet
        place = id_offset(packet)
        item = self._window.get(packet[place] << 8 | packet[place + 1])
        if not isinstance(item, Inflight):
            return packet
        message = item.entry.outgoing()
        if message is not None and message.retain:
            return packet
        return bytes([packet[0] & ~RETAIN]) + packet[1:]

    # sending ----------------------------------------------------------------------------------

    def send_frames(
        self,
        frames: bytes,
        size: int,
        source: Holdable | None = None,
        receipt: Receipt | None = None,
        priority: int = 0,
    ) -> None:
        """Send a run of MQTT 5 PUBLISH frames, QoS 0 or 1 and without properties, ``size`` bytes each.

        All have one topic, and neither DUP nor RETAIN. With a ``receipt`` the packet identifiers in them are
        those it is to be told when they are disposed of; else they do not count.
        """
        count = len(frames) // size
        ready = self.open and self.writable and not self.queue and not self._suspects.active
        if frames[0] != PUBLISH:
            sent = self._transmit_run(frames, size, count, receipt, priority) if ready else 0
            if sent < count:
                self._enqueue(RunEntry(frames[sent * size :], count - sent, receipt, priority), source)
        elif ready:
            self.transmit_frames(frames, size, count)
        else:
            self._enqueue(Entry(frames, count, None, 0, None, None, priority), source)

    def send_mixed(
        self,
        frames: bytes,
        count: int,
        largest: int,
        source: Holdable | None = None,
        priority: int = 0,
    ) -> None:
        """Send ``count`` MQTT 5 PUBLISH frames of QoS 0 without properties, whatever their topics are.

        They have neither DUP nor RETAIN, and ``largest`` bytes at most.
        """
        ready = self.open and self.writable and not self.queue and not self._suspects.active
        if not (ready and self.transmit_mixed(frames, count, largest)):
            for run, size in runs_of(frames):
                self.send_frames(run, size, source, None, priority)

    def send(
        self,
        message: Publish,
        qos: int,
        expires_at: float | None,
        source: Holdable | None = None,
        receipt: Receipt | None = None,
        priority: int = 0,
    ) -> None:
        """Send one message at ``qos``; ``expires_at`` is the monotonic time after which nobody wants it.

        ``receipt`` is told of the message's packet identifier when it is disposed of.
        """
        self.send_entry(Entry(b"", 1, message, qos, expires_at, receipt, priority), source)

    def send_entry(self, entry: Entry, source: Holdable | None = None) -> None:
        """Send one message."""
        ready = self.open and self.writable and not self.queue and not self._suspects.active
        if not (ready and self._transmit(entry)):
            self._enqueue(entry, source)

    def admit(self, size: int) -> bool:
        """Whether an algorithm may have something of that size sent, for which nobody is made to wait.

        Not if it would push out what waits; :attr:`writable_again` is then called later. What is admitted in
        one turn of the event loop is bounded in the same way: who sends on and on lets others have theirs.
        """
        queue, limits = self.queue, self.limits
        elsewhere = self._spooled is None  # what is owed to a neighbour counts there
        messages = max(queue.messages - queue.owed_messages * elsewhere, self._at_once)
        waiting = max(queue.bytes - queue.owed_bytes * elsewhere, self._bytes_at_once)
        if messages and (messages >= limits.messages or waiting + size > limits.bytes):
            self._refused = True
            return False
        if not self._at_once:
            self.driver.call_soon(self._next_turn)
        self._at_once += 1
        self._bytes_at_once += size
        return True

    def refused(self) -> None:
        """Something was refused before it came to be this sender's."""
        self._refused = True
        self._tell_soon()

    def _next_turn(self) -> None:
        self._at_once = self._bytes_at_once = 0
        self._tell_soon()

    def _tell_soon(self) -> None:
        if self._refused and not self._telling and not self._at_once and not self._crowded():
            self._telling = True
            self.driver.call_soon(self._tell)  # not amidst what makes the room

    def _tell(self) -> None:
        self._telling = False
        if not self._at_once and not self._crowded():
            self._refused = False
            if self.writable_again is not None:
                self.writable_again()

    def _crowded(self) -> bool:
        """There is no room for what an algorithm hands over."""
        if self._spooled is None:
            return self._over(0.5)
        queue, limits = self.queue, self.limits
        return queue.messages > limits.messages // 2 or queue.bytes > limits.bytes // 2

    def new_packet_id(self) -> int:
        """A packet identifier for SUBSCRIBE or UNSUBSCRIBE; free again with :meth:`release_packet_id`."""
        return self._window.reserve_id()

    def release_packet_id(self, packet_id: int) -> None:
        self._window.free_id(packet_id)

    # acknowledgements -------------------------------------------------------------------------

    def acknowledged(self, packet_ids: Iterable[int]) -> None:
        """The far end has taken messages of QoS 1 (several PUBACK without an error)."""
        self._window.acknowledged(packet_ids)
        if self.watch is not None:
            self.watch.acknowledged(packet_ids)
        if self.queue or self._suspects.active:
            self.drain()

    def on_puback(self, packet_id: int, reason_code: int = 0) -> None:
        # a broker that grants QoS 1 at most answers a QoS 2 PUBLISH with PUBACK; that completes it
        item = self._window.get(packet_id)
        if item is not None and not item.released:
            self._complete(packet_id, reason_code)

    def on_pubrec(self, packet_id: int, reason_code: int = 0) -> None:
        if reason_code >= 0x80 and self._window.get(packet_id) is not None:
            self._complete(packet_id, reason_code)
            return
        known = self._window.release(packet_id)
        unknown = not known and self.version is Version.V5
        self.write(PubRel(packet_id=packet_id, reason_code=0x92 if unknown else 0).encode(self.version))
        if known and self._notes:
            self._note(packet_id, packet_id | RELEASED)

    def on_pubcomp(self, packet_id: int) -> None:
        if self._window.get(packet_id) is not None:
            self._complete(packet_id, 0)

    def _complete(self, packet_id: int, reason_code: int) -> None:
        self._window.complete(packet_id)
        if self.watch is not None and reason_code < 0x80:
            self.watch.acknowledged((packet_id,))
        if reason_code >= 0x80:
            self.counters[f"{self.name}_refused"] += 1
            self.last_refusal = f"PUBLISH refused with reason 0x{reason_code:02X}"
        if self.queue or self._suspects.active:
            self.drain()

    # queue ------------------------------------------------------------------------------------

    def narrow(self, window_bytes: int) -> None:
        """No more bytes than that may be under way on this connection from now on."""
        self._window.max_bytes = min(self._window.max_bytes, window_bytes)

    @property
    def window(self) -> int:
        """So many messages of QoS 1 and 2 may be under way."""
        return self._window.size

    @property
    def has_noted(self) -> bool:
        """An earlier life has left messages of QoS 2 under way."""
        return bool(self._noted)

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
        return not (self.queue or self._window or self._out or self._answers or self._sealed or self._guarded)

    @property
    def at_rest(self) -> bool:
        """The node need not wait for it to stop: what it has is kept, or a neighbour's still, and does not go
        at once."""
        if self.idle:
            return True
        at_once = self.open and (self._spooled is None or self._spooled.all_in_memory)
        return self.owed_only and not at_once

    @property
    def owed_only(self) -> bool:
        """All it has are messages which neighbours still have, too."""
        return self.queue.messages == self.queue.owed_messages and self._window.owed_only

    def drain(self) -> None:
        """Send from the queue as far as the session and the window allow."""
        queue = self.queue
        if self._suspects.active and self.open:
            self._send_suspect()
        written = 0
        while self.open and self.writable and queue and not self._suspects.active:
            entry = queue.first
            written += entry.size
            if isinstance(entry, RunEntry):
                count = self._window.takes(entry.frame_size, entry.count) if self.max_qos else entry.count
                if count <= 0:
                    break
                part = entry.first(count)
                sent = self._transmit_run(part, entry.frame_size, count, entry.receipt, entry.priority)
                queue.remove(sent)
            else:
                if entry.message is None:
                    size = len(entry.frames) // entry.count
                    self.transmit_frames(entry.frames, size, entry.count)
                elif not self._transmit(entry):
                    break
                queue.remove(entry.count)
            if written > FLUSHED:
                written = 0
                self.flush()  # lets the transport say when it is full
        if self._held and not self._over(0.5):
            held, self._held = self._held, set()
            for source in held:
                source.release(self)
        if self._refused:
            self._tell_soon()

    def _over(self, factor: float) -> bool:
        """There is more than this part of the bounds, apart from what is owed."""
        return self.queue.over(self.limits.messages * factor, self.limits.bytes * factor)

    def clear(self, reason: Left) -> Waiting:
        """Forget what waits and what is unacknowledged; counted as dropped, by QoS. What was on disk alone is
        counted apart, and answered."""
        for entry in self.take_all():
            self.drop(entry.count, f"{reason}_qos{entry.qos}")
            entry.settle()
        if self._spooled is None:
            return Waiting(0, 0, None)
        waiting = self._spooled.retire()
        self.drop(waiting.messages, f"{reason}_spooled")
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
        self.spooled.put_back(self._take_window())
        self._suspects.end()
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
                self.drop(entry.count, f"shutdown_qos{entry.qos}")
        return self.dropped - before

    @property
    def kept(self) -> bool:
        """The spool keeps what is for this sender."""
        return self._spooled is not None

    def take_all(self) -> list[Entry]:
        """Give up all that waits in memory or is unacknowledged, in order, but for what the far end has
        received."""
        entries = [*self._take_window(), *self.queue.take_all()]
        self._suspects.end()
        self.drain()
        return entries

    def _take_window(self) -> list[Entry]:
        entries: list[Entry] = []
        for item, ids in self._window.take_all():
            if isinstance(item, InflightRun):
                entries += [item.entry(first_id, count) for first_id, count in consecutive(ids)]
            elif not item.released:
                entries.append(item.entry)
            else:
                item.entry.settle()
        return entries

    def own(self, enough: Callable[[], bool]) -> None:
        """Answer the senders of the oldest messages before these are disposed of, until it is enough."""
        self.counters["acknowledged_early"] += self._window.own(enough) + self.queue.own(enough)
        if self._over(1):
            self._trim(self.limits.messages, self.limits.bytes)

    def no_longer_held(self, source: Holdable) -> None:
        """A source has gone."""
        self._held.discard(source)

    def _enqueue(self, entry: Entry, source: Holdable | None) -> None:
        queue = self.queue
        if self.given_up:
            self.drop(entry.count, f"neighbor_expired_qos{entry.qos}")
            entry.settle()
            return
        if self.passed_by and entry.receipt is None:
            self.drop(entry.count, f"other_path_qos{entry.qos}")
            return
        if entry.receipt is not None and self._spooled is None:
            entry.receipt.when_void = queue.disown
        queue.append(entry)
        if self._over(1):
            self._make_room(entry, source)
        if self.open and self.writable and queue.overtakes(entry):
            self.drain()  # what it has overtaken may wait for room in the window, not for the connection

    def _make_room(self, entry: Entry, source: Holdable | None) -> None:
        """There is more than the bounds allow, since an entry was appended."""
        if self.limits.overflow == "drop":
            self._trim(self.limits.messages, self.limits.bytes)
            return
        self._trim(self.limits.messages, self.limits.bytes, lowest=True)
        if entry.qos and source is not None and self._over(1):
            self._held.add(source)
            source.hold(self)
        if self._over(HARD_LIMIT):
            self._overrun(entry, source)

    def _overrun(self, entry: Entry, source: Holdable | None) -> None:
        """More has come than sources send that wait when they are made to."""
        messages, size = HARD_LIMIT * self.limits.messages, HARD_LIMIT * self.limits.bytes
        for held in self._held:  # what they may have sent by now
            more_messages, more_bytes = held.credit
            messages += more_messages
            size += more_bytes
        if source is None or not entry.qos:
            self._trim(messages, size)
        elif count := self.queue.cut(messages, size):
            # the newest is not acknowledged yet, and will not be
            self.drop(count, f"overflow_qos{entry.qos}")
            if entry.message is not None:
                entry.settle()
            source.overran()

    def _trim(self, messages: int, size: int, lowest: bool = False) -> None:
        for oldest, count in self.queue.trim(messages, size, lowest):
            if oldest.message is not None:
                oldest.settle()
                if self.lost is not None:
                    self.lost(oldest.message)
            self.drop(count, f"overflow_qos{oldest.qos}")

    # transmission -----------------------------------------------------------------------------

    def _transmit_run(
        self, frames: bytes, size: int, count: int, receipt: Receipt | None, priority: int
    ) -> int:
        """Send a run of QoS 1 as far as the window allows; answers how many messages need not wait."""
        if self.max_qos == 0:
            self.transmit_frames(*frames_to_qos_0(frames, size), count)
            if receipt is not None:
                receipt.settle_run(frames, size)
            return count
        done = 0
        while done < count and (room := self._window.takes(size, count - done)):
            first_id, number = self._window.next_ids(room)
            part = frames[done * size : (done + number) * size]
            if self.write_run(part, size, first_id, receipt):
                self._window.add_run(InflightRun(part, size, first_id, receipt, priority))
                self.count_sent(number)
            done += number
        return done

    def _send_suspect(self) -> None:
        """Send the next message under suspicion once the one before it is through."""
        suspects, window = self._suspects, self._window
        if window.get(suspects.alone) is not None:
            return
        for packet_id in suspects.each():
            item = window.get(packet_id)
            if item is None:
                continue
            if item.released:
                self.write(PubRel(packet_id=packet_id).encode(self.version))
            elif not self._send_again(packet_id, item):
                continue
            if isinstance(item, Inflight) and min(item.entry.qos, self.max_qos) == 2:
                self._guard(item.entry)
                self.silence.taken_up(packet_id, item)
            suspects.alone = packet_id
            return
        suspects.end()

    def _send_again(self, packet_id: int, item: Inflight | InflightRun) -> bool:
        """Send one message of the window once more; False when that has ended it."""
        entry = item.entry(packet_id, 1) if isinstance(item, InflightRun) else item.entry
        dup = self._suspects.dup
        if min(entry.qos, self.max_qos) == 0:
            self._window.take(packet_id)
            self.queue.put_back([entry])
            return False
        if isinstance(entry, RunEntry):
            sent = self.write_run(entry.first(1), item.size, packet_id, entry.receipt, dup)
        else:
            sent = bool(self.send_with_id(entry, packet_id, dup))
        if not sent:
            self._window.take(packet_id)
        return sent

    def _transmit(self, entry: Entry) -> bool:
        """Send a message now; False if it has to wait. True also when it is dropped for good."""
        deposit = entry.receipt
        if self._notes and isinstance(deposit, Deposit) and deposit.note is not None:
            if not self._window.takes(entry.size, 1):
                return False
            if self._taken_up(entry, deposit.take_note()):
                return True
        if entry.expires_at is not None and entry.expires_at <= self.driver.now():
            self.drop(1, "expired")
            entry.settle()
            return True
        if not entry.may_go():
            return False
        if min(entry.qos, self.max_qos) == 0:
            if self.send_with_id(entry, None):
                self.count_sent(1)
                entry.settle()
            return True
        if not self._window.takes(entry.size, 1):
            return False
        packet_id = self._window.next_id()
        size = self.send_with_id(entry, packet_id)
        if size:
            self.count_sent(1)
            self._window.add(packet_id, Inflight(entry, size))
            if self.custody is not None and min(entry.qos, self.max_qos) == 2:
                self._note(packet_id, packet_id)
        return True

    def _taken_up(self, entry: Entry, note: int) -> bool:
        """Go on with the handshake that an earlier life has begun; False: the message is to be sent anew."""
        packet_id, released = note & 0xFFFF, bool(note & RELEASED)
        if packet_id not in self._noted:  # the broker has forgotten it
            if self.forgotten(released):
                return False
            entry.settle()
            return True
        self._noted.remove(packet_id)
        self._window.free_id(packet_id)
        item = Inflight(entry, entry.size)
        item.released = released
        if released:
            self.write(PubRel(packet_id=packet_id).encode(self.version))
        else:
            item.size = self.send_with_id(entry, packet_id, dup=True)
        if item.size:
            self._window.add(packet_id, item)
            self.silence.taken_up(packet_id, item)
            self.counters["spool_resumed"] += 1
        return True

    def end_silence(self) -> None:
        """The far end has answered a PINGREQ: what it should have answered before is taken for answered."""
        for packet_id, released in self.silence.unanswered():
            self.counters[f"{self.name}_unanswered"] += 1
            if released:
                self._complete(packet_id, 0)
            else:
                self.on_pubrec(packet_id)

    def _note(self, packet_id: int, value: int) -> None:
        """Let a later life know how far a QoS 2 handshake is before the far end does."""
        item = self._window.get(packet_id)
        if (
            self._notes
            and isinstance(item, Inflight)
            and item.entry.message is not None
            and isinstance(item.entry.receipt, Deposit)
        ):
            item.entry.receipt.noted(item.entry.packet_id, value)
        if isinstance(item, Inflight):
            self._guard(item.entry)

    def _guard(self, entry: Entry) -> None:
        """What was written last is a QoS 2 packet of it, and perhaps of no life but this."""
        deposit = entry.receipt
        identity = deposit.identity if isinstance(deposit, Deposit) else None
        if self.custody is None:
            return
        if self._notes or (identity is not None and identity.origin == self.custody.node_id):
            self.guard()
        else:
            self.after_what_is_kept()  # it has a number that another node keeps


def total(senders: Iterable[Sender], attribute: str) -> int:
    """Sum of an integer attribute over senders."""
    return sum(getattr(sender, attribute) for sender in senders)
