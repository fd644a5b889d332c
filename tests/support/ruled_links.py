"""Two sites whose link has rules, and what crosses it."""

from __future__ import annotations

from typing import Any

from ildm.config import Address
from ildm.mqtt import Publish
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.world import World
from tests.support.site import Site

HQ = {"allow": ["#"], "local": "plant/", "remote": "hq/plant/"}


def pair(world: World, algorithm: str, rules: list[dict[str, Any]]) -> tuple[Site, Site]:
    """Sites a, with the rules, and b."""
    a = Site(world, "a", algorithm, link={"rules": rules})
    b = Site(world, "b", algorithm)
    a.node.links.add(Address("b", 2), False)
    world.run(2)
    assert a.links() == {"b": "active"}
    return a, b


def injected(site: Site) -> list[tuple[str, int, bool]]:
    return [
        (p.topic, p.qos, p.retain) for client_id, p in site.broker.published if client_id.startswith("ildm")
    ]


def publish(world: World, site: Site, *topics: str, **fields: Any) -> MiniClient:
    client = site.client("pub", properties={})
    for number, topic in enumerate(topics, 1):
        packet_id = number if fields.get("qos") else None
        client.send(Publish(topic=topic, payload=b"x", packet_id=packet_id, **fields))
    world.run(2)
    return client
