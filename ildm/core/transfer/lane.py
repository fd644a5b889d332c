"""The sending side of one session that carries transferred messages: to a neighbour or into the broker.

A lane outlives its TCP connection. It joins what is written in one loop iteration, holds a bounded
queue while the session is down, slow or has its window full, keeps the QoS 1 and 2 handshakes
(MQTT-4.3.2, 4.3.3, 4.4.0-1) and counts down the message expiry of what waits (MQTT-3.3.2-6).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from ildm.core.frames import PUBLISH, frames_to_qos_0, frames_to_v311, id_offset, with_ids
from ildm.core.transfer.backlog import Backlog, Entry, RunEntry
from ildm.core.transfer.window import Inflight, InflightRun, Window, consecutive
from ildm.mqtt import EncodeError, Property, Publish, PubRel, Version

if TYPE_CHECKING:
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver, Transport

HARD_LIMIT = 2
"""With overflow ``block`` a queue may grow to this many times its bound (sources stop with a delay)."""


class Holdable(Protocol):
    """A session whose reading can be stopped while a lane is full."""

    def pause(self, reason: object) -> None: ...
    def resume(self, reason: object) -> None: ...


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Bounds of one lane."""

    messages: int = 10_000
    bytes: int = 8 << 20
    inflight: int = 1000
    overflow: Literal["drop", "block"] = "drop"


