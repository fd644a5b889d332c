"""What a message of each QoS, with and without properties, costs the two nodes of a link.

One publisher at the near site writes a chunk of messages each tick, over a few topics, and completes its
handshakes. A subscriber at the far broker counts what comes. Both nodes keep QoS 1 and 2 in a spool.
"""

from __future__ import annotations

import argparse
import selectors
import socket
import time
from collections import deque
from itertools import product

from ildm.core.frames import packet_ids
from ildm.core.transfer.ack_runs import PUBREL, acknowledgements_of
from ildm.mqtt import (
    ConnAck,
    Connect,
    Framer,
    Properties,
    Property,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    SubAck,
    Subscribe,
    Subscription,
    Version,
    decode,
)
from ildm_bench.micro import link_ways
from ildm_bench.micro.measure import machine, median, run_ns

TOPICS = 25
TICK = 0.0025
PROPERTIES: Properties = {
    Property.CONTENT_TYPE: "application/json",
    Property.USER_PROPERTY: [("unit", "celsius"), ("sensor", "pt100")],
}
NODES = ("near node", "far node")


def connected(port: int, name: str) -> tuple[socket.socket, Framer]:
    """A client of MQTT 5 that the other end has accepted."""
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(Connect(client_id=name, version=Version.V5, keep_alive=0).encode(Version.V5))
    framer = Framer()
    answered(sock, framer, ConnAck)
    return sock, framer


def answered(sock: socket.socket, framer: Framer, kind: type) -> None:
    while True:
        for frame in framer.feed(sock.recv(65536)):
            if isinstance(decode(frame, Version.V5), kind):
                return


class Publisher:
    """Writes chunks and completes the handshakes; never more than a window is under way."""

    def __init__(self, port: int, qos: int, properties: Properties) -> None:
        self.sock, self.framer = connected(port, "bench-publisher")
        self.qos, self.properties = qos, properties
        self.free = deque(range(1, 20_001))
        self.sent = 0

    def write(self, count: int) -> None:
        frames = []
        for _ in range(min(count, len(self.free))):
            message = Publish(
                topic=f"bench/{self.sent % TOPICS}",
                payload=b"%060d" % self.sent,
                qos=self.qos,
                packet_id=self.free.popleft() if self.qos else None,
                properties=self.properties,
            )
            frames.append(message.encode(Version.V5))
            self.sent += 1
        self.sock.sendall(b"".join(frames))

    def read(self) -> None:
        released: list[int] = []
        for frame in self.framer.feed(self.sock.recv(1 << 18)):
            packet = decode(frame, Version.V5)
            if isinstance(packet, PubRec):
                released.append(packet.packet_id)
            elif isinstance(packet, PubAck | PubComp):
                self.free.append(packet.packet_id)
        if released:
            high, low = bytes(i >> 8 for i in released), bytes(i & 0xFF for i in released)
            self.sock.sendall(acknowledgements_of(PUBREL, packet_ids(high, low)))


def cost(qos: int, properties: Properties, rate: float, seconds: float) -> dict[str, float]:
    """CPU in us a message of each node."""
    with link_ways.opened(link_ways.LINK, "nodelay", qos, {"link": {"qos": 2}}) as way:
        subscriber, framer = connected(way.subscribe_port, "bench-subscriber")
        wanted = Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter="bench/#")])
        subscriber.sendall(wanted.encode(Version.V5))
        answered(subscriber, framer, SubAck)
        publisher = Publisher(way.publish_port, qos, properties)
        selector = selectors.DefaultSelector()
        selector.register(subscriber, selectors.EVENT_READ)
        selector.register(publisher.sock, selectors.EVENT_READ)
        pids = {name: process.process.pid for name, process in way.processes.items() if process.process}
        came, due, counted, before = 0, time.perf_counter(), 0, dict.fromkeys(NODES, 0)
        begin = due + 1.0
        while due < begin + seconds:
            if not counted and due >= begin:
                counted, before = came, {name: run_ns(pids[name]) for name in NODES}
            publisher.write(round(rate * TICK))
            due += TICK
            while (left := due - time.perf_counter()) > 0:
                for key, _ in selector.select(left):
                    if key.fileobj is subscriber:
                        came += sum(frame[0] >> 4 == 3 for frame in framer.feed(subscriber.recv(1 << 18)))
                    else:
                        publisher.read()
        spent = {name: run_ns(pids[name]) - before[name] for name in NODES}
        publisher.sock.close()
        subscriber.close()
        selector.close()
    if came - counted < 0.95 * rate * seconds:
        raise SystemExit(f"QoS {qos}: {came - counted} of {rate * seconds:.0f} messages have come")
    return {name: spent[name] / 1e3 / (came - counted) for name in NODES}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ildm_bench.micro.qualities", description=__doc__)
    parser.add_argument("--rate", type=float, default=4_000, help="messages a second")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    found: dict[tuple[int, bool], list[dict[str, float]]] = {}
    for _, qos, has in product(range(given.rounds), (0, 1, 2), (False, True)):
        spent = cost(qos, PROPERTIES if has else {}, given.rate, given.seconds)
        found.setdefault((qos, has), []).append(spent)
    print(f"{given.rate:g}/s in chunks of {given.rate * TICK:g}; us of CPU a message, medians; {machine()}")
    print(f"{'':26}{'near node':>10}{'far node':>10}{'both':>8}")
    for (qos, has), rounds in found.items():
        near, far = (median([spent[name] for spent in rounds]) for name in NODES)
        print(f"QoS {qos}, {'properties' if has else 'none':20}{near:10.1f}{far:10.1f}{near + far:8.1f}")


if __name__ == "__main__":
    main()
