"""The sending side of one session that carries transferred messages: to a neighbour or into the broker.

A lane outlives its TCP connection. It joins what is written in one loop iteration, holds a bounded
queue while the session is down, slow or has its window full, keeps the QoS 1 and 2 handshakes
(MQTT-4.3.2, 4.3.3, 4.4.0-1) and counts down the message expiry of what waits (MQTT-3.3.2-6).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from ildm.core.frames import frames_to_v311
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


class _Entry:
    """What waits in the queue: a run of ready QoS 0 frames, or one message."""

    __slots__ = ("count", "expires_at", "frames", "message", "qos", "size")

    def __init__(
        self, frames: bytes, count: int, message: Publish | None, qos: int, expires_at: float | None
    ):
        self.frames = frames
        self.count = count
        self.message = message
        self.qos = qos
        self.expires_at = expires_at
        self.size = len(frames) if message is None else len(message.payload) + len(message.topic) + 64


class _Inflight:
    __slots__ = ("entry", "released")

    def __init__(self, entry: _Entry) -> None:
        self.entry = entry
        self.released = False  # PUBREC has come, PUBREL was sent


class Lane:
    """See the module; ``name`` begins the names of its counters (``link`` or ``injection``)."""

    __slots__ = (
        "_flushing",
        "_held",
        "_inflight",
        "_last_id",
        "_out",
        "_queue",
        "_reserved",
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
        "queued_bytes",
        "queued_messages",
        "retain_available",
        "sent",
        "transport",
        "version",
        "window",
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
        self.window = limits.inflight
        self.max_packet_size = 1 << 28
        self.max_qos = 2
        self.retain_available = True
        self.sent = 0
        self.dropped = 0
        self.queued_messages = 0
        self.queued_bytes = 0
        self.last_refusal: str | None = None
        self.lost: Callable[[Publish], None] | None = None
        """Told of each single message that was dropped for want of room."""
        self._out: list[bytes] = []
        self._flushing = False
        self._queue: deque[_Entry] = deque()
        self._inflight: dict[int, _Inflight] = {}
        self._last_id = 0
        self._reserved: set[int] = set()
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
        self.window = min(window, self.limits.inflight)
        self.max_packet_size = max_packet_size
        self.max_qos = max_qos
        self.retain_available = retain_available
        self.writable = True
        self.open = False  # a connection that follows another at once has to resend as well
        self._out = []
        self._reserved.clear()

    def resume(self, session_present: bool = True) -> None:
        """Begin to send: first what was not acknowledged (MQTT-4.4.0-1), then what waits.

        With ``session_present`` False the far end has forgotten the handshakes: a message it had
        already received (PUBREC) is done, the others are sent as new ones.
        """
        if self.transport is None or self.open:
            return
        self.open = True
        unacknowledged, self._inflight = self._inflight, {}
        again: list[_Entry] = []
        for packet_id, item in unacknowledged.items():
            if item.released:
                if session_present:
                    self._inflight[packet_id] = item
                    self.write(PubRel(packet_id=packet_id).encode(self.version))
            elif session_present and len(self._inflight) < self.window:
                if min(item.entry.qos, self.max_qos) == 0:
                    again.append(item.entry)
                elif self._send_with_id(item.entry, packet_id, dup=True):
                    self._inflight[packet_id] = item
            else:
                again.append(item.entry)
        for entry in reversed(again):
            self._count_queued(entry, 1)
            self._queue.appendleft(entry)
        self.drain()

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
        """Send a run of MQTT 5 PUBLISH frames, QoS 0 and without properties, ``size`` bytes each."""
        count = len(frames) // size
        if self.open and self.writable and not self._queue:
            self._transmit_frames(frames, size, count)
        else:
            self._enqueue(_Entry(frames, count, None, 0, None), source)

    def send(
        self, message: Publish, qos: int, expires_at: float | None, source: Holdable | None = None
    ) -> None:
        """Send one message at ``qos``; ``expires_at`` is the monotonic time after which nobody wants it."""
        entry = _Entry(b"", 1, message, qos, expires_at)
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
        packet_id = self._next_id()
        self._reserved.add(packet_id)
        return packet_id

    def release_packet_id(self, packet_id: int) -> None:
        self._reserved.discard(packet_id)

    # acknowledgements -------------------------------------------------------------------------

    def on_puback(self, packet_id: int, reason_code: int = 0) -> None:
        # a broker that grants QoS 1 at most answers a QoS 2 PUBLISH with PUBACK; that completes it
        item = self._inflight.get(packet_id)
        if item is not None and not item.released:
            self._complete(packet_id, reason_code)

    def on_pubrec(self, packet_id: int, reason_code: int = 0) -> None:
        item = self._inflight.get(packet_id)
        if item is not None and reason_code >= 0x80:
            self._complete(packet_id, reason_code)
            return
        if item is not None:
            item.released = True
            item.entry.message = None  # MQTT-4.3.3-1: never to be sent again
        unknown = item is None and self.version is Version.V5
        self.write(PubRel(packet_id=packet_id, reason_code=0x92 if unknown else 0).encode(self.version))

    def on_pubcomp(self, packet_id: int) -> None:
        if packet_id in self._inflight:
            self._complete(packet_id, 0)

    def _complete(self, packet_id: int, reason_code: int) -> None:
        del self._inflight[packet_id]
        if reason_code >= 0x80:
            self.counters[f"{self.name}_refused"] += 1
            self.last_refusal = f"PUBLISH refused with reason 0x{reason_code:02X}"
        if self._queue:
            self.drain()

    # queue ------------------------------------------------------------------------------------

    @property
    def inflight(self) -> int:
        return len(self._inflight)

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing is unacknowledged."""
        return not (self._queue or self._inflight or self._out)

    def drain(self) -> None:
        """Send from the queue as far as the session and the window allow."""
        queue = self._queue
        while queue and self.open and self.writable:
            entry = queue[0]
            if entry.message is None:
                size = len(entry.frames) // entry.count
                self._transmit_frames(entry.frames, size, entry.count)
            elif not self._transmit(entry):
                break
            queue.popleft()
            self._count_queued(entry, -1)
            if self.queued_bytes > self.limits.bytes // 2:
                self._flush()  # lets the transport say when it is full
        if (
            self._held
            and self.queued_bytes <= self.limits.bytes // 2
            and (self.queued_messages <= self.limits.messages // 2)
        ):
            held, self._held = self._held, set()
            for source in held:
                source.resume(self)

    def clear(self, reason: str) -> None:
        """Forget what waits and what is unacknowledged; counted as dropped."""
        self._drop(self.queued_messages + len(self._inflight), reason)
        self._queue.clear()
        self._inflight.clear()
        self.queued_messages = self.queued_bytes = 0
        self.drain()

    def _enqueue(self, entry: _Entry, source: Holdable | None) -> None:
        self._queue.append(entry)
        self._count_queued(entry, 1)
        limits = self.limits
        if self.queued_bytes <= limits.bytes and self.queued_messages <= limits.messages:
            return
        factor = 1
        if limits.overflow == "block":
            factor = HARD_LIMIT
            if source is not None:
                self._held.add(source)
                source.pause(self)
        # the newest stays, however large: it would otherwise take the whole queue with it and be lost too
        while len(self._queue) > 1 and (
            self.queued_bytes > limits.bytes * factor or self.queued_messages > limits.messages * factor
        ):
            # the oldest goes first: for telemetry the newest value is the one worth keeping
            oldest = self._queue.popleft()
            self._count_queued(oldest, -1)
            if oldest.message is not None and self.lost is not None:
                self.lost(oldest.message)
            self._drop(oldest.count, f"overflow_qos{oldest.qos}")

    def _count_queued(self, entry: _Entry, sign: int) -> None:
        self.queued_messages += sign * entry.count
        self.queued_bytes += sign * entry.size

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

    def _transmit(self, entry: _Entry) -> bool:
        """Send a message now; False if the window is full. True also when it is dropped for good."""
        if entry.expires_at is not None and entry.expires_at <= self.driver.now():
            self._drop(1, "expired")
            return True
        if min(entry.qos, self.max_qos) == 0:
            self._send_with_id(entry, None)
            return True
        if len(self._inflight) >= self.window:
            return False
        packet_id = self._next_id()
        if self._send_with_id(entry, packet_id):
            self._inflight[packet_id] = _Inflight(entry)
        return True

    def _send_with_id(self, entry: _Entry, packet_id: int | None, dup: bool = False) -> bool:
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

    def _next_id(self) -> int:
        packet_id = self._last_id
        while True:
            packet_id = packet_id % 65535 + 1
            if packet_id not in self._inflight and packet_id not in self._reserved:
                self._last_id = packet_id
                return packet_id


def total(lanes: Iterable[Lane], attribute: str) -> int:
    """Sum of an integer attribute over lanes."""
    return sum(getattr(lane, attribute) for lane in lanes)
