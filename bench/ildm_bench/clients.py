"""MQTT clients for measurements that the load generator cannot do: few, in one event loop."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Self

from ildm.mqtt import (
    ConnAck,
    Connect,
    Framer,
    Packet,
    PacketType,
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
LARGEST = 1 << 24
"""Bytes of a packet."""

Arrived = Callable[[Publish], None]


class Client(asyncio.Protocol):
    """A client of MQTT 3.1.1 without a session; QoS 0 and 1. Use :meth:`connect`."""

    def __init__(self, client_id: str, arrived: Arrived | None = None) -> None:
        self.client_id = client_id
        self.received = 0
        """Messages."""
        self.under_way = 0
        """Own messages of QoS 1 without an acknowledgement yet."""
        self._arrived = arrived
        self._framer = Framer(LARGEST)
        self._waiting: dict[int, asyncio.Future[Packet]] = {}
        self._ids = itertools.cycle(range(1, 65536))
        self._changed = asyncio.Event()
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
                    self.received += 1
                    if packet.packet_id is not None:
                        self._transport.write(PubAck(packet_id=packet.packet_id).encode(Version.V311))
                    self.arrived(packet)
                case ConnAck():
                    self._answered(0, packet)
                case PubAck():
                    self.under_way -= 1
                    self._answered(packet.packet_id, packet)
                case SubAck() | UnsubAck():
                    self._answered(packet.packet_id, packet)
        self._changed.set()

    def arrived(self, message: Publish) -> None:
        """A message has come."""
        if self._arrived is not None:
            self._arrived(message)

    async def subscribe(self, *filters: str, qos: int = 0) -> Sequence[int]:
        """The codes of the SUBACK."""
        packet_id = next(self._ids)
        wanted = [Subscription(topic_filter=topic_filter, qos=qos) for topic_filter in filters]
        answer = await self._ask(packet_id, Subscribe(packet_id=packet_id, subscriptions=wanted))
        assert isinstance(answer, SubAck)
        return answer.reason_codes

    async def unsubscribe(self, topic_filter: str) -> None:
        packet_id = next(self._ids)
        await self._ask(packet_id, Unsubscribe(packet_id=packet_id, topic_filters=[topic_filter]))

    def send(self, topic: str, payload: bytes, qos: int = 0) -> None:
        """Publish; an acknowledgement is counted, not waited for."""
        packet_id = next(self._ids) if qos else None
        message = Publish(topic=topic, payload=payload, qos=qos, packet_id=packet_id)
        self.write(message.encode(Version.V311), qos)

    def write(self, data: bytes, acknowledged: int) -> None:
        """Send packets at once, of which so many will be acknowledged."""
        self.under_way += acknowledged
        self._transport.write(data)

    async def publish(self, topic: str, payload: bytes) -> None:
        """Publish at QoS 1; returns when it is acknowledged."""
        packet_id = next(self._ids)
        self.under_way += 1
        await self._ask(packet_id, Publish(topic=topic, payload=payload, qos=1, packet_id=packet_id))

    async def until(self, reached: Callable[[], bool]) -> None:
        """Return when what comes has made it true; raises TimeoutError."""
        async with asyncio.timeout(PATIENCE):
            while not reached():
                self._changed.clear()
                await self._changed.wait()

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


class Bare(asyncio.Protocol):
    """A client that does not parse what comes; :attr:`ready` when it is accepted and has subscribed."""

    def __init__(self, client_id: str, topic_filter: str | None = None, keep_alive: int = 0) -> None:
        self.client_id = client_id
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: Any = None
        self.writable = True
        self._topic_filter = topic_filter
        self._keep_alive = keep_alive

    async def connect(self, port: int, host: str = "127.0.0.1") -> Self:
        """Connect; returns before it is ready."""
        await asyncio.get_running_loop().create_connection(lambda: self, host, port)
        return self

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        hello = Connect(client_id=self.client_id, keep_alive=self._keep_alive)
        transport.write(hello.encode())

    def data_received(self, data: bytes) -> None:
        """An answer to CONNECT or SUBSCRIBE; for subclasses what follows."""
        if self.ready.done():
            return
        if data[0] >> 4 == PacketType.CONNACK and data[3:4] != b"\0":
            self.ready.set_exception(ConnectionError(f"{self.client_id} was refused: {data.hex(' ')}"))
        elif data[0] >> 4 == PacketType.CONNACK and self._topic_filter is not None:
            wanted = Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter=self._topic_filter)])
            self.transport.write(wanted.encode(Version.V311))
        else:
            self.ready.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ready.done():
            self.ready.set_exception(ConnectionError(f"{self.client_id} was not accepted"))

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True


async def paced(rate: float, count: int) -> AsyncIterator[int]:
    """Numbers from 0 on, so many a second."""
    began = time.monotonic()
    for number in range(count):
        await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
        yield number


async def came_true(reached: Callable[[], bool], seconds: float) -> bool:
    """Whether it became true within so many seconds."""
    give_up = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > give_up:
            return False
        await asyncio.sleep(0.1)
    return True
