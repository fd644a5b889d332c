"""S8 and S11: how latencies are distributed (V-A)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ildm_bench.analysis.histogram import cdf
from ildm_bench.report.svg import Picture
from ildm_bench.sim.experiments.drawing import Points, Words, panels
from ildm_bench.sim.experiments.framework import Experiment, Frames, Line, Say, Scale, Summary, Tables, table
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
    routes,
    span,
)
from ildm_bench.sim.experiments.summary import buckets, collected, histogram_of, means

BY = ["method", "distribution"]
RESOLUTION = 200

Compare = Callable[[Summary, Scale], list[Line]]


def run(scenario: Scenario, scale: Scale, seed: int, say: Say) -> Tables:
    """``latencies``: how many deliveries took how many units; ``worst``: the last of each publish, in ms."""
    generator = np.random.default_rng(seed)
    latencies: list[dict[str, Any]] = []
    worst: list[dict[str, Any]] = []
    for distribution in DISTRIBUTIONS:
        say(distribution)
        for repeat in range(REPEATS):
            found = routes(generator, scenario.hierarchy, most(scale), distribution)
            for method in METHODS:
                times = found[method].times(scenario.hierarchy, generator)
                key = {"method": method, "distribution": distribution, "repeat": repeat}
                worst.append(key | {"worst": float(times.max())})
                units, counts = np.unique((times / scenario.unit).astype(np.int64), return_counts=True)
                latencies += [
                    key | {"units": unit, "count": count}
                    for unit, count in zip(units.tolist(), counts.tolist(), strict=True)
                ]
    return {"latencies": table(latencies), "worst": table(worst)}


def summarise(frames: Frames) -> Summary:
    counted = buckets(frames["latencies"], BY, "units", "count")
    return {
        "worst": collected(means(frames["worst"], BY, "worst"), *BY),
        "latencies": collected(counted, *BY, "bucket"),
    }


def worst_of(summary: Summary, method: str, distribution: str) -> Any:
    """Over the graphs, the latency of the last delivery."""
    return next(
        row for row in summary["worst"] if (row["method"], row["distribution"]) == (method, distribution)
    )


def shorter(summary: Summary) -> list[Line]:
    """The worst case of STLA beside that of ST, and of what lies between them."""
    lines = []
    for distribution in DISTRIBUTIONS:
        st, stla = (worst_of(summary, method, distribution) for method in (ST, STLA))
        lines.append(
            Line(
                quantity=f"the worst case of STLA is shorter, {distribution}",
                paper="yes",
                ours=f"{span(stla)} against {span(st)} ms",
                band="the longest of STLA below the shortest of ST, all graphs",
                verdict="agree" if stla["largest"] < st["smallest"] else "differs",
            )
        )
    return [
        *lines,
        *(
            Line(
                quantity=f"worst case of {WITHOUT}, {distribution}",
                paper="not stated",
                ours=f"{span(worst_of(summary, WITHOUT, distribution))} ms",
                verdict="beyond",
                why="without a start node: entered at the farthest subscriber the publisher knows",
            )
            for distribution in DISTRIBUTIONS
        ),
    ]


def draw(scenario: Scenario, name: str, summary: Summary) -> Sequence[Picture]:
    rows = [dict(row) for row in summary["latencies"]]
    parts: dict[str, dict[str, Points]] = {}
    for distribution in DISTRIBUTIONS:
        series: dict[str, Points] = {}
        for method in METHODS:
            histogram = histogram_of(rows, method=method, distribution=distribution)
            last = worst_of(summary, method, distribution)["largest"]
            points = [last * place / RESOLUTION for place in range(RESOLUTION + 1)]
            shares = cdf(histogram, [point / scenario.unit for point in points])
            series[method] = points, shares
        parts[distribution] = series
    words = Words(
        name,
        f"Cumulative distribution of latencies, {scenario.name}",
        "ms",
        "share of the deliveries",
        f"All deliveries of {REPEATS} graphs together. {WITHOUT}: STLA's keys without its start node.",
    )
    return [panels(words, parts, markers=False, shared=True)]


def experiment(scenario: Scenario, name: str, compare: Compare) -> Experiment:
    return Experiment(
        name=name,
        title=f"Distribution of latencies, {scenario.name}",
        parameters=lambda scale: parameters(scenario, f"{most(scale):,} subscribers"),
        run=partial(run, scenario),
        summarise=summarise,
        compare=compare,
        draw=partial(draw, scenario, name),
    )
