"""A client that shows each packet."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Self, TypeVar

from ildm.mqtt import ConnAck, Connect, Disconnect, Framer, Packet, Version, decode
from tests.plugins.commands import PATIENCE

P = TypeVar("P", bound=Packet)


class RawClient:
    """Sends packets and shows those that come back; acknowledges nothing by itself."""

    def __init__(self, port: int, client_id: str, version: Version) -> None:
        self.version = version
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._framer = Framer()
        self._frames: list[bytes] = []
        self.send(Connect(client_id=client_id, version=version))
        assert self.expect(ConnAck).reason_code == 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._socket:
            self.send(Disconnect())

    def send(self, packet: Packet) -> None:
        self._socket.sendall(packet.encode(self.version))

    def expect(self, kind: type[P]) -> P:
        """The next packet, which must be of that kind."""
        while not self._frames:
            data = self._socket.recv(65536)
            assert data, "the connection was closed"
            self._frames.extend(self._framer.feed(data))
        packet = decode(self._frames.pop(0), self.version)
        assert isinstance(packet, kind)
        return packet
