"""A circle over real sockets: the broker's address is that of something which passes on to the node."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ildm.config import parse_config
from ildm.core.plugin.loading import PluginSpecs
from ildm.mqtt import Connect, Version
from ildm.net.run import NodeServer
from tests.sites.proxy import Proxy
from tests.support.ports import free_port


async def test_a_circle_through_a_proxy_ends(tmp_path: Path) -> None:
    port = free_port()
    proxy = Proxy(("127.0.0.1", port))
    await proxy.start()
    document = {
        "state_dir": "state",
        "listen": f"127.0.0.1:{port}",
        "broker": {"address": f"127.0.0.1:{proxy.address[1]}"},
        "link": {"listen": None},
    }
    server = NodeServer(parse_config(document, "test", tmp_path), PluginSpecs(None, []))
    await server.start()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(Connect(client_id="c", version=Version.V311, clean_start=True).encode())
        async with asyncio.timeout(120):
            assert await reader.read(4) == b"\x20\x02\x00\x03"
            assert await reader.read() == b""
        writer.close()
        assert proxy.accepted < 100
        assert server.node.counters["broker_loops"] == 1
        assert "leads back to this node" in str(server.node.reach.down_reason)
    finally:
        await server.stop()
        await proxy.close()


async def test_what_the_node_raises_is_counted(tmp_path: Path) -> None:
    document = {
        "state_dir": "state",
        "listen": "127.0.0.1:0",
        "broker": {"address": f"127.0.0.1:{free_port()}"},
        "link": {"listen": None},
    }
    server = NodeServer(parse_config(document, "test", tmp_path), PluginSpecs(None, []))
    await server.start()
    loop = asyncio.get_running_loop()
    try:
        server.failed(loop, {"message": "data_received failed", "exception": AssertionError("a sum")})
        assert server.node.counters["internal_errors"] == 1
    finally:
        await server.stop()
