"""A subscriber of the load: takes what comes with as little work as possible, and parses it later."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ildm.mqtt import (
    Framer,
    IldmError,
    MqttError,
    PacketType,
    PubAck,
    PubComp,
    Publish,
    PublishView,
    PubRec,
    Version,
)
from ildm_bench.load import payload
from ildm_bench.load.connection import Connection


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages in the order in which they came to one subscriber."""

    records: NDArray[np.void]
    """Of `payload.DTYPE`, shape (messages,)."""
    received_ns: NDArray[np.int64]
    subscriber: int
    first: int
    """Ordinal of the first message at this subscriber."""


class Subscriber(Connection):
    """Keeps chunks with the time at which they were read. :meth:`collect` turns them into records.

    All messages of a topic have the same size and the same header, so a whole second of them is cut and
    compared at once; what does not fit that pattern is parsed packet by packet.
    """

    def __init__(
        self, number: int, client_id: str, target: str, version: Version, topic: str, load: Any
    ) -> None:
        super().__init__(client_id, target, version)
        self.number = number
        self.topic = topic
        self.qos: int = load.qos
        self.received = 0
        self.foreign = 0
        """Packets that are no message of this load."""
        self.offset_ns = 0
        self.since_ns = -(1 << 62)
        """Messages that were due before are of another run."""
        self._payload: int = load.payload
        self._chunks: list[bytes] = []
        self._times: list[int] = []
        self._tail = b""
        frame = Publish(
            topic=topic, payload=bytes(load.payload), qos=self.qos, packet_id=1 if self.qos else None
        ).encode(version)
        self._size = len(frame)
        # the packet identifier differs from message to message, so it is left out of the comparison
        self._head = np.frombuffer(
            frame[: len(frame) - load.payload - (2 if self.qos else 0) - (version is Version.V5)], np.uint8
        )

    def begin(self, offset_ns: int) -> None:
        """The handshake is over: from now on chunks are kept."""
        self.offset_ns = offset_ns
        if self.qos:
            self.data_received = self._answer  # type: ignore[method-assign]
        elif self._framer.pending:
            self.data_received = self._align  # type: ignore[method-assign]
        else:
            self.data_received = self._keep  # type: ignore[method-assign]  # one call less for each chunk
        self.transport.set_protocol(self)

    def _keep(self, data: bytes) -> None:
        self._times.append(time.monotonic_ns())
        self._chunks.append(data)

    def _align(self, data: bytes) -> None:
        """The handshake ended within a message of others: chunks are kept from the end of a packet on."""
        now = time.monotonic_ns()
        try:
            frames = self._framer.feed(data)
        except MqttError as error:
            self.lost(f"{self.target} sent what is no MQTT: {error}")
            self.transport.abort()
            return
        self._times += [now] * len(frames)
        self._chunks += frames
        if not self._framer.pending:
            self.data_received = self._keep  # type: ignore[method-assign]
            self.transport.set_protocol(self)

    def _answer(self, data: bytes) -> None:
        """QoS 1 and 2: acknowledge, and keep the PUBLISH packets alone."""
        now = time.monotonic_ns()
        answers: list[bytes] = []
        kept: list[bytes] = []
        try:
            for frame in self._framer.feed(data):
                kind = frame[0] >> 4
                if kind == PacketType.PUBLISH:
                    view = PublishView(frame, self.version)
                    if packet_id := view.packet_id:
                        answer = PubAck if view.qos == 1 else PubRec
                        answers.append(answer(packet_id=packet_id).encode(self.version))
                    kept.append(frame)
                elif kind == PacketType.PUBREL:
                    packet_id = int.from_bytes(frame[2:4], "big")
                    answers.append(PubComp(packet_id=packet_id).encode(self.version))
        except MqttError as error:
            self.lost(f"{self.target} sent what is no MQTT: {error}")
            self.transport.abort()
            return
        if answers:
            self.transport.write(b"".join(answers))
        if kept:
            self._times.append(now)
            self._chunks.append(b"".join(kept))

    def collect(self) -> Batch | None:
        """What has come since the last call, None for nothing."""
        if not self._chunks:
            return None
        chunks, times = self._chunks, self._times
        self._chunks, self._times = [], []
        lengths = np.fromiter(map(len, chunks), np.int64, len(chunks))
        data = b"".join([self._tail, *chunks])
        ends = np.cumsum(lengths) + len(self._tail)
        count = len(data) // self._size
        rows = np.frombuffer(data, np.uint8, count * self._size).reshape(count, self._size)
        if (rows[:, : len(self._head)] == self._head).all():
            self._tail = data[count * self._size :]
            packet_ends = np.arange(1, count + 1, dtype=np.int64) * self._size
            records = payload.decode(rows[:, self._size - self._payload :])
        else:
            records, packet_ends, used = self._parse(data)
            self._tail = data[used:]
        # what an earlier run left in some queue is no message of this one
        mine = (records["magic"] == payload.MAGIC) & (records["intended_ns"] >= self.since_ns)
        if not mine.all():
            self.foreign += int((~mine).sum())
            records, packet_ends = records[mine], packet_ends[mine]
        if not len(records):
            return None
        # a message was there when the chunk with its last byte had been read
        at = np.searchsorted(ends, packet_ends)
        received = np.fromiter(times, np.int64, len(times))[at] + self.offset_ns
        batch = Batch(records, received, self.number, self.received)
        self.received += len(records)
        return batch

    def finish(self) -> Batch | None:
        """The last :meth:`collect`, which counts what is foreign behind the last message, too."""
        batch = self.collect()
        _, _, used = self._parse(self._tail)  # too short for a message of ours
        self._tail = self._tail[used:]
        return batch

    def _parse(self, data: bytes) -> tuple[NDArray[np.void], NDArray[np.int64], int]:
        """Packet by packet: records, the end of each in ``data``, and how much of it was used."""
        payloads: list[bytes] = []
        ends: list[int] = []
        end = 0
        fault: IldmError | None = None
        frames: Sequence[bytes]
        try:
            frames = Framer(1 << 24).feed(data)
        except MqttError as error:
            frames, fault = error.frames, error
        try:
            for frame in frames:
                end += len(frame)
                if frame[0] >> 4 != PacketType.PUBLISH:
                    self.foreign += frame[0] >> 4 != PacketType.PINGRESP
                    continue
                body = PublishView(frame, self.version).payload
                if len(body) != self._payload:
                    self.foreign += 1
                    continue
                payloads.append(bytes(body))
                ends.append(end)
        except IldmError as error:
            fault = error
        if fault is not None:
            self.lost(f"{self.target} sent what is no MQTT: {fault}")
            end = len(data)
        joined = np.frombuffer(b"".join(payloads), np.uint8).reshape(len(payloads), self._payload)
        return payload.decode(joined), np.array(ends, np.int64), end
