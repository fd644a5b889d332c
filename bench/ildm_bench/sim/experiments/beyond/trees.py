"""Beyond the papers: delays along the tree of links that nodes choose, beside other trees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ildm_bench.report.svg import Picture
from ildm_bench.sim.experiments.drawing import Words, bars
from ildm_bench.sim.experiments.framework import Experiment, Frames, Line, Say, Scale, Summary, Tables, table
from ildm_bench.sim.experiments.stla.scenarios import INTERNET
from ildm_bench.sim.experiments.summary import collected, means
from ildm_bench.sim.spanning import Delays, between_cities, chosen, from_median, improved, paths
from ildm_bench.testbed.distance import Distances

MESH = "each to each"
AGE, DELAY, MEDIAN, BEST = "oldest links", "least delay", "shortest from the median", "best found"
METHODS = (MESH, AGE, DELAY, MEDIAN, BEST)
TWELVE, FORTY, REGIONS, HUNDRED = (
    "12 cities",
    "40 cities",
    "12 sites, 3 regions",
    "100 sites, STLA's Internet",
)
REPEATS = 5
BY = ["world", "method"]
FIGURES = ("mean", "worst", "hops", "degree")


def worlds(generator: np.random.Generator, scale: Scale) -> Iterator[tuple[str, Delays]]:
    """Delays between sites, by the name of the world."""
    yield TWELVE, between_cities(generator, 12)
    regions = Distances.by_regions(dict.fromkeys(("a", "b", "c"), 4), 4, 40)
    yield REGIONS, np.asarray(regions.delays_ms)
    if scale == "full":
        yield FORTY, between_cities(generator, 40)
        places = INTERNET.hierarchy.draw(generator, 100, "uniform")
        one, other = np.triu_indices(100, 1)
        delays = np.zeros((100, 100))
        delays[one, other] = INTERNET.hierarchy.hops(generator, places[one], places[other])
        yield HUNDRED, delays + delays.T


def rows_of(world: str, delays: Delays, generator: np.random.Generator) -> Iterator[dict[str, Any]]:
    """A row for each method."""
    count = len(delays)
    pairs = count * (count - 1)
    direct = {"mean": float(delays.sum() / pairs), "worst": float(delays.max()), "hops": 1.0}
    yield {"world": world, "method": MESH, **direct, "degree": count - 1}
    ages = generator.random((count, count))
    median = from_median(delays)
    by_delay = chosen(delays, ages, by_delay=True)
    starts = [improved(delays, tree) for tree in (median, by_delay)]
    trees = {
        AGE: chosen(delays, ages, by_delay=False),
        DELAY: by_delay,
        MEDIAN: median,
        BEST: min(starts, key=lambda tree: paths(delays, tree).mean),
    }
    for method, tree in trees.items():
        yield {"world": world, "method": method, **paths(delays, tree)._asdict()}


def run(scale: Scale, seed: int, say: Say) -> Tables:
    """``rows``: the paths of each tree."""
    generator = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for repeat in range(REPEATS):
        say(f"repeat {repeat + 1}")
        for world, delays in worlds(generator, scale):
            rows += [row | {"repeat": repeat} for row in rows_of(world, delays, generator)]
    return {"rows": table(rows)}


def summarise(frames: Frames) -> Summary:
    return {figure: collected(means(frames["rows"], BY, figure), *BY) for figure in FIGURES}


def by_tree(summary: Summary, figure: str) -> Mapping[tuple[str, str], float]:
    return {(row["world"], row["method"]): row["mean"] for row in summary[figure]}


def compare(summary: Summary, scale: Scale) -> list[Line]:
    found = [by_tree(summary, figure) for figure in FIGURES]
    lines = []
    for world in dict.fromkeys(world for world, _ in found[0]):
        for method in METHODS:
            mean, worst, hops, degree = (of[world, method] for of in found)
            ours = f"{mean:.0f} ms on average, at most {worst:.0f}; {hops:.1f} hops"
            ours += f"; {degree:.0f} links of one site"
            lines.append(
                Line(quantity=f"{world}: {method}", paper="not compared", ours=ours, verdict="beyond")
            )
    return lines


def draw(summary: Summary) -> list[Picture]:
    found = by_tree(summary, "mean")
    names = list(dict.fromkeys(world for world, _ in found))
    words = Words(
        "trees_mean_ms",
        "Delay from site to site along a tree",
        "sites",
        "mean one-way delay, ms",
        "Mean over all pairs of sites and the repeats; each site has a link with each other.",
    )
    return [bars(words, names, {method: [found[name, method] for name in names] for method in METHODS})]


def parameters(scale: Scale) -> str:
    return (
        "all pairs of sites, each with a link to each other of a random age; cities at 1.2 to 1.9 times the "
        f"great circle in fibre; three regions of four sites, 40 ms apart and 4 within; {REPEATS} repeats"
    )


EXPERIMENT = Experiment(
    name="trees",
    runs="trees of the link layer",
    title="Delays along the tree of links",
    parameters=parameters,
    run=run,
    summarise=summarise,
    compare=compare,
    draw=draw,
    notes=(
        "The nodes' own code chooses the trees of the oldest links (`link.tree: age`) and of the least "
        "delay; its weights are steps of 19 %.",
        "The best tree found is one that no exchange of one link makes better in the mean. The least mean of "
        "all is hard to find.",
        "Time in nodes is not counted; a message passes one for each hop.",
    ),
)
