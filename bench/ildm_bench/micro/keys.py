"""Many keys of one node in an overlay of a few: CPU to enter them, to keep them, and to take them out.

Nodes in virtual time, with pings and checks. ``--scattered`` puts the keys of all nodes in turns, so that
each neighbour is another node's; without it the keys of one node stand beside each other, as topics below the
prefix of a site do. Each case runs in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable
from typing import Any

from ildm.testing import LinkModel, PluginWorld, lognormal
from ildm_algorithms.overlay.graph import SkipGraph
from ildm_bench.micro.measure import apart, machine, options
from ildm_bench.sim.growth import graphs, member
from ildm_bench.sim.member import Member, wrong_links

NODES = 10
STEP = 1.0
"""Virtual seconds between two looks."""
KEPT = 60.0
"""Virtual seconds for which the upkeep is measured."""
LIMIT = 3600.0


def measured(keys: int, scattered: bool, seed: int = 1) -> dict[str, Any]:
    """CPU seconds, virtual seconds and messages of each phase."""
    world = PluginWorld(Member, None, seed, LinkModel(delay=lognormal(0.002, 0.3), idle=1e9))
    for number in range(NODES):
        world.add(f"n{number}", introducer="n0" if number else None)
    world.run(60.0)
    several = graphs(world) if scattered else [member(world["n1"]).graph]
    wanted = [b"site/%06d/%d" % (number, number % len(several)) for number in range(keys)]
    figures: dict[str, Any] = {"keys": keys, "scattered": scattered}

    def phase(name: str, change: Callable[[SkipGraph, bytes], None] | None, count: int) -> None:
        begin, virtual, sent = time.process_time(), world.kernel.now, world.network.sent.total()
        if change is None:
            world.run(KEPT)
        else:
            for number, key in enumerate(wanted):
                change(several[number % len(several)], key)
            world.settle(lambda: _keys(graphs(world)) == count, LIMIT, STEP)
        figures[f"{name} s"] = round(time.process_time() - begin, 2)
        figures[f"{name} virtual s"] = world.kernel.now - virtual
        figures[f"{name} messages"] = world.network.sent.total() - sent

    phase("enter", SkipGraph.insert, NODES + keys)
    phase("keep", None, 0)
    figures["wrong links"] = len(wrong_links(graphs(world)))
    phase("leave", SkipGraph.remove, NODES)
    figures["peak MB"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return figures


def _keys(members: list[SkipGraph]) -> int:
    return sum(len(graph.keys()) for graph in members)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--keys", type=int, nargs="+", default=[1_000, 3_000, 10_000])
    parser.add_argument("--scattered", action="store_true")
    given = parser.parse_args()
    print(machine())
    for keys in given.keys:
        print(json.dumps(apart(measured, keys, given.scattered)), flush=True)


if __name__ == "__main__":
    main()
