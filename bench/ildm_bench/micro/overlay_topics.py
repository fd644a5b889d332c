"""Many topics of one site in an overlay of three: what opening them costs, and each message afterwards.

Nodes of SG-TBPS, each a process before a Mosquitto of its own. A client of the first publishes QoS 1 on each
of ``site/devNNNNNN/temp``, twice, with 200 messages under way: while nobody listens, for one subscriber of
``site/#`` at the second node, and for 100 of one topic each at the third. CPU and memory are those of the
first node; ``messages`` are those between nodes for each one published, pings and acknowledgements included.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from ildm.testing.live.node import NodeProcess
from ildm_bench.clients import Client
from ildm_bench.micro.measure import Usage, machine, options, pid_of, resident_bytes
from ildm_bench.micro.overlay_sites import connected, figures, overlay, sites, until

LISTENERS = ("nobody", "site/#", "100 exact")
WINDOW = 200
QUIET = 5.0
"""Seconds for what is under way after the last acknowledgement."""


def topic(number: int) -> str:
    return f"site/dev{number:06}/temp"


async def publish(client: Client, topics: int) -> None:
    """One message on each topic; returns when all are acknowledged."""
    for number in range(topics):
        await client.until(lambda: client.under_way < WINDOW)
        client.send(topic(number), b"21.5", 1)
    await client.until(lambda: not client.under_way)


async def run(nodes: list[NodeProcess], topics: int, listeners: str) -> dict[str, Any]:
    await until(lambda: all(len(overlay(node)["keys"]) == 1 for node in nodes), "the overlay")
    filters = {
        "nobody": [],
        "site/#": ["site/#"],
        "100 exact": [topic(number * topics // 100) for number in range(100)],
    }[listeners]
    listener = await connected(Client, nodes[2 if len(filters) > 1 else 1], "listener", filters)
    await asyncio.sleep(QUIET)
    gateway = await connected(Client, nodes[0], "gateway")
    result: dict[str, Any] = {"topics": topics, "listeners": listeners}
    pid = pid_of(nodes[0])
    before = resident_bytes(pid)
    for phase in ("opening", "again"):
        sent, received = figures(nodes)["algorithm_out"], listener.received
        usage = Usage(pid)
        await publish(gateway, topics)
        elapsed = usage.passed()
        await asyncio.sleep(QUIET)
        result[phase] = {
            "s": elapsed,
            "cpu s": usage.used()[0],
            "messages": (figures(nodes)["algorithm_out"] - sent) / topics,
            "delivered": listener.received - received,
        }
    rows = overlay(nodes[0])["keys"]
    counters = figures(nodes)
    return result | {
        "MB more": (resident_bytes(pid) - before) / 1e6,
        "keys": len(rows),
        "waiting full": counters["sg_tbps.waiting_full"],
        "refused": counters["sg_tbps.keys_refused"],
    }


def measure(topics: int, listeners: str) -> dict[str, Any]:
    """One run with fresh processes."""
    with sites(["sg_tbps"] * 3) as nodes:
        return asyncio.run(run(nodes, topics, listeners))


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--topics", type=int, nargs="+", default=[1_000])
    parser.add_argument("--listeners", choices=LISTENERS, nargs="+", default=LISTENERS)
    given = parser.parse_args()
    print(machine())
    for topics in given.topics:
        for listeners in given.listeners:
            print(json.dumps(measure(topics, listeners)), flush=True)


if __name__ == "__main__":
    main()
