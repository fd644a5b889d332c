"""The handshakes of a client of the load; what follows them is in `publisher` and `subscriber`."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any

from ildm.mqtt import (
    ConnAck,
    Connect,
    Framer,
    IldmError,
    MqttError,
    Packet,
    PacketType,
    SubAck,
    Version,
    decode,
)

MAX_PACKET = 1 << 24
TIMEOUT = 30.0
"""Seconds that a target has for CONNACK and for SUBACK."""
TOGETHER = 100
"""Connections that may be opening at a time."""


class LoadError(IldmError):
    """The load cannot be put on: what was refused, and by whom."""


class Connection:
    """An MQTT connection during its handshake (an `asyncio.Protocol`)."""

    def __init__(self, client_id: str, target: str, version: Version) -> None:
        self.client_id = client_id
        self.target = target
        self.version = version
        self.transport: Any = None
        self.closed: str | None = None
        """Why the connection has ended."""
        self.blocked = False
        self._ended = False
        self._framer = Framer(MAX_PACKET)
        self._waiting: asyncio.Future[Packet] | None = None
        self._loop = asyncio.get_running_loop()

    async def connect(self) -> ConnAck:
        """Open the connection.

        Raises:
            LoadError: the target refuses, is silent or cannot be reached.
        """
        host, _, port = self.target.rpartition(":")
        connect = Connect(client_id=self.client_id, keep_alive=0, version=self.version)
        try:
            async with asyncio.timeout(TIMEOUT):
                await self._loop.create_connection(lambda: self, host, int(port))  # type: ignore[type-var]  # duck-typed
                answer = await self.ask(connect)
        except (OSError, TimeoutError) as error:
            raise LoadError(
                f"client {self.client_id} cannot connect to {self.target}: {_text(error)}"
            ) from error
        if not isinstance(answer, ConnAck) or answer.reason_code != 0:
            raise LoadError(f"{self.target} refuses {self.client_id}: {answer}")
        return answer

    async def subscribe(self, packet: Any) -> None:
        """Send SUBSCRIBE and wait for what was granted.

        Raises:
            LoadError: the filter was refused, granted with a smaller QoS, or nothing came.
        """
        try:
            async with asyncio.timeout(TIMEOUT):
                answer = await self.ask(packet)
        except (OSError, TimeoutError) as error:
            raise LoadError(f"{self.client_id} got no SUBACK from {self.target}: {_text(error)}") from error
        (subscription,) = packet.subscriptions
        if not isinstance(answer, SubAck) or answer.reason_codes[0] > 2:
            raise LoadError(f"{self.target} refuses {subscription.topic_filter!r}: {answer}")
        if answer.reason_codes[0] != subscription.qos:
            granted = f"QoS {answer.reason_codes[0]} of {subscription.qos}"
            raise LoadError(f"{self.target} grants {granted} for {subscription.topic_filter!r}")

    async def ask(self, packet: Any) -> Packet:
        """Send a packet and wait for the next that comes back, beside messages of others (MQTT-3.8.4-1)."""
        if self.closed is not None:
            raise ConnectionError(self.closed)
        self._waiting = self._loop.create_future()
        self.transport.write(packet.encode(self.version))
        return await self._waiting

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._framer.feed(data):
                if frame[0] >> 4 == PacketType.PUBLISH:
                    continue
                packet = decode(frame, self.version)
                if self._waiting is not None and not self._waiting.done():
                    self._waiting.set_result(packet)
        except MqttError as error:
            self.lost(f"{self.target} sent what is no MQTT: {error}")
            self.transport.abort()

    def eof_received(self) -> None:
        pass

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost(_text(exc) if exc else "closed by the target")

    def lost(self, reason: str) -> None:
        """The connection is of no more use."""
        if self.closed is None and not self._ended:
            self.closed = reason
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionError(reason))

    def pause_writing(self) -> None:
        self.blocked = True

    def resume_writing(self) -> None:
        self.blocked = False

    def abort(self) -> None:
        """End the connection; that it closes is then nobody's fault."""
        self._ended = True
        if self.transport is not None:
            self.transport.abort()


async def in_parts(
    clients: Sequence[Any], action: Callable[[Any], Any], rate: float = float("inf"), together: int = TOGETHER
) -> None:
    """Do something with all clients, some at a time and not more than ``rate`` in a second; the first
    failure ends it."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    for first in range(0, len(clients), together):
        await asyncio.sleep(max(0.0, begun + first / rate - loop.time()))
        tasks = [asyncio.ensure_future(action(client)) for client in clients[first : first + together]]
        try:
            await asyncio.gather(*tasks)
        finally:
            # where one has failed, the others would go on to connect after the load was given up
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
