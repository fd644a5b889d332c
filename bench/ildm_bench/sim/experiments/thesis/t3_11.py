"""T3.11: cumulative distribution of path lengths in pattern alpha (thesis 3.4.2)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ildm_bench.analysis.histogram import cdf, quantile
from ildm_bench.measure.figures import Histogram
from ildm_bench.report.svg import Picture
from ildm_bench.sim.experiments.drawing import Words, curves
from ildm_bench.sim.experiments.framework import Experiment, Frames, Line, Say, Scale, Summary, Tables
from ildm_bench.sim.experiments.scribe_topics import scribe_lengths
from ildm_bench.sim.experiments.summary import buckets, collected, histogram_of, means
from ildm_bench.sim.experiments.thesis.paths import PATTERNS, length_rows, sizes, skip_graph_lengths
from ildm_bench.sim.experiments.topics import SCRIBE, SG

ALPHA = PATTERNS[0]
SHARES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


def run(scale: Scale, seed: int, say: Say) -> Tables:
    """A row for each topic, method and number of hops."""
    generator = np.random.default_rng(seed)
    nodes = sizes(scale)[-1]
    say(SG)
    proposed = skip_graph_lengths(generator, ALPHA, nodes, ["mrf"])["mrf"]
    say(SCRIBE)
    scribe, _ = scribe_lengths(generator, ALPHA, nodes)
    parts = [
        length_rows(method, ALPHA, nodes, 0, found) for method, found in ((SG, proposed), (SCRIBE, scribe))
    ]
    return {"rows": pa.concat_tables(parts)}


def summarise(frames: Frames) -> Summary:
    rows = frames["rows"]
    return {
        "hops": collected(means(rows, ["method"], "hops", "pairs"), "method"),
        "buckets": collected(buckets(rows, ["method"], "hops", "pairs"), "method", "bucket"),
    }


def histograms(summary: Summary) -> dict[str, Histogram]:
    """Of path lengths, by method."""
    rows = [dict(row) for row in summary["buckets"]]
    return {method: histogram_of(rows, method=method) for method in (SG, SCRIBE)}


def compare(summary: Summary, scale: Scale) -> list[Line]:
    found = histograms(summary)
    longest = max(max(histogram.lower) for histogram in found.values())
    points = [float(hops) for hops in range(longest + 1)]
    proposed, scribe = (cdf(found[method], points) for method in (SG, SCRIBE))
    apart = max(abs(one - other) for one, other in zip(proposed, scribe, strict=True))
    never_right = all(one >= other - 0.01 for one, other in zip(proposed, scribe, strict=True))
    mean = {row["method"]: row["mean"] for row in summary["hops"]}
    width = {
        method: quantile(histogram, 0.95) - quantile(histogram, 0.05) for method, histogram in found.items()
    }
    return [
        Line(
            quantity="the two curves",
            paper="no significant difference",
            ours=f"at most {apart:.2f} apart (Kolmogorov-Smirnov); "
            f"means {mean[SG]:.1f} and {mean[SCRIBE]:.1f} hops",
            band="at most 0.1 apart",
            verdict="agree" if apart <= 0.1 else "differs",
            why=f"Scribe's curve lies {mean[SCRIBE] - mean[SG]:+.1f} hops away and is wider "
            f"({width[SCRIBE]:.0f} hops from 5 % to 95 %, not {width[SG]:.0f}): its trees reach over all "
            "N nodes, those of SG-TBPS over the 990 subscribers only, as T3.9 and T3.10 show",
        ),
        Line(
            quantity="no undesirable effect of SG-TBPS on the distribution",
            paper="none",
            ours="its curve is nowhere below Scribe's" if never_right else "its curve crosses Scribe's",
            band="nowhere below Scribe's by more than 0.01",
            verdict="agree" if never_right else "differs",
            why="to within 0.01",
        ),
        Line(
            quantity="hops at " + ", ".join(f"{share:.0%}" for share in SHARES),
            paper="not in numbers",
            ours="; ".join(
                f"{method} {', '.join(f'{quantile(histogram, share):.0f}' for share in SHARES)}"
                for method, histogram in found.items()
            ),
            verdict="beyond",
        ),
    ]


def draw(summary: Summary) -> list[Picture]:
    found = histograms(summary)
    longest = max(max(histogram.lower) for histogram in found.values())
    points = [float(hops) for hops in range(longest + 1)]
    words = Words(
        "T3.11",
        "Cumulative distribution of path lengths, pattern alpha",
        "hops from publisher to subscriber",
        "share of the pairs",
        "All pairs of a publisher and a subscriber of the same topic, at the largest N.",
    )
    series = {method: (points, cdf(histogram, points)) for method, histogram in found.items()}
    return [curves(words, series, steps=True, markers=False)]


def parameters(scale: Scale) -> str:
    nodes = sizes(scale)[-1]
    return (
        f"pattern alpha: {ALPHA.publishers} publishers, {ALPHA.subscribers} subscribers; N = {nodes:,}; MRF"
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
