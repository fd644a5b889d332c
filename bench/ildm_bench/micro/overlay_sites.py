"""What benchmarks of a live overlay share: its sites, MQTT clients of them, and what the nodes tell.

A site is a node, as a process, before a Mosquitto of its own.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ildm.admin.client import AdminClient
from ildm.admin.view import AdminError
from ildm.mqtt import (
    ConnAck,
    Connect,
    Framer,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    Subscription,
    Version,
    decode,
)
from ildm.testing.live.brokers import new_broker
from ildm.testing.live.node import NodeProcess
from ildm.testing.live.process import POLL, ProcessError
from ildm.testing.live.site import Choice

PATIENCE = 60.0
"""Seconds that sites have to form one overlay, and a client to get an answer."""


@contextmanager
def sites(algorithms: Sequence[Choice]) -> Iterator[list[NodeProcess]]:
    """A node for each, ``node-0`` and so on; the first is the others' neighbour. They end with the block."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        nodes: list[NodeProcess] = []
        for index, algorithm in enumerate(algorithms):
            broker = new_broker("mosquitto", Path(name) / f"broker-{index}")
            broker.start()
            stack.callback(broker.kill)
            node_id = f"node-{index}"
            node = NodeProcess(Path(name) / node_id, broker.address, algorithm, node_id=node_id)
            if nodes:
                node.document["link"]["neighbors"] = [nodes[0].link_address]
            node.start()
            stack.callback(node.kill)
            nodes.append(node)
        yield nodes


class Client(asyncio.Protocol):
    """An MQTT 3.1.1 client that acknowledges what comes, and counts it."""

    def __init__(self) -> None:
        self.received = 0
        self.under_way = 0
        """Own messages of QoS 1 without an acknowledgement yet."""
        self._framer = Framer(1 << 24)
        self._changed = asyncio.Event()
        self._answers = 0
        self._numbered = 0
        self._transport: Any = None

    def arrived(self, message: Publish) -> None:
        """A message has come; for subclasses that look at it."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for frame in self._framer.feed(data):
            match decode(frame, Version.V311):
                case ConnAck() | SubAck():
                    self._answers += 1
                case PubAck():
                    self.under_way -= 1
                case Publish(packet_id=packet_id) as message:
                    self.received += 1
                    self.arrived(message)
                    if packet_id is not None:
                        self._transport.write(PubAck(packet_id=packet_id).encode(Version.V311))
        self._changed.set()

    def write(self, data: bytes, acknowledged: int) -> None:
        """Send packets at once, of which so many will be acknowledged."""
        self.under_way += acknowledged
        self._transport.write(data)

    async def ask(self, packet: Connect | Subscribe) -> None:
        """Send what is answered, and await that; raises TimeoutError."""
        answers = self._answers
        self._transport.write(packet.encode(Version.V311))
        await self.until(lambda: self._answers > answers)

    def publish(self, topic: str, payload: bytes, qos: int) -> None:
        """Publish one message; its acknowledgement is not waited for."""
        packet_id = None
        if qos:
            packet_id = self._numbered % 0xFFFF + 1
            self._numbered += 1
            self.under_way += 1
        message = Publish(topic=topic, payload=payload, qos=qos, packet_id=packet_id)
        self._transport.write(message.encode(Version.V311))

    async def until(self, reached: Callable[[], bool]) -> None:
        """Return when what comes has made it true; raises TimeoutError."""
        async with asyncio.timeout(PATIENCE):
            while not reached():
                self._changed.clear()
                await self._changed.wait()


SomeClient = TypeVar("SomeClient", bound=Client)


async def connected(
    kind: type[SomeClient], node: NodeProcess, client_id: str, filters: Sequence[str] = ()
) -> SomeClient:
    """A client of that kind at the node, subscribed to the filters with QoS 1."""
    _, client = await asyncio.get_running_loop().create_connection(kind, *node.address)
    await client.ask(Connect(client_id=client_id, keep_alive=0))
    if filters:
        wanted = [Subscription(topic_filter=topic_filter, qos=1) for topic_filter in filters]
        await client.ask(Subscribe(packet_id=1, subscriptions=wanted))
    return client


def overlay(node: NodeProcess) -> dict[str, Any]:
    """The overlay as a node sees it; without keys while it has not begun to join."""
    try:
        return dict(AdminClient(node.admin_socket).overlay())
    except AdminError:
        return {"keys": []}


def whole(nodes: Sequence[NodeProcess]) -> bool:
    """Whether the keys of these nodes, each of which subscribes, form one list at level 0."""
    rows = {row["key"]: row for node in nodes for row in overlay(node)["keys"]}
    subscribers = [row for row in rows.values() if row["facts"]["role"] == "subscriber"]
    if sum(row["status"] == "in" for row in subscribers) < len(nodes):
        return False
    here = next((key for key, row in rows.items() if row["levels"] and row["levels"][0][0] is None), None)
    seen: list[str] = []
    while here is not None and here in rows and rows[here]["levels"] and len(seen) < len(rows):
        seen.append(here)
        here = rows[here]["levels"][0][1]
    return here is None and len(seen) == len(rows)


def figures(nodes: Sequence[NodeProcess]) -> Counter[str]:
    """Counters of the nodes together."""
    total: Counter[str] = Counter()
    for node in nodes:
        status = node.status()
        if status is not None:
            total.update(status["counters"])
    return total


async def until(reached: Callable[[], bool], what: str) -> None:
    """Ask, in a thread, until it is so; raises ProcessError with ``what`` it was about."""
    give_up = time.monotonic() + PATIENCE
    while not await asyncio.to_thread(reached):
        if time.monotonic() > give_up:
            raise ProcessError(f"{what}: not within {PATIENCE:g} s")
        await asyncio.sleep(POLL)
