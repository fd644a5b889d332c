"""Retained messages of sites: set, read at the broker, and remembered by a node."""

from __future__ import annotations

from typing import Any

from ildm.api import Stamp
from ildm.config import LimitsConfig
from ildm.core.calendar import Calendar
from ildm.core.counters import Counters
from ildm.core.transfer.retained import RetainedStore
from ildm.mqtt import Property, Publish
from ildm.testing.virtual.driver import WorldDriver
from ildm.testing.virtual.store import MemoryStore
from ildm.testing.virtual.world import World
from tests.support.site import Site


def value(site: Site, topic: str) -> bytes | None:
    """What the broker of a site would serve to a new subscriber."""
    kept = None
    for _, packet in site.broker.published:
        if packet.topic == topic and packet.retain:
            kept = packet.payload or None
    return kept


def set_value(site: Site, topic: str, payload: bytes) -> None:
    client = site.client(f"setter-{site.name}")
    client.send(Publish(topic=topic, payload=payload, retain=True, qos=1, packet_id=1))


def cut(site: Site, far: str) -> None:
    for session in site.node.links.links[far].open_sessions:
        session.abort()


class Memory:
    """What a node remembers, on its own."""

    def __init__(self, expiry: float = 1e6, **limits: Any) -> None:
        self.expiry = expiry
        self.world = World()
        self.driver = WorldDriver(self.world, "n")
        self.counters, self.store = Counters(), MemoryStore()
        self.limits = LimitsConfig(**limits)
        self.retained = self.again()

    def again(self, calendar: Calendar | None = None) -> RetainedStore:
        """The memory of the next life of the node."""
        retained = RetainedStore(
            self.driver, "n", self.limits, self.counters, self.store, self.expiry, calendar
        )
        retained.restore()
        self.retained = retained
        return retained

    def set(self, topic: str, payload: bytes = b"x", **properties: Any) -> Stamp:
        names = {Property[name.upper()]: value for name, value in properties.items()}
        return self.retained.entered(Publish(topic=topic, payload=payload, retain=True, properties=names))
