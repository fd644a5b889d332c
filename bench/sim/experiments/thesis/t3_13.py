"""T3.13 and the lower half of Table 3.3: receiving against forwarding (thesis 3.4.3)."""

from __future__ import annotations

import math

from bench.report.svg import Picture
from bench.sim.experiments.drawing import Words, clouds
from bench.sim.experiments.framework import Experiment, Frames, Line, Scale, Summary
from bench.sim.experiments.thesis.forwarding import (
    BASE_4,
    METHODS,
    SHOWN,
    TOPICS,
    coefficients,
    interval_words,
    normalised,
    remark,
    repeats_words,
    simulate,
    summary_of,
)
from bench.sim.experiments.thesis.t3_12 import parameters
from bench.sim.experiments.topics import SCRIBE, SG

PAPER = 0.5483
PAPER_INTERVAL = (0.5426, 0.5540)


def summarise(frames: Frames) -> Summary:
    return summary_of(frames, "subscriber", "received")


def expected(doubled: float) -> float:
    """r where that share of the subscribers forwards a message twice, as many do not forward it, and the
    rest once, independently of how many messages (1 to 100) their topic has."""
    sent = range(1, TOPICS + 1)
    mean = sum(sent) / TOPICS
    square = sum(k * k for k in sent) / TOPICS
    variance = square - mean * mean
    return math.sqrt(variance / (variance + 2 * doubled * square))


def compare(summary: Summary, scale: Scale) -> list[Line]:
    proposed, scribe = coefficients(summary, SG), coefficients(summary, SCRIBE)
    r, count = proposed[0]
    r_scribe, count_scribe = scribe[0]
    extremes = {row["method"]: row for row in summary["extremes"]}
    doubled = extremes[SG]["doubled"]
    wider = coefficients(summary, BASE_4)
    every = [one for one, _ in proposed]
    agrees = min(every) <= PAPER <= max(every) or PAPER_INTERVAL[0] <= r <= PAPER_INTERVAL[1]
    theirs = next(share / 1000 for share in range(1, 500) if expected(share / 1000) <= PAPER)
    return [
        Line(
            quantity="SG-TBPS: r of receiving and forwarding, 99 % interval",
            paper=f"{PAPER}, {PAPER_INTERVAL[0]:.4f} to {PAPER_INTERVAL[1]:.4f}",
            ours=f"{r:.4f}, {interval_words(r, count)}",
            verdict="agree" if agrees else "differs",
            why=f"{repeats_words(proposed)}. r depends on one number alone, the share of subscribers with "
            f"two children in their tree: {doubled:.1%} make {expected(doubled):.3f}, the paper's r means "
            f"{theirs:.1%}. The share falls with the base of the vectors (next line), which the thesis does "
            "not state: the paper's lies between those of base 2 and 4",
        ),
        Line(
            quantity="the same, membership vectors of base 4",
            paper="not stated",
            ours=f"{wider[0][0]:.4f}, {interval_words(*wider[0])}",
            verdict="beyond",
            why=f"{repeats_words(wider)}; {extremes[BASE_4]['doubled']:.1%} have two children",
        ),
        Line(
            quantity="SG-TBPS: receiving and forwarding are correlated",
            paper="yes",
            ours=f"r of all graphs at least {min(every):.3f}",
            verdict="agree" if min(every) > 0.3 else "differs",
        ),
        Line(
            quantity="Scribe: r of receiving and forwarding, 99 % interval",
            paper="-0.0045, -0.0126 to 0.0037",
            ours=f"{r_scribe:.4f}, {interval_words(r_scribe, count_scribe)}",
            verdict="agree" if abs(r_scribe) < 3 / math.sqrt(count_scribe) else "differs",
            why="no correlation in both; " + repeats_words(scribe),
        ),
        Line(
            quantity="SG-TBPS: forwards per message received, at most",
            paper="2",
            ours=f"{extremes[SG]['most']:g}",
            verdict="agree" if extremes[SG]["most"] <= 2 else "differs",
        ),
        Line(
            quantity="Scribe: forwards per message received, at most",
            paper="more than 1,000",
            ours=f"{extremes[SCRIBE]['most']:,.0f}",
            verdict="agree" if extremes[SCRIBE]["most"] > 1_000 else "differs",
            why="" if scale == "full" else "at the paper's N only",
        ),
    ]


def draw(summary: Summary) -> list[Picture]:
    words = Words(
        "T3.13",
        f"Receiving against forwarding, {SHOWN:,} subscribers",
        "messages received, normalised",
        "messages forwarded, normalised",
        "Subscribers of one graph, drawn at random. The three lines of SG-TBPS: nodes with no, one and two "
        "children.",
    )
    series = {method: normalised(summary, method, "received") for method in METHODS}
    return [clouds(words, series, {method: remark(summary, method) for method in METHODS})]


EXPERIMENT = Experiment(
    name="T3.13",
    title="Forwarding against receiving (Table 3.3)",
    parameters=parameters,
    run=simulate,
    summarise=summarise,
    compare=compare,
    draw=draw,
    notes=("Fisher's interval takes the nodes for independent, which those of one tree are not.",),
)
