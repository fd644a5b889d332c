"""What a sender writes: frames as the far end can take them, joined per loop iteration."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING

from ildm.core.frames import frames_to_v311, frames_topic, id_offset, with_ids
from ildm.core.transfer.deposit import Deposit
from ildm.core.transfer.introduction import Introducer
from ildm.mqtt import EncodeError, Property, Publish, Version

if TYPE_CHECKING:
    from ildm.api import Timer
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver, Transport
    from ildm.core.transfer.custody import Custody
    from ildm.core.transfer.queue import Entry
    from ildm.core.transfer.receipt import Receipt
    from ildm.core.transfer.rules import LinkRules
    from ildm.core.transfer.watch import SenderWatch


PUBLISH_2, DUP, RETAIN = 0x34, 0x08, 0x01
"""The first byte of a PUBLISH of QoS 2, and its flags (MQTT 5, 2.1.3)."""
JOINED = 64 << 10
"""Bytes that do not wait for more to be joined with them."""


class Wire(ABC):
    """The connection beneath a sender and what its far end allows; ``name`` begins the names of counters."""

    __slots__ = (
        "_answers",
        "_awaiting",
        "_barrier",
        "_flushing",
        "_guarded",
        "_introducer",
        "_joined",
        "_joining",
        "_marks",
        "_out",
        "_patience",
        "_sealed",
        "_sealed_marks",
        "_sealed_until",
        "counters",
        "custody",
        "delay",
        "driver",
        "dropped",
        "max_packet_size",
        "max_qos",
        "name",
        "retain_available",
        "rules",
        "sent",
        "sent_counter",
        "stalled",
        "transport",
        "unread",
        "version",
        "watch",
        "writable",
    )

    def __init__(self, driver: Driver, counters: Counters, name: str, custody: Custody | None = None) -> None:
        self.driver = driver
        self.custody = custody
        self.counters = counters
        self.name = name
        self.version = Version.V5
        self.transport: Transport | None = None
        self.writable = True
        self.unread = 0
        """Bytes written although the far end reads no more: packets that do not wait."""
        self.max_packet_size = 1 << 28
        self.max_qos = 2
        self.retain_available = True
        self.rules: LinkRules | None = None
        """What may cross to the neighbour, and under which name; None: all, as it is."""
        self.watch: SenderWatch | None = None
        """Told of what is written, by the names of this site; None: nobody looks."""
        self.sent = 0
        self.sent_counter: str | None = None
        """Name of a counter of what is sent for the first time."""
        self.dropped = 0
        self.delay = 0.0
        """Seconds for which what is to be written waits to be joined with more."""
        self._out: list[bytes] = []
        self._flushing = False
        self._joined = 0
        """Bytes that wait so."""
        self._joining: Timer | None = None
        self._answers: deque[tuple[int, bytes]] = deque()
        """What is to be said once all up to an LSN is durable."""
        self._barrier = 0
        """All up to here is to be durable before what is in ``_out`` may be seen."""
        self._marks: list[int] = []
        """Places in ``_out`` of what is of QoS 2 and not to be seen before a later life would know of it."""
        self._guarded: list[bytes] = []
        """What was kept back of it, as the disk fails."""
        self.stalled = False
        """The same on a link, where no message goes past it, as who they are is told in their order."""
        self._patience: Timer | None = None
        self._sealed: list[bytes] = []
        self._sealed_marks: list[int] = []
        self._sealed_until = 0
        """What goes before ``_out``, and waits for less to be durable: else it would wait on and on."""
        self._awaiting = False
        self._introducer: Introducer | None = None
        """Tells a neighbour who messages are."""

    def write(self, data: bytes) -> None:
        """Write a packet that is no PUBLISH, in order with the rest; lost when there is no connection."""
        if self.transport is None:
            return
        if not self.writable:
            self.unread += len(data)
        self._out.append(data)
        if not self._flushing:
            self._flush_soon(len(data))

    def write_durable(self, data: bytes) -> None:
        """Write an acknowledgement once all is durable that this node has custody of by now."""
        if self.custody is None:
            self.write(data)
        elif self.transport is not None:
            self._answers.append((self.custody.last, data))
            if not self.writable:
                self.unread += len(data)
            if not self._flushing:
                self._flush_soon(len(data))

    def _introduce(self, receipt: Receipt | None, place: int, count: int) -> None:
        """Tell a neighbour who the next messages are; ``place``: of the first of them in its record."""
        assert self._introducer is not None
        identity, again = (receipt.identity, receipt.again) if isinstance(receipt, Deposit) else (None, None)
        needed = self._introducer.needed(identity, again, place, count)
        if needed:
            self._out.append(needed)

    def count_sent(self, count: int) -> None:
        self.sent += count
        if self.sent_counter is not None:
            self.counters[self.sent_counter] += count

    def transmit_frames(self, frames: bytes, size: int, count: int) -> None:
        """Write a run of QoS 0, or drop it when it is too large."""
        local = frames
        if self.rules is not None:
            ruled = self.rules.outgoing.run(frames_topic(frames), frames, size)
            if ruled is None:
                self.drop(count, "rules")
                return
            _, frames, size = ruled
        if size > self.max_packet_size:  # asked here, as what waited may be older than the connection
            self.drop(count, "too_large")
            return
        if self.version is not Version.V5:
            frames = frames_to_v311(frames, size)
        if self.watch is not None:
            self.watch.wrote_run(local, len(local) // count, 0)
        self.count_sent(count)
        self._out.append(frames)
        if not self._flushing:
            self._flush_soon(len(frames))

    def transmit_mixed(self, frames: bytes, count: int, largest: int) -> bool:
        """Write frames of QoS 0 as they are; False: each has to be looked at."""
        as_is = self.rules is None and self.watch is None and self.version is Version.V5
        if not as_is or largest > self.max_packet_size:
            return False
        self.count_sent(count)
        self._out.append(frames)
        if not self._flushing:
            self._flush_soon(len(frames))
        return True

    def write_run(
        self, frames: bytes, size: int, first_id: int, receipt: Receipt | None, dup: bool = False
    ) -> bool:
        """Write a run of QoS 1 with consecutive identifiers; False when it was too large, and dropped."""
        count = len(frames) // size
        data = frames if self.version is Version.V5 else frames_to_v311(frames, size)
        if self.rules is not None:
            ruled = self.rules.outgoing.run(frames_topic(frames), frames, size)
            if ruled is None:
                self.drop(count, "rules")
                if receipt is not None:
                    receipt.settle_run(frames, size)
                return False
            data = ruled[1]
        if len(data) // count > self.max_packet_size:
            self.drop(count, "too_large")
            if receipt is not None:
                receipt.settle_run(frames, size)
            return False
        offset = id_offset(data)
        if self._introducer is not None:  # to a neighbour, whose version is 5
            place = (data[offset] << 8 | data[offset + 1]) - 1
            self._introduce(receipt, place, count)
        if self.watch is not None:
            self.watch.wrote_run(frames, size, first_id)
        self.write(with_ids(data, len(data) // count, offset, first_id, dup))
        return True

    def send_with_id(self, entry: Entry, packet_id: int | None, dup: bool = False) -> int:
        """Write a message; answers the size of its frame, 0 when it was dropped for good."""
        message = entry.outgoing()
        if message is None:
            return self.dispose(entry, "outdated")
        properties, topic = message.properties, message.topic
        if self.rules is not None:
            way = self.rules.outgoing.decide(topic.encode())
            if way is None:
                return self.dispose(entry, "rules")
            topic = way.name
            answer = properties.get(Property.RESPONSE_TOPIC)
            if isinstance(answer, str):
                properties = {**properties, Property.RESPONSE_TOPIC: self.rules.answer_wire(answer)}
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
            topic=topic,
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
            return self.dispose(entry, "not_encodable")
        if len(frame) > self.max_packet_size:
            return self.dispose(entry, "too_large")
        if self._introducer is not None and packet_id is not None:
            self._introduce(entry.receipt, entry.packet_id - 1, 1)
        if self.watch is not None:
            self.watch.wrote(message, packet_id)
        self.write(frame)
        return len(frame)

    def dispose(self, entry: Entry, reason: str) -> int:
        """A message is dropped for good; answers 0."""
        self.drop(1, reason)
        entry.settle()
        return 0

    def guard(self) -> None:
        """What was written last is of QoS 2, and comes twice if it is seen and a later life knows nothing of
        it: while the disk fails it waits, for ``spool.failure_wait`` at most."""
        if self.custody is not None:
            self._barrier = self.custody.last
            self._marks.append(len(self._out) - 1)

    def after_what_is_kept(self) -> None:
        """What is written from here on may be seen once all is durable that the node has taken by now."""
        if self.custody is not None:
            self._barrier = self.custody.last

    def _flush_soon(self, size: int) -> None:
        """Write what there is at the end of this turn of the event loop, or after :attr:`delay`; ``size`` is
        that of what has just come to it."""
        if self.delay:
            self._joined += size
            if self._joined < JOINED:
                if self._joining is None:
                    self._joining = self.driver.call_later(self.delay, self.flush)
                return
        self._flushing = True
        self.driver.call_soon(self.flush)

    def flush(self) -> None:
        self._flushing = False
        if self._joining is not None:
            self._joining.cancel()
            self._joining = None
        self._joined = 0
        if self.custody is not None and not self._may_be_seen(self.custody):
            return
        out = self._out
        if out and self.transport is not None:
            self._out = []
            if self._marks:
                self._marks = []
            self.transport.write(out[0] if len(out) == 1 else b"".join(out))

    def _may_be_seen(self, custody: Custody) -> bool:
        """Make durable what has to be, and add the answers that may be given now; whether ``_out`` may be
        seen."""
        custody.flush()
        durable, answers = custody.spool.durable, self._answers
        while answers and answers[0][0] <= durable:
            self._out.append(answers.popleft()[1])
        if custody.spool.failure is not None and self._barrier > durable:
            if self._waits_for_disk(custody):
                return True
            durable = self._barrier
        elif self._guarded:
            self._no_longer_guarded()
        if self._sealed and self._sealed_until <= durable:
            sealed, self._sealed = self._sealed, []
            if self.transport is not None:
                self.transport.write(b"".join(sealed))
        seen = self._barrier <= durable
        if not seen and not self._sealed:
            self._sealed, self._sealed_marks, self._out, self._marks = self._out, self._marks, [], []
            self._sealed_until = self._barrier
        if (answers or not seen) and not self._awaiting:
            self._awaiting = True
            custody.when(answers[0][0] if seen else self._sealed_until, self._durable)
        return seen

    def _durable(self) -> None:
        self._awaiting = False
        self.flush()

    # while the disk fails -------------------------------------------------------------------------

    def _waits_for_disk(self, custody: Custody) -> bool:
        """Keep back what is guarded, for a bounded time, so that ``_out`` may be seen; False: all is to go,
        and what was guarded is counted."""
        if self._sealed:
            marks = [*self._sealed_marks, *(len(self._sealed) + place for place in self._marks)]
            self._out, self._marks, self._sealed = [*self._sealed, *self._out], marks, []
        patience = custody.patience
        if patience > 0 and self._marks:
            if self._introducer is None:
                marked = set(self._marks)
                self._guarded += [self._out[place] for place in self._marks]
                self._out = [data for place, data in enumerate(self._out) if place not in marked]
            else:  # who messages are is told in their order: all behind it waits
                self._guarded += self._out
                self._out = []
                self.stalled, self.writable = True, False
            self._marks = []
        if patience > 0 and self._guarded:
            if self._patience is None:
                self._patience = self.driver.call_later(patience, self._patience_over)
            if not self._awaiting:
                self._awaiting = True
                custody.when(self._barrier, self._durable)
            return True
        self._no_longer_guarded()
        if self._marks:
            sent = sum(self._out[place][0] & ~(DUP | RETAIN) == PUBLISH_2 for place in self._marks)
            self.counters[f"{self.name}_unguarded"] += sent
        return False

    def _patience_over(self) -> None:
        self._patience = None
        self.flush()

    def _no_longer_guarded(self) -> None:
        """What was kept back goes before the rest."""
        before, self._guarded = [self.still_valid(packet) for packet in self._guarded], []
        self._marks = [*range(len(before)), *(len(before) + place for place in self._marks)]
        self._out = [*before, *self._out]
        self._forget_patience()

    def _forget_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        if self.stalled:
            self.stalled = False
            self.driver.call_soon(self.go_on)  # not amid what is written

    @abstractmethod
    def still_valid(self, packet: bytes) -> bytes:
        """What was kept back as it is to be sent now: a retained message does not replace a newer one."""

    @abstractmethod
    def go_on(self) -> None:
        """Nothing is kept back any more."""

    def drop(self, count: int, reason: str) -> None:
        if count:
            self.dropped += count
            self.counters[f"{self.name}_dropped_{reason}"] += count
