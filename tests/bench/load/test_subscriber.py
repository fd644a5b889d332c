"""What a subscriber makes of the bytes, however they are cut, against the framer of `ildm.mqtt`."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ildm.mqtt import Framer, PingResp, PubAck, PubComp, Publish, PubRec, PubRel, Version, decode
from ildm_bench.load import payload, subscriber
from ildm_bench.load.subscriber import Subscriber
from tests.bench.load.support import message, scenario

TOPIC = "site/topic"
OFFSET = 10**15


class Transport:
    """Takes what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.aborted = False

    def write(self, data: bytes) -> None:
        self.written += data

    def set_protocol(self, protocol: Any) -> None:
        pass

    def abort(self) -> None:
        self.aborted = True


def begun(version: Version, qos: int, size: int) -> tuple[Subscriber, Transport]:
    """A subscriber after its handshake; needs a running loop."""
    load = scenario(qos=qos, payload=size)
    found = Subscriber(5, "id", "host:1", version, TOPIC, load)
    found.transport = transport = Transport()
    found.begin(OFFSET)
    return found, transport


@st.composite
def streams(draw: st.DrawFn) -> tuple[Version, int, int, list[bytes], list[int], list[bool]]:
    """Version, QoS, payload size, packets, where the stream is cut, and where `collect` is called."""
    version = draw(st.sampled_from([Version.V311, Version.V5]))
    qos = draw(st.integers(0, 2))
    size = draw(st.sampled_from([32, 33, 150]))
    packets: list[bytes] = []
    kinds = ["mine"] * 6 + ["retained", "same size", "other size", "empty", "ping", "again"]
    for seq, kind in enumerate(draw(st.lists(st.sampled_from(kinds), max_size=30))):
        own = kind in ("mine", "retained", "again")
        body = message(seq, size)
        if kind == "same size":
            body = bytes([seq]) * size
        elif not own:
            body = b"x" * (size + seq - 15) if kind == "other size" else b""
            body = body if len(body) != size else body + b"x"
        if kind == "ping":
            packets.append(PingResp().encode(version))
            continue
        packet = Publish(
            topic=TOPIC,
            payload=body,
            qos=qos,
            retain=kind == "retained",
            dup=kind == "again" and qos > 0,
            packet_id=seq + 1 if qos else None,
        )
        packets.append(packet.encode(version))
        if qos == 2:
            packets.append(PubRel(packet_id=seq + 1).encode(version))
    total = sum(map(len, packets))
    cuts = sorted(draw(st.sets(st.integers(1, max(1, total - 1)), max_size=15))) if total > 1 else []
    return version, qos, size, packets, cuts, draw(st.lists(st.booleans(), min_size=16, max_size=16))


def chunks_of(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@settings(max_examples=300, deadline=None)
@given(streams())
def test_collect_finds_what_a_framer_finds(
    stream: tuple[Version, int, int, list[bytes], list[int], list[bool]],
) -> None:
    version, qos, size, packets, cuts, collects = stream
    data = b"".join(packets)
    chunks = chunks_of(data, cuts)
    ends = list(accumulate(map(len, chunks)))
    expected: list[tuple[bytes, int]] = []
    answers = b""
    foreign = end = 0
    for frame in Framer().feed(data):
        end += len(frame)
        packet = decode(frame, version)
        if isinstance(packet, PubRel):
            answers += PubComp(packet_id=packet.packet_id).encode(version)
        if not isinstance(packet, Publish):
            continue
        if packet.packet_id is not None:
            answer = PubAck if packet.qos == 1 else PubRec
            answers += answer(packet_id=packet.packet_id).encode(version)
        if len(packet.payload) == size and packet.payload[:2] == message()[:2]:
            # the chunk with the last byte of the packet was read at 1000 x its number
            expected.append((packet.payload[:32], OFFSET + 1000 * bisect_left(ends, end)))
        else:
            foreign += 1

    async def receive() -> tuple[Subscriber, Transport, list[Any]]:
        found, transport = begun(version, qos, size)
        batches = []
        for number, (chunk, collect) in enumerate(zip(chunks, collects, strict=False)):
            clock = SimpleNamespace(monotonic_ns=lambda number=number: 1000 * number)
            with mock.patch.object(subscriber, "time", clock):
                found.data_received(chunk)
            if collect:
                batches.append(found.collect())
        return found, transport, [*batches, found.finish(), found.collect()]

    found, transport, batches = asyncio.run(receive())
    assert batches[-1] is None
    batches = [batch for batch in batches if batch is not None]
    assert all(batch.subscriber == 5 and batch.records.dtype == payload.DTYPE for batch in batches)
    assert [b.first for b in batches] == [0, *accumulate(len(b.records) for b in batches)][: len(batches)]
    got = [
        (record.tobytes(), int(at))
        for batch in batches
        for record, at in zip(batch.records, batch.received_ns, strict=True)
    ]
    assert got == expected
    assert found.received == len(expected)
    assert found.foreign == foreign
    assert transport.written == answers
    assert found.closed is None


@given(st.integers(0, 65535), st.integers(0, 2**32 - 1), st.integers(0, 2**63 - 1), st.integers(32, 99))
def test_payloads_are_decoded_as_they_were_packed(topic: int, publisher: int, seq: int, size: int) -> None:
    packed = payload.LAYOUT.pack(payload.MAGIC, topic, publisher, seq, -1, 2**62).ljust(size, b"\0")
    (record,) = payload.decode(np.frombuffer(packed, np.uint8).reshape(1, size))
    assert record.tolist() == (payload.MAGIC, topic, publisher, seq, -1, 2**62)


@pytest.mark.parametrize("qos", [0, 1])
async def test_garbage_ends_the_subscriber_but_not_what_came_before(qos: int) -> None:
    found, transport = begun(Version.V311, qos, 32)
    whole = Publish(topic=TOPIC, payload=message(), qos=qos, packet_id=1 if qos else None)
    found.data_received(whole.encode(Version.V311))
    found.data_received(b"\x30\xff\xff\xff\xff\xff" + bytes(60))
    batch = found.collect()
    assert batch is not None
    assert len(batch.records) == 1
    assert found.closed is not None
    assert "host:1 sent what is no MQTT" in found.closed
    assert transport.aborted == (qos == 1)
