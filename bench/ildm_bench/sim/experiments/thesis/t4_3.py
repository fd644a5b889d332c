"""T4.3: five ways of sending to all nodes of a range (thesis 4.1.1 and 4.3; Beltran and others 2008).

The first receiver is drawn at random, and hops are counted from it. A node has one key; vectors are random.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ildm_bench.report.svg import Picture
from ildm_bench.sim.experiments.drawing import Points, Words, panels
from ildm_bench.sim.experiments.framework import (
    Experiment,
    Frames,
    Line,
    Say,
    Scale,
    Summary,
    Tables,
    in_all,
    table,
)
from ildm_bench.sim.experiments.summary import collected, means
from ildm_bench.sim.experiments.verdicts import around, judged
from ildm_bench.sim.routing import spread
from ildm_bench.sim.tables import NONE, Graph, build, random_vectors

SEQUENTIAL, WITHOUT, WITH, MRF, SFB = "sequential", "broadcast", "broadcast with memory", "MRF", "SFB"
WAYS = (SEQUENTIAL, WITHOUT, WITH, MRF, SFB)
MEMORY = 4_096
"""Nodes up to which lists of visited nodes are followed: they grow with each hop."""


class Sent(NamedTuple):
    """How a range was served: mean and most hops from the first receiver, and messages after it."""

    hops: float
    most: int
    messages: int


def sizes(scale: Scale) -> tuple[int, ...]:
    """N_R."""
    return (64, 512, 4_096, 32_768, 131_072) if scale == "full" else (64, 512)


def repeats(scale: Scale) -> int:
    """Graphs of each size."""
    return 10 if scale == "full" else 4


def sequential(nodes: int, start: int) -> Sent:
    """Both ways along the list of level 0."""
    depth = np.abs(np.arange(nodes) - start)
    return Sent(float(depth.mean()), int(depth.max()), nodes - 1)


def neighbours(graph: Graph) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The different neighbours of each key: int64[keys + 1] where its own begin, and all of them."""
    sources, targets = [], []
    for side in (graph.left, graph.right):
        # Going up a neighbour stays or another comes, and none comes twice.
        above = np.vstack((side[1:], np.full((1, graph.keys), NONE, np.int32)))
        level, rank = np.nonzero((side != NONE) & (side != above))
        sources.append(rank)
        targets.append(side[level, rank].astype(np.int64))
    source, target = np.concatenate(sources), np.concatenate(targets)
    bounds = np.zeros(graph.keys + 1, np.int64)
    np.cumsum(np.bincount(source, minlength=graph.keys), out=bounds[1:])
    return bounds, target[np.argsort(source, kind="stable")]


def broadcast(graph: Graph, start: int) -> Sent:
    """Each node forwards the first copy to all neighbours but the one that it came from."""
    bounds, targets = neighbours(graph)
    depth = np.full(graph.keys, NONE, np.int64)
    depth[start] = 0
    wave = np.array([start])
    while wave.size:
        counts = bounds[wave + 1] - bounds[wave]
        offsets = np.repeat(bounds[wave] - np.cumsum(counts) + counts, counts)
        near = np.unique(targets[offsets + np.arange(int(counts.sum()))])
        wave = near[depth[near] == NONE]
        depth[wave] = depth.max() + 1
    return Sent(float(depth.mean()), int(depth.max()), int(targets.size - (graph.keys - 1)))


def remembering(graph: Graph, start: int) -> Sent:
    """The same, but a message lists nodes that have it or to which it goes beside: they get no other copy."""
    bounds, targets = neighbours(graph)
    depth = {start: 0}
    wave: list[tuple[int, frozenset[int]]] = [(start, frozenset((start,)))]
    messages = 0
    while wave:
        following: list[tuple[int, frozenset[int]]] = []
        for rank, visited in wave:
            to = [near for near in targets[bounds[rank] : bounds[rank + 1]].tolist() if near not in visited]
            messages += len(to)
            listed = visited.union(to)
            for near in to:
                if near not in depth:
                    depth[near] = depth[rank] + 1
                    following.append((near, listed))
        wave = following
    return Sent(sum(depth.values()) / graph.keys, max(depth.values()), messages)


def sent(graph: Graph, start: int, way: str) -> Sent:
    """One query over all keys of a graph, entered at ``start``."""
    if way == SEQUENTIAL:
        return sequential(graph.keys, start)
    if way in (WITHOUT, WITH):
        return (broadcast if way == WITHOUT else remembering)(graph, start)
    tree = spread(graph, start, 0, graph.keys, "sfb" if way == SFB else "mrf")
    return Sent(float(tree.depth.mean()), int(tree.depth.max()), tree.messages)


def run(scale: Scale, seed: int, say: Say) -> Tables:
    """A row for each N_R, graph and way."""
    generator = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for nodes in sizes(scale):
        say(f"N_R = {nodes:,}")
        for repeat in range(repeats(scale)):
            graph = build(np.arange(nodes), random_vectors(generator, nodes))
            start = int(generator.integers(nodes))
            for way in WAYS:
                if way != WITH or nodes <= MEMORY:
                    found = sent(graph, start, way)
                    rows.append({"way": way, "nodes": nodes, "repeat": repeat, **found._asdict()})
    return {"rows": table(rows)}


