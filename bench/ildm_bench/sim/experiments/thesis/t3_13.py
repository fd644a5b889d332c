"""T3.13 and the lower half of Table 3.3: receiving against forwarding (thesis 3.4.3)."""

from __future__ import annotations

import math

import numpy as np

from ildm_bench.report.svg import Picture
from ildm_bench.sim.experiments.drawing import Words, clouds
from ildm_bench.sim.experiments.framework import Experiment, Frames, Line, Scale, Summary, in_all
from ildm_bench.sim.experiments.thesis.forwarding import (
    BASE_4,
    FEWER,
    LEVELS,
    METHODS,
    READING,
    SHOWN,
    TICKED,
    TICKS,
    TOPICS,
    TRIED,
    coefficients,
    extremes_of,
    graphs_words,
    interval_words,
    normalised,
    remark,
    repeats_words,
    simulate,
    summary_of,
)
from ildm_bench.sim.experiments.thesis.t3_12 import parameters
from ildm_bench.sim.experiments.topics import SCRIBE, SG
from ildm_bench.sim.experiments.verdicts import CENTRAL, at_least, mean_interval, under

PAPER = 0.5483
PAPER_INTERVAL = (0.5426, 0.5540)
CORRELATED = 0.3


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
    whole = coefficients(summary, TICKED)
    r, count = proposed[0]
    r_scribe, count_scribe = scribe[0]
    doubled = float(np.mean(extremes_of(summary, SG, "doubled")))
    most, most_scribe = (extremes_of(summary, method, "most") for method in METHODS)
    every = [one for one, _ in proposed]
    agrees = min(every) <= PAPER <= max(every) or PAPER_INTERVAL[0] <= r <= PAPER_INTERVAL[1]
    theirs = next(share / 1000 for share in range(1, 500) if expected(share / 1000) <= PAPER)
    apart = (PAPER - float(np.mean(every))) / float(np.std(every, ddof=1))
    beyond_1000 = [float(value > 1_000) for value in most_scribe]
    share = at_least((1 - CENTRAL) / 2)
    return [
        Line(
            quantity="SG-TBPS: r of receiving and forwarding, 99 % interval",
            paper=f"{PAPER}, {PAPER_INTERVAL[0]:.4f} to {PAPER_INTERVAL[1]:.4f}",
            ours=f"{r:.4f}, {interval_words(r, count)}",
            band=f"among our graphs, or ours in {PAPER_INTERVAL[0]} to {PAPER_INTERVAL[1]}",
            verdict="agree" if agrees else "differs",
            why=f"with exactly 1, 2, ... {TOPICS} messages. {repeats_words(proposed)}: the paper's r is "
            f"{apart:.0f} standard deviations of graphs away. r depends on the share of subscribers with two "
            f"children in their tree ({doubled:.1%} make {expected(doubled):.3f}, the paper's r means "
            f"{theirs:.1%}), and on the spread of the counts (next line)",
        ),
        Line(
            quantity="SG-TBPS: r of receiving and forwarding, counts of whole ticks",
            paper=f"{PAPER}, {PAPER_INTERVAL[0]:.4f} to {PAPER_INTERVAL[1]:.4f}",
            ours=f"{whole[0][0]:.4f}, {interval_words(*whole[0])}",
            band=f"all graphs in {PAPER_INTERVAL[0]} to {PAPER_INTERVAL[1]}",
            verdict=under(
                in_all([PAPER_INTERVAL[0] <= one <= PAPER_INTERVAL[1] for one, _ in whole]), READING
            ),
            why=f"{repeats_words(whole)}. A publisher of k messages in {TICKS} ticks sends one each "
            f"floor({TICKS} / k) ticks; {TRIED} tick lengths and roundings were tried",
            reading=READING,
            tried=TRIED,
        ),
        *(
            Line(
                quantity=f"the same, {words}",
                paper="not measured",
                ours=f"{found[0][0]:.4f}, {interval_words(*found[0])}",
                verdict="beyond",
                why=f"{repeats_words(found)}; {np.mean(extremes_of(summary, method, 'doubled')):.1%} have "
                "two children",
            )
            for method, words in ((BASE_4, "vectors of base 4"), (FEWER, f"at most {LEVELS} levels"))
            for found in (coefficients(summary, method),)
        ),
        Line(
            quantity="SG-TBPS: receiving and forwarding are correlated",
            paper="yes",
            ours=f"r of all graphs at least {min(every):.3f}",
            band=f"above {CORRELATED}, all graphs",
            verdict=in_all([one > CORRELATED for one in every]),
            why=f"above {CORRELATED} counts as correlated",
        ),
        Line(
            quantity="Scribe: r of receiving and forwarding, 99 % interval",
            paper="-0.0045, -0.0126 to 0.0037",
            ours=f"{r_scribe:.4f}, {interval_words(r_scribe, count_scribe)}",
            band="|r| below 3 standard errors of none, all graphs",
            verdict=in_all([abs(one) < 3 / math.sqrt(pairs) for one, pairs in scribe]),
            why="no correlation in both; " + repeats_words(scribe),
        ),
        Line(
            quantity="SG-TBPS: forwards per message received, at most",
            paper="2",
            ours=f"{max(most):g}",
            band="at most 2, by construction",
            verdict="check" if max(most) <= 2 else "differs",
            why="MRF divides what is left of a range into two parts at most",
        ),
        Line(
            quantity="Scribe: forwards per message received, at most",
            paper="more than 1,000",
            ours=f"{most_scribe[0]:,.0f}",
            band=f"one run of the paper: more than 1,000 in {share.low:.0%} of graphs at least",
            verdict=share.holds(mean_interval(beyond_1000)),
            value=float(np.mean(beyond_1000)),
            limits=(share.low, share.high),
            why=f"{graphs_words(most_scribe)}, more than 1,000 in {sum(beyond_1000):.0f} of them; the paper "
            "has one" + ("" if scale == "full" else ", and more nodes"),
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
