"""Clients that publish as fast as they may, and the shapes of sites they do it in."""

from __future__ import annotations

from typing import Any

from ildm.config import Address
from ildm.mqtt import Connect, PubAck, PubComp, Publish, PubRec, PubRel
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.world import World
from tests.support.site import Site, row

BLOCK: dict[str, Any] = {
    "overflow": "block",
    "queue_messages": 50,
    "inflight": 40,
}


class Load(MiniClient):
    """Publishes so many messages, with no more than ``window`` of them under way, as fast as it may."""

    def __init__(self, site: Site, qos: int, count: int, window: int = 20, name: str = "load") -> None:
        super().__init__()
        self.site = site
        self.name = name
        self.qos = qos
        self.left = count
        self.acknowledged = 0
        self.under_way = 0
        self.window = window
        self.number = 0
        self.topics: list[str] = []
        self.send_connect()

    def send_connect(self) -> None:
        self.site.world.connect(Address(self.site.name, 1), self)
        self.send(Connect(client_id=self.name))
        self.site.world.run(0.1)
        self._more()

    def _more(self) -> None:
        while self.left and self.under_way < self.window and not self.closed:
            self.left -= 1
            self.under_way += 1
            self.number += 1
            topic = f"{self.name}/{self.site.name}/{self.number}"
            self.topics.append(topic)
            packet_id = self.number % 60_000 + 1
            self.send(Publish(topic=topic, payload=b"x" * 50, qos=self.qos, packet_id=packet_id))

    def data_received(self, data: bytes) -> None:
        seen = len(self.packets)
        super().data_received(data)
        for packet in self.packets[seen:]:
            if isinstance(packet, PubRec):
                self.send(PubRel(packet_id=packet.packet_id))
            elif isinstance(packet, PubAck | PubComp):
                self.acknowledged += 1
                self.under_way -= 1
        self._more()


def star(world: World, names: str, algorithm: str, **settings: Any) -> list[Site]:
    sites = [Site(world, name, algorithm, **settings) for name in names]
    for leaf in sites[1:]:
        leaf.node.links.add(Address(sites[0].name, 2), False)
    world.run(3)
    return sites


def ring(world: World, names: str, algorithm: str, **settings: Any) -> list[Site]:
    sites = row(world, names, algorithm, **settings)
    sites[-1].node.links.add(Address(sites[0].name, 2), False)
    world.run(5)
    return sites


SHAPES = {"row": row, "star": star, "ring": ring}
