"""The network of a live run: cut, held, far, and as it was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from ildm.mqtt import Connect
from ildm.testing.live.ports import LOOPBACK
from ildm_bench.chaos.proxies import Network, Proxy

PATIENCE = 10.0
ENDED = (ConnectionError, asyncio.IncompleteReadError)
HELLO = Connect(client_id="a/0").encode()


class Path(NamedTuple):
    network: Network
    proxy: Proxy
    arrived: asyncio.Queue[bytes]
    """What has arrived at the target, byte by byte; empty ones are the ends of connections."""


@asynccontextmanager
async def path(dialer: str | None = "node/a") -> AsyncIterator[Path]:
    """From node a to b, which sends back what it gets."""
    arrived: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                arrived.put_nowait(data)
                writer.write(data)
        except ConnectionError:
            pass
        finally:
            arrived.put_nowait(b"")
            writer.close()

    server = await asyncio.start_server(serve, LOOPBACK, 0)
    network = Network()
    proxy = Proxy(network, "node/b", server.sockets[0].getsockname(), dialer)
    await proxy.start()
    try:
        async with asyncio.timeout(PATIENCE):
            yield Path(network, proxy, arrived)
    finally:
        await proxy.close()
        server.close()


async def echoed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    assert await reader.readexactly(len(data)) == data


async def sent(way: Path, size: int) -> None:
    """Return when so many bytes have come to the proxy from node a."""
    while way.network.traffic["node/a", "node/b"] < size:  # noqa: ASYNC110 - the proxy has no event for it
        await asyncio.sleep(0)


async def test_bytes_pass_both_ways_and_the_end_too() -> None:
    async with path() as way:
        reader, writer = await asyncio.open_connection(*way.proxy.address)
        await echoed(reader, writer, b"x" * 100_000)
        writer.close()
        while await way.arrived.get():
            pass


@pytest.mark.parametrize("dialer", ["node/a", None])
async def test_a_cut_path_ends_what_is_there_and_what_comes(dialer: str | None) -> None:
    async with path(dialer) as way:
        reader, writer = await asyncio.open_connection(*way.proxy.address)
        await echoed(reader, writer, HELLO)
        way.network.cut("node/b", "node/a")
        with pytest.raises(ENDED):
            await reader.readexactly(1)
        reader, writer = await asyncio.open_connection(*way.proxy.address)
        writer.write(HELLO)
        with pytest.raises(ENDED):
            await reader.readexactly(1)
        way.network.mend("node/a", "node/b")
        await echoed(*await asyncio.open_connection(*way.proxy.address), HELLO)


async def test_who_dials_is_known_by_the_first_packet() -> None:
    async with path(None) as way:
        way.network.cut("node/c", "node/b")
        await echoed(*await asyncio.open_connection(*way.proxy.address), HELLO)
        reader, writer = await asyncio.open_connection(*way.proxy.address)
        writer.write(Connect(client_id="c/0").encode())
        with pytest.raises(ENDED):
            await reader.readexactly(1)


async def test_what_is_held_arrives_when_the_path_is_mended() -> None:
    async with path() as way:
        reader, writer = await asyncio.open_connection(*way.proxy.address)
        await echoed(reader, writer, b"1")
        assert await way.arrived.get() == b"1"
        way.network.hold("node/b", "node/a", one_way=True)
        writer.write(b"2")
        assert await way.arrived.get() == b"2"  # this way it passes
        way.network.hold("node/a", "node/b")
        writer.write(b"3")
        other_reader, other = await asyncio.open_connection(*way.proxy.address)
        other.write(b"4")
        await sent(way, 4)
        assert way.arrived.empty()
        way.network.mend("node/a", "node/b")
        assert await reader.readexactly(2) == b"23"
        assert await other_reader.readexactly(1) == b"4"


async def test_one_connection_alone_is_held() -> None:
    async with path() as way:
        made = [await asyncio.open_connection(*way.proxy.address) for _ in range(3)]
        for each in made:
            await echoed(*each, b"1")
        way.network.hold_one("node/b", "node/a", 1)
        way.network.hold_one("node/b", "node/a", 3)  # there is none
        made[1][1].write(b"2")
        await sent(way, 4)
        for each in (made[0], made[2], await asyncio.open_connection(*way.proxy.address)):
            await echoed(*each, b"3")
        assert [await way.arrived.get() for _ in range(6)] == [b"1"] * 3 + [b"3"] * 3
        way.network.mend("node/a", "node/b")
        assert await made[1][0].readexactly(1) == b"2"


async def test_who_goes_while_the_path_is_held_is_not_heard_of_until_it_is_mended() -> None:
    async with path() as way:
        reader, writer = await asyncio.open_connection(*way.proxy.address)
        await echoed(reader, writer, b"1")
        assert await way.arrived.get() == b"1"
        way.network.hold("node/a", "node/b")
        writer.transport.abort()
        _, other = await asyncio.open_connection(*way.proxy.address)
        other.write(b"2")
        await sent(way, 2)  # by then the end of the first one has been seen, too
        assert way.arrived.empty()
        way.network.mend("node/a", "node/b")
        assert {await way.arrived.get(), await way.arrived.get()} == {b"2", b""}


async def test_where_nobody_listens_the_connection_ends() -> None:
    proxy = Proxy(Network(), "node/b", (LOOPBACK, 1), "node/a")
    await proxy.start()
    reader, _ = await asyncio.open_connection(*proxy.address)
    with pytest.raises(ENDED):
        await reader.readexactly(1)
    await proxy.close()
