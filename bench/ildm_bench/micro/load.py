"""A closed-loop load of QoS 0 for one address: topics x (publishers, subscribers), small payloads.

It counts bytes instead of parsing: all messages have the same size. At most ``window`` messages per
publisher are under way, so a slow path is not flooded and a fast one is kept busy.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, cast

from ildm.mqtt import Publish, Version
from ildm_bench.clients import Bare

TICK = 0.0005


class Topic:
    """Messages of one topic: how many were sent, how many bytes all its subscribers have got."""

    def __init__(self, name: str, payload: int) -> None:
        self.name = name
        self.frame = Publish(topic=name, payload=b"x" * payload).encode(Version.V311)
        self.sent = 0
        self.received_bytes = 0
        self.subscribers = 0

    @property
    def received(self) -> int:
        return self.received_bytes // len(self.frame)


class Client(Bare):
    """One connection; a subscriber counts what comes after its SUBACK."""

    def __init__(self, topic: Topic, client_id: str, subscribe: bool) -> None:
        super().__init__(client_id, topic.name if subscribe else None)
        self.topic = topic
        self.subscribe = subscribe

    def data_received(self, data: bytes) -> None:
        if self.ready.done():
            self.topic.received_bytes += len(data)
        else:
            super().data_received(data)


async def run(options: argparse.Namespace) -> dict[str, float]:
    """Load for ``seconds`` after a warm-up; rates per second."""
    topics = [Topic(f"topic{i + 1}", options.payload) for i in range(options.topics)]
    clients: list[Client] = []
    for topic in topics:
        for kind, count in (("s", options.subscribers), ("p", options.publishers)):
            for number in range(count):
                client = Client(topic, f"{topic.name}-{kind}{number}", kind == "s")
                await client.connect(options.port)
                await client.ready
                clients.append(client)
        topic.subscribers = options.subscribers
    publishers = [client for client in clients if not client.subscribe]
    burst = options.window

    def fill() -> None:
        for topic in topics:
            room = options.window * options.publishers - (topic.sent - topic.received // topic.subscribers)
            if room <= 0:
                continue
            mine = [client for client in publishers if client.topic is topic and client.writable]
            each = min(burst, max(1, room // max(1, len(mine))))
            for client in mine:
                if room < each:
                    break
                client.transport.write(topic.frame * each)
                topic.sent += each
                room -= each

    async def phase(seconds: float) -> tuple[float, int, int]:
        sent, received = sum(t.sent for t in topics), sum(t.received for t in topics)
        start = time.perf_counter()
        while (passed := time.perf_counter() - start) < seconds:
            fill()
            await asyncio.sleep(TICK)
        return passed, sum(t.sent for t in topics) - sent, sum(t.received for t in topics) - received

    await phase(options.warm_up)
    print("measuring", flush=True)
    passed, sent, received = await phase(options.seconds)
    print("measured", flush=True)
    for client in clients:
        client.transport.abort()
    return {"ingress": sent / passed, "egress": received / passed, "seconds": passed}


def put_on(
    port: int, begin: Callable[[int], None], end: Callable[[], None], **options: Any
) -> dict[str, float]:
    """The load by a process of its own; ``begin``, with its pid, and ``end`` are called around what counts.

    Raises:
        RuntimeError: it failed.
    """
    command = [sys.executable, "-m", "ildm_bench.micro.load", "--port", str(port)]
    command += [word for name, value in options.items() for word in (f"--{name}", str(value))]
    found: dict[str, float] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if line == "measuring\n":
                begin(child.pid)
            elif line == "measured\n":
                end()
            else:
                found = json.loads(line)
    if not found:
        raise RuntimeError("the load generator failed")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--topics", type=int, default=5)
    parser.add_argument("--publishers", type=int, default=10, help="per topic")
    parser.add_argument("--subscribers", type=int, default=10, help="per topic")
    parser.add_argument("--payload", type=int, default=32, help="bytes")
    parser.add_argument("--window", type=int, default=20, help="messages under way per publisher")
    parser.add_argument("--warm-up", type=float, default=1.0, help="seconds")
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        print(json.dumps(runner.run(run(options))))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        print("uvloop is not installed: the load is slower", file=sys.stderr)
        return asyncio.new_event_loop
    return cast("Callable[[], asyncio.AbstractEventLoop]", uvloop.new_event_loop)


if __name__ == "__main__":
    main()
