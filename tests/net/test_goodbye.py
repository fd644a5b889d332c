"""A client that disconnects: its broker reads that, though it is just sending the client something."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from ildm.config import Config, parse_config
from ildm.mqtt import ConnAck, Connect, Disconnect, Publish, Version
from ildm.net.run import NodeServer
from tests.support.ports import free_port

VERSION = Version.V311


def configured(directory: Path, port: int, broker: socket.socket, algorithm: str | None) -> Config:
    document = {
        "state_dir": "state",
        "listen": f"127.0.0.1:{port}",
        "broker": {"address": f"127.0.0.1:{broker.getsockname()[1]}"},
        "link": {"listen": None},
        "algorithm": algorithm,
        "limits": {"drain_timeout": 0.1},
    }
    return parse_config(document, "test", directory)


@pytest.mark.parametrize("algorithm", ["sf", None])
async def test_a_broker_that_sends_while_a_client_leaves_reads_its_disconnect(
    tmp_path: Path, algorithm: str | None
) -> None:
    """Were its connection closed at once, what it sends would be answered by a reset: "Broken pipe"."""
    loop = asyncio.get_running_loop()
    read: asyncio.Future[bytes] = loop.create_future()
    left = asyncio.Event()

    async def serve(connection: socket.socket) -> None:
        """Read when it is asked to, and not before."""
        with connection:
            connection.setblocking(False)
            if b"leaver" not in await loop.sock_recv(connection, 1000):
                return  # the node's own session, or what it finds out about the broker
            try:
                await loop.sock_sendall(
                    connection, ConnAck(session_present=False, reason_code=0).encode(VERSION)
                )
                await left.wait()
                for _ in range(4):
                    await asyncio.sleep(0.05)  # busy with others; the DISCONNECT waits in its socket
                    await loop.sock_sendall(connection, Publish(topic="t", payload=bytes(50)).encode(VERSION))
                read.set_result(await loop.sock_recv(connection, 1000))
            except OSError as error:
                read.set_exception(error)

    serving: set[asyncio.Task[None]] = set()

    async def accept() -> None:
        while True:
            connection, _ = await loop.sock_accept(listener)
            serving.add(asyncio.create_task(serve(connection)))

    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    accepting = asyncio.create_task(accept())
    port = free_port()
    node = NodeServer(configured(tmp_path, port, listener, algorithm))
    await node.start()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(Connect(client_id="leaver", version=VERSION).encode(VERSION))
        assert (await asyncio.wait_for(reader.read(100), 10))[0] == 0x20
        writer.write(Disconnect().encode(VERSION))
        writer.close()
        left.set()
        assert await asyncio.wait_for(read, 10) == Disconnect().encode(VERSION)
    finally:
        await node.stop()
        for task in (accepting, *serving):
            task.cancel()
        await asyncio.gather(accepting, *serving, return_exceptions=True)
        listener.close()


async def test_a_broker_that_has_gone_and_nobody_knows_yet_harms_no_drain(tmp_path: Path) -> None:
    """The DISCONNECT is answered by a reset then, after which the connection cannot be shut down."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        port = free_port()
        node = NodeServer(configured(tmp_path, port, listener, None))
        await node.start()
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(Connect(client_id="leaver", version=VERSION).encode(VERSION))
            connection, _ = await asyncio.wait_for(loop.sock_accept(listener), 120)
            assert b"leaver" in await asyncio.wait_for(loop.sock_recv(connection, 1000), 120)
            connection.send(ConnAck(session_present=False, reason_code=0).encode(VERSION))
            assert (await asyncio.wait_for(reader.read(100), 10))[0] == 0x20
            connection.close()
            drained = asyncio.Event()
            node.node.drain(drained.set)
            await asyncio.wait_for(drained.wait(), 120)
            assert not node.node.sessions
            writer.close()
        finally:
            await node.stop()
