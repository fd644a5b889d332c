"""Sites in a ring, and what becomes of its links."""

from __future__ import annotations

from ildm.api import Algorithm
from ildm.config import Address
from ildm.mqtt import Publish
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.world import World
from tests.support.site import Site, row


def ring(world: World, names: str, algorithm: str | type[Algorithm] = "pf", **settings: object) -> list[Site]:
    """Sites in a row with a spare link between the first and the last, which stays blocked."""
    sites = row(world, names, algorithm, **settings)
    sites[-1].node.links.add(Address(names[0], 2), False)
    world.run(5)
    assert sites[-1].links()[names[0]] == "not"
    return sites


class Publisher:
    """Numbered messages, each acknowledged by its broker."""

    def __init__(self, site: Site, qos: int) -> None:
        self.client: MiniClient = site.client(f"p-{site.name}")
        self.site = site
        self.qos = qos
        self.count = 0

    def send(self, number: int) -> None:
        for _ in range(number):
            self.count += 1
            self.client.send(
                Publish(
                    topic=f"{self.site.name}/{self.count}",
                    payload=b"x",
                    qos=self.qos,
                    packet_id=self.count if self.qos else None,
                )
            )
        self.site.world.run(0.2)

    @property
    def topics(self) -> list[str]:
        return [f"{self.site.name}/{i + 1}" for i in range(self.count)]


def cut(near: Site, far: Site, dark: bool) -> None:
    """End the connections between two sites: by a path that goes dark, or at once by a reset."""
    for session in list(near.node.links.links[far.name].open_sessions):
        if dark:
            session.transport.cut = True  # type: ignore[union-attr]
        else:
            session.transport.reset()  # type: ignore[union-attr]
