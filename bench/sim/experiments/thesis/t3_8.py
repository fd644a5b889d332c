"""T3.8: messages on the overlay when all publishers of a topic without subscribers publish (thesis 3.4.1)."""

from __future__ import annotations

import numpy as np

from bench.report.svg import Picture
from bench.sim.experiments.drawing import Words, bars
from bench.sim.experiments.framework import Experiment, Frames, Line, Say, Scale, Summary, Tables, table
from bench.sim.experiments.summary import collected, mean_of_sums, means
from bench.sim.experiments.thesis.publishing import METHODS, PUBLISHERS, REPEATS, nodes_of, publish_rows
from bench.sim.experiments.thesis.t3_7 import BY, mean_messages
from bench.sim.experiments.topics import SCRIBE, SG, topics_in


def run(scale: Scale, seed: int, say: Say) -> Tables:
    """``rows``: one for each message published. ``signals``: what suspending its publishers cost, once."""
    rows = publish_rows(scale, seed, (0,), say)
    generator = np.random.default_rng(seed)
    signals = [
        {
            "publishers": publishers,
            "repeat": repeat,
            "messages": topics_in(generator, nodes_of(scale), 1, publishers, 0).signal(0, "mrf"),
        }
        for publishers in PUBLISHERS
        for repeat in range(REPEATS)
    ]
    return {"rows": table(rows), "signals": table(signals)}


def summarise(frames: Frames) -> Summary:
    return {
        "messages": collected(mean_of_sums(frames["rows"], BY, "repeat", "messages"), *BY),
        "signals": collected(means(frames["signals"], ["publishers"], "messages"), "publishers"),
    }


def compare(summary: Summary, scale: Scale) -> list[Line]:
    mean = mean_messages(summary)
    proposed, scribe = ([mean[method, p, 0] for p in PUBLISHERS] for method in METHODS)
    signals = [row["mean"] for row in summary["signals"]]
    groups = " and ".join(map(str, PUBLISHERS))
    return [
        Line(
            quantity=f"SG-TBPS, {groups} publishers",
            paper="0, 0",
            ours=", ".join(f"{value:g}" for value in proposed),
            verdict="agree" if not any(proposed) else "differs",
            why="the rendezvous point's left neighbour is no subscriber of the topic, all are suspended",
        ),
        Line(
            quantity=f"Scribe, {groups} publishers",
            paper="more than 0",
            ours=", ".join(f"{value:g}" for value in scribe),
            verdict="agree" if all(scribe) else "differs",
            why="each message goes to the root, which has nobody to send it to",
        ),
        Line(
            quantity=f"to suspend {groups} publishers, once",
            paper="not counted",
            ours=", ".join(f"{value:g}" for value in signals),
            verdict="beyond",
            why="the rendezvous point reaches all other publishers by one range query, and as many to resume",
        ),
    ]


def draw(summary: Summary) -> list[Picture]:
    mean = mean_messages(summary)
    series = {method: [mean[method, p, 0] for p in PUBLISHERS] for method in (SG, SCRIBE)}
    words = Words(
        "T3.8",
        "Messages associated with publishing, no subscriber",
        "publishers of the topic",
        "messages",
        f"All publishers publish once; mean of {REPEATS} graphs.",
    )
    return [bars(words, list(map(str, PUBLISHERS)), series, height=2.6)]


def parameters(scale: Scale) -> str:
    return (
        f"N = {nodes_of(scale):,}; a topic with {PUBLISHERS[0]} or {PUBLISHERS[1]} publishers, all of its "
        f"subscribers have left; all publishers publish once; mean of {REPEATS}"
    )


EXPERIMENT = Experiment(
    name="T3.8",
    title="Messages of publishing, no subscriber",
    parameters=parameters,
    run=run,
    summarise=summarise,
    compare=compare,
    draw=draw,
)
