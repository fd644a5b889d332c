"""A wildcard subscription where one site holds very many retained messages: how long a node works at a time.

Two simulated nodes; the CPU time of each call of either, from the subscription on.
"""

from __future__ import annotations

import argparse
import gc
import time

from algorithms.sg_tbps import SgTbps
from bench.micro.measure import machine
from ildm.testing import World

SECONDS = 60.0
"""Virtual ones until all is there."""


def measure(messages: int) -> tuple[float, float, int]:
    """Longest call in ms, time of all calls in s, messages that have come."""
    world = World(SgTbps, {"siblings": 1, "retained_answers": messages})
    for name in ("holder", "asker"):
        world.add(name)
    world.link("asker", "holder")
    world.run(10.0)
    for number in range(messages):
        world["holder"].publish(f"site/dev{number}", b"kept", retain=True)
        if number % 1_000 == 0:
            world.run(0.1)
    world.run(30.0)
    gc.collect()
    gc.freeze()
    gc.disable()
    world["asker"].subscribe("site/#")
    longest = total = 0.0
    end = world.kernel.now + SECONDS
    while world.kernel.now < end and len(world.kernel):
        began = time.process_time()
        world.run(max_events=1)
        took = time.process_time() - began
        longest = max(longest, took)
        total += took
    return 1_000 * longest, total, len(world["asker"].deliveries)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    arguments = parser.parse_args()
    print(machine())
    longest, total, came = measure(arguments.messages)
    print(f"{arguments.messages} retained messages, {came} came")
    print(f"CPU: {total:.2f} s in all, longest call {longest:.1f} ms")


if __name__ == "__main__":
    main()
