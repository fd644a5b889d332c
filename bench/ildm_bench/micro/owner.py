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

from ildm.mqtt import Publish, Version
from ildm_bench.clients import Bare
from ildm_bench.micro.link import INFLIGHT, batch, sinks
from ildm_bench.micro.measure import in_turn, machine, options
from ildm_bench.micro.processes import Figures, Nodes, report

TICK = 0.001
CROSSES = [{"allow": ["cross/#"], "direction": "out"}]
LINK: dict[str, Any] = {"overflow": "block", "queue_messages": 1_000_000, "inflight": INFLIGHT}
PAYLOAD = bytes(32)
SIZES = [len(Publish(topic="cross/000", payload=PAYLOAD).encode(v)) for v in (Version.V311, Version.V5)]
"""Bytes of a message of QoS 0, as clients and as nodes publish it."""


class Publisher(Bare):
    """Writes bursts of messages of a topic of its own."""

    def __init__(self, number: int, crosses: bool, given: argparse.Namespace) -> None:
        super().__init__(f"publisher-{number}")
        self.crosses = crosses
        self.unanswered = 0
        """Bytes of acknowledgements."""
        self.qos, self.burst = given.qos, given.burst
        topic = f"{'cross' if crosses else 'local'}/{number:03}"
        self._batch = batch(topic, PAYLOAD, self.qos, self.burst)

    def data_received(self, data: bytes) -> None:
        if self.ready.done():
            self.unanswered -= len(data)
        else:
            super().data_received(data)

    def publish(self) -> None:
        self.unanswered += 4 * self.burst * self.qos
        self.transport.write(self._batch)


def publish(ports: list[int], share: float, given: argparse.Namespace, arrived: Any, stop: Any) -> None:
    """The publishers of all nodes, until ``stop``; ``arrived``: bytes at the local sink and the far one."""

    async def run() -> None:
        made: list[Publisher] = []
        for number in range(given.publishers):
            crosses = int((number + 1) * share + 1e-9) > int(number * share + 1e-9)
            one = Publisher(number, crosses, given)
            await one.connect(ports[number % len(ports)])
            await asyncio.wait_for(one.ready, 30)
            made.append(one)
        paced = given.cores is None
        written, turn, began = [0, 0], 0, time.perf_counter()
        while not stop.is_set():
            passed = time.perf_counter() - began
            for _ in range(int(given.rate * passed / given.burst) - turn if paced else len(made)):
                one = made[turn % len(made)]
                turn += 1
                ahead = [sent - has for sent, has in zip(written, counts(arrived, given.qos), strict=True)]
                if paced or not (one.unanswered or max(ahead[: 1 + one.crosses]) > given.ahead):
                    one.publish()
                    written = [written[0] + given.burst, written[1] + given.burst * one.crosses]
            await asyncio.sleep(TICK)

    import uvloop  # noqa: PLC0415

    uvloop.run(run())


def counts(arrived: Any, qos: int) -> list[float]:
    """Messages at the local sink and at the far one."""
    return [counter.value / (size + 2 * qos) for counter, size in zip(arrived, SIZES, strict=True)]


def owned(share: float, workers: int, given: argparse.Namespace) -> Figures:
    """So many workers and an owner, or one node: messages per second, CPU of each part per message."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        ports, counters = sinks(stack, 3)
        nodes = Nodes(Path(name), given.cores)
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
        arguments = ([nodes.all[front].port for front in fronts], share, given, arrived, stop)
        generator = context.Process(target=publish, args=arguments)
        generator.start()
        stack.callback(generator.kill)
        time.sleep(1.0)
        nodes.begin([part for part in nodes.all if part != "far"])
        before, began = counts(arrived, given.qos), time.perf_counter()
        time.sleep(given.seconds)
        used, after, passed = nodes.used(), counts(arrived, given.qos), time.perf_counter() - began
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
    parser = options(__doc__, rounds=3, seconds=3.0)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2, 4], help="0: one node, no owner")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.1, 0.5, 1.0], help="of what crosses")
    parser.add_argument("--cores", type=float, help="of a core, for each node but the far one")
    parser.add_argument("--rate", type=float, default=4000.0, help="messages per second, without --cores")
    parser.add_argument("--ahead", type=int, default=4000, help="messages under way at most, with --cores")
    parser.add_argument("--burst", type=int, default=20, help="messages that a publisher writes at once")
    parser.add_argument("--qos", type=int, default=0, choices=(0, 1))
    parser.add_argument("--publishers", type=int, default=40)
    given = parser.parse_args()
    print(machine())
    ways = product(given.shares, given.workers)
    results = in_turn(given.rounds, ways, lambda way: owned(*way, given))
    report(results, lambda way: (way[0], given.workers[0]))


if __name__ == "__main__":
    main()
