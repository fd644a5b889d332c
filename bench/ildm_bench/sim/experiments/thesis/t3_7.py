"""T3.7: messages on the overlay when all publishers of a topic publish once (thesis 3.4.1)."""

from __future__ import annotations

from ildm_bench.report.svg import Picture
from ildm_bench.sim.experiments.drawing import Words, bars
from ildm_bench.sim.experiments.framework import Experiment, Frames, Line, Say, Scale, Summary, Tables, table
from ildm_bench.sim.experiments.summary import collected, mean_of_sums
from ildm_bench.sim.experiments.thesis.publishing import (
    METHODS,
    PUBLISHERS,
    REPEATS,
    nodes_of,
    publish_rows,
    subscriber_counts,
)
from ildm_bench.sim.experiments.topics import SCRIBE, SG

BY = ["method", "publishers", "subscribers"]
DIGIT = (10**0.5, 10**1.5)
"""Ratios whose nearest power of ten is 10: about one digit."""


def run(scale: Scale, seed: int, say: Say) -> Tables:
    """A row for each message published."""
    return {"rows": table(publish_rows(scale, seed, subscriber_counts(scale), say))}


def summarise(frames: Frames) -> Summary:
    return {"messages": collected(mean_of_sums(frames["rows"], BY, "repeat", "messages"), *BY)}


def mean_messages(summary: Summary) -> dict[tuple[str, int, int], float]:
    """Mean of the repeats by method, publishers and subscribers."""
    return {
        (row["method"], row["publishers"], row["subscribers"]): row["mean"] for row in summary["messages"]
    }


def compare(summary: Summary, scale: Scale) -> list[Line]:
    mean = mean_messages(summary)
    lines = []
    for count in subscriber_counts(scale):
        ratios = [mean[SCRIBE, p, count] / mean[SG, p, count] for p in PUBLISHERS]
        lines.append(
            Line(
                quantity=f"Scribe / SG-TBPS, {count:,} subscribers",
                paper="about one digit",
                ours=", ".join(
                    f"{ratio:.1f} ({p} p/t: {mean[SCRIBE, p, count]:,.0f} / {mean[SG, p, count]:,.0f})"
                    for p, ratio in zip(PUBLISHERS, ratios, strict=True)
                ),
                band=f"{DIGIT[0]:.1f} to {DIGIT[1]:.1f}: 10^0.5 to 10^1.5",
                verdict="agree" if all(DIGIT[0] <= ratio <= DIGIT[1] for ratio in ratios) else "differs",
                why="about one digit: between 10^0.5 and 10^1.5",
            )
        )
    most, fewest = max(subscriber_counts(scale)), min(subscriber_counts(scale))
    grows = all(
        mean[method, PUBLISHERS[1], count] > mean[method, PUBLISHERS[0], count]
        and mean[method, PUBLISHERS[0], most] > mean[method, PUBLISHERS[0], fewest]
        for method in METHODS
        for count in subscriber_counts(scale)
    )
    lines.append(
        Line(
            quantity="grows with publishers and with subscribers",
            paper="both methods",
            ours="both methods" if grows else "not everywhere",
            band="more with more of either, all means",
            verdict="agree" if grows else "differs",
        )
    )
    return lines


def draw(summary: Summary) -> list[Picture]:
    mean = mean_messages(summary)
    ends = {
        (row["method"], row["publishers"], row["subscribers"]): (row["smallest"], row["largest"])
        for row in summary["messages"]
    }
    counts = sorted({count for _, _, count in mean})
    series = {
        f"{method}, {p} p/t": [mean[method, p, count] for count in counts]
        for method in METHODS
        for p in PUBLISHERS
    }
    errors = {
        f"{method}, {p} p/t": (
            [ends[method, p, count][0] for count in counts],
            [ends[method, p, count][1] for count in counts],
        )
        for method in METHODS
        for p in PUBLISHERS
    }
    words = Words(
        "T3.7",
        "Messages associated with publishing, with subscribers",
        "subscribers of the topic",
        "messages",
        f"All publishers (p/t: publishers of the topic) publish once; mean, least, most of {REPEATS} graphs.",
    )
    return [bars(words, [f"{count:,}" for count in counts], series, errors=errors, log_y=10)]


def parameters(scale: Scale) -> str:
    counts = ", ".join(f"{count:,}" for count in subscriber_counts(scale))
    return (
        f"N = {nodes_of(scale):,}; a topic with {PUBLISHERS[0]} or {PUBLISHERS[1]} publishers; "
        f"subscribers {counts}; all publishers publish once; mean of {REPEATS}; SG-TBPS by MRF"
    )


EXPERIMENT = Experiment(
    name="T3.7",
    title="Messages of publishing, some subscribers",
    parameters=parameters,
    run=run,
    summarise=summarise,
    compare=compare,
    draw=draw,
    notes=(
        "Scribe's publishers know the root and send to it directly (one message).",
        "Subscribers do not leave in turns: each count of SG-TBPS is a graph of its own, those of Scribe are "
        "the first so many subscribers of one graph. On converged tables that is the same.",
    ),
)
