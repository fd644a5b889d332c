"""A node with a filter that decides when the test says so."""

from __future__ import annotations

from typing import Any

from ildm.api import Deferred, Filter, Reject, Session, Source
from ildm.mqtt import Connect, PacketType, Publish, ReasonCode, Version, decode
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.world import World
from tests.support.site import Site

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


class Setting(Site):
    """A node with a filter, its broker and clients."""

    def __init__(self, world: World, kind: type[Filter] = Deciding, **settings: Any) -> None:
        super().__init__(world, "a", None, [("decides", kind)], **settings)
        self.filter: Any = self.node.dispatch.loaded[0].plugin
        self.filter.waiting = []

    def client(self, client_id: str = "c", connect: Connect | None = None, **fields: Any) -> MiniClient:
        return super().client(client_id, connect, **{"version": Version.V5, **fields})

    @property
    def payloads(self) -> list[bytes]:
        """What the broker has."""
        return [message.payload for _, message in self.broker.published]
