"""The contract of NodeApi, held by nodes of the core in virtual time."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence

from ildm.api import (
    Algorithm,
    Filter,
    Link,
    NodeApi,
    OverlayAlgorithm,
    Peer,
    Plugin,
    Session,
    Stamp,
    Timer,
    TreeAlgorithm,
)
from ildm.config import Address, SpoolConfig
from ildm.core.node import Node
from ildm.mqtt import Connect, Property, Publish, Subscribe, Subscription, Unsubscribe, Version
from ildm.state.spool import FileSpool
from ildm.testing.contract import ELSEWHERE, Injected, NodeContract, Probe, Stage
from ildm.testing.virtual.broker import Broker
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.disk import SimDisk
from ildm.testing.virtual.driver import WorldDriver
from ildm.testing.virtual.node import make_node, plugin_specs
from ildm.testing.virtual.store import MemoryStore
from ildm.testing.virtual.world import World

LIMIT = 60.0


class VirtualStage(Stage):
    def __init__(self, algorithm: type[Algorithm]) -> None:
        super().__init__(algorithm)
        self.world = World()
        self.nodes: dict[str, Node] = {}
        self.stores: dict[str, MemoryStore] = {}
        self.disks: dict[str, SimDisk] = {}
        self.spools: dict[str, FileSpool] = {}
        self.brokers: dict[str, Broker] = {}
        self.clients: dict[tuple[str, str], MiniClient] = {}
        self.packet_id = 0

    def add(self, name: str) -> Probe:
        broker = self.brokers[name] = Broker()
        self.world.listen(Address(name, 3), broker.connection)
        link = {"advertise": f"{name}:2"}
        specs = plugin_specs("probe", self.algorithm)
        store = self.stores.setdefault(name, MemoryStore())
        spool = self.spool(name)
        node = self.nodes[name] = make_node(
            self.world, name, specs, store=store, spool=spool, counters=spool.counters, link=link
        )
        node.start({})
        plugin = node.dispatch.algorithm
        assert isinstance(plugin, Probe)
        return plugin

    def spool(self, name: str) -> FileSpool:
        """What earlier lives have left is on the disk."""
        disk = self.disks.setdefault(name, SimDisk())
        disk.kill()
        driver = WorldDriver(self.world, name)
        config = SpoolConfig(mode="process")
        spool = FileSpool(
            disk, config, wall=driver.wall, call_later=driver.call_later, log=driver.log, expiry=1e9
        )
        self.spools[name] = spool
        return spool

    def until(self, condition: Callable[[], object]) -> None:
        assert self.world.run_until(lambda: bool(condition()), LIMIT)

    def quiet(self) -> None:
        self.world.run(5)

    def link(self, here: str, far: str) -> None:
        self.nodes[here].links.add(Address(far, 2), False)

    def unlink(self, here: str, far: str) -> None:
        self.nodes[here].links.remove(f"{far}:2")

    def hold(self, here: str, far: str) -> None:
        for session in self.nodes[far].links.links[here].sessions:
            assert session.transport is not None
            session.transport.pause_reading()

    def release(self, here: str, far: str) -> None:
        for session in self.nodes[far].links.links[here].sessions:
            assert session.transport is not None
            session.transport.resume_reading()

    def kill(self, name: str) -> None:
        driver = self.nodes[name].driver
        assert isinstance(driver, WorldDriver)
        self.world.kill(driver)

    def stop(self, name: str) -> None:
        self.nodes[name].drain(self.spools[name].close)

    def client(self, name: str, client: str) -> MiniClient:
        found = self.clients.get((name, client))
        if found is None:
            found = self.clients[name, client] = MiniClient(Version.V5)
            self.world.connect(Address(name, 1), found)
            found.send(Connect(client_id=client, version=Version.V5))
        self.packet_id += 1
        return found

    def subscribe(self, name: str, topic_filter: str, qos: int = 0, client: str = "c") -> None:
        one = self.client(name, client)
        subscription = Subscription(topic_filter=topic_filter, qos=qos)
        one.send(Subscribe(packet_id=self.packet_id, subscriptions=[subscription]))
        self.world.run(0.1)

    def unsubscribe(self, name: str, topic_filter: str, client: str = "c") -> None:
        self.client(name, client).send(Unsubscribe(packet_id=self.packet_id, topic_filters=[topic_filter]))
        self.world.run(0.1)

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
            if client_id.startswith("ildm-") and Stamp.of(p) is None and not p.topic.startswith("$")
        ]

    def failures(self, name: str) -> int:
        return self.nodes[name].dispatch.loaded[0].errors

    def counters(self, name: str) -> Mapping[str, int]:
        return self.nodes[name].dispatch.loaded[0].counters

    def gauges(self, name: str) -> Mapping[str, float]:
        return self.nodes[name].dispatch.loaded[0].gauges

    def logged(self, name: str) -> Sequence[tuple[str, Mapping[str, object]]]:
        driver = self.nodes[name].driver
        assert isinstance(driver, WorldDriver)
        return [(event, fields) for _, event, fields in driver.logged]

    def listener(self) -> tuple[Peer, Callable[[], Sequence[object]], Callable[[bytes], None]]:
        ends: list[MiniClient] = []

        def accept() -> MiniClient:
            ends.append(MiniClient(Version.V5))
            return ends[-1]

        self.world.listen(Address("far", 9), accept)
        received = lambda: [packet for end in ends for packet in end.packets]  # noqa: E731
        return Peer("far", "far:9"), received, lambda data: ends[0].transport.write(data)


class TestVirtual(NodeContract):
    stage = VirtualStage


def test_the_suite_speaks_of_the_whole_interface() -> None:
    """Each member is named by a test, or left to others with a reason."""
    named = {
        name
        for _, test in inspect.getmembers(NodeContract, inspect.isfunction)
        for name in getattr(test, "states", ())
    }
    members = {name for name in vars(NodeApi) if not name.startswith("_")}
    for base in (Plugin, Algorithm, TreeAlgorithm, OverlayAlgorithm, Filter):
        members |= {name for name, m in vars(base).items() if inspect.isfunction(m) and name[0] != "_"}
    for part in (Link, Session, Timer):
        members |= {f"{part.__name__}.{name}" for name in vars(part) if not name.startswith("_")}
    members.add("Link.__hash__")
    assert named | set(ELSEWHERE) == members
    assert not named & set(ELSEWHERE)
