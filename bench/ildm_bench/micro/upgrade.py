"""How long clients stand still while ``ildm upgrade`` hands them to a new process.

Each client subscribes to a topic of its own and publishes to it in turn, QoS 0 and 1 alternately. The broker
is Mosquitto. The report tells the longest time that a message took, the node's own figure, and what was lost
or came twice. A node of so many clients needs twice as many descriptors (``ulimit -n``).
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from ildm.mqtt import Connect, Framer, PubAck, Publish, Subscribe, Subscription, Version, decode
from ildm.testing.live.brokers import new_broker
from ildm.testing.live.node import NodeProcess

TICK = 0.01
AT_ONCE = 200
"""Clients that connect at a time."""


class Visitor(asyncio.Protocol):
    """One client; it acknowledges, counts what it gets, and notes the latest message's delay."""

    def __init__(self, number: int, times: list[float]) -> None:
        self.number = number
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sent = 0
        self.got: list[int] = []
        self.closed = False
        self._times = times
        self._framer = Framer()
        self._begun: dict[int, float] = {}

    def itself(self) -> Visitor:
        """What makes the protocol of a connection."""
        return self

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.write(Connect(client_id=f"visitor-{self.number}", keep_alive=600).encode())
        entry = Subscription(topic_filter=f"visitor/{self.number}", qos=1)
        transport.write(Subscribe(packet_id=1, subscriptions=[entry]).encode(Version.V311))

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True

    def data_received(self, data: bytes) -> None:
        for frame in self._framer.feed(data):
            kind = frame[0] >> 4
            if kind == 9:
                self.ready.set_result(None)
            elif kind == 3:
                packet = decode(frame, Version.V311)
                assert isinstance(packet, Publish)
                number = int(packet.payload)
                self.got.append(number)
                self._times.append(time.perf_counter() - self._begun.pop(number, 0.0))
                if packet.packet_id is not None:
                    self.transport.write(PubAck(packet_id=packet.packet_id).encode(Version.V311))

    def publish(self) -> None:
        self.sent += 1
        qos = self.sent % 2
        self._begun[self.sent] = time.perf_counter()
        topic, payload = f"visitor/{self.number}", b"%d" % self.sent
        packet_id = 1 + self.sent % 60_000 if qos else None
        message = Publish(topic=topic, payload=payload, qos=qos, packet_id=packet_id)
        self.transport.write(message.encode(Version.V311))


async def measured(node: NodeProcess, clients: int, rate: float, upgrades: int) -> dict[str, Any]:
    """Connect, publish all the while, upgrade so many times, and compare."""
    loop = asyncio.get_running_loop()
    times: list[float] = []
    visitors: list[Visitor] = []
    for begin in range(0, clients, AT_ONCE):
        made = [Visitor(number, times) for number in range(begin, min(clients, begin + AT_ONCE))]
        await asyncio.gather(*(loop.create_connection(one.itself, *node.address) for one in made))
        await asyncio.gather(*(one.ready for one in made))
        visitors += made
    stop = False

    async def publish() -> None:
        turn, due, last = 0, 0.0, time.perf_counter()
        while not stop:
            await asyncio.sleep(TICK)
            now = time.perf_counter()
            due += (now - last) * rate
            last = now
            for _ in range(int(due)):
                visitors[turn % clients].publish()
                turn += 1
            due %= 1

    publishing = loop.create_task(publish())
    await asyncio.sleep(5.0)
    before = sorted(times)
    rows = []
    for _ in range(upgrades):
        times.clear()
        told = await asyncio.to_thread(node.admin.upgrade, None, 120.0)
        await asyncio.sleep(5.0)
        rows.append((told, max(times)))
    stop = True
    await publishing
    await asyncio.sleep(3.0)
    sent, got = sum(one.sent for one in visitors), sum(len(one.got) for one in visitors)
    unordered = sum(one.got != sorted(one.got) for one in visitors)
    twice = got - sum(len(set(one.got)) for one in visitors)
    return {
        "before": (before[len(before) // 2], before[-1]),
        "upgrades": rows,
        "sent": sent,
        "lost": sent - (got - twice),
        "twice": twice,
        "unordered": unordered,
        "closed": sum(one.closed for one in visitors),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=9_500)
    parser.add_argument("--rate", type=float, default=5_000)
    parser.add_argument("--upgrades", type=int, default=3)
    given = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as directory:
        broker = new_broker("mosquitto", Path(directory) / "broker")
        broker.start()
        limits = {"clients": given.clients + 100}
        node = NodeProcess(Path(directory) / "node", broker.address, "sf", extra={"limits": limits})
        node.directory.mkdir(exist_ok=True)
        node.start()
        try:
            found = asyncio.run(measured(node, given.clients, given.rate, given.upgrades))
        finally:
            node.kill()
            broker.stop()
    middle, most = found.pop("before")
    print(
        f"{given.clients:,} clients, {given.rate:,.0f} messages/s;"
        f" before: {middle * 1e3:.1f} ms, at most {most * 1e3:.0f} ms"
    )
    for told, longest in found.pop("upgrades"):
        print(
            f"handed over {told['clients']:,}, sent away {told['sent_away']}; nobody served for"
            f" {told['pause'] * 1e3:.0f} ms; the longest a message took {longest * 1e3:.0f} ms"
        )
    print(", ".join(f"{name} {value:,}" for name, value in found.items()))


if __name__ == "__main__":
    main()
