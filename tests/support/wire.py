"""The wire of a client between two ends that keep what is written to them."""

from __future__ import annotations

from typing import Any

from ildm.core.local.wire import ClientWire
from ildm.core.session import BaseSession
from ildm.mqtt import MqttError
from ildm.testing.virtual.world import World
from tests.support.site import Site


class Pipe:
    """Keeps what is written to one side."""

    def __init__(self) -> None:
        self.written = b""
        self.reading = True

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str) -> Any:
        return None

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Ends:
    """A wire between two connections."""

    def __init__(self, world: World) -> None:
        site = Site(world, "a", None)
        self.parts = site.node.local
        self.client, self.broker = Pipe(), Pipe()
        self.errors: list[Any] = []
        self.went_on = 0
        session = BaseSession(site.node.driver)
        session.connection_made(self.client)
        self.wire = ClientWire(self.parts, session, self)
        self.wire.broker = BaseSession(site.node.driver)
        self.wire.broker.connection_made(self.broker)

    def fail(self, error: MqttError) -> None:
        self.errors.append(error)

    def go_on(self) -> None:
        self.went_on += 1
