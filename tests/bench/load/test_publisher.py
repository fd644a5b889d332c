"""A publisher: what it writes, its window of QoS 1 and 2, and a target that takes no more."""

from __future__ import annotations

import asyncio
import time
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
from ildm_bench.load.publisher import INFLIGHT, Publisher
from tests.bench.load.support import read_packet, scenario, target

MS = 1_000_000


async def _begun(
    address: str, version: Version, total: int = 10, offset_ns: int = 0, **changes: Any
) -> Publisher:
    """A connected publisher, all of whose messages are due already."""
    client = Publisher(3, "p", address, version, "some/topic", 2, scenario(**changes))
    connack = await client.connect()
    start = time.monotonic_ns() + offset_ns - total * MS
    client.begin(connack, Schedule(start, start + total * MS, MS, 1), 0, offset_ns)
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
    client = Publisher(0, "p", "h:1", Version.V311, "t", 0, scenario(qos=1))
    ids = [int.from_bytes(client._next_id(), "big") for _ in range(INFLIGHT)]
    assert ids == list(range(1, INFLIGHT + 1))
    client._packet_id = 65534
    assert [client._next_id() for _ in range(2)] == [b"\xff\xff", (INFLIGHT + 1).to_bytes(2, "big")]
