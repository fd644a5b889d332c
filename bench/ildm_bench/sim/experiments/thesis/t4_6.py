"""T4.6: mean number of hops of SFB and MRF over the size of the range (thesis 4.1.3).

Ideal membership vectors give the closed forms of the thesis, random ones what a real graph has.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ildm_bench.report.svg import Picture
from ildm_bench.sim.experiments.drawing import Points, Words, curves
from ildm_bench.sim.experiments.framework import Experiment, Frames, Line, Say, Scale, Summary, Tables, table
from ildm_bench.sim.experiments.summary import collected, means_of_repeats
from ildm_bench.sim.experiments.verdicts import at_least, judged
from ildm_bench.sim.routing import spread
from ildm_bench.sim.tables import build, ideal_vectors, random_vectors

ROUTINGS = ("SFB", "MRF")
ABOUT = 0.06
"""So near to one half counts as about half: for ideal vectors the closed forms give 0.53 at 131,072."""

LATER, LATER_FROM = 0.3, 1_024
"""Banno and Shudo, An Efficient Routing Method for Range Queries in Skip Graph, IEICE Trans. Inf. & Syst.
E103-D(3), 516-525, 2020, and IEICE Tech. Rep. IA2018-27, by simulation: so much less, roughly or more. Ours:
at each N_R from so many nodes on."""
READING = "the existing method there is MRF"
"""The abstracts name no method; MRF is the best of the older ones in the thesis."""
FEWER = "SFB still needs fewer hops at every N_R > 2"


def exponents(scale: Scale) -> range:
    """log2 of each N_R."""
    return range(18) if scale == "full" else range(12)


def repeats(nodes: int, scale: Scale) -> int:
    """Random graphs of a size: more where one alone says little."""
    least, most, keys = (40, 100, 65_536) if scale == "full" else (3, 20, 8_192)
    return max(least, min(most, keys // nodes))


def run(scale: Scale, seed: int, say: Say) -> Tables:
    """Rows: how many nodes of a graph have a depth."""
    generator = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for exponent in exponents(scale):
        nodes = 1 << exponent
        say(f"N_R = {nodes:,}")
        rows += _rows("ideal", 0, nodes, ideal_vectors(nodes))
        for repeat in range(repeats(nodes, scale)):
            rows += _rows("random", repeat, nodes, random_vectors(generator, nodes))
    return {"rows": table(rows)}


def _rows(kind: str, repeat: int, nodes: int, vectors: Any) -> list[dict[str, Any]]:
    graph = build(np.arange(nodes), vectors)
    rows = []
    for routing in ROUTINGS:
        counts = np.bincount(spread(graph, 0, 0, nodes, "sfb" if routing == "SFB" else "mrf").depth)
        rows += [
            {
                "vectors": kind,
                "routing": routing,
                "nodes": nodes,
                "repeat": repeat,
                "depth": depth,
                "count": count,
            }
            for depth, count in enumerate(counts.tolist())
            if count
        ]
    return rows


def summarise(frames: Frames) -> Summary:
    by = ["vectors", "routing", "nodes"]
    hops = means_of_repeats(frames["rows"], by, "repeat", "depth", "count")
    return {"hops": collected(hops, *by)}


def mean_hops(summary: Summary, vectors: str, routing: str) -> dict[int, float]:
    """Mean depth by N_R."""
    return {
        row["nodes"]: row["mean"]
        for row in summary["hops"]
        if (row["vectors"], row["routing"]) == (vectors, routing)
    }


def errors_of(summary: Summary, routing: str) -> dict[int, float]:
    """Standard error of the mean depth with random vectors, by N_R."""
    return {
        row["nodes"]: row["sd"] / math.sqrt(row["repeats"])
        for row in summary["hops"]
        if (row["vectors"], row["routing"]) == ("random", routing)
    }


def closed_form(routing: str, nodes: int) -> float:
    """H_SFB and H_MRF of the thesis."""
    digits = math.log2(nodes)
    return digits / 2 if routing == "SFB" else digits - 1 + 1 / nodes


def compare(summary: Summary, scale: Scale) -> list[Line]:
    lines = []
    for routing, formula in (("SFB", "log2(N_R) / 2"), ("MRF", "log2(N_R) - 1 + 1 / N_R")):
        ours = mean_hops(summary, "ideal", routing)
        off = max(abs(value - closed_form(routing, nodes)) for nodes, value in ours.items())
        largest = max(ours)
        lines.append(
            Line(
                quantity=f"{routing}, mean hops, ideal vectors",
                paper=f"{formula}; {closed_form(routing, largest):.3f} at {largest:,}",
                ours=f"{ours[largest]:.3f} at {largest:,}; largest deviation of all N_R {off:.1e}",
                band="equal, to 1e-9",
                verdict="check" if off < 1e-9 else "differs",
            )
        )
    lines.append(_saving(summary, "ideal", "about half of MRF for large N_R"))
    sfb, mrf = (mean_hops(summary, "random", routing) for routing in ROUTINGS)
    largest = max(sfb)
    digits = math.log2(largest)
    worse = [f"{nodes:,}" for nodes in sfb if nodes > 2 and sfb[nodes] >= mrf[nodes]]
    fewer = f"SFB needs as many hops or more at {', '.join(worse)}" if worse else FEWER
    lines += [
        Line(
            quantity="mean hops, random vectors",
            paper="assumed as with ideal ones",
            ours=", ".join(
                f"{routing} {mean:.2f} \u00b1 {error:.2f} = "
                f"{mean / digits:.2f} \u00b1 {error / digits:.2f} log2(N_R)"
                for routing, mean, error in (
                    (routing, found[largest], errors_of(summary, routing)[largest])
                    for routing, found in (("SFB", sfb), ("MRF", mrf))
                )
            )
            + f" at {largest:,}",
            band="as the closed form",
            verdict="differs",
            why="the thesis derives its means for evenly spaced lists. In a random graph the neighbour at a "
            "level is at a random distance, so that the range is divided unevenly and trees get deeper",
        ),
        _saving(
            summary,
            "random",
            "about half of MRF for large N_R",
            f"the uneven division costs SFB more than MRF; {fewer}",
        ),
        _later(sfb, mrf),
    ]
    return lines


def _later(sfb: dict[int, float], mrf: dict[int, float]) -> Line:
    """What the authors measured later, on graphs that are not ideal either."""
    saved = {nodes: 1 - sfb[nodes] / mrf[nodes] for nodes in sfb if nodes >= LATER_FROM}
    least = min(saved, key=lambda nodes: saved[nodes])
    return judged(
        at_least(LATER),
        [saved[least]],
        quantity=f"SFB saves of MRF's hops, random vectors, each N_R from {LATER_FROM:,} on",
        paper="later paper (E103-D(3), 2020; IA2018-27): roughly 30 % or more, by simulation",
        ours=f"at least {saved[least]:.1%} (N_R = {least:,}), {saved[max(saved)]:.1%} at {max(saved):,}",
        why="its abstracts do not name the method that SFB is compared with, and its text was not at hand",
        reading=READING,
        tried=1,
    )


def _saving(summary: Summary, vectors: str, paper: str, why: str = "") -> Line:
    sfb, mrf = (mean_hops(summary, vectors, routing) for routing in ROUTINGS)
    largest = max(sfb)
    part = sfb[largest] / mrf[largest]
    error = ""
    if vectors == "random":
        both = (errors_of(summary, routing)[largest] for routing in ROUTINGS)
        relative = math.hypot(
            *(one / mean for one, mean in zip(both, (sfb[largest], mrf[largest]), strict=True))
        )
        error = f" \u00b1 {part * relative:.3f}"
    near = abs(part - 0.5) <= ABOUT
    return Line(
        quantity=f"SFB / MRF, {vectors} vectors",
        paper=paper,
        ours=f"{part:.3f}{error} at {largest:,}: SFB saves {1 - part:.0%}",
        band=f"0.5 ± {ABOUT:g}",
        verdict="differs" if not near else "check" if vectors == "ideal" else "agree",
        why=why or f"to within {ABOUT}",
    )


def draw(summary: Summary) -> list[Picture]:
    series: dict[str, Points] = {}
    errors: dict[str, Points] = {}
    for kind in ("ideal", "random"):
        for routing in ROUTINGS:
            found = mean_hops(summary, kind, routing)
            label = f"{routing}{'' if kind == 'ideal' else ', random'}"
            series[label] = ([*found], [*found.values()])
            if kind == "random":
                off = [2 * error for error in errors_of(summary, routing).values()]
                errors[label] = (
                    [mean - error for mean, error in zip(found.values(), off, strict=True)],
                    [mean + error for mean, error in zip(found.values(), off, strict=True)],
                )
    words = Words(
        "T4.6",
        "Mean number of hops",
        "nodes in the range, N_R",
        "mean hops",
        "Ideal membership vectors lie on the closed forms log2(N_R) / 2 and log2(N_R) - 1 + 1 / N_R; random "
        "ones are means over several graphs, bars two standard errors to each side.",
    )
    return [curves(words, series, errors=errors, log_x=2)]


def parameters(scale: Scale) -> str:
    largest = 1 << exponents(scale)[-1]
    return (
        f"N_R = 1, 2, 4, ... {largest:,}; the leftmost node is the first receiver; random vectors: mean over "
        f"{repeats(largest, scale)} (largest) to {repeats(1, scale)} (smallest) graphs"
    )


EXPERIMENT = Experiment(
    name="T4.6",
    title="SFB against MRF: mean number of hops",
    parameters=parameters,
    run=run,
    summarise=summarise,
    compare=compare,
    draw=draw,
    notes=(
        "As in the thesis the first receiver counts with 0 hops.",
        "\u00b1 is the standard error of the mean over the graphs.",
    ),
)
