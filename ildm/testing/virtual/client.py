"""A client of a few lines for worlds in virtual time."""

from __future__ import annotations

from typing import Any

from ildm.mqtt import Framer, PubAck, Publish, Version, decode


class MiniClient:
    """A client in a world; keeps every packet it got."""

    def __init__(self, version: Version = Version.V311) -> None:
        self.version = version
        self.framer = Framer()
        self.transport: Any = None
        self.packets: list[Any] = []
        self.closed = False
        self.acknowledges = False
        """It answers messages of QoS 1."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for frame in self.framer.feed(data):
            packet = decode(frame, self.version)
            self.packets.append(packet)
            if self.acknowledges and isinstance(packet, Publish) and packet.qos == 1 and packet.packet_id:
                self.send(PubAck(packet_id=packet.packet_id))

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True

    def eof_received(self) -> None:
        pass

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass

    def send(self, packet: Any) -> None:
        self.transport.write(packet.encode(self.version))

    def got(self, type: type) -> list[Any]:
        return [packet for packet in self.packets if isinstance(packet, type)]

    @property
    def messages(self) -> list[tuple[str, bytes]]:
        return [(packet.topic, packet.payload) for packet in self.got(Publish)]
