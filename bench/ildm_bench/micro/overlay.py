"""Converged tables in arrays: seconds and peak memory of building them and of queries over all of them.

Each case runs in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import json
import resource
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ildm_bench.micro.measure import apart, machine, options
from ildm_bench.sim.routing import Routing, spread, spread_many
from ildm_bench.sim.scribe import Scribe
from ildm_bench.sim.tables import Counts, Graph, build, neighbor_counts, random_vectors, table_sizes

Result = TypeVar("Result")
Figures = dict[str, Any]
ROUTINGS: tuple[Routing, ...] = ("sfb", "mrf")


def tables(keys: int, per_node: int, seed: int) -> Figures:
    """Build the tables, send one query to all keys by either routing, count table sizes."""
    graph, figures = built(keys, per_node, seed)
    for routing in ROUTINGS:
        seconds, tree = timed(partial(spread, graph, keys // 2, 0, keys, routing))
        if tree.ranks.size != keys:
            raise RuntimeError(f"{routing} reached {tree.ranks.size} of {keys} keys")
        figures[f"{routing} s"] = seconds
        figures[f"{routing} mean hops"] = float(tree.depth.mean())
    figures["sizes s"], sizes = timed(partial(table_sizes, graph))
    figures["entries"] = float(sizes.mean())
    figures["neighbours s"], counts = timed(partial(neighbor_counts, graph))
    figures["neighbours"] = float(counts.mean())
    return figures


def publications(keys: int, topic: int, seed: int) -> Figures:
    """Half of each topic's keys publish to the other half, which stands left of them."""
    graph, figures = built(keys, 1, seed)
    ranks = np.arange(keys - keys % topic)
    first = ranks - ranks % topic
    middle = first + topic // 2
    publishers = ranks >= middle
    call = partial(spread_many, graph, ranks[publishers], first[publishers], middle[publishers], "mrf")
    figures["publish s"], spreads = timed(call)
    lengths = spreads.path_lengths()
    figures["publications"] = int(publishers.sum())
    figures["mean hops"] = mean_length(lengths)
    return figures


def scribe(nodes: int, topics: int, subscribers: int, seed: int) -> Figures:
    """Route the JOINs of all topics to their roots."""
    generator = np.random.default_rng(seed)
    seconds, dht = timed(partial(Scribe, random_vectors(generator, nodes)))
    ids = random_vectors(generator, topics)
    joining = generator.integers(0, nodes, topics * subscribers)
    subscribed = np.repeat(np.arange(topics), subscribers)
    joined, forest = timed(partial(dht.forest, ids, joining, subscribed))
    return {
        "nodes": nodes,
        "rings s": seconds,
        "joins": joining.size,
        "join s": joined,
        "mean hops": float(forest.depth.mean()) + 1,
        "messages": float(forest.messages.mean()),
    }


def built(keys: int, per_node: int, seed: int) -> tuple[Graph, Figures]:
    generator = np.random.default_rng(seed)
    nodes = max(1, keys // per_node)
    owner = np.arange(keys) if per_node == 1 else generator.integers(0, nodes, keys)
    seconds, graph = timed(partial(build, owner, random_vectors(generator, nodes)))
    return graph, {"keys": keys, "nodes": nodes, "levels": graph.levels, "build s": seconds}


def timed(call: Callable[[], Result]) -> tuple[float, Result]:
    """Elapsed seconds of one call, and what it returned."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def mean_length(lengths: Counts) -> float:
    return float((lengths * np.arange(lengths.size)).sum() / lengths.sum())


def measured(case: Callable[[int], Figures], repeats: int) -> Figures:
    """Median of each figure over the repeats, and the peak memory of the process."""
    rounds = [case(seed) for seed in range(repeats)]
    figures: Figures = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
    figures["peak MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return figures


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    cases: dict[str, Callable[[int], Figures]] = {
        "100,000 nodes": partial(tables, 100_000, 1),
        "1,000,000 nodes": partial(tables, 1_000_000, 1),
        "1,000,000 keys of 100,000 nodes": partial(tables, 1_000_000, 10),
        "100,000 nodes, topics of 1,000": partial(publications, 100_000, 1000),
        "Scribe, 100,000 nodes": partial(scribe, 100_000, 100, 1000),
    }
    print(machine())
    for name, case in cases.items():
        figures = apart(measured, case, repeats)
        print(f"{name}: " + ", ".join(f"{key} {value:.4g}" for key, value in figures.items()))
        print(json.dumps({"case": name, **figures}))


if __name__ == "__main__":
    main()
