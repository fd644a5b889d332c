"""T3.10: length of the path from publisher to subscriber, Scribe (thesis 3.4.2)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ildm_bench.report.svg import Picture
from ildm_bench.sim.experiments.framework import Experiment, Line, Say, Scale, Summary, Tables
from ildm_bench.sim.experiments.scribe_topics import scribe_lengths
from ildm_bench.sim.experiments.thesis.paths import (
    PATTERNS,
    SMALL,
    length_rows,
    repeats,
    sizes,
    skip_graph_lengths,
)
from ildm_bench.sim.experiments.thesis.t3_9 import mean_hops, parameters, pattern_bars, summarise
from ildm_bench.sim.experiments.topics import SCRIBE
from ildm_bench.sim.experiments.verdicts import around, judged

PAPER = 16
READING = "tree"
"""Hops of the tree alone."""
TREE = "Scribe, tree"
"""Without the hop from the publisher to the root."""
CLOSE = 0.1
"""Means this close, as a share, count as the same."""


def run(scale: Scale, seed: int, say: Say) -> Tables:
    """A row for each topic and number of hops; of the proposed method at the largest N, to compare with."""
    generator = np.random.default_rng(seed)
    parts = []
    for nodes in sizes(scale):
        for pattern in PATTERNS:
            say(f"N = {nodes:,}, {pattern.label}")
            for repeat in range(repeats(nodes, scale)):
                whole, inside = scribe_lengths(generator, pattern, nodes)
                parts.append(length_rows(SCRIBE, pattern, nodes, repeat, whole))
                parts.append(length_rows(TREE, pattern, nodes, repeat, inside))
    for pattern in SMALL:
        found = skip_graph_lengths(generator, pattern, sizes(scale)[-1], ["mrf"])["mrf"]
        parts.append(length_rows("MRF", pattern, sizes(scale)[-1], 0, found))
    return {"rows": pa.concat_tables(parts)}


def compare(summary: Summary, scale: Scale) -> list[Line]:
    scribe, proposed = mean_hops(summary, SCRIBE), mean_hops(summary, "MRF")
    largest = sizes(scale)[-1]
    small = [scribe[pattern.name, largest] for pattern in SMALL]
    all_of = [scribe[pattern.name, largest] for pattern in PATTERNS]
    apart = max(all_of) / min(all_of) - 1
    ratios = [scribe[pattern.name, largest] / proposed[pattern.name, largest] for pattern in SMALL]
    by_size = [float(np.mean([scribe[p.name, nodes] for p in PATTERNS])) for nodes in sizes(scale)]
    lines = [
        Line(
            quantity=f"mean hops does not depend on the topic's size, N = {largest:,}",
            paper="not affected",
            ours=f"all patterns within {apart:.1%} of each other ({min(all_of):.1f} to {max(all_of):.1f})",
            band=f"all patterns within {CLOSE:.0%}",
            verdict="agree" if apart <= CLOSE else "differs",
            why=f"up to {CLOSE:.0%} counts as not affected",
        ),
        Line(
            quantity="mean hops grows with N",
            paper="yes, O(log N)",
            ours=", ".join(
                f"N = {nodes:,}: {value:.1f}" for nodes, value in zip(sizes(scale), by_size, strict=True)
            ),
            band="more at each larger N",
            verdict="agree" if by_size == sorted(by_size) else "differs",
            why="mean of the patterns",
        ),
        Line(
            quantity=f"Scribe / SG-TBPS for delta, epsilon, zeta at N = {largest:,}",
            paper="more than 4",
            ours=", ".join(f"{ratio:.1f}" for ratio in ratios),
            band="a bound: more than 4, all three",
            verdict="agree" if min(ratios) > 4 else "differs",
            why="" if min(ratios) > 4 else "grows with N: the paper's ratio is that of N = 100,000",
        ),
    ]
    if scale == "full":
        tree = mean_hops(summary, TREE)
        inside = [tree[pattern.name, largest] for pattern in SMALL]
        reading = judged(
            around(PAPER),
            inside,
            quantity=f"mean hops of delta, epsilon, zeta at N = {largest:,}",
            paper=str(PAPER),
            ours=f"{', '.join(f'{value:.1f}' for value in inside)}; with the hop to the root "
            + ", ".join(f"{value:.1f}" for value in small),
            why="the thesis gives whole hops and does not say that it leaves out the hop from the publisher "
            "to the root, whose address the publisher knows",
            reading=READING,
            tried=1,
        )
        lines.insert(0, reading)
    return lines


def draw(summary: Summary) -> list[Picture]:
    return [pattern_bars(summary, SCRIBE, "T3.10", "Length of the path of publishing, Scribe")]


EXPERIMENT = Experiment(
    name="T3.10",
    title="Length of the path of publishing, Scribe",
    parameters=parameters,
    run=run,
    summarise=summarise,
    compare=compare,
    draw=draw,
    notes=("One hop from the publisher to the root, whose address it has cached, then down the tree.",),
)
