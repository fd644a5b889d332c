"""Handshakes with targets that refuse, are silent, talk nonsense or close."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from ildm.mqtt import ConnAck, Publish, SubAck, Subscribe, Subscription, Version
from ildm_bench.load import connection
from ildm_bench.load.connection import Connection, LoadError, in_parts
from ildm_bench.load.subscriber import Subscriber, collect
from tests.bench.load.support import WatchedBroker, message, read_packet, scenario, target

WANTED = Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter="t", qos=2)])


async def _refuse(reader: Any, writer: Any) -> None:
    await read_packet(reader)
    writer.write(ConnAck(reason_code=5).encode(Version.V311))


async def _silent(reader: Any, writer: Any) -> None:
    await reader.read()


async def _garbage(reader: Any, writer: Any) -> None:
    await read_packet(reader)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n\xff\xff\xff\xff\xff")


async def _too_large(reader: Any, writer: Any) -> None:
    await read_packet(reader)
    writer.write(b"\x30\xff\xff\xff\x7f")


async def _close(reader: Any, writer: Any) -> None:
    await read_packet(reader)


async def _other_packet(reader: Any, writer: Any) -> None:
    await read_packet(reader)
    writer.write(b"\xd0\x00")


@pytest.mark.parametrize(
    ("talk", "reason"),
    [
        (_refuse, r"refuses a-client: ConnAck\(.*reason_code=5"),
        (_silent, "cannot connect to .*: TimeoutError"),
        (_garbage, "cannot connect to .*: "),
        (_too_large, "cannot connect to .*: .* sent what is no MQTT"),
        (_close, "cannot connect to .*: closed by the target"),
        (_other_packet, "refuses a-client: PingResp"),
    ],
)
async def test_a_connect_that_fails_names_client_and_target(
    talk: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if talk is _silent:
        monkeypatch.setattr(connection, "TIMEOUT", 0.2)
    async with target(talk) as address:
        client = Connection("a-client", address, Version.V311)
        with pytest.raises(LoadError, match=reason) as caught:
            await client.connect()
        assert "a-client" in str(caught.value)
        assert address in str(caught.value)
        client.abort()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (SubAck(packet_id=1, reason_codes=[1]), "grants QoS 1 of 2 for 't'"),
        (SubAck(packet_id=1, reason_codes=[0x80]), "refuses 't': SubAck"),
        (None, "a-client got no SUBACK from .*: closed by the target"),
    ],
)
async def test_a_subscribe_that_fails_says_why(answer: SubAck | None, reason: str) -> None:
    async def talk(reader: Any, writer: Any) -> None:
        await read_packet(reader)
        writer.write(ConnAck().encode(Version.V311))
        await read_packet(reader)
        if answer is not None:
            writer.write(answer.encode(Version.V311))

    async with target(talk) as address:
        client = Connection("a-client", address, Version.V311)
        await client.connect()
        with pytest.raises(LoadError, match=reason) as caught:
            await client.subscribe(WANTED)
        assert address in str(caught.value)
        client.abort()


@pytest.mark.parametrize("qos", [0, 1])
async def test_messages_of_others_around_the_suback_do_no_harm(qos: int) -> None:
    def publish(body: bytes, packet_id: int, retain: bool = False) -> bytes:
        packet = Publish(
            topic="t", payload=body, qos=qos, retain=retain, packet_id=packet_id if qos else None
        )
        return packet.encode(Version.V311)

    foreign = publish(b"of somebody else" * 10, 7)
    begun, all_sent = asyncio.Event(), asyncio.Event()

    async def talk(reader: Any, writer: Any) -> None:
        await read_packet(reader)
        writer.write(ConnAck().encode(Version.V311))
        await read_packet(reader)
        suback = SubAck(packet_id=1, reason_codes=[qos]).encode(Version.V311)
        writer.write(publish(b"retained", 6, retain=True) + suback + foreign[:20])
        await begun.wait()
        writer.write(foreign[20:50])
        await writer.drain()
        writer.write(foreign[50:] + publish(message(0), 8) + publish(message(1), 9)[:5])
        await writer.drain()
        writer.write(publish(message(1), 9)[5:] + publish(message(2), 10))
        all_sent.set()

    async with target(talk) as address:
        client = Subscriber(0, "a-client", address, Version.V311, 0, scenario(qos=qos))
        await client.connect()
        wanted = Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter="t", qos=qos)])
        await client.subscribe(wanted)
        client.begin(0)
        begun.set()
        await all_sent.wait()
        ended = asyncio.get_running_loop().create_future()
        told = client.connection_lost

        def connection_lost(exc: Exception | None) -> None:
            told(exc)
            ended.set_result(None)

        client.connection_lost = connection_lost  # type: ignore[method-assign]
        await ended
    batch = collect([client])
    assert batch is not None
    assert batch.records["seq"].tolist() == [0, 1, 2]
    assert client.foreign == 1
    assert client.closed == "closed by the target"


async def test_where_one_client_fails_no_other_goes_on_connecting() -> None:
    waiting = asyncio.Event()

    async def silent(reader: Any, writer: Any) -> None:
        await read_packet(reader)
        waiting.set()
        assert await reader.read() == b""
        gone.set()

    gone = asyncio.Event()
    async with target(silent) as address, target(_close) as closing:
        first = Connection("waits", address, Version.V311)
        second = Connection("fails", closing, Version.V311)

        async def connect(client: Connection) -> None:
            if client is second:
                await waiting.wait()
            await client.connect()

        with pytest.raises(LoadError, match=re.escape(closing)):
            await in_parts([first, second], connect)
        first.abort()
        second.abort()
        await gone.wait()


async def test_connections_are_opened_at_no_more_than_a_rate() -> None:
    """By the loop's own clock: at no time more than were due."""
    loop = asyncio.get_running_loop()
    times: list[float] = []

    async def connect(_: int) -> None:
        times.append(loop.time())

    begun = loop.time()
    await in_parts(range(20), connect, rate=200, together=2)
    assert len(times) == 20
    assert all(at - begun >= (index // 2 * 2) / 200 - 0.001 for index, at in enumerate(times))


async def test_a_lost_connection_is_told_and_an_ended_one_is_not() -> None:
    broker = WatchedBroker()
    async with broker.listening() as address:
        lost, ended = (Connection(name, address, Version.V5) for name in ("lost", "ended"))
        for client in (lost, ended):
            await client.connect()
        ended.abort()
        await broker.until(lambda: len(broker.connections) == 1)
        broker.crash()
        with pytest.raises(ConnectionError):
            await lost.ask(WANTED)
    assert lost.closed is not None
    assert ended.closed is None
