"""A subscriber of the load: takes what comes with as little work as possible, and parses it later."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ildm.mqtt import MqttError, PacketType, Publish, Version
from ildm_bench.load import payload
from ildm_bench.load.connection import Connection
from ildm_bench.load.cutting import cut
from ildm_bench.load.scenario import Scenario

_PUBACK, _PUBREC, _PUBCOMP = (
    bytes([kind << 4, 2]) for kind in (PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBCOMP)
)
_PUBREL = PacketType.PUBREL << 4 | 2


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages, those of one subscriber in the order in which they came; arrays of shape (messages,)."""

    records: NDArray[np.void]
    """Of `payload.DTYPE`."""
    received_ns: NDArray[np.int64]
    subscriber: NDArray[np.int32]
    arrival: NDArray[np.int64]
    """Ordinal of the message at its subscriber."""


class Subscriber(Connection):
    """Keeps chunks with the time at which they were read. :func:`collect` turns them into records."""

    def __init__(
        self, number: int, client_id: str, target: str, version: Version, index: int, load: Scenario
    ) -> None:
        """``index`` is that of the topic in the scenario ``load``."""
        super().__init__(client_id, target, version)
        topic = load.topics[index]
        self.number = number
        self.topic_index = index
        self.topic_filter = topic.topic_filter
        self.qos: int = load.qos
        self.received = 0
        self.foreign = 0
        """Packets that are no message of this load."""
        self.offset_ns = 0
        self.since_ns = -(1 << 62)
        """Messages that were due before are of another run."""
        self.sizes = load.payload
        self.chunks: list[bytes] = []
        self.times: list[int] = []
        """When each chunk had been read."""
        self.tail = b""
        """Of what was collected, the beginning of a packet."""
        self._unanswered = b""
        self.size = 0
        """Bytes of each message where all have the same topic name and size, else 0."""
        self.head = b""
        """What they begin with then, up to the packet identifier, which differs."""
        if topic.names == 1 and self.sizes.min == self.sizes.max:
            body = bytes(self.sizes.min)
            frame = Publish(
                topic=topic.name, payload=body, qos=self.qos, packet_id=1 if self.qos else None
            ).encode(version)
            self.size = len(frame)
            self.head = frame[: len(frame) - len(body) - (2 if self.qos else 0) - (version is Version.V5)]

    def begin(self, offset_ns: int) -> None:
        """The handshake is over: from now on chunks are kept."""
        self.offset_ns = offset_ns
        if self._framer.pending:
            self.data_received = self._align  # type: ignore[method-assign]
        else:
            self._keep_all()

    def _keep_all(self) -> None:
        self.data_received = self._answer if self.qos else self._keep  # type: ignore[method-assign]
        self.transport.set_protocol(self)  # one call less for each chunk

    def _keep(self, data: bytes) -> None:
        self.times.append(time.monotonic_ns())
        self.chunks.append(data)

    def _align(self, data: bytes) -> None:
        """The handshake ended within a message of others: chunks are kept from the end of a packet on."""
        try:
            frames = self._framer.feed(data)
        except MqttError as error:
            self._no_mqtt(str(error))
            return
        if frames:
            (self._answer if self.qos else self._keep)(b"".join(frames))
        if not self._framer.pending:
            self._keep_all()

    def _answer(self, data: bytes) -> None:
        """QoS 1 and 2: keep, and acknowledge."""
        self._keep(data)
        if not self._unanswered and self._answer_alike(data):
            return
        data = self._unanswered + data
        bodies, ends, fault = cut(data)
        answers: list[bytes] = []
        begin = 0
        for body, end in zip(bodies, ends, strict=True):
            first = data[begin]
            begin = end
            if first >> 4 == PacketType.PUBLISH and first & 6:
                at = body + 2 + int.from_bytes(data[body : body + 2], "big")
                answers += (_PUBACK if first & 6 == 2 else _PUBREC, data[at : at + 2])
            elif first == _PUBREL:
                answers += (_PUBCOMP, data[body : body + 2])
        if answers:
            self.transport.write(b"".join(answers))
        self._unanswered = data[begin:]
        if fault:
            self._no_mqtt(fault)

    def _answer_alike(self, data: bytes) -> bool:
        """Acknowledge a chunk of nothing but whole messages of one size at QoS 1; False if it is none."""
        if not self.size or self.qos != 1:
            return False
        count, rest = divmod(len(data), self.size)
        # with the same first bytes in all, and so the same length, the rest is where it has to be
        if rest or any(data[at :: self.size] != self.head[at : at + 1] * count for at in range(4)):
            return False
        at = len(self.head)
        answer = bytearray(_PUBACK + b"\0\0") * count
        answer[2::4], answer[3::4] = data[at :: self.size], data[at + 1 :: self.size]
        self.transport.write(bytes(answer))
        return True

    def _no_mqtt(self, fault: str) -> None:
        self.lost(f"{self.target} sent what is no MQTT: {fault}")
        self.transport.abort()

    def taken(self) -> tuple[bytes, NDArray[np.int64], NDArray[np.int64]]:
        """What has come since the last call: bytes, the end of each chunk in them, when it had been read.

        What is left of it goes to :attr:`tail`.
        """
        data = b"".join([self.tail, *self.chunks])
        lengths = np.fromiter(map(len, self.chunks), np.int64, len(self.chunks))
        times = np.fromiter(self.times, np.int64, len(self.times)) + self.offset_ns
        ends = np.cumsum(lengths) + len(self.tail)
        self.chunks.clear()
        self.times.clear()
        return data, ends, times

    def parse(self, data: bytes) -> tuple[NDArray[np.void], NDArray[np.int64], int]:
        """Records of the messages of this load, the end of each in ``data``, and how much of it was used."""
        bodies, ends, fault = cut(data)
        used = ends[-1] if ends else 0
        raw = np.frombuffer(data, np.uint8)
        # some more than there are, so that what is cut off can be looked at before it is left out
        padded = np.concatenate([raw, np.zeros(4, np.uint8)])

        def byte(places: NDArray[np.int64]) -> NDArray[np.int64]:
            return padded[places].astype(np.int64)

        body = np.array(bodies, np.int64)
        end = np.array(ends, np.int64)
        first = byte(np.concatenate([np.zeros(1, np.int64), end])[:-1])
        kind = first >> 4
        publish = kind == PacketType.PUBLISH
        silent = kind == PacketType.PINGRESP
        if self.qos == 2:
            silent |= first == _PUBREL
        at = np.where(publish, body, 0)
        at = np.where(publish, body + 2 + (byte(at) << 8) + byte(at + 1), 0)
        at += np.where(first & 6, 2, 0) * publish
        if bad := np.flatnonzero(publish & (at + (self.version is Version.V5) > end)).tolist():
            fault = fault or "PUBLISH that ends within its header"
            keep = np.arange(len(end)) < bad[0]
            publish, silent, at, end = publish[keep], silent[keep], at[keep], end[keep]
        if self.version is Version.V5:
            at = np.where(publish, at, 0)
            one, two = byte(at), byte(at + 1)
            # properties of 16 kB and more are in no message of ours
            at += np.where(one < 128, 1 + one, 2 + (one & 127) + (two << 7))
        size = end - at
        mine = publish & (size >= self.sizes.min) & (size <= self.sizes.max)
        self.foreign += int((~mine & ~silent).sum())
        if fault:
            self.lost(f"{self.target} sent what is no MQTT: {fault}")
            used = len(data)
        return payload.decode_at(raw, at[mine]), end[mine], used


