"""An asyncio MQTT client for tests: every version, every packet, nothing done behind the test's back."""

from __future__ import annotations

import asyncio
import itertools
import ssl
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Self, TypeVar

from ildm.mqtt import (
    ConnAck,
    Connect,
    Disconnect,
    Framer,
    Packet,
    PacketType,
    Properties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Version,
    Will,
    decode,
)

PATIENCE = 120.0
"""Seconds until a wait is given up: a bound for failures, never reached by a test that passes."""

PacketT = TypeVar("PacketT", bound=Packet)
Address = tuple[str, int]


async def within(awaitable: Awaitable[Any], what: str, seconds: float = PATIENCE) -> Any:
    """Await something for so many seconds at most; the AssertionError says what did not come."""
    try:
        async with asyncio.timeout(seconds):
            return await awaitable
    except TimeoutError:
        raise AssertionError(f"{what}: not within {seconds:g} s") from None


async def until(condition: Callable[[], object], what: str = "") -> None:
    """Wait for a state inside a node that no event tells of."""

    async def poll() -> None:
        while not condition():  # noqa: ASYNC110 - the nodes have no event for it
            await asyncio.sleep(0.005)

    await within(poll(), what or "condition")


class Client(asyncio.Protocol):
    """Use `Client.connect`. `acknowledge` False leaves QoS 1 and 2 messages to the test."""

    def __init__(self, version: Version, acknowledge: bool) -> None:
        self.version = version
        self.acknowledge = acknowledge
        self.transport: asyncio.Transport
        self.connack: ConnAck
        self.end: Disconnect | None = None
        """The server's DISCONNECT."""
        self.closed = asyncio.Event()
        self.received = bytearray()
        """Every byte the server has sent."""
        self.max_unacknowledged = 0
        self.unacknowledged: set[int] = set()
        self._framer = Framer(1 << 28)
        self._messages: asyncio.Queue[Publish] = asyncio.Queue()
        self._packets: asyncio.Queue[Packet] = asyncio.Queue()
        self._answers: dict[tuple[type, int], asyncio.Future[Any]] = {}
        self._ids = itertools.cycle(range(1, 65536))

    # connection -------------------------------------------------------------------------------

    @classmethod
    async def open(
        cls,
        address: Address,
        version: Version = Version.V311,
        acknowledge: bool = True,
        tls: ssl.SSLContext | None = None,
    ) -> Self:
        """Connect by TCP, or TLS, alone."""
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(lambda: cls(version, acknowledge), *address, ssl=tls)
        return client

    @classmethod
    async def connect(
        cls,
        address: Address,
        client_id: str | None = None,
        *,
        version: Version = Version.V311,
        clean: bool = True,
        keep_alive: int = 60,
        will: Will | None = None,
        properties: Properties | None = None,
        acknowledge: bool = True,
        accepted: bool = True,
        tls: ssl.SSLContext | None = None,
    ) -> Self:
        """CONNECT and await CONNACK, which must accept the client unless `accepted` is False."""
        client = await cls.open(address, version, acknowledge, tls)
        client.send(
            Connect(
                client_id=uuid.uuid4().hex[:20] if client_id is None else client_id,
                version=version,
                clean_start=clean,
                keep_alive=keep_alive,
                will=will,
                properties=properties or {},
            )
        )
        client.connack = await client.packet(ConnAck)
        assert (client.connack.reason_code == 0) is accepted, client.connack
        return client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()
        for future in self._answers.values():
            if not future.done():
                future.set_exception(ConnectionError("the connection has ended"))

    async def wait_closed(self) -> None:
        await within(self.closed.wait(), "the end of the connection")

    def drop(self) -> None:
        """End the TCP connection without DISCONNECT (MQTT-3.1.2-8)."""
        self.transport.abort()

    async def disconnect(self, reason_code: int = 0, properties: Properties | None = None) -> None:
        """DISCONNECT, then wait for the end."""
        if not self.closed.is_set():
            self.send(Disconnect(reason_code=reason_code, properties=properties or {}))
            self.transport.close()
        await self.wait_closed()

    # receiving --------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self.received += data
        for frame in self._framer.feed(data):
            # a broker of 3.1.1 answers a CONNECT of version 5 in its own format
            old_connack = frame[0] == 0x20 and len(frame) == 4
            self._packet(decode(frame, Version.V311 if old_connack else self.version))

    def _packet(self, packet: Packet) -> None:
        match packet:
            case Publish():
                self._publish(packet)
            case PubRel():
                self.unacknowledged.discard(packet.packet_id)
                self.send(PubComp(packet_id=packet.packet_id))
            case PubAck() | PubRec() | PubComp() | SubAck() | UnsubAck():
                future = self._answers.get((type(packet), packet.packet_id))
                if future is None and isinstance(packet, PubAck):
                    # RabbitMQ completes a QoS 2 publication with PUBACK
                    future = self._answers.get((PubRec, packet.packet_id))
                if future is not None and not future.done():
                    future.set_result(packet)
                else:
                    self._packets.put_nowait(packet)
            case Disconnect():
                self.end = packet
            case _:
                self._packets.put_nowait(packet)

    def _publish(self, packet: Publish) -> None:
        self._messages.put_nowait(packet)
        if packet.packet_id is None:
            return
        self.unacknowledged.add(packet.packet_id)
        self.max_unacknowledged = max(self.max_unacknowledged, len(self.unacknowledged))
        if self.acknowledge:
            self.answer(packet)

    def answer(self, packet: Publish) -> None:
        """Acknowledge one message as its QoS demands (PUBREL is answered by itself)."""
        assert packet.packet_id is not None
        if packet.qos == 1:
            self.unacknowledged.discard(packet.packet_id)
            self.send(PubAck(packet_id=packet.packet_id))
        else:
            self.send(PubRec(packet_id=packet.packet_id))

    async def receive(self) -> Publish:
        """The next message."""
        message: Publish = await within(self._messages.get(), "a message")
        return message

    async def receive_all(self, count: int) -> list[Publish]:
        return [await self.receive() for _ in range(count)]

    async def receive_until(self, payload: bytes) -> list[Publish]:
        """All messages before the first with that payload: how a test sees what did *not* come."""
        messages = []
        while (message := await self.receive()).payload != payload:
            messages.append(message)
        return messages

    @property
    def waiting(self) -> int:
        """Messages that have arrived and were not taken."""
        return self._messages.qsize()

    async def packet(self, kind: type[PacketT]) -> PacketT:
        """The next packet that is no PUBLISH, which must be of that kind."""
        packet = await within(self._packets.get(), kind.__name__)
        assert isinstance(packet, kind), packet
        return packet

    # sending ----------------------------------------------------------------------------------

    def send(self, packet: Packet | bytes) -> None:
        self.transport.write(packet if isinstance(packet, bytes) else packet.encode(self.version))

    def _expect(self, kind: type, packet_id: int) -> asyncio.Future[Any]:
        future = asyncio.get_running_loop().create_future()
        self._answers[kind, packet_id] = future
        return future

    async def _answer_of(self, kind: type, packet_id: int, packet: Packet) -> Any:
        future = self._expect(kind, packet_id)
        self.send(packet)
        try:
            return await within(future, f"{kind.__name__} {packet_id}")
        finally:
            del self._answers[kind, packet_id]

    async def subscribe(
        self, *filters: str | tuple[str, int] | Subscription, properties: Properties | None = None
    ) -> list[int]:
        """Filters (QoS 0), pairs of filter and QoS, or Subscriptions; the codes of the SUBACK."""
        wanted = [
            f
            if isinstance(f, Subscription)
            else Subscription(topic_filter=f)
            if isinstance(f, str)
            else Subscription(topic_filter=f[0], qos=f[1])
            for f in filters
        ]
        packet_id = next(self._ids)
        packet = Subscribe(packet_id=packet_id, subscriptions=wanted, properties=properties or {})
        codes: list[int] = (await self._answer_of(SubAck, packet_id, packet)).reason_codes
        return codes

    async def unsubscribe(self, *filters: str) -> None:
        packet_id = next(self._ids)
        packet = Unsubscribe(packet_id=packet_id, topic_filters=list(filters))
        await self._answer_of(UnsubAck, packet_id, packet)

    async def publish(
        self,
        topic: str,
        payload: bytes = b"",
        qos: int = 0,
        *,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> int:
        """Returns when the handshake of the QoS is complete: the reason code of PUBACK or PUBREC."""
        packet = Publish(topic=topic, payload=payload, qos=qos, retain=retain, properties=properties or {})
        if qos == 0:
            self.send(packet)
            return 0
        packet.packet_id = packet_id = next(self._ids)
        if qos == 1:
            code: int = (await self._answer_of(PubAck, packet_id, packet)).reason_code
            return code
        answer = await self._answer_of(PubRec, packet_id, packet)
        if isinstance(answer, PubRec) and answer.reason_code < 0x80:
            await self._answer_of(PubComp, packet_id, PubRel(packet_id=packet_id))
        return int(answer.reason_code)

    async def publish_all(self, topic: str, payloads: list[bytes], qos: int = 0, window: int = 100) -> None:
        """Publish in order, with at most `window` handshakes under way (PUBLISH go out in this order)."""
        if qos == 0:
            for payload in payloads:
                self.send(Publish(topic=topic, payload=payload))
            return
        under_way: list[asyncio.Task[int]] = []
        for payload in payloads:
            under_way.append(asyncio.ensure_future(self.publish(topic, payload, qos)))
            if len(under_way) >= window:
                await under_way.pop(0)
        await asyncio.gather(*under_way)


__all__ = ["PATIENCE", "Client", "PacketType", "until", "within"]
