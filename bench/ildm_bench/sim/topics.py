"""Many topics of one node among many: what opening them costs, and each message afterwards.

``python -m ildm_bench.sim.topics --topics 100000`` publishes twice on each of ``site/devNNNNNN/temp`` from
one node: while nobody listens, for one subscriber of ``site/#``, and for 100 subscribers of one topic each.
``--own-keys`` does without aggregates. Nodes are in virtual time, without pings and checks, so that all
messages are due to topics. Each case runs in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from ildm.testing import LinkModel, PluginWorld, SimNode, lognormal
from ildm_algorithms.sg_tbps import SgTbps
from ildm_bench.micro.measure import machine
from ildm_bench.sim.growth import quiet

LISTENERS = ("nobody", "site/#", "100 exact")
RATE = 2000
"""Messages a second."""
SETTLE = 30.0
"""Virtual seconds until all that follows from a round is done."""


def topic(number: int) -> str:
    return f"site/dev{number:06}/temp"


def listen(world: PluginWorld, listeners: str, topics: int) -> None:
    """Subscribe, at other nodes than the gateway."""
    others = [node for node in world.alive() if node.node_id != "n000"]
    if listeners == "site/#":
        others[0].subscribe("site/#", qos=1)
    elif listeners == "100 exact":
        for number in range(100):
            others[number % len(others)].subscribe(topic(number * topics // 100), qos=1)


def publish(world: PluginWorld, gateway: SimNode, topics: int) -> dict[str, float]:
    """One message on each topic."""
    begin, sent, injected = time.process_time(), world.network.sent.total(), world.counters()["injected"]
    for number in range(topics):
        gateway.publish(topic(number), b"21.5", qos=1)
        world.run(1 / RATE)
    world.run(SETTLE)
    return {
        "cpu s": time.process_time() - begin,
        "messages": (world.network.sent.total() - sent) / topics,
        "delivered": world.counters()["injected"] - injected,
    }


def measured(topics: int, listeners: str, nodes: int, own_keys: bool, seed: int = 1) -> dict[str, Any]:
    """Per phase CPU seconds, and overlay messages for each message published (acknowledgements included)."""
    options: dict[str, Any] = {"overlay": quiet()}
    if own_keys:
        options |= {"max_topics": topics, "siblings": topics}
    world = PluginWorld(SgTbps, options, seed, LinkModel(delay=lognormal(0.002, 0.3), idle=1e9))
    for number in range(nodes):
        world.add(f"n{number:03}", introducer="n000" if number else None)
        world.run(0.5)
    gateway = world["n000"]
    listen(world, listeners, topics)
    world.run(SETTLE)
    before = peak()
    opening = publish(world, gateway, topics)
    algorithm = gateway.algorithm
    assert isinstance(algorithm, SgTbps)
    again = publish(world, gateway, topics)
    counters = gateway.counters
    return {
        "topics": topics,
        "listeners": listeners,
        "nodes": nodes,
        "keys": len(algorithm.graph.keys()),
        "topics with keys": sum(
            "publisher" in key.key and "#" not in key.key for key in algorithm.overlay().keys
        ),
        "aggregates": counters["aggregates_opened"],
        "opening": opening,
        "again": again,
        "peak MB more": peak() - before,
        "waiting full": counters["waiting_full"],
    }


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, nargs="+", default=[250, 1_000])
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--listeners", choices=LISTENERS, nargs="+", default=LISTENERS)
    parser.add_argument("--own-keys", action="store_true", help="for each topic: no aggregates")
    options = parser.parse_args()
    print(machine())
    spawn = multiprocessing.get_context("spawn")
    for topics in options.topics:
        for listeners in options.listeners:
            with ProcessPoolExecutor(1, spawn) as process:
                figures = process.submit(
                    measured, topics, listeners, options.nodes, options.own_keys
                ).result()
            print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
