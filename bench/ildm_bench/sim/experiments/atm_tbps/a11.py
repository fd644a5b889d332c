"""A11: longest path from publisher to subscriber (ATM-TBPS V, Fig. 11)."""

from __future__ import annotations

from ildm_bench.report.svg import Picture
from ildm_bench.sim.experiments.atm_tbps import topic
from ildm_bench.sim.experiments.atm_tbps.topic import ATM, METHODS, curve, ends, of
from ildm_bench.sim.experiments.drawing import Words, curves
from ildm_bench.sim.experiments.framework import Experiment, Frames, Line, Scale, Summary, in_all
from ildm_bench.sim.experiments.summary import collected, means
from ildm_bench.sim.experiments.topics import SCRIBE, SG


def summarise(frames: Frames) -> Summary:
    rows = frames["rows"]
    longer = rows.withColumn("longer", (rows["longest"] > rows["hops"]).cast("int"))
    found = collected(means(longer, ["method"], "longer"), "method")
    return {**topic.summarise(frames, "longest"), "longer": found}


def compare(summary: Summary, scale: Scale) -> list[Line]:
    flexible = {limit: of(summary, name) for limit, name in ATM.items()}
    plain, other = of(summary, SG), of(summary, SCRIBE)
    largest = max(plain)
    longer = {row["method"]: row for row in summary["longer"]}
    reach = {
        limit: [size for size, row in found.items() if row["largest"] == 1]
        for limit, found in flexible.items()
    }
    ways = (*flexible.values(), plain, other)
    return [
        Line(
            quantity="ATM-TBPS: one hop at most for few subscribers",
            paper="yes",
            ours=", ".join(
                f"L = {limit}: up to S = {max(found, default=0)}" for limit, found in reach.items()
            ),
            band="all paths of one hop at some S, both L",
            verdict=in_all([bool(found) for found in reach.values()]),
        ),
        *(
            Line(
                quantity=f"{method}: the longest path is longer than the mean",
                paper="yes",
                ours=f"in {longer[method]['mean']:.0%} of {longer[method]['count']} graphs",
                band="the mean, by definition",
                verdict="check" if longer[method]["mean"] == 1 else "open",
                why="by definition, unless all paths are equally long"
                if longer[method]["mean"] == 1
                else "not in every graph",
            )
            for method in (SG, SCRIBE)
        ),
        Line(
            quantity=f"longest path at S = {largest:,}: ATM-TBPS of L = 60 and 120, SG-TBPS, Scribe",
            paper="not in numbers",
            ours=", ".join(f"{found[largest]['mean']:.1f}" for found in ways),
            verdict="beyond",
        ),
    ]


def draw(summary: Summary) -> list[Picture]:
    series = {method: curve(of(summary, method)) for method in METHODS}
    caption = "Mean of the longest paths of all graphs; bars from the smallest to the largest."
    words = Words("A11", "Longest path of publishing", "subscribers of the topic", "most hops", caption)
    return [curves(words, series, errors=ends(summary), log_x=2, limit_y=(0, None))]


EXPERIMENT = Experiment(
    name="A11",
    title="Longest path of publishing",
    parameters=topic.parameters,
    run=topic.run,
    summarise=summarise,
    compare=compare,
    draw=draw,
)
