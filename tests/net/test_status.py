"""What a node says of its broker, over real sockets, before there is an answer and after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ildm.admin.client import AdminClient
from ildm.config import parse_config
from ildm.net.run import NodeServer
from tests.support.ports import free_port


@asynccontextmanager
async def node(directory: Path, broker: int, algorithm: str | None) -> AsyncIterator[NodeServer]:
    document = {
        "state_dir": "state",
        "listen": "127.0.0.1:0",
        "broker": {"address": f"127.0.0.1:{broker}"},
        "link": {"listen": None},
        "algorithm": algorithm,
        "limits": {"drain_timeout": 0.1},
    }
    server = NodeServer(parse_config(document, "test", directory))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def asked(server: NodeServer) -> dict[str, Any]:
    """The part of `ildm status` about the broker."""
    client = AdminClient(server.config.admin_socket)
    broker: dict[str, Any] = (await asyncio.to_thread(client.status))["broker"]
    return broker


@pytest.mark.parametrize("algorithm", ["sf", None])
async def test_a_broker_that_nobody_has_reached_is_not_connected(
    tmp_path: Path, algorithm: str | None
) -> None:
    async with node(tmp_path, free_port(), algorithm) as server:
        broker = await asked(server)
        assert broker["connected"] is False
        assert broker["reason"]


async def test_nor_is_one_that_takes_a_connection_and_says_nothing(tmp_path: Path) -> None:
    connected = asyncio.Event()
    taken: list[asyncio.StreamWriter] = []

    def take(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.append(writer)
        connected.set()

    silent = await asyncio.start_server(take, "127.0.0.1", 0)
    try:
        async with node(tmp_path, silent.sockets[0].getsockname()[1], "sf") as server:
            async with asyncio.timeout(120):
                await connected.wait()
            broker = await asked(server)
            assert broker["connected"] is False
            assert broker["reason"] == "not connected yet"
    finally:
        for writer in taken:
            writer.close()
        silent.close()


async def test_a_relay_says_so_when_its_broker_is_there(tmp_path: Path) -> None:
    there = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    try:
        async with node(tmp_path, there.sockets[0].getsockname()[1], None) as server:
            broker = await asked(server)
            assert (broker["connected"], broker["reason"]) == (True, None)
    finally:
        there.close()
