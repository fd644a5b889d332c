"""Nodes of an overlay in virtual time, each with an algorithm that notes what it hears."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ildm.api import Link, NodeApi, OverlayAlgorithm, Peer, PluginConfig, SendResult, Unreachable
from ildm.config import Address
from ildm.core.link.on_demand import OnDemand
from ildm.mqtt import Connect, Publish
from ildm.testing.virtual.broker import Broker
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.driver import WorldDriver
from ildm.testing.virtual.node import make_node, plugin_specs
from ildm.testing.virtual.world import World


class Talker(OverlayAlgorithm):
    """Notes what it hears."""

    def __init__(self, api: NodeApi, config: PluginConfig) -> None:
        super().__init__(api, config)
        self.heard: list[tuple[str, bytes]] = []
        self.senders: set[Peer] = set()
        self.turns: list[tuple[str, int]] = []
        self.unreachable: list[str] = []
        self.links: list[tuple[str, str, bool]] = []
        self.writable: list[str] = []
        self.published: list[tuple[Publish, int]] = []
        self.leaving_until = 0.0
        self.then: Callable[[str], object] = lambda node_id: None
        """What is done when a node cannot be reached."""
        self.then_heard: Callable[[str], object] = lambda node_id: None
        """What is done when data have come."""

    def on_message(self, sender: Peer, data: bytes, turn: int) -> None:
        self.senders.add(sender)
        self.turns.append((sender.node_id, turn))
        self.heard.append((sender.node_id, data))
        self.then_heard(sender.node_id)

    def on_unreachable(self, node_id: str, reason: Unreachable) -> None:
        self.unreachable.append(f"{node_id}: {reason}")
        self.then(node_id)

    def on_link_up(self, link: Link) -> None:
        self.links.append(("up", link.node_id, link.introducer))

    def on_link_down(self, link: Link) -> None:
        self.links.append(("down", link.node_id, link.introducer))

    def on_writable(self, link: Link) -> None:
        self.writable.append(link.node_id)

    def on_publish(self, message: Publish, turn: int) -> None:
        self.published.append((message, turn))

    def is_leaving(self) -> bool:
        return self.api.now() < self.leaving_until


class Site:
    """A node that reaches, and is reached by, every other."""

    def __init__(
        self,
        world: World,
        name: str,
        *,
        algorithm: str = "talker",
        neighbors: tuple[str, ...] = (),
        link: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.world = world
        self.name = name
        self.broker = Broker()
        world.listen(Address(name, 3), self.broker.connection)
        link = {"advertise": f"{name}:2", "reconnect_min": 0.05, "reconnect_max": 0.2, **(link or {})}
        self.node = make_node(world, name, plugin_specs(algorithm, Talker), link=link, **settings)
        talker = self.node.dispatch.algorithm
        assert isinstance(talker, Talker)
        self.talker = talker
        self.node.start({Address(far, 2): False for far in neighbors})

    @property
    def demand(self) -> OnDemand:
        demand = self.node.links.on_demand
        assert demand is not None
        return demand

    def peer(self, address: str | None = None) -> Peer:
        return Peer(self.node.node_id, address or f"{self.name}:2")

    def send(self, to: Site, data: str, turn: int = 0) -> SendResult:
        return self.talker.api.send(to.peer(), data.encode(), turn)

    def heard(self, sender: str | None = None) -> list[str]:
        return [data.decode() for name, data in self.talker.heard if sender in (None, name)]

    def links(self) -> dict[str, str]:
        return {
            link.node_id: "on demand" if link.on_demand else "configured"
            for link in self.node.links.cooperation.active
        }

    def client(self, connect: Connect) -> MiniClient:
        client = MiniClient(connect.version)
        self.world.connect(Address(self.name, 1), client)
        client.send(connect)
        self.world.run(0.1)
        return client

    def logged(self) -> list[str]:
        driver = self.node.driver
        assert isinstance(driver, WorldDriver)
        return [f"{event}: {fields.get('reason', '')}" for _, event, fields in driver.logged]

    def crash(self) -> None:
        """The node ends without a good-bye."""
        for port in (1, 2):
            self.world.listeners.pop(Address(self.name, port))
        self.node.links._stopped = True
        for link in list(self.node.links.links.values()):
            for session in list(link.open_sessions):
                session.abort()


def sites(world: World, names: str, **settings: Any) -> list[Site]:
    made = [Site(world, name, **settings) for name in names]
    world.run(0.5)
    return made
