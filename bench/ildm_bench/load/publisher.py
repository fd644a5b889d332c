"""A publisher of the load: sends what is due, and knows when the target takes no more."""

from __future__ import annotations

import os
import time
from array import array
from typing import Any

from ildm.mqtt import ConnAck, MqttError, PacketType, Property, Publish, PubRel, Version, decode
from ildm_bench.load.connection import Connection
from ildm_bench.load.pacing import Schedule
from ildm_bench.load.payload import LAYOUT, MAGIC, SIZE

INFLIGHT = 10_000
"""Messages of QoS 1 and 2 that may wait for their acknowledgement, where the target sets no smaller bound."""
JOINED = 65_536
"""Bytes of overdue messages that are written at once."""


class Publisher(Connection):
    """Sends its messages at their times, or as soon after as the socket takes them."""

    def __init__(
        self, number: int, client_id: str, target: str, version: Version, topic: str, index: int, load: Any
    ) -> None:
        """``load``: the scenario's payload size and QoS."""
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
        self._catching_up = False
        self._fd = -1
        self._offset_ns = 0
        self._window = INFLIGHT
        self._inflight: set[int] = set()
        self._packet_id = 0
        frame = Publish(
            topic=topic, payload=bytes(load.payload), qos=self.qos, packet_id=1 if self.qos else None
        ).encode(version)
        at = len(frame) - load.payload
        self._padding = bytes(load.payload - SIZE)
        # between the topic and the payload: the packet identifier, and in MQTT 5 the length of no properties
        after_id = 1 if version is Version.V5 else 0
        self._head = frame[: at - after_id - (2 if self.qos else 0)]
        self._middle = frame[at - after_id : at]
        self._front = self._head + self._middle

    def begin(self, connack: ConnAck, schedule: Schedule, place: int, offset_ns: int) -> None:
        """What to send when; ``offset_ns`` is added to the clock in what the messages carry."""
        self.schedule = schedule
        self.place = place
        self._offset_ns = offset_ns
        self._window = min(INFLIGHT, int(connack.properties.get(Property.RECEIVE_MAXIMUM, INFLIGHT)))
        self._fd = self.transport.get_extra_info("socket").fileno()
        self.transport.set_write_buffer_limits(high=0)

    @property
    def hindered(self) -> bool:
        """The target takes nothing from this publisher now."""
        return self.blocked or self.closed is not None or len(self._inflight) >= self._window

    def send_one(self, intended_ns: int) -> None:
        """Send the next message of QoS 0, which is due and the only one; the usual case, made quick."""
        stamp = time.monotonic_ns() + self._offset_ns
        sent = self.sent_ns
        frame = (
            self._front
            + LAYOUT.pack(MAGIC, self.topic_index, self.number, len(sent), intended_ns, stamp)
            + self._padding
        )
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
            stamp = time.monotonic_ns() + self._offset_ns
            frames = bytearray()
            while len(sent) < due and len(frames) < JOINED and len(self._inflight) < self._window:
                number = len(sent)
                frames += self._head
                if self.qos:
                    frames += self._next_id()
                frames += self._middle
                intended = self.schedule.time_of(self.place, number)
                frames += LAYOUT.pack(MAGIC, self.topic_index, self.number, number, intended, stamp)
                frames += self._padding
                sent.append(stamp)
                if self._catching_up:
                    self.late_blocked += 1
            self._write(bytes(frames))
        self._catching_up = False

    def _write(self, data: bytes) -> None:
        """Past the transport's buffer: what the kernel does not take shows at once that it is full."""
        try:
            taken = os.write(self._fd, data)
        except BlockingIOError:
            taken = 0
        except OSError as error:
            self.lost(str(error))
            return
        if taken < len(data):
            self.transport.write(data[taken:])

    def resume_writing(self) -> None:
        self.blocked = False
        self.send_due(time.monotonic_ns() + self._offset_ns)

    def _next_id(self) -> bytes:
        while True:
            self._packet_id = self._packet_id % 65535 + 1
            if self._packet_id not in self._inflight:
                self._inflight.add(self._packet_id)
                return self._packet_id.to_bytes(2, "big")

    def data_received(self, data: bytes) -> None:
        if self._fd < 0:
            super().data_received(data)
            return
        full = len(self._inflight) >= self._window
        try:
            for frame in self._framer.feed(data):
                self._acknowledged(frame)
        except MqttError as error:
            self.lost(f"{self.target} sent what is no MQTT: {error}")
            self.transport.abort()
            return
        if full:
            self.send_due(time.monotonic_ns() + self._offset_ns)

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