class Lane:
    """See the module; ``name`` begins the names of its counters (``link`` or ``injection``)."""

    __slots__ = (
        "_flushing",
        "_held",
        "_out",
        "_queue",
        "_window",
        "counters",
        "driver",
        "dropped",
        "index",
        "last_refusal",
        "limits",
        "lost",
        "max_packet_size",
        "max_qos",
        "name",
        "open",
        "retain_available",
        "sent",
        "transport",
        "version",
        "writable",
    )

    def __init__(
        self, driver: Driver, limits: QueueLimits, counters: Counters, name: str, index: int
    ) -> None:
        self.driver = driver
        self.limits = limits
        self.counters = counters
        self.name = name
        self.index = index
        self.version = Version.V5
        self.transport: Transport | None = None
        self.open = False
        """Messages may be sent: the session is established and, on a link, part of the cooperation."""
        self.writable = True
        self.max_packet_size = 1 << 28
        self.max_qos = 2
        self.retain_available = True
        self.sent = 0
        self.dropped = 0
        self.last_refusal: str | None = None
        self.lost: Callable[[Publish], None] | None = None
        """Told of each single message that was dropped for want of room."""
        self._out: list[bytes] = []
        self._flushing = False
        self._queue = Backlog()
        self._window = Window(limits.inflight)
        self._held: set[Holdable] = set()

    # the session beneath ----------------------------------------------------------------------

    def attach(
        self,
        transport: Transport,
        *,
        version: Version = Version.V5,
        window: int = 65535,
        max_packet_size: int = 1 << 28,
        max_qos: int = 2,
        retain_available: bool = True,
    ) -> None:
        """Use a new connection; the arguments are what its far end allows."""
        self.transport = transport
        self.version = version
        self._window.size = min(window, self.limits.inflight)
        self.max_packet_size = max_packet_size
        self.max_qos = max_qos
        self.retain_available = retain_available
        self.writable = True
        self.open = False  # a connection that follows another at once has to resend as well
        self._out = []
        self._window.free_reserved()

    def resume(self, session_present: bool = True) -> None:
        """Begin to send: first what was not acknowledged (MQTT-4.4.0-1), then what waits.

        With ``session_present`` False the far end has forgotten the handshakes: a message it had
        already received (PUBREC) is done, the others are sent as new ones.
        """
        if self.transport is None or self.open:
            return
        self.open = True
        again: list[Entry] = []
        for item, ids in self._window.take_all():
            packet_id = ids[0]
            if isinstance(item, InflightRun):
                again += self._resume_run(item, ids, session_present)
            elif item.released:
                if session_present:
                    self._window.add(packet_id, item)
                    self.write(PubRel(packet_id=packet_id).encode(self.version))
            elif session_present and self._window.room > 0:
                if min(item.entry.qos, self.max_qos) == 0:
                    again.append(item.entry)
                elif self._send_with_id(item.entry, packet_id, dup=True):
                    self._window.add(packet_id, item)
            else:
                again.append(item.entry)
        self._queue.put_back(again)
        self.drain()

    def _resume_run(self, run: InflightRun, ids: list[int], session_present: bool) -> list[Entry]:
        """Send again what is left of a run, as far as the window allows; answers what has to wait."""
        room = max(0, self._window.room) if session_present and self.max_qos else 0
        for first_id, count in consecutive(ids[:room]):
            self._write_run(run.part(first_id, count), run.size, first_id, dup=True)
        return [RunEntry(run.part(first_id, count), count) for first_id, count in consecutive(ids[room:])]

    def suspend(self) -> None:
        """Stop sending messages; acknowledgements may still pass."""
        self._flush()
        self.open = False

    def detach(self) -> None:
        """The connection is gone."""
        self.open = False
        self.transport = None
        self._out = []

    def set_writable(self, writable: bool) -> None:
        self.writable = writable
        if writable:
            self.drain()

    # sending ----------------------------------------------------------------------------------

    def send_frames(self, frames: bytes, size: int, source: Holdable | None = None) -> None:
        """Send a run of MQTT 5 PUBLISH frames, QoS 0 or 1 and without properties, ``size`` bytes each.

        All have one topic, and neither DUP nor RETAIN; the packet identifiers in them do not count.
        """
        count = len(frames) // size
        ready = self.open and self.writable and not self._queue
        if frames[0] != PUBLISH:
            sent = self._transmit_run(frames, size, count) if ready else 0
            if sent < count:
                self._enqueue(RunEntry(frames[sent * size :], count - sent), source)
        elif ready:
            self._transmit_frames(frames, size, count)
        else:
            self._enqueue(Entry(frames, count, None, 0, None), source)

    def send(
        self, message: Publish, qos: int, expires_at: float | None, source: Holdable | None = None
    ) -> None:
        """Send one message at ``qos``; ``expires_at`` is the monotonic time after which nobody wants it."""
        entry = Entry(b"", 1, message, qos, expires_at)
        if not (self.open and self.writable and not self._queue and self._transmit(entry)):
            self._enqueue(entry, source)

    def write(self, data: bytes) -> None:
        """Write a packet that is no PUBLISH, in order with the rest; lost when there is no connection."""
        if self.transport is None:
            return
        self._out.append(data)
        if not self._flushing:
            self._flushing = True
            self.driver.call_soon(self._flush)

    def new_packet_id(self) -> int:
        """A packet identifier for SUBSCRIBE or UNSUBSCRIBE; free again with :meth:`release_packet_id`."""
        return self._window.reserve_id()

    def release_packet_id(self, packet_id: int) -> None:
        self._window.free_id(packet_id)

    # acknowledgements -------------------------------------------------------------------------

    def acknowledged(self, packet_ids: Iterable[int]) -> None:
        """The far end has taken messages of QoS 1 (several PUBACK without an error)."""
        self._window.acknowledged(packet_ids)
        if self._queue:
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

    def on_pubcomp(self, packet_id: int) -> None:
        if self._window.get(packet_id) is not None:
            self._complete(packet_id, 0)

    def _complete(self, packet_id: int, reason_code: int) -> None:
        self._window.complete(packet_id)
        if reason_code >= 0x80:
            self.counters[f"{self.name}_refused"] += 1
            self.last_refusal = f"PUBLISH refused with reason 0x{reason_code:02X}"
        if self._queue:
            self.drain()

    # queue ------------------------------------------------------------------------------------

    @property
    def window(self) -> int:
        """So many messages of QoS 1 and 2 may be under way."""
        return self._window.size

    @property
    def inflight(self) -> int:
        """Messages under way without their acknowledgement."""
        return len(self._window)

    @property
    def queued_messages(self) -> int:
        return self._queue.messages

    @property
    def queued_bytes(self) -> int:
        return self._queue.bytes

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing is unacknowledged."""
        return not (self._queue or self._window or self._out)

    def drain(self) -> None:
        """Send from the queue as far as the session and the window allow."""
        queue = self._queue
        while queue and self.open and self.writable:
            entry = queue.oldest
            if isinstance(entry, RunEntry):
                count = min(entry.count, self._window.room) if self.max_qos else entry.count
                if count <= 0:
                    break
                queue.remove(self._transmit_run(entry.first(count), entry.frame_size, count))
            else:
                if entry.message is None:
                    size = len(entry.frames) // entry.count
                    self._transmit_frames(entry.frames, size, entry.count)
                elif not self._transmit(entry):
                    break
                queue.remove(entry.count)
            if queue.bytes > self.limits.bytes // 2:
                self._flush()  # lets the transport say when it is full
        if (
            self._held
            and queue.bytes <= self.limits.bytes // 2
            and queue.messages <= self.limits.messages // 2
        ):
            held, self._held = self._held, set()
            for source in held:
                source.resume(self)

    def clear(self, reason: str) -> None:
        """Forget what waits and what is unacknowledged; counted as dropped."""
        self._drop(self._queue.messages + len(self._window), reason)
        self._queue.clear()
        self._window.clear()
        self.drain()

    def _enqueue(self, entry: Entry, source: Holdable | None) -> None:
        queue, limits = self._queue, self.limits
        queue.append(entry)
        if queue.bytes <= limits.bytes and queue.messages <= limits.messages:
            return
        factor = 1
        if limits.overflow == "block":
            factor = HARD_LIMIT
            if source is not None:
                self._held.add(source)
                source.pause(self)
        # the oldest goes first: for telemetry the newest value is the one worth keeping
        for oldest, count in queue.trim(limits.messages * factor, limits.bytes * factor):
            if oldest.message is not None and self.lost is not None:
                self.lost(oldest.message)
            self._drop(count, f"overflow_qos{oldest.qos}")

    def _drop(self, count: int, reason: str) -> None:
        if count:
            self.dropped += count
            self.counters[f"{self.name}_dropped_{reason}"] += count

    # transmission -----------------------------------------------------------------------------

    def _transmit_frames(self, frames: bytes, size: int, count: int) -> None:
        if size > self.max_packet_size:  # asked here, as what waited may be older than the connection
            self._drop(count, "too_large")
            return
        if self.version is not Version.V5:
            frames = frames_to_v311(frames, size)
        self.sent += count
        self._out.append(frames)
        if not self._flushing:
            self._flushing = True
            self.driver.call_soon(self._flush)

    def _transmit_run(self, frames: bytes, size: int, count: int) -> int:
        """Send a run of QoS 1 as far as the window allows; answers how many messages need not wait."""
        if self.max_qos == 0:
            self._transmit_frames(*frames_to_qos_0(frames, size), count)
            return count
        done = 0
        while done < count and (room := self._window.room) > 0:
            first_id, number = self._window.next_ids(min(room, count - done))
            self._write_run(frames[done * size : (done + number) * size], size, first_id)
            done += number
        return done

    def _write_run(self, frames: bytes, size: int, first_id: int, dup: bool = False) -> None:
        """Write a run of QoS 1 with consecutive identifiers, or drop it when it is too large."""
        count = len(frames) // size
        data = frames if self.version is Version.V5 else frames_to_v311(frames, size)
        if len(data) // count > self.max_packet_size:
            self._drop(count, "too_large")
            return
        self._window.add_run(InflightRun(frames, size, first_id))
        self.sent += count
        self.write(with_ids(data, len(data) // count, id_offset(data), first_id, dup))

    def _transmit(self, entry: Entry) -> bool:
        """Send a message now; False if the window is full. True also when it is dropped for good."""
        if entry.expires_at is not None and entry.expires_at <= self.driver.now():
            self._drop(1, "expired")
            return True
        if min(entry.qos, self.max_qos) == 0:
            self._send_with_id(entry, None)
            return True
        if self._window.room <= 0:
            return False
        packet_id = self._window.next_id()
        if self._send_with_id(entry, packet_id):
            self._window.add(packet_id, Inflight(entry))
        return True

    def _send_with_id(self, entry: Entry, packet_id: int | None, dup: bool = False) -> bool:
        message = entry.message
        assert message is not None
        properties = message.properties
        if self.version is not Version.V5:
            if properties:
                self.counters[f"{self.name}_properties_dropped"] += 1
            properties = {}
        elif entry.expires_at is not None:
            left = max(1, math.ceil(entry.expires_at - self.driver.now()))
            properties = {**properties, Property.MESSAGE_EXPIRY_INTERVAL: left}
        retain = message.retain
        if retain and not self.retain_available:
            self.counters[f"{self.name}_retain_dropped"] += 1
            retain = False
        packet = Publish(
            topic=message.topic,
            payload=message.payload,
            qos=min(entry.qos, self.max_qos),
            retain=retain,
            dup=dup,
            packet_id=packet_id,
            properties=properties,
        )
        try:
            frame = packet.encode(self.version)
        except EncodeError:
            self._drop(1, "not_encodable")
            return False
        if len(frame) > self.max_packet_size:
            self._drop(1, "too_large")
            return False
        self.sent += 1
        self.write(frame)
        return True

    def _flush(self) -> None:
        self._flushing = False
        out = self._out
        if out and self.transport is not None:
            self._out = []
            self.transport.write(out[0] if len(out) == 1 else b"".join(out))


def total(lanes: Iterable[Lane], attribute: str) -> int:
    """Sum of an integer attribute over lanes."""
    return sum(getattr(lane, attribute) for lane in lanes)
