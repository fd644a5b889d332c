"""S8: distribution of latencies in the Internet scenario."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ildm_bench.sim.experiments.framework import Frames, Line, Say, Scale, Summary, Tables, table
from ildm_bench.sim.experiments.stla.distribution import experiment, shorter, worst_of
from ildm_bench.sim.experiments.stla.distribution import run as run_all
from ildm_bench.sim.experiments.stla.distribution import summarise as summarise_all
from ildm_bench.sim.experiments.stla.scenarios import (
    FLAT,
    FLAT_READING,
    FLAT_TRIED,
    INTERNET,
    ST,
    STLA,
    most,
    routes,
    span,
)
from ildm_bench.sim.experiments.summary import collected
from ildm_bench.sim.experiments.verdicts import GRAPHS, one_run

SHOWN = (ST, STLA)
PAPER = {ST: ("almost 2,300 ms", 2_300), STLA: ("about 800 ms", 800)}
WHY = {
    ST: "the paths of our graphs are longer: 2,300 ms are 23 hops between continents. Random lists divide a "
    "range unevenly (T4.6); with evenly spaced ones 17 hops would do, so the paper's graph lies between",
    STLA: "outside the span of our graphs. Unknown of the paper's model: of how many graphs its worst case "
    "is, the exponent of Zipf's law and whether it holds at each layer, the deviation of a hop's latency, "
    "and the publisher's place",
}


def compare(summary: Summary, scale: Scale) -> list[Line]:
    lines = []
    for method, (paper, value) in PAPER.items():
        worst = worst_of(summary, method, "Zipf")
        agrees = worst["smallest"] <= value <= worst["largest"]
        lines.append(
            Line(
                quantity=f"worst case of {method}, Zipf",
                paper=paper,
                ours=f"{span(worst)} ms",
                band="in the span of our graphs",
                verdict="agree" if agrees else "differs",
                why="within the span of our graphs" if agrees else WHY[method],
            )
        )
    return [*lines, *flat(summary), *shorter(summary)]


def graphs(scale: Scale) -> int:
    """Under the flat law: as many as decide about one graph of the paper; fewer at small scale."""
    return GRAPHS if scale == "full" else 10


def run(scale: Scale, seed: int, say: Say) -> Tables:
    """As all distributions, and ``flat``: the worst case of each graph under the flat law."""
    tables = run_all(INTERNET, scale, seed, say)
    generator = np.random.default_rng((seed, 8))
    rows: list[dict[str, Any]] = []
    for repeat in range(graphs(scale)):
        say(f"{FLAT}, {repeat + 1} of {graphs(scale)}")
        found = routes(generator, INTERNET.hierarchy, most(scale), FLAT, SHOWN)
        rows.append(
            {"repeat": repeat}
            | {name: float(route.times(INTERNET.hierarchy, generator).max()) for name, route in found.items()}
        )
    return {**tables, "flat": table(rows)}


def summarise(frames: Frames) -> Summary:
    return {**summarise_all(frames), "flat": collected(frames["flat"], "repeat")}


def flat(summary: Summary) -> list[Line]:
    """The paper's graph among ours under the flat law."""
    lines = []
    for method, (paper, value) in PAPER.items():
        worst = [row[method] for row in summary["flat"]]
        lines.append(
            one_run(
                value,
                worst,
                quantity=f"worst case of {method}, {FLAT}",
                paper=paper,
                ours=f"{_ends(worst)} ms",
                why="the publisher is drawn like the subscribers",
                reading=FLAT_READING,
                tried=FLAT_TRIED,
            )
        )
    return lines


def _ends(values: list[float]) -> str:
    return span({"mean": sum(values) / len(values), "smallest": min(values), "largest": max(values)})


EXPERIMENT = replace(experiment(INTERNET, "S8", compare), run=run, summarise=summarise)