def summarise(frames: Frames) -> Summary:
    by = ["way", "nodes"]
    rows = frames["rows"]
    return {
        "hops": collected(means(rows, by, "hops"), *by),
        "messages": collected(means(rows, by, "messages"), *by),
        "graphs": collected(rows, *by, "repeat"),
    }


def compare(summary: Summary, scale: Scale) -> list[Line]:
    nodes = sizes(scale)
    of = {(row["way"], row["nodes"], row["repeat"]): row for row in summary["graphs"]}
    graphs = range(repeats(scale))

    def pairs(what: str, other: str, at: tuple[int, ...] = nodes) -> list[tuple[float, float]]:
        return [(of[SFB, size, n][what], of[other, size, n][what]) for size in at for n in graphs]

    def words(what: str, way: str, size: int) -> str:
        (row,) = (row for row in summary[what] if (row["way"], row["nodes"]) == (way, size))
        return f"{row['mean']:,.1f}" if what == "hops" else f"{row['mean']:,.0f}"

    largest = nodes[-1]
    kept = tuple(size for size in nodes if size <= MEMORY)
    fewer = [
        (MESSAGES, WITHOUT, nodes, "each list of a level is a way of its own to a node"),
        (MESSAGES, WITH, kept, "lists name the nodes on a message's own way alone"),
    ]
    same = [one / other for one, other in pairs("hops", WITHOUT, (largest,))]
    return [
        Line(
            quantity="SFB needs fewer hops than the sequential way",
            paper="fewer",
            ours=f"{words('hops', SFB, largest)} and {words('hops', SEQUENTIAL, largest)} at {largest:,}",
            band="less, at each N_R, all graphs",
            verdict=in_all([one < other for one, other in pairs("hops", SEQUENTIAL)]),
            why="O(log N_R) against O(N_R)",
        ),
        *(
            Line(
                quantity=f"SFB needs fewer messages than {other}",
                paper="fewer",
                ours=f"{words(what, SFB, at[-1])} and {words(what, other, at[-1])} at {at[-1]:,}",
                band="less, at each N_R, all graphs",
                verdict=in_all([one < two for one, two in pairs(what, other, at)]),
                why=why,
            )
            for what, other, at, why in fewer
        ),
        Line(
            quantity="messages of SFB beside the sequential way",
            paper="only the smaller number of both ways",
            ours=f"{words(MESSAGES, SFB, largest)} and {words(MESSAGES, SEQUENTIAL, largest)} at {largest:,}",
            band="equal: N_R - 1 messages, the least there can be",
            verdict="check" if all(one == other for one, other in pairs(MESSAGES, SEQUENTIAL)) else "differs",
            why="as many, and not fewer",
        ),
        judged(
            around(1),
            same,
            quantity=f"hops of SFB over those of broadcast, {largest:,} nodes",
            paper="the same hop number (STLA IV-C)",
            ours=f"{sum(same) / len(same):.2f} ({words('hops', SFB, largest)} / "
            f"{words('hops', WITHOUT, largest)})",
            why="a broadcast takes the shortest way over all neighbours of all nodes; SFB's parts of a range "
            "are served from one side each, so that no message comes back over a border",
        ),
        Line(
            quantity=f"mean hops at {', '.join(f'{size:,}' for size in nodes)}",
            paper="not in numbers",
            ours="; ".join(
                f"{way} {', '.join(words('hops', way, size) for size in (kept if way == WITH else nodes))}"
                for way in WAYS
            ),
            verdict="beyond",
        ),
    ]


MESSAGES = "messages"


def draw(summary: Summary) -> list[Picture]:
    parts: dict[str, dict[str, Points]] = {}
    for what, title in (("hops", "mean hops"), (MESSAGES, "messages")):
        parts[title] = {}
        for way in WAYS:
            rows = sorted((row["nodes"], row["mean"]) for row in summary[what] if row["way"] == way)
            parts[title][way] = ([nodes for nodes, _ in rows], [mean for _, mean in rows])
    words = Words(
        "T4.3",
        "Five ways of sending to all nodes of a range",
        "nodes in the range, N_R",
        "hops; messages",
        "Random membership vectors, a first receiver drawn at random; means over graphs.",
    )
    return [panels(words, parts, log_x=2, log_y=10)]


def parameters(scale: Scale) -> str:
    counts = ", ".join(f"{size:,}" for size in sizes(scale))
    return (
        f"N_R = {counts}; {repeats(scale)} graphs of each with random vectors; the first receiver drawn at "
        f"random; lists of visited nodes up to {MEMORY:,}"
    )


EXPERIMENT = Experiment(
    name="T4.3",
    title="Five ways of sending to all nodes of a range",
    parameters=parameters,
    run=run,
    summarise=summarise,
    compare=compare,
    draw=draw,
    notes=(
        "Broadcast: a node forwards the first copy that it gets, and not back to its sender.",
        "With memory a message lists the nodes that have been visited on its way and those beside.",
    ),
)
