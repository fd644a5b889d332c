"""What a lane writes: frames as the far end can take them, joined per loop iteration."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ildm.core.frames import frames_to_v311, id_offset, with_ids
from ildm.mqtt import EncodeError, Property, Publish, Version

if TYPE_CHECKING:
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver, Transport
    from ildm.core.transfer.inbound import Receipt
    from ildm.core.transfer.queue import Entry


class Outgoing:
    """The connection beneath a lane and what its far end allows; ``name`` begins the names of counters."""

    __slots__ = (
        "_flushing",
        "_out",
        "counters",
        "driver",
        "dropped",
        "max_packet_size",
        "max_qos",
        "name",
        "retain_available",
        "sent",
        "sent_counter",
        "transport",
        "unread",
        "version",
        "writable",
    )

    def __init__(self, driver: Driver, counters: Counters, name: str) -> None:
        self.driver = driver
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
        self.sent = 0
        self.sent_counter: str | None = None
        """Name of a counter of what is sent for the first time."""
        self.dropped = 0
        self._out: list[bytes] = []
        self._flushing = False

    def write(self, data: bytes) -> None:
        """Write a packet that is no PUBLISH, in order with the rest; lost when there is no connection."""
        if self.transport is None:
            return
        if not self.writable:
            self.unread += len(data)
        self._out.append(data)
        if not self._flushing:
            self._flushing = True
            self.driver.call_soon(self.flush)

    def count_sent(self, count: int) -> None:
        self.sent += count
        if self.sent_counter is not None:
            self.counters[self.sent_counter] += count

    def transmit_frames(self, frames: bytes, size: int, count: int) -> None:
        """Write a run of QoS 0, or drop it when it is too large."""
        if size > self.max_packet_size:  # asked here, as what waited may be older than the connection
            self.drop(count, "too_large")
            return
        if self.version is not Version.V5:
            frames = frames_to_v311(frames, size)
        self.count_sent(count)
        self._out.append(frames)
        if not self._flushing:
            self._flushing = True
            self.driver.call_soon(self.flush)

    def write_run(
        self, frames: bytes, size: int, first_id: int, receipt: Receipt | None, dup: bool = False
    ) -> bool:
        """Write a run of QoS 1 with consecutive identifiers; False when it was too large, and dropped."""
        count = len(frames) // size
        data = frames if self.version is Version.V5 else frames_to_v311(frames, size)
        if len(data) // count > self.max_packet_size:
            self.drop(count, "too_large")
            if receipt is not None:
                receipt.settle_run(frames, size)
            return False
        self.write(with_ids(data, len(data) // count, id_offset(data), first_id, dup))
        return True

    def send_with_id(self, entry: Entry, packet_id: int | None, dup: bool = False) -> int:
        """Write a message; answers the size of its frame, 0 when it was dropped for good."""
        message = entry.outgoing()
        if message is None:
            return self.dispose(entry, "outdated")
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
            return self.dispose(entry, "not_encodable")
        if len(frame) > self.max_packet_size:
            return self.dispose(entry, "too_large")
        self.write(frame)
        return len(frame)

    def dispose(self, entry: Entry, reason: str) -> int:
        """A message is dropped for good; answers 0."""
        self.drop(1, reason)
        entry.settle()
        return 0

    def flush(self) -> None:
        self._flushing = False
        out = self._out
        if out and self.transport is not None:
            self._out = []
            self.transport.write(out[0] if len(out) == 1 else b"".join(out))

    def drop(self, count: int, reason: str) -> None:
        if count:
            self.dropped += count
            self.counters[f"{self.name}_dropped_{reason}"] += count
