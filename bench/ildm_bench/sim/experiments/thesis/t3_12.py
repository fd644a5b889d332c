"""T3.12 and the upper half of Table 3.3: sending against forwarding (thesis 3.4.3)."""

from __future__ import annotations

import numpy as np

from ildm_bench.report.svg import Picture
from ildm_bench.sim.experiments.drawing import Words, clouds
from ildm_bench.sim.experiments.framework import Experiment, Frames, Line, Scale, Summary
from ildm_bench.sim.experiments.thesis.forwarding import (
    METHODS,
    TICKED,
    TOPICS,
    coefficients,
    extremes_of,
    graphs_words,
    interval_words,
    normalised,
    remark,
    repeats,
    repeats_words,
    scribe_repeats,
    simulate,
    subscribers,
    summary_of,
)
from ildm_bench.sim.experiments.topics import SCRIBE, SG
from ildm_bench.sim.experiments.verdicts import one_run

PAPER_SCRIBE = 0.1310


def summarise(frames: Frames) -> Summary:
    return summary_of(frames, "publisher", "sent")


def compare(summary: Summary, scale: Scale) -> list[Line]:
    proposed, scribe = coefficients(summary, SG), coefficients(summary, SCRIBE)
    others = [r for r, _ in coefficients(summary, SCRIBE, "without_first")]
    r, count = proposed[0]
    exact = all(abs(one - 1) < 1e-9 for one, _ in (*proposed, *coefficients(summary, TICKED)))
    r_scribe, count_scribe = scribe[0]
    every = [one for one, _ in scribe]
    return [
        Line(
            quantity="SG-TBPS: r of sending and forwarding, 99 % interval",
            paper="1.0, N/A",
            ours=f"{r:.4f}, {interval_words(r, count)}",
            band="equal, by definition",
            verdict="check" if exact else "differs",
            why="a topic's only publisher stands beside its subscribers, hands each message to one of them "
            f"and forwards nothing else; {repeats_words(proposed)}",
        ),
        one_run(
            PAPER_SCRIBE,
            every,
            quantity="Scribe: r of sending and forwarding, 99 % interval",
            paper="0.1310, -0.1290 to 0.3742",
            ours=f"{r_scribe:.4f}, {interval_words(r_scribe, count_scribe)}",
            why=f"{repeats_words(scribe)}. That says "
            "little: 100 pairs leave an interval 0.5 wide. Its mean is above 0 as the first hops of own "
            f"messages count; without them r is {np.mean(others):.3f} \u00b1 {np.std(others, ddof=1):.3f}",
        ),
        Line(
            quantity="most that a publisher forwards for each message of its own",
            paper="not stated",
            ours=f"SG-TBPS {max(extremes_of(summary, SG, 'most')):.1f}, "
            f"Scribe {extremes_of(summary, SCRIBE, 'most')[0]:,.0f}",
            verdict="beyond",
            why="in Scribe a publisher also forwards for the topics whose trees lead over it; "
            + graphs_words(extremes_of(summary, SCRIBE, "most")),
        ),
    ]


def draw(summary: Summary) -> list[Picture]:
    words = Words(
        "T3.12",
        "Sending against forwarding, all publishers",
        "messages sent, normalised",
        "messages forwarded, normalised",
        f"The {TOPICS} publishers of one graph, each of its own topic.",
    )
    series = {method: normalised(summary, method, "sent") for method in METHODS}
    return [clouds(words, series, {method: remark(summary, method) for method in METHODS})]


def parameters(scale: Scale) -> str:
    count = subscribers(scale)
    return (
        f"{TOPICS} topics of 1 publisher and {count:,} subscribers, N = {TOPICS * (count + 1):,}; the "
        f"publishers send 1, 2, ... {TOPICS} messages; MRF; {repeats(scale)} graphs, of which the "
        f"first stands for the paper's one; of Scribe {scribe_repeats(scale)}"
    )


EXPERIMENT = Experiment(
    name="T3.12",
    title="Forwarding against sending (Table 3.3)",
    parameters=parameters,
    run=simulate,
    summarise=summarise,
    compare=compare,
    draw=draw,
    notes=("Forwarded counts what a node sends to others, the first hop of its own messages included.",),
)
