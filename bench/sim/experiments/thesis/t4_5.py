"""T4.5: nodes at each depth of the trees of SFB and MRF (thesis 4.1.3).

Ideal membership vectors, the leftmost node is the first receiver. With random vectors beside it.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa

from bench.report.svg import Picture
from bench.sim.experiments.drawing import Words, curves
from bench.sim.experiments.framework import Experiment, Frames, Line, Say, Scale, Summary, Tables
from bench.sim.experiments.summary import buckets, collected
from bench.sim.routing import spread
from bench.sim.tables import build, ideal_vectors, random_vectors

ROUTINGS = ("SFB", "MRF")
VECTORS = ("ideal", "random")


def nodes_of(scale: Scale) -> int:
    """N_R."""
    return 131_072 if scale == "full" else 4_096


def run(scale: Scale, seed: int, say: Say) -> Tables:
    """A row for each node, routing and kind of vectors: its depth."""
    nodes = nodes_of(scale)
    generator = np.random.default_rng(seed)
    parts = []
    for kind in VECTORS:
        vectors = ideal_vectors(nodes) if kind == "ideal" else random_vectors(generator, nodes)
        graph = build(np.arange(nodes), vectors)
        for routing in ROUTINGS:
            say(f"{routing}, {kind} vectors")
            tree = spread(graph, 0, 0, nodes, "sfb" if routing == "SFB" else "mrf")
            columns = {
                "vectors": pa.array([kind] * nodes).dictionary_encode(),
                "routing": pa.array([routing] * nodes).dictionary_encode(),
                "rank": np.asarray(tree.ranks, np.int32),
                "depth": np.asarray(tree.depth, np.int32),
            }
            parts.append(pa.table(columns))
    return {"rows": pa.concat_tables(parts, promote_options="default")}


def summarise(frames: Frames) -> Summary:
    counted = buckets(frames["rows"], ["vectors", "routing"], "depth")
    return {"depths": collected(counted, "vectors", "routing", "bucket")}


def depths(summary: Summary, vectors: str, routing: str) -> list[int]:
    """Nodes at depth 0, 1, ... ."""
    found = {
        row["bucket"]: row["count"]
        for row in summary["depths"]
        if (row["vectors"], row["routing"]) == (vectors, routing)
    }
    return [found.get(depth, 0) for depth in range(max(found) + 1)]


def compare(summary: Summary, scale: Scale) -> list[Line]:
    nodes = nodes_of(scale)
    digits = nodes.bit_length() - 1
    sfb, mrf = depths(summary, "ideal", "SFB"), depths(summary, "ideal", "MRF")
    binomial = [math.comb(digits, depth) for depth in range(digits + 1)]
    powers = [1, *(2**depth for depth in range(digits))]
    most = sorted(depth for depth, count in enumerate(sfb) if count == max(sfb))
    middle = sorted({digits // 2, (digits + 1) // 2})
    random_sfb, random_mrf = depths(summary, "random", "SFB"), depths(summary, "random", "MRF")
    return [
        Line(
            quantity="SFB: nodes at each depth",
            paper=f"binomial coefficients of {digits}",
            ours="the same, all depths" if sfb == binomial else str(sfb),
            verdict="agree" if sfb == binomial else "differs",
        ),
        Line(
            quantity="SFB: depth of most nodes",
            paper=" and ".join(map(str, middle)),
            ours=f"{' and '.join(map(str, most))} ({max(sfb):,} nodes each)",
            verdict="agree" if most == middle else "differs",
        ),
        Line(
            quantity="MRF: nodes at each depth",
            paper="1, then powers of 2",
            ours="the same, all depths" if mrf == powers else str(mrf),
            verdict="agree" if mrf == powers else "differs",
        ),
        Line(
            quantity="MRF: depth of most nodes",
            paper=f"{digits}, the deepest",
            ours=f"{mrf.index(max(mrf))} ({max(mrf):,} nodes), deepest {len(mrf) - 1}",
            verdict="agree" if mrf.index(max(mrf)) == digits == len(mrf) - 1 else "differs",
        ),
        Line(
            quantity="random vectors: depth of most nodes, deepest",
            paper="not stated",
            ours=f"SFB {random_sfb.index(max(random_sfb))}, {len(random_sfb) - 1}; "
            f"MRF {random_mrf.index(max(random_mrf))}, {len(random_mrf) - 1}",
            verdict="beyond",
            why="lists of a real graph are not evenly spaced: both trees are deeper and their depths spread",
        ),
    ]


def draw(summary: Summary) -> list[Picture]:
    series = {
        f"{routing}{'' if kind == 'ideal' else ', random'}": depths(summary, kind, routing)
        for kind in VECTORS
        for routing in ROUTINGS
    }
    words = Words(
        "T4.5",
        "Nodes at each depth of the tree",
        "depth, hops from the first receiver",
        "nodes",
        "Ideal membership vectors as in the thesis, and random ones as in a real graph. The leftmost node is "
        "the first receiver.",
    )
    return [
        curves(words, {label: (range(len(counts)), counts) for label, counts in series.items()}, height=3.2)
    ]


def parameters(scale: Scale) -> str:
    return (
        f"N_R = {nodes_of(scale):,}, all nodes are in the range; ideal and random membership vectors, base 2"
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
