"""Workers that have the clients and an owner that has the link with the far site, beside one node for both.

A worker is a node whose only link goes to the owner; no worker (0) is the one node, in rounds that alternate.
Brokers are sinks. A share of the publishers has topics that cross. The owner publishes what comes from
workers into a sink of its own, which one that stood before the workers' broker would not do.

``--cores`` gives each node but the far one so much of a core, by cgroups (root), and publishers write as fast
as they may: where is the limit? Without, they keep to ``--rate``: what does a message cost?
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import tempfile
import time
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

from ildm.core.frames import id_offset, with_ids
from ildm.mqtt import Connect, Publish, Version
from ildm.testing.live.ports import LOOPBACK, free_port
from ildm_bench.micro.link import INFLIGHT, sink
from ildm_bench.micro.measure import machine
from ildm_bench.micro.processes import Figures, Nodes, report

TICK = 0.001
CROSSES = [{"allow": ["cross/#"], "direction": "out"}]
LINK: dict[str, Any] = {"overflow": "block", "queue_messages": 1_000_000, "inflight": INFLIGHT}
PAYLOAD = bytes(32)
SIZES = [len(Publish(topic="cross/000", payload=PAYLOAD).encode(v)) for v in (Version.V311, Version.V5)]
"""Bytes of a message of QoS 0, as clients and as nodes publish it."""


class Publisher(asyncio.Protocol):
    """Writes bursts of messages of a topic of its own."""

    def __init__(self, number: int, crosses: bool, options: argparse.Namespace) -> None:
        self.crosses = crosses
        self.ready = asyncio.get_running_loop().create_future()
        self.unanswered = 0
        """Bytes of acknowledgements."""
        self.qos, self.burst = options.qos, options.burst
        self._name = f"publisher-{number}"
        message = Publish(
            topic=f"{'cross' if crosses else 'local'}/{number:03}", payload=PAYLOAD, qos=self.qos
        )
        message.packet_id = 1 if self.qos else None
        frame = message.encode(Version.V311)
        self._batch = frame * self.burst
        if self.qos:
            self._batch = with_ids(self._batch, len(frame), id_offset(frame), 1)
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.write(Connect(client_id=self._name, keep_alive=0).encode())

    def data_received(self, data: bytes) -> None:
        if self.ready.done():
            self.unanswered -= len(data)
        else:
            self.ready.set_result(None)

    def publish(self) -> None:
        self.unanswered += 4 * self.burst * self.qos
        self._transport.write(self._batch)


def publish(ports: list[int], share: float, options: argparse.Namespace, arrived: Any, stop: Any) -> None:
    """The publishers of all nodes, until ``stop``; ``arrived``: bytes at the local sink and the far one."""

    async def run() -> None:
        made: list[Publisher] = []
        for number in range(options.publishers):
            crosses = int((number + 1) * share + 1e-9) > int(number * share + 1e-9)
            one = Publisher(number, crosses, options)
            port = ports[number % len(ports)]
            await asyncio.get_running_loop().create_connection(lambda made=one: made, LOOPBACK, port)  # type: ignore[misc]
            await asyncio.wait_for(one.ready, 30)
            made.append(one)
        paced = options.cores is None
        written, turn, began = [0, 0], 0, time.perf_counter()
        while not stop.is_set():
            passed = time.perf_counter() - began
            for _ in range(int(options.rate * passed / options.burst) - turn if paced else len(made)):
                one = made[turn % len(made)]
                turn += 1
                ahead = [sent - has for sent, has in zip(written, counts(arrived, options.qos), strict=True)]
                if paced or not (one.unanswered or max(ahead[: 1 + one.crosses]) > options.ahead):
                    one.publish()
                    written = [written[0] + options.burst, written[1] + options.burst * one.crosses]
            await asyncio.sleep(TICK)

    import uvloop  # noqa: PLC0415

    uvloop.run(run())


def counts(arrived: Any, qos: int) -> list[float]:
    """Messages at the local sink and at the far one."""
    return [counter.value / (size + 2 * qos) for counter, size in zip(arrived, SIZES, strict=True)]


def owned(share: float, workers: int, options: argparse.Namespace) -> Figures:
    """So many workers and an owner, or one node: messages per second, CPU of each part per message."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        ports = [free_port() for _ in range(3)]
        counters = [context.Value("q", 0, lock=False) for _ in ports]
        for place in zip(ports, counters, strict=True):
            process = context.Process(target=sink, args=place)
            process.start()
            stack.callback(process.kill)
        nodes = Nodes(Path(name), options.cores)
        stack.callback(nodes.close)
        nodes.start("far", ports[1], "pf", **LINK)
        above = nodes.all["far"]
        if workers:
            nodes.start("owner", ports[2], "pf", **LINK, neighbors=[above.link_address])
            above.wait_linked(nodes.all["owner"])
            above = nodes.all["owner"]
        fronts = [f"front-{number}" for number in range(workers or 1)]
        for front in fronts:
            nodes.start(front, ports[0], "pf", **LINK, neighbors=[above.link_address], rules=CROSSES)
            above.wait_linked(nodes.all[front])
        stop, arrived = context.Event(), counters[:2]
        arguments = ([nodes.all[front].port for front in fronts], share, options, arrived, stop)
        generator = context.Process(target=publish, args=arguments)
        generator.start()
        stack.callback(generator.kill)
        time.sleep(1.0)
        nodes.begin([part for part in nodes.all if part != "far"])
        before, began = counts(arrived, options.qos), time.perf_counter()
        time.sleep(options.seconds)
        used, after, passed = nodes.used(), counts(arrived, options.qos), time.perf_counter() - began
        stop.set()
    messages = after[0] - before[0]
    if not messages:
        raise RuntimeError("nothing has arrived at the local sink")
    cpu = {part: 1e6 * seconds / messages for part, seconds in used.items()}
    return {
        "rate": messages / passed,
        "crossed": (after[1] - before[1]) / passed,
        "fronts": sum(cpu[front] for front in fronts),
        "owner": cpu.get("owner", 0.0),
        "far": cpu["far"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2, 4], help="0: one node, no owner")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.1, 0.5, 1.0], help="of what crosses")
    parser.add_argument("--cores", type=float, help="of a core, for each node but the far one")
    parser.add_argument("--rate", type=float, default=4000.0, help="messages per second, without --cores")
    parser.add_argument("--ahead", type=int, default=4000, help="messages under way at most, with --cores")
    parser.add_argument("--burst", type=int, default=20, help="messages that a publisher writes at once")
    parser.add_argument("--qos", type=int, default=0, choices=(0, 1))
    parser.add_argument("--publishers", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    print(machine())
    results: dict[Any, list[Figures]] = {way: [] for way in product(options.shares, options.workers)}
    for _ in range(options.rounds):
        for (share, workers), found in results.items():
            found.append(owned(share, workers, options))
    report(results, lambda way: (way[0], options.workers[0]))


if __name__ == "__main__":
    main()