def collect(subscribers: Sequence[Subscriber]) -> Batch | None:
    """What has come to subscribers of one topic since the last call, None for nothing.

    Where all messages have the same size and begin alike, those of all subscribers are compared and cut at
    once; what does not fit that pattern is parsed packet by packet.
    """
    active = [subscriber for subscriber in subscribers if subscriber.chunks]
    if not active:
        return None
    parts = [subscriber.taken() for subscriber in active]
    found = _alike(active, [data for data, _, _ in parts])
    if found is None:
        found = []
        for subscriber, (data, _, _) in zip(active, parts, strict=True):
            records, message_ends, used = subscriber.parse(data)
            subscriber.tail = data[used:]
            found.append((records, message_ends))
    batches = [
        _mine(subscriber, *messages, ends, times)
        for subscriber, messages, (_, ends, times) in zip(active, found, parts, strict=True)
    ]
    counts = [len(received) for _, received in batches]
    if not sum(counts):
        return None
    arrival = [np.arange(s.received - n, s.received) for s, n in zip(active, counts, strict=True)]
    return Batch(
        records=np.concatenate([records for records, _ in batches]),
        received_ns=np.concatenate([received for _, received in batches]),
        subscriber=np.repeat(np.array([s.number for s in active], np.int32), counts),
        arrival=np.concatenate(arrival),
    )


def finish(subscribers: Sequence[Subscriber]) -> Batch | None:
    """The last :func:`collect`, which counts what is foreign behind the last message, too."""
    batch = collect(subscribers)
    for subscriber in subscribers:
        _, _, used = subscriber.parse(subscriber.tail)  # too short for a message of ours
        subscriber.tail = subscriber.tail[used:]
    return batch


def _alike(
    subscribers: Sequence[Subscriber], parts: Sequence[bytes]
) -> list[tuple[NDArray[np.void], NDArray[np.int64]]] | None:
    """Records and their ends for each subscriber; None if a message differs in more than it may."""
    size, head = subscribers[0].size, subscribers[0].head
    if not size:
        return None
    counts = [len(part) // size for part in parts]
    whole = b"".join(
        part if len(part) == count * size else part[: count * size]
        for part, count in zip(parts, counts, strict=True)
    )
    rows = np.frombuffer(whole, np.uint8).reshape(-1, size)
    if not (rows[:, : len(head)] == np.frombuffer(head, np.uint8)).all():
        return None
    records = payload.decode(rows[:, size - subscribers[0].sizes.min :])
    found = []
    first = 0
    for subscriber, part, count in zip(subscribers, parts, counts, strict=True):
        subscriber.tail = part[count * size :]
        found.append((records[first : first + count], np.arange(1, count + 1, dtype=np.int64) * size))
        first += count
    return found


def _mine(
    subscriber: Subscriber,
    records: NDArray[np.void],
    message_ends: NDArray[np.int64],
    chunk_ends: NDArray[np.int64],
    times: NDArray[np.int64],
) -> tuple[NDArray[np.void], NDArray[np.int64]]:
    """The messages of this run, with the time at which each was there."""
    # what an earlier run left in some queue is no message of this one
    mine = (records["magic"] == payload.MAGIC) & (records["intended_ns"] >= subscriber.since_ns)
    if not mine.all():
        subscriber.foreign += int((~mine).sum())
        records, message_ends = records[mine], message_ends[mine]
    subscriber.received += len(records)
    # a message was there when the chunk with its last byte had been read
    return records, times[np.searchsorted(chunk_ends, message_ends)]
