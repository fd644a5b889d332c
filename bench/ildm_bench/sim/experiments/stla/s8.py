"""S8: distribution of latencies in the Internet scenario."""

from __future__ import annotations

from ildm_bench.sim.experiments.framework import Line, Scale, Summary
from ildm_bench.sim.experiments.stla.distribution import experiment, shorter, worst_of
from ildm_bench.sim.experiments.stla.scenarios import INTERNET, ST, STLA, span

PAPER = {ST: ("almost 2,300 ms", 2_300), STLA: ("about 800 ms", 800)}
WHY = {
    ST: "the paths of our graphs are longer: 2,300 ms are 23 hops between continents. Random lists divide a "
    "range unevenly (T4.6); with evenly spaced ones 17 hops would do, so the paper's graph lies between",
    STLA: "outside the span of our graphs. Unknown of the paper's model: of how many graphs its worst case "
    "is, the exponent of Zipf's law and whether it holds at each layer, the deviation of a hop's latency, "
    "and the publisher's place. Its value lies in the span of keys with places alone (last line)",
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
    return [*lines, *shorter(summary)]


EXPERIMENT = experiment(INTERNET, "S8", compare)
