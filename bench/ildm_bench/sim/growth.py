"""An overlay that grows by messages, node after node.

``python -m ildm_bench.sim.growth --nodes 10000`` prints what that takes.
"""

from __future__ import annotations

import argparse
import gc
import resource
import time
from dataclasses import dataclass
from random import Random

from ildm.testing import LinkModel, PluginWorld, SimNode, lognormal
from ildm_algorithms.overlay.graph import SkipGraph
from ildm_algorithms.overlay.keys import EVERYTHING
from ildm_bench.sim.member import Member, wrong_links


@dataclass(frozen=True)
class Growth:
    """Figures of one run.

    ``joins``: messages between nodes while the last tenth of the nodes joined, per node; ``seconds`` are
    of CPU time, ``virtual`` of simulated time, ``megabytes`` the largest resident set; ``wrong``: links
    that are not as they must be.
    """

    nodes: int
    seconds: float
    virtual: float
    events: int
    joins: float
    megabytes: float
    wrong: int
    reached: int
    cast_seconds: float


def member(node: SimNode) -> Member:
    assert isinstance(node.algorithm, Member)
    return node.algorithm


def graphs(world: PluginWorld) -> list[SkipGraph]:
    """Of all living nodes of a world of members."""
    return [member(node).graph for node in world.alive()]


def quiet() -> dict[str, float]:
    """Options of an overlay that does not look after itself: what a fault-free run needs at the least."""
    return {"ping_interval": 1e6, "check_interval": 1e6}


def grow(nodes: int, seed: int = 0, spacing: float = 0.5, upkeep: bool = False) -> tuple[PluginWorld, Growth]:
    """Let ``nodes`` nodes join one after another, each by a node picked at random.

    Args:
        spacing: virtual seconds from one to the next.
        upkeep: with pings and checks, whose number grows with nodes and virtual time.
    """
    begin = time.process_time()
    model = LinkModel(delay=lognormal(0.002, 0.3), idle=1e9)
    options = {"overlay": {} if upkeep else quiet()}
    world = PluginWorld(Member, options, seed, model)
    random = Random(seed)
    tenth = 0
    # reference counts free what a run leaves; the collector would only walk through all nodes again and again
    gc.disable()
    try:
        for number in range(nodes):
            if number == nodes - max(1, nodes // 10):
                tenth = world.network.sent.total()
            known = f"n{random.randrange(number):06}" if number else None
            world.add(f"n{number:06}", introducer=known)
            world.run(spacing)
        world.run(5.0)
        joins = (world.network.sent.total() - tenth) / max(1, nodes // 10)
        seconds = time.process_time() - begin
        begin = time.process_time()
        member(world["n000000"]).graph.cast(EVERYTHING, b"hello")
        world.run(5.0)
        cast_seconds = time.process_time() - begin
    finally:
        gc.enable()
    reached = sum(len(member(node).arrivals) for node in world.alive())
    return world, Growth(
        nodes,
        seconds,
        world.kernel.now,
        world.kernel.events,
        joins,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        len(wrong_links(graphs(world))),
        reached,
        cast_seconds,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Grow an overlay by messages, node after node.")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--spacing", type=float, default=0.5, help="virtual seconds between two joins")
    parser.add_argument("--upkeep", action="store_true", help="with pings and checks")
    arguments = parser.parse_args()
    _, growth = grow(arguments.nodes, arguments.seed, arguments.spacing, arguments.upkeep)
    print(
        f"{growth.nodes:,} nodes in {growth.seconds:.1f} s of CPU ({growth.virtual:,.0f} s virtual, "
        f"{growth.events:,} events); {growth.joins:.1f} messages per join at the end; "
        f"{growth.megabytes:.0f} MB; {growth.wrong} wrong links; "
        f"a cast to all reached {growth.reached:,} in {growth.cast_seconds:.2f} s"
    )


if __name__ == "__main__":
    main()
