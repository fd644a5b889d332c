from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ildm.config import load_config
from ildm.core.plugin.loading import PluginSpecs
from ildm.mqtt import ConnAck, Connect, Disconnect, Framer, Packet, Version, decode
from ildm.net.run import NodeServer
from ildm.testing.live.brokers import Mosquitto
from ildm.testing.live.ports import LOOPBACK, free_port
from tests.net.transport.conftest import running
from tests.net.transport.pki import Pki

WAIT = 120.0
"""Seconds, of which only a failure takes all."""


async def until(condition: Callable[[], object]) -> None:
    """Wait until it holds."""
    async with asyncio.timeout(WAIT):
        while not condition():  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0.005)


class Talker:
    """A client whose broker has accepted it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._framer = Framer()
        self._packets: list[Packet] = []

    @classmethod
    async def connect(cls, port: int, client_id: str, tls: ssl.SSLContext | None = None) -> Talker:
        name = "localhost" if tls is not None else None
        made = cls(*await asyncio.open_connection(LOOPBACK, port, ssl=tls, server_hostname=name))
        await made.greet(client_id)
        return made

    async def greet(self, client_id: str) -> None:
        answer = await self.ask(Connect(client_id=client_id, version=Version.V5, keep_alive=60))
        assert isinstance(answer, ConnAck), answer
        assert answer.reason_code == 0, answer

    async def ask(self, packet: Any) -> Packet:
        """Send a packet; answers the next one that comes."""
        self.writer.write(packet if isinstance(packet, bytes) else packet.encode(Version.V5))
        while not self._packets:
            data = await asyncio.wait_for(self.reader.read(65536), WAIT)
            assert data, "the connection has ended"
            self._packets += [decode(frame, Version.V5) for frame in self._framer.feed(data)]
        return self._packets.pop(0)

    def send(self, packet: Any) -> None:
        self.writer.write(packet.encode(Version.V5))

    async def read_to_end(self) -> int | None:
        """Wait until the other side hangs up; the reason that it has given."""
        packets = self._packets
        while data := await asyncio.wait_for(self.reader.read(65536), WAIT):
            packets += [decode(frame, Version.V5) for frame in self._framer.feed(data)]
        return next((each.reason_code for each in packets if isinstance(each, Disconnect)), None)

    async def lives(self) -> bool:
        """Whether the broker answers a ping."""
        return type(await self.ask(b"\xc0\x00")).__name__ == "PingResp"

    @property
    def serial(self) -> int:
        """Of the certificate that the node has shown to it."""
        shown = self.writer.get_extra_info("peercert")
        return int(shown["serialNumber"], 16)

    def close(self) -> None:
        self.writer.close()


class Rig:
    """A node with its file, which a test rewrites."""

    def __init__(self, directory: Path, **document: Any) -> None:
        self.directory = directory
        self.source = directory / "node.yaml"
        self.port = free_port()
        self.document: dict[str, Any] = {
            "node_id": "node",
            "listen": f"{LOOPBACK}:{self.port}",
            "link": {"listen": None},
            "limits": {"drain_timeout": 1.0},
            "log": {"level": "error"},
            **document,
        }
        self.server: NodeServer
        self._talkers: list[Talker] = []

    async def start(self, plugins: PluginSpecs | None = None) -> None:
        self.write()
        self.server = NodeServer(load_config(self.source), plugins, self.source)
        await self.server.start()

    async def stop(self) -> None:
        for talker in self._talkers:
            talker.close()
        await self.server.stop()

    def write(self, **changes: Any) -> None:
        """Sections are merged with those of before."""
        for key, value in changes.items():
            now = self.document.get(key)
            merged = isinstance(now, dict) and isinstance(value, dict)
            self.document[key] = {**now, **value} if merged and now is not None else value
        new = self.source.with_suffix(".new")
        new.write_text(yaml.safe_dump(self.document))
        new.rename(self.source)

    async def reload(self, **changes: Any) -> list[str]:
        """The lines that say what has changed."""
        self.write(**changes)
        answer = await self.server.reloader.reload()
        lines: list[str] = answer["changes"]
        return lines

    async def talker(self, port: int | None = None, tls: ssl.SSLContext | None = None) -> Talker:
        made = await Talker.connect(port or self.port, f"talker-{len(self._talkers)}", tls)
        self._talkers.append(made)
        return made

    async def refuses(self, port: int) -> bool:
        """Whether nobody listens there."""
        try:
            _, writer = await asyncio.open_connection(LOOPBACK, port)
        except ConnectionRefusedError:
            return True
        writer.close()
        return False

    def counted(self, name: str) -> int:
        return self.server.node.counters[name]


MakeRig = Callable[..., Awaitable[Rig]]


@pytest.fixture(scope="module")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    """One for all tests of a module."""
    if reason := Mosquitto.available():
        pytest.skip(reason)
    with running(Mosquitto(tmp_path_factory.mktemp("mosquitto"))) as broker:
        yield broker


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[MakeRig]:
    """Makes a node; it ends with the test. Its broker is not there unless one is given."""
    made: list[Rig] = []

    async def make(
        at: tuple[str, int] | None = None, plugins: PluginSpecs | None = None, **document: Any
    ) -> Rig:
        address = f"{LOOPBACK}:1" if at is None else "{}:{}".format(*at)
        rig = Rig(tmp_path, **{"broker": {"address": address}, **document})
        await rig.start(plugins)
        made.append(rig)
        return rig

    yield make
    for each in made:
        await each.stop()


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    if reason := Pki.missing():
        pytest.skip(reason)
    return Pki(tmp_path_factory.mktemp("pki"))
