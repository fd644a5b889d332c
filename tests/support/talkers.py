"""Nodes of an overlay in virtual time, each with an algorithm that notes what it hears."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ildm.api import Link, NodeApi, OverlayAlgorithm, Peer, PluginConfig, SendResult, Unreachable
from ildm.core.link.on_demand import OnDemand
from ildm.mqtt import Publish
from ildm.testing.virtual.world import World
from tests.support import site


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


class Site(site.Site):
    """A node that reaches, and is reached by, every other."""

    algorithm_name = "talker"

    def __init__(
        self,
        world: World,
        name: str,
        link: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        link = {"advertise": f"{name}:2", "reconnect_min": 0.05, "reconnect_max": 0.2, **(link or {})}
        super().__init__(world, name, Talker, link=link, **settings)

    @property
    def talker(self) -> Talker:
        talker = self.node.dispatch.algorithm
        assert isinstance(talker, Talker)
        return talker

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

    def lines(self) -> list[str]:
        return [f"{event}: {fields.get('reason', '')}" for _, event, fields in self.driver.logged]


def sites(world: World, names: str, **settings: Any) -> list[Site]:
    made = [Site(world, name, **settings) for name in names]
    world.run(0.5)
    return made
