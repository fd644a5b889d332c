"""What an innocent local client notices while another one subscribes to thousands of filters at once.

Three nodes, each a process before a Mosquitto of its own, form an overlay. At the first, a client sends
itself messages of QoS 0 at a steady rate and notes how long each is on its way; then another client
subscribes, all its SUBSCRIBE packets at once. Round trips in milliseconds before, and until all keys are in.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from typing import Any

from ildm.mqtt import Subscribe, Subscription, Version
from ildm.testing.live.node import NodeProcess
from ildm_bench.clients import Bare, came_true, paced
from ildm_bench.micro.measure import Usage, machine, options, pid_of
from ildm_bench.micro.overlay_recovery import TOPIC, Numbered
from ildm_bench.micro.overlay_sites import connected, figures, sites, until, whole

NODES = 3
BATCH = 500
"""Filters in one SUBSCRIBE."""


async def round_trips(client: Numbered, rate: float, end: asyncio.Future[Any]) -> list[float]:
    """Milliseconds of each message to oneself until ``end``; 10 s for those that did not come."""
    sent: dict[int, float] = {}
    client.got.clear()
    async for number in paced(rate, sys.maxsize):
        if end.done():
            break
        sent[number] = time.monotonic()
        client.number(0, number)
    await came_true(lambda: len(client.got) >= len(sent), 10.0)
    return [1000 * (client.got.get((0, n), [at + 10.0])[0] - at) for n, at in sent.items()]


def shown(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    picked = {
        "median": statistics.median(ordered),
        "p99": ordered[int(0.99 * len(ordered))],
        "max": ordered[-1],
    }
    return {name: round(value, 2) for name, value in picked.items()}


async def run(nodes: list[NodeProcess], filters: int, rate: float, seconds: float) -> dict[str, Any]:
    clients = [await connected(Numbered, node, f"c{index}", [TOPIC]) for index, node in enumerate(nodes)]
    await until(lambda: whole(nodes), "one overlay")
    await asyncio.sleep(2)
    first = nodes[0]
    before = await round_trips(clients[0], rate, asyncio.ensure_future(asyncio.sleep(seconds)))
    greedy = await Bare("greedy").connect(first.port)
    await greedy.ready
    usage = Usage(pid_of(first))

    async def subscribe() -> float:
        names = [f"site/dev{number:05}/temp" for number in range(filters)]
        for at in range(0, filters, BATCH):
            subscriptions = [Subscription(topic_filter=name, qos=1) for name in names[at : at + BATCH]]
            greedy.transport.write(
                Subscribe(packet_id=at // BATCH + 1, subscriptions=subscriptions).encode(Version.V311)
            )
        while await asyncio.to_thread(asked, first) < filters:  # noqa: ASYNC110
            await asyncio.sleep(1.0)
        return usage.passed()

    task = asyncio.ensure_future(subscribe())
    during = await round_trips(clients[0], rate, task)
    return {
        "filters": filters,
        "before ms": shown(before),
        "during ms": shown(during),
        "all in after s": round(await task, 1),
        "CPU s": round(usage.used()[0], 1),
    }


def asked(node: NodeProcess) -> int:
    """Filters whose keys are in, and which have been searched for retained messages; cheap to ask for."""
    return figures([node])["sg_tbps.queries"]


def measure(filters: int, rate: float, seconds: float) -> dict[str, Any]:
    with sites(["sg_tbps"] * NODES) as nodes:
        return asyncio.run(run(nodes, filters, rate, seconds))


def main() -> None:
    parser = options(__doc__, seconds=5.0)
    parser.add_argument("--filters", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--rate", type=float, default=100, help="messages of the innocent client per second")
    given = parser.parse_args()
    print(f"{machine()}; topic {TOPIC}")
    for filters in given.filters:
        print(json.dumps(measure(filters, given.rate, given.seconds)), flush=True)


if __name__ == "__main__":
    main()
