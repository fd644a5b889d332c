"""S7 and S10: mean latency over the number of subscribers (V-A)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ildm_bench.report.svg import Picture
from ildm_bench.sim.experiments.drawing import Words, curves
from ildm_bench.sim.experiments.framework import (
    Experiment,
    Frames,
    Line,
    Say,
    Scale,
    Summary,
    Tables,
    table,
)
from ildm_bench.sim.experiments.stla.scenarios import (
    DISTRIBUTIONS,
    END,
    FLAT,
    FLAT_READING,
    FLAT_TRIED,
    LAWS,
    METHODS,
    PAIRS,
    REPEATS,
    SEARCHED,
    ST,
    STLA,
    WITHOUT,
    Scenario,
    most,
    one_world,
    parameters,
    percent,
    repeats,
    routes,
    sizes,
    span,
)
from ildm_bench.sim.experiments.summary import collected, means
from ildm_bench.sim.experiments.verdicts import judged, paired, ratio

PAPER = 0.76
"""Less with STLA, so that its time over that of ST is 0.24."""
ALL = (*METHODS, SEARCHED, END)
ENTRIES = 4
"""Entries and searches that were tried for S10, on seeds 1 to 23."""
BY = ["method", "distribution", "subscribers"]


def run(scenario: Scenario, scale: Scale, seed: int, say: Say) -> Tables:
    """A row for each publish: its mean and worst latency, and what STLA saves in the same world."""
    generator = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for subscribers in sizes(scale):
        say(f"M = {subscribers:,}")
        for repeat in range(repeats(subscribers, scale)):
            world = one_world(generator, subscribers)
            for distribution in LAWS:
                found = routes(generator, scenario.hierarchy, subscribers, distribution, ALL, world)
                times = {
                    method: route.times(scenario.hierarchy, generator) for method, route in found.items()
                }
                rows += [
                    {
                        "method": method,
                        "distribution": distribution,
                        "subscribers": subscribers,
                        "repeat": repeat,
                        "latency": float(of.mean()),
                        "saved": 1 - float(of.mean() / times[ST].mean()),
                    }
                    for method, of in times.items()
                ]
    return {"rows": table(rows)}


def summarise(frames: Frames) -> Summary:
    """``latency``, ``saved``: over the graphs; ``each``: what is saved in each graph of the largest size."""
    rows = frames["rows"]
    largest = max(row["subscribers"] for row in rows.select("subscribers").distinct().collect())
    each = rows.where(rows["subscribers"] == largest).select("method", "distribution", "repeat", "saved")
    return {kind: collected(means(rows, BY, kind), *BY) for kind in ("latency", "saved")} | {
        "each": collected(each, "method", "distribution", "repeat")
    }


def each_of(summary: Summary, method: str, distribution: str) -> list[float]:
    """What a method saves in each graph of the largest size."""
    return [
        row["saved"]
        for row in summary["each"]
        if (row["method"], row["distribution"]) == (method, distribution)
    ]


def row_of(summary: Summary, kind: str, method: str, distribution: str, subscribers: int) -> Any:
    return next(
        row
        for row in summary[kind]
        if (row["method"], row["distribution"], row["subscribers"]) == (method, distribution, subscribers)
    )


def compare(scenario: Scenario, why: str, summary: Summary, scale: Scale) -> list[Line]:
    largest = most(scale)
    latency = partial(row_of, summary, "latency")
    saved = partial(row_of, summary, "saved")
    lines = []
    for distribution in reversed(LAWS):
        share = saved(STLA, distribution, largest)
        lines.append(
            judged(
                ratio(1 - PAPER),
                [1 - value for value in each_of(summary, STLA, distribution)],
                quantity=f"mean latency of STLA against ST, {distribution}, {largest:,} subscribers",
                paper="76 % less (not said for which distribution)",
                ours=f"{percent(share)} less: {span(latency(STLA, distribution, largest))} against "
                f"{span(latency(ST, distribution, largest))} ms",
                why=f"STLA over ST; {why}",
                reading=FLAT_READING if distribution == FLAT else "",
                tried=FLAT_TRIED if distribution == FLAT else 0,
            )
        )
    for distribution in reversed(LAWS[1:]):
        popular, even = (each_of(summary, STLA, name) for name in (distribution, DISTRIBUTIONS[0]))
        differences = [100 * (one - other) for one, other in zip(popular, even, strict=True)]
        same = "graph, order of draws and rank of the publisher" if distribution == FLAT else "graph"
        lines.append(
            paired(
                differences,
                quantity=f"STLA saves more where places follow {distribution}, {largest:,} subscribers",
                paper="yes",
                ours=f"{sum(differences) / len(differences):+.1f} points",
                why=f"pairs have the same {same}",
                reading=FLAT_READING if distribution == FLAT else "",
                tried=FLAT_TRIED if distribution == FLAT else 0,
            )
        )
    least = sizes(scale)[0]
    for method in (ST, STLA):
        for distribution in DISTRIBUTIONS:
            few, many = (latency(method, distribution, count)["mean"] for count in (least, largest))
            lines.append(
                Line(
                    quantity=f"{method} scales, {distribution}",
                    paper="maintains scalability",
                    ours=f"{largest // least:,} times the subscribers take {many / few:.1f} times as long",
                    band="at most twice the logarithm",
                    verdict="agree" if many / few < 2 * math.log(largest, least) else "differs",
                    why=f"as the logarithm it were {math.log(largest, least):.1f} times; twice that agrees",
                )
            )
    lines += [
        Line(
            quantity=f"mean latency of {method} against ST, {distribution}",
            paper="not stated",
            ours=f"{percent(saved(method, distribution, largest))} less: "
            f"{span(latency(method, distribution, largest))} ms",
            verdict="beyond",
            why=ABOUT[method],
        )
        for method in ABOUT
        for distribution in reversed(LAWS)
    ]
    return lines


ABOUT = {
    WITHOUT: "what the start node adds: keys with places alone, entered at the farthest subscriber",
    SEARCHED: f"one of {ENTRIES} ways to read where and when a message enters that were tried for S10's 76 %",
    END: f"another of the {ENTRIES}",
}


def draw(scenario: Scenario, name: str, summary: Summary) -> Sequence[Picture]:
    points: dict[str, tuple[list[float], list[float]]] = {}
    ends: dict[str, tuple[list[float], list[float]]] = {}
    for method in METHODS:
        for distribution in DISTRIBUTIONS:
            rows = [
                row
                for row in summary["latency"]
                if (row["method"], row["distribution"]) == (method, distribution)
            ]
            label = f"{method}, {distribution}"
            points[label] = [row["subscribers"] for row in rows], [row["mean"] for row in rows]
            ends[label] = [row["smallest"] for row in rows], [row["largest"] for row in rows]
    words = Words(
        name,
        f"Mean latency of a delivery, {scenario.name}",
        "subscribers",
        "ms",
        f"Means of {REPEATS} graphs ({PAIRS} of the largest size), bars from the smallest to the largest. "
        f"{WITHOUT}: STLA's keys without "
        "its start node, not in the paper.",
    )
    return [curves(words, points, errors=ends, log_x=10, limit_y=(0, None))]


def experiment(scenario: Scenario, name: str, why: str, notes: Sequence[str] = ()) -> Experiment:
    """The experiment in one scenario; ``why`` goes with the paper's share."""
    return Experiment(
        name=name,
        title=f"Mean latency over the number of subscribers, {scenario.name}",
        parameters=lambda scale: parameters(
            scenario, f"10 to {most(scale):,} subscribers", f"{REPEATS} to {PAIRS}"
        ),
        run=partial(run, scenario),
        summarise=summarise,
        compare=partial(compare, scenario, why),
        draw=partial(draw, scenario, name),
        notes=notes,
    )
