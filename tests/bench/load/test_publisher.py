"""A publisher: what it writes, its window of QoS 1 and 2, and a target that takes no more."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from ildm.mqtt import (
    ConnAck,
    Disconnect,
    Property,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Version,
)
from ildm_bench.load.pacing import Schedule
from ildm_bench.load.payload import LAYOUT, MAGIC
from ildm_bench.load.publisher import INFLIGHT, VARIED, Publisher
from tests.bench.load.support import read_packet, scenario, target

MS = 1_000_000


async def _begun(
    address: str, version: Version, total: int = 10, offset_ns: int = 0, **changes: Any
) -> Publisher:
    """A connected publisher, all of whose messages are due already."""
    topics = [{"name": f"some/{name}", "publishers": 1, "subscribers": 1} for name in ("a", "b", "topic")]
    client = Publisher(3, "p", address, version, 2, scenario(topics=topics, **changes))
    connack = await client.connect()
    start = time.monotonic_ns() + offset_ns - total * MS
    client.prepare(connack, MS, total)
    client.begin(Schedule(start, start + total * MS, MS, 1), 0, offset_ns)
    return client


def _body(packet: Any) -> tuple[Any, ...]:
    assert isinstance(packet, Publish)
    return LAYOUT.unpack(packet.payload[: LAYOUT.size])


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("size", [32, 1000])
async def test_every_message_says_who_sent_it_its_number_and_times(
    version: Version, qos: int, size: int
) -> None:
    got: list[Publish] = []
    done = asyncio.Event()

    async def talk(reader: Any, writer: Any) -> None:
        await read_packet(reader, version)
        writer.write(ConnAck().encode(version))
        while len(got) < 11:
            packet = await read_packet(reader, version)
            assert isinstance(packet, Publish)
            got.append(packet)
        done.set()

    offset = 10**18
    async with target(talk) as address:
        client = await _begun(address, version, 11, offset, qos=qos, payload=size)
        if qos == 0:
            client.send_one(client.schedule.time_of(0, 0))
        client.send_due(time.monotonic_ns() + offset)
        await done.wait()
        client.abort()
    for number, packet in enumerate(got):
        assert (packet.topic, packet.qos, packet.retain, packet.dup) == ("some/topic", qos, False, False)
        assert packet.payload[LAYOUT.size :] == bytes(size - LAYOUT.size)
        sent = client.sent_ns[number]
        assert _body(packet) == (MAGIC, 2, 3, number, client.schedule.time_of(0, number), sent)
        assert sent > client.schedule.time_of(0, number) - 1 * MS
    if qos:
        assert len({packet.packet_id for packet in got}) == 11


@pytest.mark.parametrize("qos", [1, 2])
async def test_no_more_wait_for_acknowledgement_than_the_target_allows(qos: int) -> None:
    window = 3
    order: list[str] = []
    finished = asyncio.Event()

    async def talk(reader: Any, writer: Any) -> None:
        await read_packet(reader, Version.V5)
        writer.write(ConnAck(properties={Property.RECEIVE_MAXIMUM: window}).encode(Version.V5))
        for _ in range(4):
            ids: list[int] = []
            for _ in range(window):
                packet = await read_packet(reader, Version.V5)
                assert isinstance(packet, Publish)
                assert packet.packet_id is not None
                ids.append(packet.packet_id)
                order.append("publish")
            order.append("window")
            for packet_id in ids:
                if qos == 1:
                    writer.write(PubAck(packet_id=packet_id).encode(Version.V5))
                    continue
                writer.write(PubRec(packet_id=packet_id).encode(Version.V5))
                assert await read_packet(reader, Version.V5) == PubRel(packet_id=packet_id)
            for packet_id in ids if qos == 2 else []:
                writer.write(PubComp(packet_id=packet_id).encode(Version.V5))
        await writer.drain()
        finished.set()
        await reader.read()

    async with target(talk) as address:
        client = await _begun(address, Version.V5, 12, qos=qos)
        client.send_due(time.monotonic_ns())
        assert len(client.sent_ns) == window
        assert client.hindered
        await finished.wait()
        assert order == (["publish"] * window + ["window"]) * 4
        assert len(client.sent_ns) == 12
        assert client.late_blocked == 9
        client.abort()


async def test_a_message_refused_with_pubrec_is_no_longer_waited_for() -> None:
    codes = asyncio.get_running_loop().create_future()

    async def talk(reader: Any, writer: Any) -> None:
        await read_packet(reader, Version.V5)
        writer.write(ConnAck(properties={Property.RECEIVE_MAXIMUM: 1}).encode(Version.V5))
        first: Any = await read_packet(reader, Version.V5)
        writer.write(PubRec(packet_id=first.packet_id, reason_code=0x97).encode(Version.V5))
        codes.set_result(await read_packet(reader, Version.V5))

    async with target(talk) as address:
        client = await _begun(address, Version.V5, 2, qos=2)
        client.send_due(time.monotonic_ns())
        assert _body(await codes)[3] == 1
        client.abort()


async def test_a_target_that_does_not_read_blocks_and_is_served_when_it_does() -> None:
    reading, done = asyncio.Event(), asyncio.Event()
    numbers: list[int] = []
    total = 60

    async def talk(reader: Any, writer: Any) -> None:
        await read_packet(reader)
        writer.write(ConnAck().encode(Version.V311))
        writer.transport.pause_reading()
        await reading.wait()
        writer.transport.resume_reading()
        while len(numbers) < total:
            numbers.append(_body(await read_packet(reader))[3])
        done.set()

    async with target(talk) as address:
        client = await _begun(address, Version.V311, total, payload=1 << 20)
        client.send_due(time.monotonic_ns())
        assert client.hindered
        taken = len(client.sent_ns)
        assert 0 < taken < total
        client.send_due(time.monotonic_ns())
        assert len(client.sent_ns) == taken
        reading.set()
        await done.wait()
        assert numbers == list(range(total))
        assert client.late_blocked == total - taken
        assert not client.blocked
        client.abort()


async def test_what_the_target_ends_with_is_kept() -> None:
    async def talk(reader: Any, writer: Any) -> None:
        await read_packet(reader, Version.V5)
        writer.write(ConnAck().encode(Version.V5))
        await read_packet(reader, Version.V5)
        writer.write(Disconnect(reason_code=0x97).encode(Version.V5))

    async with target(talk) as address:
        client = await _begun(address, Version.V5, 1)
        ended = asyncio.get_running_loop().create_future()
        client.connection_lost = lambda exc: ended.set_result(exc)  # type: ignore[method-assign]
        client.send_due(time.monotonic_ns())
        await ended
    assert client.closed is not None
    assert "disconnects: Disconnect(reason_code=" in client.closed
    assert client.hindered


async def test_packet_identifiers_go_round_and_leave_out_those_in_use() -> None:
    client = Publisher(0, "p", "h:1", Version.V311, 0, scenario(qos=1))
    ids = [packet_id for _ in range(INFLIGHT // 10) for packet_id in client._next_ids(10)]
    assert ids == list(range(1, INFLIGHT + 1))
    client._packet_id = 65534
    assert list(client._next_ids(2)) == [65535, INFLIGHT + 1]


@pytest.mark.parametrize("names", [1, 3, 700, "own"])
@pytest.mark.parametrize("payload", [32, {"min": 32, "max": 300}])
@pytest.mark.parametrize("qos", [0, 1])
async def test_names_in_turn_and_sizes_that_vary(names: Any, payload: Any, qos: int) -> None:
    """More messages than there are frames, and several writes."""
    got: list[Publish] = []
    done = asyncio.Event()
    total = 2000

    async def talk(reader: Any, writer: Any) -> None:
        await read_packet(reader)
        writer.write(ConnAck().encode(Version.V311))
        while len(got) < total:
            packet = await read_packet(reader)
            assert isinstance(packet, Publish)
            got.append(packet)
        done.set()

    topics = [{"name": "t", "names": names, "publishers": 1, "subscribers": 1}]
    load = scenario(payload=payload, qos=qos, topics=topics)
    async with target(talk) as address:
        client = Publisher(5, "p", address, Version.V311, 0, load)
        connack = await client.connect()
        start = time.monotonic_ns() - total * MS
        client.prepare(connack, MS, total)
        client.begin(Schedule(start, start + total * MS, MS, 1), 0, 0)
        client.send_due(start + 10 * MS)
        client.send_due(start + total * MS)
        await done.wait()
        client.abort()
    expected = load.topics[0].names_of(5)
    for number, packet in enumerate(got):
        assert packet.topic == expected[number % len(expected)]
        assert _body(packet) == (MAGIC, 0, 5, number, start + number * MS, client.sent_ns[number])
    sizes = [len(packet.payload) for packet in got]
    if payload == 32:
        assert set(sizes) == {32}
    else:
        assert min(sizes) < 50
        assert 280 < max(sizes) <= 300
        assert len(set(sizes[:VARIED])) > VARIED / 4
    assert [packet.packet_id for packet in got] == [n + 1 if qos else None for n in range(total)]


async def test_acknowledgements_of_any_kind_free_the_window_however_they_are_cut() -> None:
    """Many of one kind at once, mixed kinds, a reason code, half a packet."""
    client = Publisher(0, "p", "h:1", Version.V5, 0, scenario(qos=2))
    written: list[bytes] = []
    client.transport = SimpleNamespace(write=written.append)
    client._fd = 1
    client._next_ids(300)

    def acks(kind: type[PubAck | PubRec | PubComp], *ids: int) -> bytes:
        return b"".join(kind(packet_id=packet_id).encode(Version.V5) for packet_id in ids)

    client.data_received(acks(PubComp, *range(1, 101)))
    assert client._inflight == set(range(101, 301))
    client.data_received(acks(PubRec, *range(101, 301)))
    assert b"".join(written) == b"".join(PubRel(packet_id=n).encode(Version.V5) for n in range(101, 301))
    mixed = acks(PubRec, 101) + acks(PubComp, 102) + PubAck(packet_id=103).encode(Version.V5)
    mixed += PubRec(packet_id=104, reason_code=0x97).encode(Version.V5)
    for cut in range(1, len(mixed)):
        client._inflight |= {102, 103, 104}
        written.clear()
        client.data_received(mixed[:cut])
        client.data_received(mixed[cut:])
        assert client._inflight == {101, *range(105, 301)}
        assert b"".join(written) == PubRel(packet_id=101).encode(Version.V5)
