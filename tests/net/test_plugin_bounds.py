"""A plugin that burns time or blocks: clients of a live node are served, and its process ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from ildm.api import NodeApi, PluginConfig, TreeAlgorithm
from ildm.config import parse_config
from ildm.core.plugin.loading import PluginSpec, PluginSpecs
from ildm.mqtt import Connect, PingReq, PingResp, Version
from ildm.net.run import NodeServer
from ildm.net.workers import THREADS
from ildm.testing.virtual.broker import Broker
from ildm.testing.virtual.client import MiniClient
from tests.plugins.commands import ildm
from tests.support.ports import LOOPBACK, free_port

LIMIT = 120.0


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT):
        while not condition():  # noqa: ASYNC110 - of many things, which have no event
            await asyncio.sleep(0.002)


@asynccontextmanager
async def running(directory: Path, plugin: type[TreeAlgorithm]) -> AsyncIterator[NodeServer]:
    loop = asyncio.get_running_loop()
    factory = cast("Callable[[], asyncio.Protocol]", Broker().connection)
    broker = await loop.create_server(factory, LOOPBACK, 0)
    document = {
        "state_dir": "state",
        "listen": f"{LOOPBACK}:{free_port()}",
        "broker": {"address": f"{LOOPBACK}:{broker.sockets[0].getsockname()[1]}"},
        "algorithm": "plugin",
        "link": {"listen": f"{LOOPBACK}:{free_port()}"},
        "log": {"level": "error"},
    }
    specs = PluginSpecs(PluginSpec("plugin", plugin, PluginConfig()), [])
    server = NodeServer(parse_config(document, "test", directory), specs)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
        broker.close()


async def ping(server: NodeServer) -> None:
    """A client connects and gets an answer."""
    client = MiniClient(Version.V5)
    address = server.config.listen
    endpoint = cast("asyncio.Protocol", client)
    await asyncio.get_running_loop().create_connection(lambda: endpoint, address.host, address.port)
    client.send(Connect(client_id="c", version=Version.V5))
    client.send(PingReq())
    await until(lambda: PingResp() in client.packets)
    client.transport.close()


class Restless(TreeAlgorithm):
    """A thousand timers that are always due."""

    def on_ildm_start(self) -> None:
        for _ in range(1000):
            self.again()

    def again(self) -> None:
        self.api.call_later(0, self.again)


async def test_clients_are_served_beside_a_plugin_that_never_rests(tmp_path: Path) -> None:
    async with running(tmp_path, Restless) as server:
        (loaded,) = server.node.dispatch.loaded
        await ping(server)
        calls = loaded.calls
        await ping(server)
        assert loaded.calls > calls
        assert loaded.seconds > 0
        assert loaded.timers.waiting == 1000


async def test_work_that_hangs_holds_up_nobody(tmp_path: Path) -> None:
    """Neither the node, nor its end, nor the work of another plugin."""
    begun: list[threading.Thread] = []
    forever = threading.Event()
    done: list[object] = []

    class Hanging(TreeAlgorithm):
        def __init__(self, api: NodeApi, config: PluginConfig) -> None:
            super().__init__(api, config)
            for _ in range(THREADS + 1):
                api.offload(self.hang, done.append)

        def hang(self) -> None:
            begun.append(threading.current_thread())
            forever.wait()

    try:
        async with running(tmp_path, Hanging) as server:
            await until(lambda: len(begun) == THREADS)
            await ping(server)
            server.driver.offload("another", lambda: 7, done.append)
            await until(lambda: done)
        assert done == [7]
        assert all(thread.daemon for thread in begun)
    finally:
        forever.set()
    await asyncio.sleep(0)
    assert done == [7]  # the node has stopped


def test_a_process_with_work_that_hangs_ends(tmp_path: Path) -> None:
    about = tmp_path / "hanging-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: hanging\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[ildm.algorithms]\nhanging = hanging:Hanging\n")
    (tmp_path / "hanging.py").write_text(
        "import os, signal, threading\n"
        "from ildm.api import TreeAlgorithm\n"
        "def hang():\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    threading.Event().wait()\n"
        "class Hanging(TreeAlgorithm):\n"
        "    def on_ildm_start(self):\n"
        "        self.api.call_later(0, self.api.offload, hang, print)\n"
    )
    config = tmp_path / "node.yaml"
    config.write_text("algorithm: hanging\nlisten: 127.0.0.1:0\nlink: {listen: 127.0.0.1:0}\n")
    done = ildm(tmp_path, "run", "--config", config)
    assert (done.returncode, done.stdout) == (0, "")
    assert "node stopped" in done.stderr
