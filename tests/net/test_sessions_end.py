"""Sessions that have ended: nothing of them is left for the collector of cycles to find."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from pathlib import Path

import pytest

from ildm.config import parse_config
from ildm.core.local.broker_session import BrokerSession
from ildm.core.local.client_session import ClientSession
from ildm.core.local.partial import Partial
from ildm.core.local.wire import ClientWire
from ildm.core.session import peer_of
from ildm.mqtt import Connect, Disconnect, Publish, Version
from ildm.net.run import NodeServer
from ildm.testing.virtual.broker import Broker
from tests.support.ports import free_port

LEAVE = Disconnect().encode(Version.V311)
PART = Publish(topic="t", payload=bytes(2000)).encode(Version.V311)[:1000]


class Writer(asyncio.Protocol):
    """A client that notes when it is accepted and when it is cut off."""

    def __init__(self) -> None:
        self.accepted = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.accepted.set()


def left() -> list[object]:
    kinds = ClientSession | BrokerSession | ClientWire | Partial
    return [each for each in gc.get_objects() if isinstance(each, kinds)]


def leaves(client: asyncio.Transport, broker: Broker) -> None:
    client.write(LEAVE)
    client.close()


def vanishes(client: asyncio.Transport, broker: Broker) -> None:
    client.write(PART)
    client.abort()


def broker_ends(client: asyncio.Transport, broker: Broker) -> None:
    for connection in list(broker.connections):
        connection.transport.close()


@pytest.mark.parametrize("algorithm", [None, "sf"])
@pytest.mark.parametrize("ends", [leaves, vanishes, broker_ends])
async def test_the_two_sessions_of_a_client_go_with_their_connections(
    tmp_path: Path, ends: Callable[[asyncio.Transport, Broker], None], algorithm: str | None
) -> None:
    loop = asyncio.get_running_loop()
    broker = Broker()
    serving = await loop.create_server(broker.connection, "127.0.0.1", 0)  # type: ignore[arg-type, type-var]
    port = free_port()
    document = {
        "state_dir": "state",
        "listen": f"127.0.0.1:{port}",
        "broker": {"address": f"127.0.0.1:{serving.sockets[0].getsockname()[1]}"},
        "algorithm": algorithm,
        "link": {"listen": None},
    }
    server = NodeServer(parse_config(document, "test", tmp_path))
    await server.start()
    gc.collect()
    others = len(left())
    gc.disable()
    try:
        client, writer = await loop.create_connection(Writer, "127.0.0.1", port)
        client.write(Connect(client_id="c").encode())
        await asyncio.wait_for(writer.accepted.wait(), 120)
        assert len(left()) == others + 3
        (session,) = server.node.sessions
        assert session.paired is not None
        assert session.paired.transport is not None
        assert session.paired.peer == peer_of(session.paired.transport)
        del session
        ends(client, broker)
        async with asyncio.timeout(120):
            while len(left()) > others:  # noqa: ASYNC110 - else they were left to the collector
                await asyncio.sleep(0.01)
    finally:
        gc.enable()
        client.abort()
        serving.close()
        await server.stop()
