"""A publisher of the load: sends what is due, and knows when the target takes no more."""

from __future__ import annotations

import os
import struct
import time
from array import array
from collections.abc import Sequence

from ildm.mqtt import ConnAck, MqttError, PacketType, Property, PubRel, Version, decode
from ildm_bench.load.connection import Connection
from ildm_bench.load.frames import Frames
from ildm_bench.load.pacing import Schedule
from ildm_bench.load.scenario import Scenario

INFLIGHT = 10_000
"""Messages of QoS 1 and 2 that may wait for their acknowledgement, where the target sets no smaller bound."""
JOINED = 65_536
"""Bytes of overdue messages that are written at once, about."""
VARIED, FEW = 256, 16
"""Frames until payload sizes repeat: of all publishers of a topic together, and at least of each."""
PACKET_IDS = 65_535


class Publisher(Connection):
    """Sends its messages at their times, or as soon after as the socket takes them."""

    def __init__(
        self, number: int, client_id: str, target: str, version: Version, index: int, load: Scenario
    ) -> None:
        """``index`` is that of the topic in the scenario ``load``."""
        super().__init__(client_id, target, version)
        self.number = number
        self.qos: int = load.qos
        self.topic_index = index
        self.schedule = Schedule(0, 0, 1, 1)
        self.place = 0
        self.sent_ns = array("q")
        """When each message was sent, by its number."""
        self.late_blocked = 0
        """Messages that were overdue because the target took no more."""
        self._load = load
        self._catching_up = False
        self._fd = -1
        self._offset_ns = 0
        self._window = INFLIGHT
        self._inflight: set[int] = set()
        self._packet_id = 0
        self._frames: Frames

    def prepare(self, connack: ConnAck, interval_ns: int, total: int) -> None:
        """Make ready for so many messages: with thousands of publishers, this takes longer than there is
        between the order to start and the first message."""
        self._window = min(INFLIGHT, int(connack.properties.get(Property.RECEIVE_MAXIMUM, INFLIGHT)))
        sizes = self._load.payload
        topic = self._load.topics[self.topic_index]
        at_once = round(self._load.send_every * 1e6) // interval_ns + 1
        # twice what is due at a time, as some time is late; more goes into several writes
        wanted = min(2 * at_once, JOINED // sizes.max + 1)
        if sizes.min != sizes.max:
            wanted = max(wanted, VARIED // sum(self._load.counts(topic, "publishers")), FEW)
        self._frames = Frames(
            topic.names_of(self.number),
            sizes,
            self.qos,
            self.version,
            topic=self.topic_index,
            publisher=self.number,
            wanted=wanted,
            total=total,
        )
        self._fd = self.transport.get_extra_info("socket").fileno()
        self.transport.set_write_buffer_limits(high=0)

    def begin(self, schedule: Schedule, place: int, offset_ns: int) -> None:
        """What to send when; ``offset_ns`` is added to the clock in what the messages carry."""
        self.schedule = schedule
        self.place = place
        self._offset_ns = offset_ns

    @property
    def hindered(self) -> bool:
        """The target takes nothing from this publisher now."""
        return self.blocked or self.closed is not None or len(self._inflight) >= self._window

    @property
    def patient(self) -> bool:
        """Acknowledgements may come to it some milliseconds later: its window is not soon full."""
        return self.qos > 0 and self._window >= INFLIGHT

    def send_one(self, intended_ns: int) -> None:
        """Send the next message of QoS 0, which is due and the only one; the usual case, made quick."""
        stamp = time.monotonic_ns() + self._offset_ns
        sent = self.sent_ns
        frame = self._frames.one(len(sent), intended_ns, stamp)
        sent.append(stamp)
        self._write(frame)

    def send_due(self, now_ns: int) -> None:
        """Send what is due at ``now_ns``, coordinator's clock."""
        due = self.schedule.due(self.place, now_ns)
        sent = self.sent_ns
        while len(sent) < due and self.closed is None:
            if self.blocked or len(self._inflight) >= self._window:
                self._catching_up = True
                return
            number = len(sent)
            count = min(due - number, self._frames.room(number, JOINED))
            ids: Sequence[int] = ()
            if self.qos:
                ids = self._next_ids(min(count, self._window - len(self._inflight)))
                count = len(ids)
            stamp = time.monotonic_ns() + self._offset_ns
            intended = self.schedule.time_of(self.place, number)
            frames = self._frames.run(number, count, intended, self.schedule.interval_ns, stamp, ids)
            sent.extend([stamp] * count)
            if self._catching_up:
                self.late_blocked += count
            self._write(frames)
        self._catching_up = False

    def _write(self, data: memoryview) -> None:
        """Past the transport's buffer: what the kernel does not take shows at once that it is full."""
        try:
            taken = os.write(self._fd, data)
        except BlockingIOError:
            taken = 0
        except OSError as error:
            self.lost(str(error))
            return
        if taken < len(data):
            self.transport.write(bytes(data[taken:]))

    def resume_writing(self) -> None:
        self.blocked = False
        self.send_due(time.monotonic_ns() + self._offset_ns)

    def _next_ids(self, count: int) -> Sequence[int]:
        """Packet identifiers that are in nobody's use, in rising order but for the end of their range."""
        ids: Sequence[int] = range(self._packet_id + 1, self._packet_id + 1 + count)
        if ids[-1] > PACKET_IDS or not self._inflight.isdisjoint(ids):
            found: list[int] = []
            packet_id = self._packet_id
            while len(found) < count:  # ends, as the window is smaller than their range
                packet_id = packet_id % PACKET_IDS + 1
                if packet_id not in self._inflight:
                    found.append(packet_id)
            ids = found
        self._packet_id = ids[-1]
        self._inflight.update(ids)
        return ids

    def data_received(self, data: bytes) -> None:
        if self._fd < 0:
            super().data_received(data)
            return
        full = len(self._inflight) >= self._window
        if self._framer.pending or not self._acknowledged_all(data):
            try:
                for frame in self._framer.feed(data):
                    self._acknowledged(frame)
            except MqttError as error:
                self.lost(f"{self.target} sent what is no MQTT: {error}")
                self.transport.abort()
                return
        if full:
            self.send_due(time.monotonic_ns() + self._offset_ns)

    def _acknowledged_all(self, data: bytes) -> bool:
        """Take a chunk of nothing but PUBACK, PUBREC or PUBCOMP of the shortest form; False if it is none."""
        count, rest = divmod(len(data), 4)
        kind = data[0] >> 4
        if rest or data[::4] != data[:1] * count or data[1::4] != b"\2" * count:
            return False
        if kind == PacketType.PUBREC:
            answer = bytearray(data)
            answer[::4] = bytes([PacketType.PUBREL << 4 | 2]) * count
            self.transport.write(bytes(answer))
            return True
        if kind in (PacketType.PUBACK, PacketType.PUBCOMP):
            self._inflight.difference_update(struct.unpack(f">{2 * count}H", data)[1::2])
            return True
        return False

    def _acknowledged(self, frame: bytes) -> None:
        kind = frame[0] >> 4
        if kind in (PacketType.PUBACK, PacketType.PUBCOMP):
            self._inflight.discard(int.from_bytes(frame[2:4], "big"))
        elif kind == PacketType.PUBREC:
            packet_id = int.from_bytes(frame[2:4], "big")
            if len(frame) > 4 and frame[4] >= 0x80:
                self._inflight.discard(packet_id)
                return
            self.transport.write(PubRel(packet_id=packet_id).encode(self.version))
        elif kind == PacketType.DISCONNECT:
            self.lost(f"{self.target} disconnects: {decode(frame, self.version)}")
