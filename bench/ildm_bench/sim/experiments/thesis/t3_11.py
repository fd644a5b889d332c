"""T3.11: cumulative distribution of path lengths in pattern alpha (thesis 3.4.2)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ildm_bench.analysis.histogram import cdf, quantile
from ildm_bench.measure.figures import Histogram
from ildm_bench.report.svg import Picture
from ildm_bench.sim.experiments.drawing import Points, Words, panels
from ildm_bench.sim.experiments.framework import Experiment, Frames, Line, Say, Scale, Summary, Tables, in_all
from ildm_bench.sim.experiments.scribe_topics import scribe_lengths
from ildm_bench.sim.experiments.summary import buckets, collected, histogram_of, means
from ildm_bench.sim.experiments.thesis.paths import PATTERNS, length_rows, repeats, sizes, skip_graph_lengths
from ildm_bench.sim.experiments.topics import SCRIBE, SG
from ildm_bench.sim.experiments.verdicts import under

ALPHA = PATTERNS[0]
TREE = f"{SCRIBE}, tree"
"""Without the hop from the publisher to the root."""
METHODS = (SG, SCRIBE, TREE)
READING, TRIED = 1, 3
"""The N that the figure is read to be of, by its place in `sizes`: 10,000. The thesis does not state it, and
takes alpha as the pattern of which the path lengths are most similar."""
ALIKE, APART = 0.15, 0.25
"""Distance of the curves there at most, and at the other N more than that."""
SHARES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


def run(scale: Scale, seed: int, say: Say) -> Tables:
    """A row for each N, topic, method and number of hops."""
    generator = np.random.default_rng(seed)
    parts = []
    for nodes in sizes(scale):
        say(f"N = {nodes:,}")
        for repeat in range(repeats(nodes, scale)):
            proposed = skip_graph_lengths(generator, ALPHA, nodes, ["mrf"])["mrf"]
            found = (proposed, *scribe_lengths(generator, ALPHA, nodes))
            parts += [
                length_rows(method, ALPHA, nodes, repeat, lengths)
                for method, lengths in zip(METHODS, found, strict=True)
            ]
    return {"rows": pa.concat_tables(parts)}


BY = ["nodes", "method"]


def summarise(frames: Frames) -> Summary:
    rows = frames["rows"]
    return {
        "hops": collected(means(rows, BY, "hops", "pairs"), *BY),
        "buckets": collected(buckets(rows, BY, "hops", "pairs"), *BY, "bucket"),
    }


def histograms(summary: Summary) -> dict[int, dict[str, Histogram]]:
    """Of path lengths, by N and method."""
    rows = [dict(row) for row in summary["buckets"]]
    nodes = sorted({row["nodes"] for row in rows})
    return {size: {name: histogram_of(rows, nodes=size, method=name) for name in METHODS} for size in nodes}


def shares_of(found: dict[str, Histogram]) -> dict[str, list[float]]:
    """The curve of each method: share of the pairs that need at most 0, 1, ... hops."""
    longest = max(max(histogram.lower) for histogram in found.values())
    points = [float(hops) for hops in range(longest + 1)]
    return {method: cdf(histogram, points) for method, histogram in found.items()}


def distance(shares: dict[str, list[float]], other: str = SCRIBE) -> float:
    """Kolmogorov-Smirnov: how far the curve of SG-TBPS is from another at most."""
    return max(abs(a - b) for a, b in zip(shares[SG], shares[other], strict=True))


def below(shares: dict[str, list[float]]) -> float:
    """How far the curve of SG-TBPS lies below Scribe's at most; 0: nowhere."""
    return max(0.0, *(b - a for a, b in zip(shares[SG], shares[SCRIBE], strict=True)))


def compare(summary: Summary, scale: Scale) -> list[Line]:
    found = histograms(summary)
    shares = {nodes: shares_of(each) for nodes, each in found.items()}
    apart = {nodes: distance(each) for nodes, each in shares.items()}
    alike = sizes(scale)[READING]
    reading = f"N = {alike:,}"
    holds = [value <= ALIKE if nodes == alike else value > APART for nodes, value in apart.items()]
    mean = {(row["nodes"], row["method"]): row["mean"] for row in summary["hops"]}
    lower = {nodes: below(shares[nodes]) for nodes in sorted({alike, sizes(scale)[-1]})}
    return [
        Line(
            quantity="the two curves",
            paper="no significant difference; alpha has the most similar path lengths",
            ours="; ".join(
                f"N = {nodes:,}: {value:.2f} apart ({distance(shares[nodes], TREE):.2f} without the hop to "
                f"the root), means {mean[nodes, SG]:.1f} and {mean[nodes, SCRIBE]:.1f} hops"
                for nodes, value in apart.items()
            ),
            band=f"Kolmogorov-Smirnov at most {ALIKE:g} at {reading}, above {APART:g} at the others",
            verdict=under("agree" if all(holds) else "differs", reading),
            why="Scribe's paths grow with N, as its trees reach over all nodes; those of SG-TBPS reach over "
            "the 990 subscribers alone. The thesis does not state the N of the figure",
            reading=reading,
            tried=TRIED,
        ),
        Line(
            quantity="no undesirable effect of SG-TBPS on the distribution",
            paper="none",
            ours="; ".join(
                f"N = {nodes:,}: its curve is at most {value:.3f} below Scribe's"
                for nodes, value in lower.items()
            ),
            band="nowhere below Scribe's by more than 0.01, at these N",
            verdict=in_all([value <= 0.01 for value in lower.values()]),
            why="" if max(lower.values()) <= 0.01 else "the curves cross at long paths where they are alike",
        ),
        *(
            Line(
                quantity=f"hops at {', '.join(f'{share:.0%}' for share in SHARES)}, N = {nodes:,}",
                paper="not in numbers",
                ours="; ".join(
                    f"{method} {', '.join(f'{quantile(histogram, share):.0f}' for share in SHARES)}"
                    for method, histogram in each.items()
                ),
                verdict="beyond",
            )
            for nodes, each in found.items()
        ),
    ]


def draw(summary: Summary) -> list[Picture]:
    words = Words(
        "T3.11",
        "Cumulative distribution of path lengths, pattern alpha",
        "hops from publisher to subscriber",
        "share of the pairs",
        "All pairs of a publisher and a subscriber of a topic. Scribe, tree: without the hop to the root.",
    )
    parts: dict[str, dict[str, Points]] = {}
    for nodes, each in histograms(summary).items():
        shares = shares_of(each)
        parts[f"N = {nodes:,}"] = {method: (range(len(curve)), curve) for method, curve in shares.items()}
    return [panels(words, parts, markers=False, shared=True)]


def parameters(scale: Scale) -> str:
    counts = ", ".join(f"{repeats(size, scale)} of N = {size:,}" for size in sizes(scale))
    return (
        f"pattern alpha: {ALPHA.publishers} publishers, {ALPHA.subscribers} subscribers; MRF; "
        f"graphs: {counts}"
    )


EXPERIMENT = Experiment(
    name="T3.11",
    title="Distribution of path lengths, pattern alpha",
    parameters=parameters,
    run=run,
    summarise=summarise,
    compare=compare,
    draw=draw,
)
