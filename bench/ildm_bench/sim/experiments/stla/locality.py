"""S9 and S12: in which layers messages are sent (V-A, routing locality)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

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
from ildm_bench.sim.experiments.stla.scenarios import (
    DISTRIBUTIONS,
    FLAT,
    FLAT_READING,
    FLAT_TRIED,
    LAWS,
    PAIRS,
    ST,
    STLA,
    Scenario,
    most,
    one_world,
    parameters,
    routes,
)
from ildm_bench.sim.experiments.summary import collected, means
from ildm_bench.sim.experiments.verdicts import paired, under

BY = ["method", "distribution", "layer"]
SHOWN = (ST, STLA)


def run(scenario: Scenario, scale: Scale, seed: int, say: Say) -> Tables:
    """A row for each publish and layer: the share of its messages that no deeper cluster holds."""
    generator = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for repeat in range(PAIRS):
        say(f"{repeat + 1} of {PAIRS}")
        world = one_world(generator, most(scale))
        for distribution in LAWS:
            found = routes(generator, scenario.hierarchy, most(scale), distribution, SHOWN, world)
            for method in SHOWN:
                counts = found[method].layers(scenario.hierarchy)
                rows += [
                    {
                        "method": method,
                        "distribution": distribution,
                        "layer": layer,
                        "repeat": repeat,
                        "share": count / int(counts.sum()),
                    }
                    for layer, count in enumerate(counts.tolist())
                ]
    return {"rows": table(rows)}


def summarise(frames: Frames) -> Summary:
    """``shares``: over the graphs; ``each``: the share of the lowest layer in each graph."""
    rows = frames["rows"]
    lowest = max(row["layer"] for row in rows.select("layer").distinct().collect())
    each = rows.where(rows["layer"] == lowest).select("method", "distribution", "repeat", "share")
    return {
        "shares": collected(means(rows, BY, "share"), *BY),
        "each": collected(each, "method", "distribution", "repeat"),
    }


def share_of(summary: Summary, method: str, distribution: str, layer: int) -> Any:
    """Over the graphs, the share of the messages in a layer."""
    return next(
        row
        for row in summary["shares"]
        if (row["method"], row["distribution"], row["layer"]) == (method, distribution, layer)
    )


def words_of(row: Any) -> str:
    return f"{row['mean']:.2%} ({row['smallest']:.2%}-{row['largest']:.2%})"


def compare(scenario: Scenario, why: str, summary: Summary, scale: Scale) -> list[Line]:
    lowest = len(scenario.layers) - 1
    share = partial(share_of, summary)
    lines = []
    for laws in (DISTRIBUTIONS, (FLAT,)):
        reading = FLAT_READING if FLAT in laws else ""
        for layer, wanted in ((lowest, "more"), (0, "fewer")):
            holds = [
                share(STLA, distribution, layer)["smallest"] > share(ST, distribution, layer)["largest"]
                if wanted == "more"
                else share(STLA, distribution, layer)["largest"] < share(ST, distribution, layer)["smallest"]
                for distribution in laws
            ]
            of = f", {FLAT}" if reading else ""
            lines.append(
                Line(
                    quantity=f"messages {scenario.layers[layer]}: {wanted} with STLA{of}",
                    paper="yes",
                    ours="; ".join(
                        f"{distribution} {words_of(share(STLA, distribution, layer))} against "
                        f"{words_of(share(ST, distribution, layer))}"
                        for distribution in laws
                    ),
                    band="in all graphs",
                    verdict=under(in_all(holds), reading),
                    reading=reading,
                    tried=FLAT_TRIED if reading else 0,
                )
            )
    for method in SHOWN:
        for distribution in LAWS[1:]:
            popular, even = (
                [
                    100 * row["share"]
                    for row in summary["each"]
                    if (row["method"], row["distribution"]) == (method, name)
                ]
                for name in (distribution, DISTRIBUTIONS[0])
            )
            differences = [one - other for one, other in zip(popular, even, strict=True)]
            lines.append(
                paired(
                    differences,
                    quantity=f"{method}: messages {scenario.layers[lowest]}, more with {distribution} than "
                    "uniform",
                    paper="yes",
                    ours=f"{sum(differences) / len(differences):+.4f} points: "
                    f"{words_of(share(method, distribution, lowest))} against "
                    f"{words_of(share(method, DISTRIBUTIONS[0], lowest))}",
                    why=why,
                    reading=FLAT_READING if distribution == FLAT else "",
                    tried=FLAT_TRIED if distribution == FLAT else 0,
                )
            )
    return lines


def draw(scenario: Scenario, name: str, summary: Summary) -> Sequence[Picture]:
    series, ends = {}, {}
    for method in SHOWN:
        for distribution in DISTRIBUTIONS:
            rows = [share_of(summary, method, distribution, layer) for layer in range(len(scenario.layers))]
            label = f"{method}, {distribution}"
            series[label] = [row["mean"] for row in rows]
            ends[label] = [row["smallest"] for row in rows], [row["largest"] for row in rows]
    words = Words(
        name,
        f"Routing locality, {scenario.name}",
        "layer",
        "share of the messages",
        f"Means of {PAIRS} graphs, bars from the smallest to the largest.",
    )
    return [bars(words, scenario.layers, series, errors=ends, height=3.2, numbered=False)]


def experiment(scenario: Scenario, name: str, why: str = "") -> Experiment:
    """The experiment in one scenario; ``why`` explains distributions that cannot be told apart."""
    return Experiment(
        name=name,
        title=f"Routing locality, {scenario.name}",
        parameters=lambda scale: parameters(scenario, f"{most(scale):,} subscribers"),
        run=partial(run, scenario),
        summarise=summarise,
        compare=partial(compare, scenario, why),
        draw=partial(draw, scenario, name),
    )
