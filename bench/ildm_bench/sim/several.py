"""Overlays of nodes with several keys, grown by messages and compared with the builder.

``python -m ildm_bench.sim.several --nodes 1000 --keys 4`` prints what that takes and what differs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from ildm_algorithms.overlay.graph import SkipGraph
from ildm_bench.sim.growth import graphs, grow, member
from ildm_bench.sim.tables import DIGITS, NONE, Graph, Ranks, build

SPACING = 0.5
"""Virtual seconds from one key to the next: without pings and checks nothing mends what keys that join beside
each other at once may leave behind."""


@dataclass(frozen=True)
class Comparison:
    """What was compared: keys, links of all levels, and the keys and levels at which they differ."""

    keys: int
    links: int
    different: list[str]


def grow_several(nodes: int, keys: int, seed: int = 0) -> list[SkipGraph]:
    """Let nodes join one after another, then insert ``keys`` more each, in any order and at random places."""
    world, _ = grow(nodes, seed)
    random = Random(seed)
    wanted = [number for number in range(nodes) for _ in range(keys)]
    random.shuffle(wanted)
    for number in wanted:
        node = member(world[f"n{number:06}"])
        node.graph.insert(b"%08x-%d" % (random.getrandbits(32), number))
        world.run(SPACING)
    return graphs(world)


def compare(members: Sequence[SkipGraph]) -> Comparison:
    """Each link of each key at each level with that of the builder for the same keys and vectors."""
    owned = sorted((key, at) for at, graph in enumerate(members) for key in list(graph.keys()))
    keys = [key for key, _ in owned]
    built = build([at for _, at in owned], np.array([graph.vector for graph in members], np.uint64))
    links = 0
    different = []
    for rank, (key, at) in enumerate(owned):
        levels = members[at].neighbors(key)
        own = members[at].env.node_id
        for level in range(built.levels):
            found = levels[level] if level < len(levels) else (None, None)
            wanted = built.left[level][rank], built.right[level][rank]
            if wanted == (NONE, NONE) and all(ref is None or ref.peer.node_id == own for ref in found):
                continue  # a list of one node alone, which the builder leaves out
            for ref, side in zip(found, wanted, strict=True):
                links += side != NONE
                if (None if ref is None else ref.key) != (None if side == NONE else keys[side]):
                    different.append(f"{key!r} level {level}")
    return Comparison(len(keys), links, different)


def independent(graph: Graph) -> Iterator[tuple[Ranks, Ranks]]:
    """The tables of each level once more, found in another way: by sorting all keys by prefix and rank.

    The builder divides each list by one digit more; here each level is made anew from the vectors.
    """
    digits = graph.vectors[graph.owner]
    ranks = np.arange(graph.keys)
    for level in range(graph.levels):
        prefix = digits >> np.uint64(DIGITS - level) if level else np.zeros_like(digits)
        order = np.lexsort((ranks, prefix))
        same = prefix[order][1:] == prefix[order][:-1]
        _, group = np.unique(prefix, return_inverse=True)
        # a list of one node says nothing about others
        lowest = np.full(group.max() + 1, graph.nodes)
        highest = np.full(group.max() + 1, -1)
        np.minimum.at(lowest, group, graph.owner)
        np.maximum.at(highest, group, graph.owner)
        shared = (lowest < highest)[group] if level else np.ones(graph.keys, np.bool_)
        left = np.full(graph.keys, NONE, np.int32)
        right = np.full(graph.keys, NONE, np.int32)
        here, before = order[1:][same], order[:-1][same]
        left[here], right[before] = before, here
        left[~shared] = right[~shared] = NONE
        yield left, right


def main() -> None:
    parser = argparse.ArgumentParser(description="Nodes with several keys: grown by messages, and built.")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--keys", type=int, default=4, help="of each node besides its own")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    begin = time.process_time()
    comparison = compare(grow_several(options.nodes, options.keys, options.seed))
    print(
        f"{comparison.keys:,} keys of {options.nodes:,} nodes, {comparison.links:,} links compared, "
        f"{len(comparison.different)} different, {time.process_time() - begin:.0f} s of CPU"
    )
    for line in comparison.different[:10]:
        print(line)


if __name__ == "__main__":
    main()
