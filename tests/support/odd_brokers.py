"""Brokers of a world that answer, judge or keep otherwise than its plain ones."""

from __future__ import annotations

import itertools
from typing import Any

from ildm.config import Address
from ildm.mqtt import Connect, Disconnect, PubAck, Publish, PubRec, Version, decode
from ildm.testing.virtual.broker import Broker, Connection
from ildm.testing.virtual.makes import PLAIN
from ildm.testing.virtual.world import World
from tests.support.site import Site


class Answers:
    """Stands between a site's broker and its clients: refuses topics, or keeps answers until let go."""

    def __init__(self, site: Site) -> None:
        self.refused: dict[str, int] = {}
        self.keep = False
        self.kinds: Any = PubAck | PubRec
        self.disconnects = 0
        self._kept: list[tuple[Connection, Any]] = []
        site.broker.takes, site.broker.gives = self._takes, self._gives

    def _takes(self, connection: Connection, packet: Any) -> bool:
        if connection.client_id.startswith("ildm-"):
            return True
        self.disconnects += isinstance(packet, Disconnect)
        code = self.refused.get(packet.topic, 0) if isinstance(packet, Publish) else 0
        if code and packet.qos:
            kind = PubAck if packet.qos == 1 else PubRec
            connection.put(kind(packet_id=packet.packet_id, reason_code=code))
        return not code

    def _gives(self, connection: Connection, packet: Any) -> bool:
        kept = self.keep and not connection.client_id.startswith("ildm-") and isinstance(packet, self.kinds)
        if kept:
            self._kept.append((connection, packet))
        return not kept

    def let_go(self, *packet_ids: int) -> None:
        """Send what was kept; with packet identifiers those answers only, in that order."""
        if packet_ids:
            by_id = {packet.packet_id: (connection, packet) for connection, packet in self._kept}
            chosen = [by_id[packet_id] for packet_id in packet_ids]
        else:
            self.keep = False
            chosen = self._kept
        self._kept = [kept for kept in self._kept if kept not in chosen]
        for connection, packet in chosen:
            connection.send(packet)


def injected(site: Site) -> list[tuple[str, bytes]]:
    return [(p.topic, p.payload) for i, p in site.broker.published if i.startswith("ildm-")]


class Keeper(Broker):
    """Accepts every client, keeps the bytes that came after CONNECT, and judges nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.raw: dict[str, bytes] = {}

    def connection(self) -> Connection:
        return KeptConnection(self)


class KeptConnection(Connection):
    def data_received(self, data: bytes) -> None:
        assert isinstance(self.broker, Keeper)
        if self.client_id.startswith("ildm-"):
            super().data_received(data)
        elif self.client_id:
            self.broker.raw[self.client_id] += data
        else:
            frames = self.framer.feed(data)
            if frames:
                self._received(decode_connect(frames[0]))
                self.broker.flush()
                self.broker.raw[self.client_id] = b"".join(frames[1:])


def decode_connect(frame: bytes) -> Connect:
    packet = decode(b"\x10" + frame[1:], Version.V311)
    assert isinstance(packet, Connect)
    return packet


def keeper_at(site: Site) -> Keeper:
    keeper = Keeper()
    site.use(keeper)
    return keeper


def before_brokers(world: World, names: str, speaks_5: bool, **settings: Any) -> list[Site]:
    """Sites in a row whose brokers speak MQTT 5, or 3.1.1 at most."""
    sites = [Site(world, name, "sf", **settings) for name in names]
    for site in sites:
        site.broker.make = PLAIN._replace(speaks_5=speaks_5)
    for before, site in itertools.pairwise(sites):
        site.node.links.add(Address(before.name, 2), False)
    world.run(3)
    return sites
