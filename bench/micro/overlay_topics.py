"""Many topics of one site in an overlay of three: what opening them costs, and each message afterwards.

Nodes of SG-TBPS, each a process before a Mosquitto of its own. A client of the first publishes QoS 1 on each
of ``site/devNNNNNN/temp``, twice, with 200 messages under way: while nobody listens, for one subscriber of
``site/#`` at the second node, and for 100 of one topic each at the third. CPU and memory are those of the
first node; ``messages`` are those between nodes for each one published, pings and acknowledgements included.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.micro.measure import cpu_seconds, machine, resident_bytes
from bench.micro.overlay_recovery import figures, overlay, until
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

LISTENERS = ("nobody", "site/#", "100 exact")
WINDOW = 200
QUIET = 5.0
"""Seconds for what is under way after the last acknowledgement."""


def topic(number: int) -> str:
    return f"site/dev{number:06}/temp"


class Client(asyncio.Protocol):
    """An MQTT client that counts what comes, and how many of its messages are under way."""

    def __init__(self) -> None:
        self.received = 0
        self.under_way = 0
        self._framer = Framer(1 << 24)
        self._changed = asyncio.Event()
        self._answers = 0
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for frame in self._framer.feed(data):
            match decode(frame, Version.V311):
                case ConnAck() | SubAck():
                    self._answers += 1
                case PubAck():
                    self.under_way -= 1
                case Publish(packet_id=packet_id):
                    self.received += 1
                    if packet_id is not None:
                        self._transport.write(PubAck(packet_id=packet_id).encode(Version.V311))
        self._changed.set()

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    async def ask(self, packet: Connect | Subscribe) -> None:
        """Send what is answered, and await that."""
        answers = self._answers
        self._transport.write(packet.encode(Version.V311))
        await self._until(lambda: self._answers > answers)

    async def publish(self, topics: int) -> None:
        """One message on each topic; returns when all are acknowledged."""
        for number in range(topics):
            await self._until(lambda: self.under_way < WINDOW)
            self.under_way += 1
            message = Publish(topic=topic(number), payload=b"21.5", qos=1, packet_id=number % 0xFFFF + 1)
            self._transport.write(message.encode(Version.V311))
        await self._until(lambda: not self.under_way)

    async def _until(self, reached: Any) -> None:
        async with asyncio.timeout(60):
            while not reached():
                self._changed.clear()
                await self._changed.wait()


async def connected(node: NodeProcess, name: str, filters: list[str]) -> Client:
    _, client = await asyncio.get_running_loop().create_connection(Client, *node.address)
    await client.ask(Connect(client_id=name, keep_alive=0))
    if filters:
        wanted = [Subscription(topic_filter=topic_filter, qos=1) for topic_filter in filters]
        await client.ask(Subscribe(packet_id=1, subscriptions=wanted))
    return client


async def run(nodes: list[NodeProcess], topics: int, listeners: str) -> dict[str, Any]:
    await until(lambda: all(len(overlay(node)["keys"]) == 1 for node in nodes), "the overlay")
    filters = {
        "nobody": [],
        "site/#": ["site/#"],
        "100 exact": [topic(number * topics // 100) for number in range(100)],
    }[listeners]
    listener = await connected(nodes[2 if len(filters) > 1 else 1], "listener", filters)
    await asyncio.sleep(QUIET)
    gateway = await connected(nodes[0], "gateway", [])
    result: dict[str, Any] = {"topics": topics, "listeners": listeners}
    assert nodes[0].process is not None
    pid = nodes[0].process.pid
    before = resident_bytes(pid)
    for phase in ("opening", "again"):
        cpu, sent, received = cpu_seconds(pid), figures(nodes)["algorithm_out"], listener.received
        began = time.monotonic()
        await gateway.publish(topics)
        elapsed = time.monotonic() - began
        await asyncio.sleep(QUIET)
        result[phase] = {
            "s": elapsed,
            "cpu s": cpu_seconds(pid) - cpu,
            "messages": (figures(nodes)["algorithm_out"] - sent) / topics,
            "delivered": listener.received - received,
        }
    rows = overlay(nodes[0])["keys"]
    counters = figures(nodes)
    return result | {
        "MB more": (resident_bytes(pid) - before) / 1e6,
        "keys": len(rows),
        "dropped": counters["sg_tbps.waiting_dropped"],
        "refused": counters["sg_tbps.keys_refused"],
    }


def measure(topics: int, listeners: str) -> dict[str, Any]:
    """One run with fresh processes."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        nodes: list[NodeProcess] = []
        for index in range(3):
            broker = new_broker("mosquitto", Path(name) / f"broker-{index}")
            broker.start()
            stack.callback(broker.kill)
            node = NodeProcess(Path(name) / f"n{index}", broker.address, "sg_tbps", node_id=f"n{index}")
            if nodes:
                node.document["link"]["neighbors"] = [nodes[0].link_address]
            node.start()
            stack.callback(node.kill)
            nodes.append(node)
        return asyncio.run(run(nodes, topics, listeners))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topics", type=int, nargs="+", default=[1_000])
    parser.add_argument("--listeners", choices=LISTENERS, nargs="+", default=LISTENERS)
    options = parser.parse_args()
    print(machine())
    for topics in options.topics:
        for listeners in options.listeners:
            print(json.dumps(measure(topics, listeners)), flush=True)


if __name__ == "__main__":
    main()
