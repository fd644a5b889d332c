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
    in_all,
    table,
)
from ildm_bench.sim.experiments.stla.scenarios import (
    DISTRIBUTIONS,
    METHODS,
    REPEATS,
    ST,
    STLA,
    WITHOUT,
    Scenario,
    most,
    parameters,
    percent,
    routes,
    sizes,
    span,
)
from ildm_bench.sim.experiments.summary import collected, means

PAPER = 0.76
NEAR = 0.05
"""So near to the paper's share counts as the same, where graphs differ by more than that."""
BY = ["method", "distribution", "subscribers"]


def run(scenario: Scenario, scale: Scale, seed: int, say: Say) -> Tables:
    """A row for each publish: its mean and worst latency, and what STLA saves in the same world."""
    generator = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for subscribers in sizes(scale):
        say(f"M = {subscribers:,}")
        for distribution in DISTRIBUTIONS:
            for repeat in range(REPEATS):
                found = routes(generator, scenario.hierarchy, subscribers, distribution)
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
    return {kind: collected(means(frames["rows"], BY, kind), *BY) for kind in ("latency", "saved")}


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
    for distribution in reversed(DISTRIBUTIONS):
        share = saved(STLA, distribution, largest)
        agrees = share["smallest"] <= PAPER <= share["largest"] or abs(share["mean"] - PAPER) <= NEAR
        lines.append(
            Line(
                quantity=f"mean latency of STLA against ST, {distribution}, {largest:,} subscribers",
                paper="76 % less (not said for which distribution)",
                ours=f"{percent(share)} less: {span(latency(STLA, distribution, largest))} against "
                f"{span(latency(ST, distribution, largest))} ms",
                band=f"in the span of our graphs, or {100 * NEAR:g} points from their mean",
                verdict="agree" if agrees else "differs",
                why=f"within the span of our graphs, or {100 * NEAR:g} points of their mean"
                if agrees
                else why,
            )
        )
    better = [
        saved(STLA, "Zipf", count)["mean"] > saved(STLA, "uniform", count)["mean"] for count in sizes(scale)
    ]
    lines.append(
        Line(
            quantity="STLA saves more where places follow Zipf",
            paper="yes",
            ours=f"at {sum(better)} of {len(better)} numbers of subscribers; at {largest:,} "
            f"{saved(STLA, 'Zipf', largest)['mean']:.1%} against "
            f"{saved(STLA, 'uniform', largest)['mean']:.1%}",
            band="at each number of subscribers",
            verdict=in_all(better),
            why="means of graphs that differ by more than the two distributions do",
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
            quantity=f"mean latency of {WITHOUT} against ST, {distribution}",
            paper="not stated",
            ours=f"{percent(saved(WITHOUT, distribution, largest))} less: "
            f"{span(latency(WITHOUT, distribution, largest))} ms",
            verdict="beyond",
            why="what the start node adds: keys with places alone, entered at the farthest subscriber",
        )
        for distribution in reversed(DISTRIBUTIONS)
    ]
    return lines


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
        f"Means of {REPEATS} graphs, bars from the smallest to the largest. {WITHOUT}: STLA's keys without "
        "its start node, not in the paper.",
    )
    return [curves(words, points, errors=ends, log_x=10, limit_y=(0, None))]


def experiment(scenario: Scenario, name: str, why: str) -> Experiment:
    """The experiment in one scenario; ``why`` explains a share other than the paper's."""
    return Experiment(
        name=name,
        title=f"Mean latency over the number of subscribers, {scenario.name}",
        parameters=lambda scale: parameters(scenario, f"10 to {most(scale):,} subscribers"),
        run=partial(run, scenario),
        summarise=summarise,
        compare=partial(compare, scenario, why),
        draw=partial(draw, scenario, name),
    )
