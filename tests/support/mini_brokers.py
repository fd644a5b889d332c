"""Brokers of a world that answer, judge or keep otherwise than its plain ones."""

from __future__ import annotations

import itertools
from typing import Any

from ildm.config import Address
from ildm.mqtt import ConnAck, Connect, Disconnect, PubAck, Publish, PubRec, Version
from ildm.testing.virtual.broker import Broker, Connection
from ildm.testing.virtual.world import World
from tests.support.site import Site


def connection_session_present(site: Site) -> None:
    """Let the broker say that it knows the session, as one that keeps sessions does."""
    original = site.broker.connection

    def connection() -> Any:
        made = original()
        send = made.send

        def sending(packet: Any) -> None:
            if isinstance(packet, ConnAck) and not made.received[0].clean_start:
                packet.session_present = True
            send(packet)

        made.send = sending  # type: ignore[method-assign]
        return made

    site.world.listen(Address(site.name, 3), connection)


class Answers:
    """Stands between a site's broker and its clients: refuses topics, or keeps answers until let go."""

    def __init__(self, site: Site) -> None:
        self.refused: dict[str, int] = {}
        self.keep = False
        self.kinds: Any = PubAck | PubRec
        self.disconnects = 0
        self._kept: list[tuple[Any, Any]] = []
        original = site.broker.connection

        def connection() -> Any:
            made = original()
            send, packet = made.send, made._packet

            def sending(answer: Any) -> None:
                if made.client_id.startswith("ildm-") or not isinstance(answer, self.kinds):
                    send(answer)
                elif self.keep:
                    self._kept.append((send, answer))
                else:
                    send(answer)

            def receiving(received: Any) -> None:
                self.disconnects += isinstance(received, Disconnect)
                code = self.refused.get(received.topic, 0) if isinstance(received, Publish) else 0
                if code and not made.client_id.startswith("ildm-"):
                    kind = PubAck if received.qos == 1 else PubRec
                    if received.qos:
                        sending(kind(packet_id=received.packet_id, reason_code=code))
                else:
                    packet(received)

            made.send, made._packet = sending, receiving
            return made

        site.world.listen(Address(site.name, 3), connection)

    def let_go(self, *packet_ids: int) -> None:
        """Send what was kept; with packet identifiers those answers only, in that order."""
        if packet_ids:
            for packet_id in packet_ids:
                found = next(kept for kept in self._kept if kept[1].packet_id == packet_id)
                self._kept.remove(found)
                found[0](found[1])
            return
        self.keep = False
        kept, self._kept = self._kept, []
        for send, answer in kept:
            send(answer)


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
                self._packet(decode_connect(frames[0]))
                self.broker.raw[self.client_id] = b"".join(frames[1:])


def decode_connect(frame: bytes) -> Connect:
    from ildm.mqtt import decode

    packet = decode(b"\x10" + frame[1:], Version.V311)
    assert isinstance(packet, Connect)
    return packet


def keeper_at(world: World, site: Site) -> Keeper:
    keeper = Keeper()
    world.listen(Address(site.name, 3), keeper.connection)
    return keeper


def before_brokers(world: World, names: str, speaks_5: bool, **settings: Any) -> list[Site]:
    """Sites in a row whose brokers speak MQTT 5, or 3.1.1 at most."""
    sites = [Site(world, name, None) for name in names]
    for site in sites:
        site.broker = Broker(speaks_5)
        world.listen(Address(site.name, 3), site.broker.connection)
        site.algorithm = "sf"
        site.settings = settings
        site.start()
    for before, site in itertools.pairwise(sites):
        site.node.links.add(Address(before.name, 2), False)
    world.run(3)
    return sites
