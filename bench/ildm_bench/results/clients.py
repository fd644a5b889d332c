"""MQTT clients for measurements that the load generator cannot do: few, in one event loop."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any, Self

from ildm.mqtt import (
    ConnAck,
    Connect,
    Framer,
    Packet,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Version,
    decode,
)
from ildm.testing.live.process import ProcessError

PATIENCE = 60.0
"""Seconds for an answer."""
LARGEST = 1 << 20
"""Bytes of a packet."""

Arrived = Callable[[Publish], None]


class Client(asyncio.Protocol):
    """A client of MQTT 3.1.1 without a session; QoS 0 and 1. Use :meth:`connect`."""

    def __init__(self, client_id: str, arrived: Arrived | None) -> None:
        self.client_id = client_id
        self._arrived = arrived
        self._framer = Framer(LARGEST)
        self._waiting: dict[int, asyncio.Future[Packet]] = {}
        self._ids = itertools.cycle(range(1, 65536))
        self._transport: Any = None

    @classmethod
    async def connect(cls, address: tuple[str, int], client_id: str, arrived: Arrived | None = None) -> Self:
        """Connect; ``arrived`` is called with each message.

        Raises:
            ProcessError: the broker does not want it, or does not answer.
            OSError: nobody is there.
        """
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(lambda: cls(client_id, arrived), *address)
        answer = await client._ask(0, Connect(client_id=client_id, keep_alive=0))
        if not isinstance(answer, ConnAck) or answer.reason_code:
            raise ProcessError(f"{client_id}: {answer}")
        return client

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ProcessError(f"{self.client_id} has lost its connection"))

    def data_received(self, data: bytes) -> None:
        for frame in self._framer.feed(data):
            packet = decode(frame, Version.V311)
            match packet:
                case Publish():
                    if packet.packet_id is not None:
                        self._transport.write(PubAck(packet_id=packet.packet_id).encode(Version.V311))
                    if self._arrived is not None:
                        self._arrived(packet)
                case ConnAck():
                    self._answered(0, packet)
                case PubAck() | SubAck() | UnsubAck():
                    self._answered(packet.packet_id, packet)

    async def subscribe(self, topic_filter: str, qos: int = 0) -> int:
        """The code of the SUBACK."""
        packet_id = next(self._ids)
        wanted = [Subscription(topic_filter=topic_filter, qos=qos)]
        answer = await self._ask(packet_id, Subscribe(packet_id=packet_id, subscriptions=wanted))
        assert isinstance(answer, SubAck)
        return answer.reason_codes[0]

    async def unsubscribe(self, topic_filter: str) -> None:
        packet_id = next(self._ids)
        await self._ask(packet_id, Unsubscribe(packet_id=packet_id, topic_filters=[topic_filter]))

    async def publish(self, topic: str, payload: bytes, qos: int = 0) -> None:
        """Returns at QoS 1 when it is acknowledged, at QoS 0 at once."""
        if qos == 0:
            self._transport.write(Publish(topic=topic, payload=payload).encode(Version.V311))
            return
        packet_id = next(self._ids)
        await self._ask(packet_id, Publish(topic=topic, payload=payload, qos=1, packet_id=packet_id))

    def close(self) -> None:
        self._transport.close()

    async def _ask(self, packet_id: int, packet: Packet) -> Packet:
        future: asyncio.Future[Packet] = asyncio.get_running_loop().create_future()
        self._waiting[packet_id] = future
        self._transport.write(packet.encode(Version.V311))
        try:
            async with asyncio.timeout(PATIENCE):
                return await future
        except TimeoutError:
            raise ProcessError(f"{self.client_id}: no answer to {type(packet).__name__}") from None
        finally:
            del self._waiting[packet_id]

    def _answered(self, packet_id: int, packet: Packet) -> None:
        future = self._waiting.get(packet_id)
        if future is not None and not future.done():
            future.set_result(packet)
