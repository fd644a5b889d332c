"""T3.8: messages on the overlay when all publishers of a topic without subscribers publish (thesis 3.4.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ildm_bench.report.numbers import counted
from ildm_bench.report.svg import Picture
from ildm_bench.sim.experiments.drawing import Words, bars
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
from ildm_bench.sim.experiments.summary import collected, mean_of_sums, means
from ildm_bench.sim.experiments.thesis.publishing import METHODS, PUBLISHERS, REPEATS, nodes_of, publish_rows
from ildm_bench.sim.experiments.thesis.suspension import OTHERS, Suspension
from ildm_bench.sim.experiments.thesis.t3_7 import BY, mean_messages
from ildm_bench.sim.experiments.topics import SCRIBE, SG, topics_in


def run(scale: Scale, seed: int, say: Say) -> Tables:
    """``rows``: one for each message that publishers who are not suspended publish. ``signals``: what
    suspending them costs, once. ``mechanism``: what SG-TBPS itself does, a row for each small overlay."""
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
    mechanism = []
    for publishers in PUBLISHERS:
        for repeat in range(worlds(scale)):
            say(f"{publishers} publishers of SG-TBPS itself, {repeat + 1} of {worlds(scale)}")
            mechanism.append({"repeat": repeat, **Suspension(publishers, seed + repeat).run()})
    return {"rows": table(rows), "signals": table(signals), "mechanism": table(mechanism)}


def worlds(scale: Scale) -> int:
    """Overlays of the plugin itself."""
    return 3 if scale == "full" else 1


def summarise(frames: Frames) -> Summary:
    return {
        "messages": collected(mean_of_sums(frames["rows"], BY, "repeat", "messages"), *BY),
        "signals": collected(means(frames["signals"], ["publishers"], "messages"), "publishers"),
        "mechanism": collected(frames["mechanism"], "publishers", "repeat"),
    }


def of_publishers(summary: Summary, publishers: int) -> list[Mapping[str, Any]]:
    """What SG-TBPS itself did, overlay by overlay."""
    return [row for row in summary["mechanism"] if row["publishers"] == publishers]


def compare(summary: Summary, scale: Scale) -> list[Line]:
    mean = mean_messages(summary)
    unsuspended, scribe = ([mean[method, p, 0] for p in PUBLISHERS] for method in METHODS)
    signals = [row["mean"] for row in summary["signals"]]
    groups = " and ".join(map(str, PUBLISHERS))
    found = [of_publishers(summary, p) for p in PUBLISHERS]
    nodes = " and ".join(str(rows[0]["nodes"]) for rows in found)
    none = [row["messages_without"] == 0 for rows in found for row in rows]
    heard = all(
        row["delivered_with"] == row["delivered_again"] == row["publishers"] for rows in found for row in rows
    )
    with_one = ", ".join(f"{np.mean([row['messages_with'] for row in rows]):.4g}" for rows in found)
    suspends = ", ".join(f"{np.mean([row['signals'] for row in rows]):g}" for rows in found)
    return [
        Line(
            quantity=f"SG-TBPS, {groups} publishers",
            paper="0, 0",
            ours=", ".join(f"{np.mean([row['messages_without'] for row in rows]):g}" for rows in found),
            band="equal, in all overlays",
            any_scale=True,
            verdict=in_all(none) if heard else "differs",
            why=f"the plugin itself on {nodes} nodes, {counted(worlds(scale), 'overlay')} each, after the "
            f"last subscriber has left; with one subscriber before that and after: {with_one} messages, "
            + ("all delivered" if heard else "NOT ALL DELIVERED"),
        ),
        Line(
            quantity="the same if publishers were not suspended",
            paper="not stated",
            ours=", ".join(f"{value:g}" for value in unsuspended),
            verdict="beyond",
            why=f"on tables of N = {nodes_of(scale):,}: each message is routed to where subscribers would be",
        ),
        Line(
            quantity=f"Scribe, {groups} publishers",
            paper="more than 0",
            ours=", ".join(f"{value:g}" for value in scribe),
            band="more than 0",
            verdict="check" if all(scribe) else "differs",
            why="each message goes to the root, which has nobody to send it to",
        ),
        Line(
            quantity=f"to suspend {groups} publishers, once",
            paper="not counted",
            ours=f"{suspends} by messages; {', '.join(f'{value:g}' for value in signals)} on tables",
            verdict="beyond",
            why="the rendezvous point reaches all other publishers by one range query, and as many to resume",
        ),
    ]


def draw(summary: Summary) -> list[Picture]:
    mean = mean_messages(summary)
    suspended = [
        float(np.mean([r["messages_without"] for r in of_publishers(summary, p)])) for p in PUBLISHERS
    ]
    series = {
        SG: suspended,
        f"{SG}, if not suspended": [mean[SG, p, 0] for p in PUBLISHERS],
        SCRIBE: [mean[SCRIBE, p, 0] for p in PUBLISHERS],
    }
    words = Words(
        "T3.8",
        "Messages associated with publishing, no subscriber",
        "publishers of the topic",
        "messages",
        f"All publishers publish once; mean of {REPEATS} graphs. SG-TBPS: the plugin itself on few nodes; "
        "the others: on tables of all nodes.",
    )
    return [bars(words, list(map(str, PUBLISHERS)), series, height=2.6)]


def parameters(scale: Scale) -> str:
    return (
        f"a topic with {PUBLISHERS[0]} or {PUBLISHERS[1]} publishers, all of its subscribers have left; all "
        f"publishers publish once; tables: N = {nodes_of(scale):,}, mean of {REPEATS}; SG-TBPS itself: "
        f"{OTHERS:g} nodes for each that has a part in the topic, {counted(worlds(scale), 'overlay')}"
    )


EXPERIMENT = Experiment(
    name="T3.8",
    runs="tables; plugin sg_tbps",
    title="Messages of publishing, no subscriber",
    parameters=parameters,
    run=run,
    summarise=summarise,
    compare=compare,
    draw=draw,
)
