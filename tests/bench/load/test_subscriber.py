"""What a subscriber makes of the bytes, however they are cut, against the framer of `ildm.mqtt`."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ildm.mqtt import Framer, PingResp, Property, PubAck, PubComp, Publish, PubRec, PubRel, Version, decode
from ildm_bench.load import payload, subscriber
from ildm_bench.load.subscriber import Batch, Subscriber, collect, finish
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


def begun(
    version: Version, qos: int, size: object, names: object = 1, number: int = 5
) -> tuple[Subscriber, Transport]:
    """A subscriber after its handshake; needs a running loop."""
    topic = {"name": TOPIC, "names": names, "publishers": 1, "subscribers": 1}
    load = scenario(qos=qos, payload=size, topics=[topic])
    found = Subscriber(number, "id", "host:1", version, 0, load)
    found.transport = transport = Transport()
    found.begin(OFFSET)
    return found, transport


@dataclass
class Stream:
    """What comes to one subscriber, and where it is cut into chunks."""

    version: Version
    qos: int
    sizes: tuple[int, int]
    names: int
    packets: list[bytes]
    cuts: list[int]

    @property
    def chunks(self) -> list[bytes]:
        data = b"".join(self.packets)
        return [data[a:b] for a, b in zip([0, *self.cuts], [*self.cuts, len(data)], strict=True)]

    @property
    def payload(self) -> dict[str, int]:
        return {"min": self.sizes[0], "max": self.sizes[1]}


@st.composite
def streams(draw: st.DrawFn, alike: bool = False) -> Stream:
    """With ``alike`` as a broker sends them: nothing but messages of this load, all alike."""
    version = draw(st.sampled_from([Version.V311, Version.V5]))
    qos = draw(st.integers(0, 2 - alike))
    sizes = draw(st.sampled_from([(32, 32), (150, 150)] + [(32, 33), (80, 280), (120, 20_000)] * (not alike)))
    names = 1 if alike else draw(st.sampled_from([1, 3]))
    packets: list[bytes] = []
    kinds = ["mine"] * 6
    if not alike:
        kinds += ["retained", "same size", "other size", "empty", "ping", "again", "properties"]
    for seq, kind in enumerate(draw(st.lists(st.sampled_from(kinds), max_size=30))):
        size = draw(st.integers(*sizes))
        own = kind in ("mine", "retained", "again", "properties")
        body = message(seq, size)
        if kind == "same size":
            body = bytes([seq]) * size
        elif not own:
            body = b"x" * (sizes[1] + 1 + seq) if kind == "other size" else b""
        if kind == "ping":
            packets.append(PingResp().encode(version))
            continue
        properties = {}
        if kind == "properties" and version is Version.V5:
            properties = {Property.USER_PROPERTY: [("k", "v" * (seq * 20))]}
        packet = Publish(
            topic=TOPIC if names == 1 else f"{TOPIC}/{'x' * (seq % names)}",
            payload=body,
            qos=qos,
            retain=kind == "retained",
            dup=kind == "again" and qos > 0,
            packet_id=seq + 1 if qos else None,
            properties=properties,
        )
        packets.append(packet.encode(version))
        if qos == 2:
            packets.append(PubRel(packet_id=seq + 1).encode(version))
    total = sum(map(len, packets))
    between = [*accumulate(map(len, packets))][:-1]
    anywhere = st.integers(1, max(1, total - 1)) if total > 1 else st.nothing()
    cut = st.sampled_from(between) | anywhere if between else anywhere
    cuts = sorted(draw(st.sets(cut, max_size=15))) if total > 1 else []
    return Stream(version, qos, sizes, names, packets, cuts)


def expected_of(stream: Stream) -> tuple[list[tuple[bytes, int]], bytes, int]:
    """By the framer: messages with the times of their chunks, acknowledgements, how many are foreign."""
    ends = list(accumulate(map(len, stream.chunks)))
    expected: list[tuple[bytes, int]] = []
    answers = b""
    foreign = end = 0
    for frame in Framer().feed(b"".join(stream.packets)):
        end += len(frame)
        packet = decode(frame, stream.version)
        if isinstance(packet, PubRel):
            answers += PubComp(packet_id=packet.packet_id).encode(stream.version)
        if not isinstance(packet, Publish):
            continue
        if packet.packet_id is not None:
            answer = PubAck if packet.qos == 1 else PubRec
            answers += answer(packet_id=packet.packet_id).encode(stream.version)
        within = stream.sizes[0] <= len(packet.payload) <= stream.sizes[1]
        if within and packet.payload[:2] == message()[:2]:
            # the chunk with the last byte of the packet was read at 1000 x its number
            expected.append((bytes(packet.payload[:32]), OFFSET + 1000 * bisect_left(ends, end)))
        else:
            foreign += 1
    return expected, answers, foreign


def receive(found: Subscriber, number: int, chunk: bytes) -> None:
    """A chunk that is read at 1000 x its number."""
    with mock.patch.object(subscriber, "time", SimpleNamespace(monotonic_ns=lambda: 1000 * number)):
        found.data_received(chunk)


def rows_of(batches: Sequence[Batch | None], number: int) -> list[tuple[bytes, int]]:
    """Records and times of one subscriber, whose ordinals must be without a gap."""
    rows: list[tuple[bytes, int]] = []
    for batch in batches:
        if batch is None:
            continue
        assert batch.records.dtype == payload.DTYPE
        mine = np.flatnonzero(batch.subscriber == number)
        assert batch.arrival[mine].tolist() == list(range(len(rows), len(rows) + len(mine)))
        rows += [(batch.records[place].tobytes(), int(batch.received_ns[place])) for place in mine]
    return rows


@settings(max_examples=300, deadline=None)
@given(streams(), st.lists(st.booleans(), min_size=16, max_size=16))
def test_collect_finds_what_a_framer_finds(stream: Stream, collects: list[bool]) -> None:
    expected, answers, foreign = expected_of(stream)

    async def run() -> tuple[Subscriber, Transport, list[Batch | None]]:
        found, transport = begun(stream.version, stream.qos, stream.payload, stream.names)
        batches = []
        for number, (chunk, now) in enumerate(zip(stream.chunks, collects, strict=False)):
            receive(found, number, chunk)
            if now:
                batches.append(collect([found]))
        return found, transport, [*batches, finish([found]), collect([found])]

    found, transport, batches = asyncio.run(run())
    assert batches[-1] is None
    assert rows_of(batches, 5) == expected
    assert found.received == len(expected)
    assert found.foreign == foreign
    assert transport.written == answers
    assert found.closed is None


@settings(max_examples=100, deadline=None)
@given(st.lists(streams(alike=True), min_size=1, max_size=4), st.booleans(), st.integers(0, 16))
def test_subscribers_of_one_topic_are_collected_together(
    given: list[Stream], foreign_line: bool, middle: int
) -> None:
    first = given[0]
    alike = [replace(first, packets=each.packets, cuts=each.cuts) for each in given]
    alike = [each for each, was in zip(alike, given, strict=True) if was == each]
    if foreign_line:  # spoils the pattern of all
        packet = Publish(topic=TOPIC, payload=b"x", qos=0).encode(first.version)
        alike[-1] = replace(first, packets=[*alike[-1].packets, packet], cuts=alike[-1].cuts)

    async def run() -> tuple[list[Subscriber], list[Batch | None]]:
        found = [
            begun(first.version, first.qos, first.payload, number=number)[0] for number in range(len(alike))
        ]
        batches = []
        for number in range(17):
            for each, stream in zip(found, alike, strict=True):
                if number < len(stream.chunks):
                    receive(each, number, stream.chunks[number])
            if number == middle:
                batches.append(collect(found))
        return found, [*batches, finish(found)]

    found, batches = asyncio.run(run())
    for number, (each, stream) in enumerate(zip(found, alike, strict=True)):
        expected, _, foreign = expected_of(stream)
        assert rows_of(batches, number) == expected
        assert each.foreign == foreign


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
    batch = collect([found])
    assert batch is not None
    assert len(batch.records) == 1
    assert found.closed is not None
    assert "host:1 sent what is no MQTT" in found.closed
    assert transport.aborted == (qos == 1)
