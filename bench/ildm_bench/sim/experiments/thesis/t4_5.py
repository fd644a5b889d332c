"""T4.5: nodes at each depth of the trees of SFB and MRF (thesis 4.1.3).

Ideal membership vectors, the leftmost node is the first receiver. With random vectors beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ildm_bench.report.svg import Picture
from ildm_bench.sim.experiments.drawing import Points, Words, panels
from ildm_bench.sim.experiments.framework import Experiment, Frames, Line, Say, Scale, Summary, Tables
from ildm_bench.sim.experiments.summary import buckets, collected
from ildm_bench.sim.routing import spread
from ildm_bench.sim.tables import build, ideal_vectors, random_vectors

ROUTINGS = ("SFB", "MRF")
VECTORS = ("ideal", "random")


def nodes_of(scale: Scale) -> int:
    """N_R."""
    return 131_072 if scale == "full" else 4_096


def repeats(scale: Scale) -> int:
    """Graphs with random vectors."""
    return 16 if scale == "full" else 4


def run(scale: Scale, seed: int, say: Say) -> Tables:
    """A row for each node, routing and kind of vectors: its depth."""
    nodes = nodes_of(scale)
    generator = np.random.default_rng(seed)
    parts = []
    for kind in VECTORS:
        for repeat in range(repeats(scale) if kind == "random" else 1):
            say(f"{kind} vectors, graph {repeat + 1}")
            vectors = ideal_vectors(nodes) if kind == "ideal" else random_vectors(generator, nodes)
            graph = build(np.arange(nodes), vectors)
            for routing in ROUTINGS:
                tree = spread(graph, 0, 0, nodes, "sfb" if routing == "SFB" else "mrf")
                columns = {
                    "vectors": pa.array([kind] * nodes).dictionary_encode(),
                    "routing": pa.array([routing] * nodes).dictionary_encode(),
                    "repeat": np.full(nodes, repeat, np.int32),
                    "rank": np.asarray(tree.ranks, np.int32),
                    "depth": np.asarray(tree.depth, np.int32),
                }
                parts.append(pa.table(columns))
    return {"rows": pa.concat_tables(parts, promote_options="default")}


def summarise(frames: Frames) -> Summary:
    counted = buckets(frames["rows"], ["vectors", "routing", "repeat"], "depth")
    return {"depths": collected(counted, "vectors", "routing", "repeat", "bucket")}


def depths(summary: Summary, vectors: str, routing: str) -> list[list[int]]:
    """Of each graph the nodes at depth 0, 1, ... up to the deepest of all graphs."""
    graphs: dict[int, dict[int, int]] = {}
    for row in summary["depths"]:
        if (row["vectors"], row["routing"]) == (vectors, routing):
            graphs.setdefault(row["repeat"], {})[row["bucket"]] = row["count"]
    deepest = max(max(found) for found in graphs.values())
    return [[found.get(depth, 0) for depth in range(deepest + 1)] for found in graphs.values()]


def compare(summary: Summary, scale: Scale) -> list[Line]:
    nodes = nodes_of(scale)
    digits = nodes.bit_length() - 1
    (sfb,), (mrf,) = depths(summary, "ideal", "SFB"), depths(summary, "ideal", "MRF")
    binomial = [math.comb(digits, depth) for depth in range(digits + 1)]
    powers = [1, *(2**depth for depth in range(digits))]
    most = sorted(depth for depth, count in enumerate(sfb) if count == max(sfb))
    middle = sorted({digits // 2, (digits + 1) // 2})
    return [
        Line(
            quantity="SFB: nodes at each depth",
            paper=f"binomial coefficients of {digits}",
            ours="the same, all depths" if sfb == binomial else str(sfb),
            band="equal",
            verdict="check" if sfb == binomial else "differs",
        ),
        Line(
            quantity="SFB: depth of most nodes",
            paper=" and ".join(map(str, middle)),
            ours=f"{' and '.join(map(str, most))} ({max(sfb):,} nodes each)",
            band="equal",
            verdict="check" if most == middle else "differs",
        ),
        Line(
            quantity="MRF: nodes at each depth",
            paper="1, then powers of 2",
            ours="the same, all depths" if mrf == powers else str(mrf),
            band="equal",
            verdict="check" if mrf == powers else "differs",
        ),
        Line(
            quantity="MRF: depth of most nodes",
            paper=f"{digits}, the deepest",
            ours=f"{mrf.index(max(mrf))} ({max(mrf):,} nodes), deepest {len(mrf) - 1}",
            band="equal",
            verdict="check" if mrf.index(max(mrf)) == digits == len(mrf) - 1 else "differs",
        ),
        Line(
            quantity="random vectors: depth of most nodes, deepest",
            paper="not stated",
            ours="; ".join(
                f"{routing} {_range([found.index(max(found)) for found in graphs])}, "
                f"{_range([int(np.flatnonzero(found)[-1]) for found in graphs])}"
                for routing, graphs in ((routing, depths(summary, "random", routing)) for routing in ROUTINGS)
            ),
            verdict="beyond",
            why="lists of a real graph are not evenly spaced: both trees are deeper and their depths spread",
        ),
    ]


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"


def draw(summary: Summary) -> list[Picture]:
    parts: dict[str, dict[str, Points]] = {}
    errors: dict[str, dict[str, Points]] = {}
    for kind in VECTORS:
        title = f"{kind} vectors"
        parts[title], errors[title] = {}, {}
        for routing in ROUTINGS:
            every = np.array(depths(summary, kind, routing))
            parts[title][routing] = (range(every.shape[1]), every.mean(axis=0).tolist())
            if kind == "random":
                errors[title][routing] = (every.min(axis=0).tolist(), every.max(axis=0).tolist())
    words = Words(
        "T4.5",
        "Nodes at each depth of the tree",
        "depth, hops from the first receiver",
        "nodes",
        "Ideal membership vectors as in the thesis, and random ones as in a real graph: mean over graphs, "
        "bars from the fewest to the most nodes. The leftmost node is the first receiver.",
    )
    return [panels(words, parts, errors=errors, height=3.4)]


def parameters(scale: Scale) -> str:
    return (
        f"N_R = {nodes_of(scale):,}, all nodes are in the range; ideal membership vectors of base 2, and "
        f"random ones, {repeats(scale)} graphs"
    )


EXPERIMENT = Experiment(
    name="T4.5",
    title="SFB against MRF: nodes at each depth",
    parameters=parameters,
    run=run,
    summarise=summarise,
    compare=compare,
    draw=draw,
)
