"""The clients of measurements: what they get, and what becomes of one that is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ildm.mqtt import ConnAck, Publish, Version
from ildm.testing.live.process import ProcessError
from ildm_bench.clients import Bare, Client, came_true, paced
from tests.support.brokers import Mosquitto


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[int]:
    """The port of a broker that answers this to whatever comes first, and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("answer", "said"), [(ConnAck(reason_code=5).encode(Version.V311), "refused"), (b"", "not accepted")]
)
async def test_a_bare_client_that_is_not_accepted_says_so(answer: bytes, said: str) -> None:
    async with answering(answer) as port:
        client = await Bare("one").connect(port)
        with pytest.raises(ConnectionError, match=f"one was {said}"):
            await client.ready


@pytest.mark.parametrize("answer", [ConnAck(reason_code=5).encode(Version.V311), b""])
async def test_a_client_that_is_not_accepted_is_an_error(answer: bytes) -> None:
    async with answering(answer) as port:
        with pytest.raises(ProcessError, match="one"):
            await Client.connect(("127.0.0.1", port), "one")


@pytest.mark.broker
async def test_messages_are_received_and_acknowledged(mosquitto: Mosquitto) -> None:
    got: list[Publish] = []
    listener = await Client.connect(mosquitto.address, "clients-listener", got.append)
    assert list(await listener.subscribe("clients/#", "clients-other", qos=1)) == [1, 1]
    sender = await Client.connect(mosquitto.address, "clients-sender")
    async for number in paced(1000.0, 3):
        sender.send("clients/a", b"%d" % number, number % 2)
    await sender.publish("clients/b", b"last")
    await listener.until(lambda: listener.received == 4)
    assert [(message.topic, message.payload) for message in got] == [
        ("clients/a", b"0"),
        ("clients/a", b"1"),
        ("clients/a", b"2"),
        ("clients/b", b"last"),
    ]
    await sender.until(lambda: not sender.under_way)
    for client in (listener, sender):
        client.close()


async def test_what_does_not_come_true_is_given_up() -> None:
    assert await came_true(lambda: True, 0.0)
    assert not await came_true(lambda: False, 0.0)
