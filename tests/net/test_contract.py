"""The contract of NodeApi, held by nodes over real sockets; their brokers are a few lines each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
from structlog.typing import FilteringBoundLogger

from ildm.api import Algorithm, Peer, Stamp
from ildm.config import parse_address, parse_config
from ildm.core.plugin.loading import PluginSpec, PluginSpecs
from ildm.mqtt import Connect, Property, Publish, Subscribe, Subscription, Unsubscribe, Version
from ildm.net.run import NodeServer
from ildm.testing.contract import Injected, Make, NodeContract, Probe, Stage
from ildm.testing.virtual.broker import Broker
from ildm.testing.virtual.client import MiniClient
from tests.support.ports import LOOPBACK, free_port

LIMIT = 120.0
"""Seconds until what does not come is given up."""
Told = tuple[str, str, Mapping[str, object]]
"""Node, event and fields."""


class Noting:
    """A logger that notes what a node logs, and hands it on."""

    def __init__(self, logger: FilteringBoundLogger, node: str, told: list[Told]) -> None:
        self._logger = logger
        self._node = node
        self._told = told

    def __getattr__(self, level: str) -> Callable[..., None]:
        def log(event: str, **fields: object) -> None:
            self._told.append((self._node, event, fields))
            getattr(self._logger, level)(event, **fields)

        return log


class SocketStage(Stage):
    cannot: ClassVar[Mapping[str, str]] = {
        "test_chance_can_be_repeated": "a live node is seeded by the system",
    }

    def __init__(self, algorithm: type[Algorithm], directory: Path, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(algorithm)
        self.directory = directory
        self.loop = loop
        self.servers: dict[str, NodeServer] = {}
        self.brokers: dict[str, Broker] = {}
        self.others: list[asyncio.Server] = []
        self.clients: dict[tuple[str, str], MiniClient] = {}
        self.told: list[Told] = []
        self.ending: set[asyncio.Task[None]] = set()
        self.ends: list[MiniClient] = []
        """Of the program that listens."""
        self.packet_id = 0

    def serve(self, factory: Callable[[], Any]) -> int:
        """Listen with endpoints of a few lines; answers the port."""
        made = self.loop.create_server(cast("Callable[[], asyncio.Protocol]", factory), LOOPBACK, 0)
        server = self.loop.run_until_complete(made)
        self.others.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    def add(self, name: str) -> Probe:
        self.loop.run_until_complete(asyncio.gather(*self.ending))  # an earlier life has given all back
        broker = self.brokers[name] = Broker()
        document = {
            "node_id": name,
            "state_dir": name,
            "listen": f"{LOOPBACK}:{free_port()}",
            "broker": {"address": f"{LOOPBACK}:{self.serve(broker.connection)}"},
            "algorithm": "probe",
            "link": {
                "listen": f"{LOOPBACK}:{free_port()}",
                "settle": 0.02,
                "reconnect_min": 0.02,
                "reconnect_max": 0.1,
                "connect_timeout": 0.5,
            },
            "log": {"level": "error"},
        }
        specs = PluginSpecs(PluginSpec("probe", self.algorithm, self.algorithm.Config()), [])
        server = NodeServer(parse_config(document, "test", self.directory), specs)
        self.loop.run_until_complete(server.start())
        self.servers[name] = server
        server.driver._logger = cast("FilteringBoundLogger", Noting(server.driver._logger, name, self.told))
        plugin = server.node.dispatch.algorithm
        assert isinstance(plugin, Probe)
        return plugin

    def until(self, condition: Callable[[], object]) -> None:
        async def come() -> None:
            async with asyncio.timeout(LIMIT):
                while not condition():  # noqa: ASYNC110 - of many things, which have no event
                    await asyncio.sleep(0.002)

        self.loop.run_until_complete(come())

    def quiet(self) -> None:
        self.loop.run_until_complete(asyncio.sleep(0.2))  # what does not come has no event

    def link(self, here: str, far: str) -> None:
        address = self.servers[far].config.link.listen
        assert address is not None
        self.servers[here].node.links.add(address, False)

    def unlink(self, here: str, far: str) -> None:
        self.servers[here].node.links.remove(str(self.servers[far].config.link.listen))

    def hold(self, here: str, far: str) -> None:
        for session in self.servers[far].node.links.links[here].sessions:
            assert session.transport is not None
            session.transport.pause_reading()

    def release(self, here: str, far: str) -> None:
        for session in self.servers[far].node.links.links[here].sessions:
            assert session.transport is not None
            session.transport.resume_reading()

    def kill(self, name: str) -> None:
        self.servers[name].kill()

    def stop(self, name: str) -> None:
        server = self.servers.pop(name)
        self.ending.add(self.loop.create_task(server.stop()))
        self.until(lambda: server.node.dispatch.algorithm.of("stop"))  # type: ignore[union-attr]

    def client(self, name: str, client: str) -> MiniClient:
        found = self.clients.get((name, client))
        if found is None:
            found = self.clients[name, client] = MiniClient(Version.V5)
            address = self.servers[name].config.listen
            endpoint = cast("asyncio.Protocol", found)
            self.loop.run_until_complete(
                self.loop.create_connection(lambda: endpoint, address.host, address.port)
            )
            found.send(Connect(client_id=client, version=Version.V5))
        self.packet_id += 1
        return found

    def subscribe(self, name: str, topic_filter: str, qos: int = 0, client: str = "c") -> None:
        one = self.client(name, client)
        subscription = Subscription(topic_filter=topic_filter, qos=qos)
        one.send(Subscribe(packet_id=self.packet_id, subscriptions=[subscription]))
        self._answered(one)

    def unsubscribe(self, name: str, topic_filter: str, client: str = "c") -> None:
        one = self.client(name, client)
        one.send(Unsubscribe(packet_id=self.packet_id, topic_filters=[topic_filter]))
        self._answered(one)

    def _answered(self, one: MiniClient) -> None:
        number = self.packet_id
        self.until(lambda: any(getattr(p, "packet_id", None) == number for p in one.packets))

    def publish(
        self,
        name: str,
        topic: str,
        payload: bytes = b"",
        qos: int = 0,
        retain: bool = False,
        expiry: int | None = None,
    ) -> None:
        one = self.client(name, "publisher")
        one.send(
            Publish(
                topic=topic,
                payload=payload,
                qos=qos,
                retain=retain,
                packet_id=self.packet_id if qos else None,
                properties={} if expiry is None else {Property.MESSAGE_EXPIRY_INTERVAL: expiry},
            )
        )

    def injected(self, name: str) -> Sequence[Injected]:
        return [
            Injected(p.topic, p.payload, p.qos, p.retain)
            for client_id, p in self.brokers[name].published
            if client_id.startswith("ildm-") and Stamp.of(p) is None
        ]

    def failures(self, name: str) -> int:
        return self.servers[name].node.dispatch.loaded[0].errors

    def counters(self, name: str) -> Mapping[str, int]:
        return self.servers[name].node.dispatch.loaded[0].counters

    def gauges(self, name: str) -> Mapping[str, float]:
        return self.servers[name].node.dispatch.loaded[0].gauges

    def logged(self, name: str) -> Sequence[tuple[str, Mapping[str, object]]]:
        return [(event, fields) for node, event, fields in self.told if node == name]

    def listener(self) -> tuple[Peer, Callable[[], Sequence[object]], Callable[[bytes], None]]:
        ends = self.ends

        def accept() -> MiniClient:
            ends.append(MiniClient(Version.V5))
            return ends[-1]

        address = f"{LOOPBACK}:{self.serve(accept)}"
        received = lambda: [packet for end in ends for packet in end.packets]  # noqa: E731
        return Peer("far", str(parse_address(address))), received, lambda data: ends[0].transport.write(data)

    async def close(self) -> None:
        ends: list[Any] = [*self.clients.values(), *self.ends]
        for server in self.servers.values():
            algorithm = server.node.dispatch.algorithm
            assert isinstance(algorithm, Probe)
            algorithm.leaving = False
            await server.stop()
        await asyncio.gather(*self.ending)
        for broker in self.brokers.values():
            ends += broker.connections
        for end in ends:
            end.transport.abort()
        for other in self.others:
            other.close()
            await other.wait_closed()
        await asyncio.sleep(0)  # what was aborted is told


class TestSockets(NodeContract):
    stage = SocketStage

    @pytest.fixture
    def make(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
        self.excuse(request)
        with asyncio.Runner() as runner:
            made: list[SocketStage] = []

            def make(algorithm: type[Algorithm]) -> Stage:
                made.append(SocketStage(algorithm, tmp_path / str(len(made)), runner.get_loop()))
                return made[-1]

            yield make
            for stage in made:
                runner.run(stage.close())
