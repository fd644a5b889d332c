"""A node with a filter that decides when the test says so."""

from __future__ import annotations

from typing import Any

from ildm.api import Deferred, Filter, Reject, Session, Source
from ildm.config import Address
from ildm.core.node import Node
from ildm.mqtt import Connect, PacketType, Publish, ReasonCode, Version, decode
from ildm.testing.virtual.broker import Broker
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.driver import WorldDriver
from ildm.testing.virtual.node import make_node, plugin_specs
from ildm.testing.virtual.world import World

OUR_MESSAGES = frozenset({(Source.CLIENT, PacketType.PUBLISH)})
TIMEOUT = 5.0


class Deciding(Filter):
    """Rejects with what the payload says, or keeps the decision in ``waiting``."""

    wants = OUR_MESSAGES
    waiting: list[tuple[bytes, Deferred[Any]]]

    def filter(self, session: Session, message: bytes) -> Any:
        packet = decode(message, session.version)
        assert isinstance(packet, Publish)
        if packet.payload.startswith(b"0x"):
            code, _, text = packet.payload.decode().partition(" ")
            return Reject(ReasonCode(int(code, 16)), text)
        if packet.payload.startswith(b"later"):
            self.waiting.append((message, Deferred()))
            return self.waiting[-1][1]
        return message

    def decide(self, number: int, decision: Any = "pass") -> None:
        message, deferred = self.waiting[number]
        deferred.decide(message if decision == "pass" else decision)


class Setting:
    """A node with a filter, its broker and clients."""

    def __init__(self, world: World, kind: type[Filter] = Deciding, **settings: Any) -> None:
        self.world = world
        self.broker = Broker()
        world.listen(Address("a", 3), self.broker.connection)
        self.node: Node = make_node(world, "a", plugin_specs(None, None, [("decides", kind)]), **settings)
        self.filter: Any = self.node.dispatch.loaded[0].plugin
        self.filter.waiting = []
        self.node.start({})

    def client(self, version: Version = Version.V5, client_id: str = "c", **fields: Any) -> MiniClient:
        one = MiniClient(version)
        self.world.connect(Address("a", 1), one)
        one.send(Connect(client_id=client_id, version=version, **fields))
        self.world.run(0.1)
        return one

    @property
    def payloads(self) -> list[bytes]:
        """What the broker has."""
        return [message.payload for _, message in self.broker.published]

    def logged(self, event: str) -> list[dict[str, object]]:
        assert isinstance(self.node.driver, WorldDriver)
        return [fields for _, what, fields in self.node.driver.logged if what == event]
