"""A10: mean length of the path from publisher to subscriber (ATM-TBPS V, Fig. 10)."""

from __future__ import annotations

from statistics import fmean

from ildm_bench.report.svg import Picture
from ildm_bench.sim.experiments.atm_tbps import topic
from ildm_bench.sim.experiments.atm_tbps.topic import (
    ATM,
    DIVIDED,
    FEW,
    HALF,
    METHODS,
    TRIED,
    Of,
    curve,
    ends,
    of,
)
from ildm_bench.sim.experiments.drawing import Words, curves
from ildm_bench.sim.experiments.framework import Experiment, Frames, Line, Scale, Summary, Verdict
from ildm_bench.sim.experiments.topics import SCRIBE, SG
from ildm_bench.sim.experiments.verdicts import one_run, under

READING = "half of the room in a table learned"
TABLE = 58
"""Entries of the largest table of SG-TBPS."""


def summarise(frames: Frames) -> Summary:
    return topic.summarise(frames, "hops")


def single_hop(found: Of) -> int:
    """The greatest size up to which all graphs have paths of one hop; 0: none."""
    reached = 0
    for size, row in found.items():
        if row["largest"] > 1:
            break
        reached = size
    return reached


def cuts(flexible: Of, plain: Of) -> dict[int, tuple[float, float]]:
    """By size how much shorter paths are, and the standard error of that."""
    found = {}
    for size, row in flexible.items():
        ratio = row["mean"] / plain[size]["mean"]
        error = sum((each["sd"] / each["mean"]) ** 2 / each["repeats"] for each in (row, plain[size])) ** 0.5
        found[size] = 1 - ratio, ratio * error
    return found


def least(of_sizes: dict[int, tuple[float, float]], claim: float) -> tuple[str, Verdict]:
    """The smallest cut in words, and whether it is above a claim, by two standard errors."""
    size = min(of_sizes, key=lambda at: of_sizes[at][0])
    cut, error = of_sizes[size]
    verdict: Verdict = "agree" if cut - 2 * error > claim else "open" if cut > claim else "differs"
    return f"{cut:.1%} ± {error:.1%} at S = {size:,}", verdict


def of_cuts(of_sizes: dict[int, tuple[float, float]]) -> float:
    """The smallest cut."""
    return min(cut for cut, _ in of_sizes.values())


def compare(summary: Summary, scale: Scale) -> list[Line]:
    flexible = {limit: of(summary, name) for limit, name in ATM.items()}
    plain, other = of(summary, SG), of(summary, SCRIBE)
    largest = max(plain)
    reach = {limit: single_hop(found) for limit, found in flexible.items()}
    cut = cuts(flexible[60], plain)
    few, few_verdict = least({size: value for size, value in cut.items() if size <= FEW}, 0.6)
    many_cuts = {size: value for size, value in cut.items() if size > FEW}
    many, many_verdict = least(many_cuts, 0.2)
    halves = cuts(of(summary, HALF[60]), plain)
    direct = of(summary, DIVIDED)
    divided, _ = least(cuts({size: flexible[60][size] for size in direct}, direct), 0.6)
    slots = [row["slots"] for row in summary["slots"]]
    return [
        Line(
            quantity="L = 120: one hop to everybody up to S =",
            paper=str(FEW),
            ours=f"{reach[120]} in all graphs",
            band="a bound: at least the paper's S",
            verdict="agree" if reach[120] >= FEW else "differs",
            why="S doubles from step to step; the neighbours need room in the table as well",
        ),
        Line(
            quantity="L = 60: one hop to everybody up to S =",
            paper="not in numbers",
            ours=f"{reach[60]} in all graphs",
            verdict="beyond",
        ),
        Line(
            quantity=f"L = 60: shorter than SG-TBPS up to S = {FEW}, at least",
            paper="more than 60 %",
            ours=few,
            band="a bound: above 60 %, by two standard errors",
            verdict=few_verdict,
            why="SG-TBPS enters the range at the publisher's farthest neighbour there; were it divided "
            f"among all of the publisher's neighbours in it, the least cut would be {divided}",
        ),
        Line(
            quantity="L = 60: shorter than SG-TBPS for larger topics, at least",
            paper="more than 20 %",
            ours=many,
            band="a bound: above 20 %, by two standard errors",
            verdict=many_verdict,
            why="our tables hold all that can be learned here. The cut is "
            f"{of_cuts(many_cuts) / 0.2:.1f} times the bound: the paper's brokers had learned less, or "
            "its bound is a cautious one",
        ),
        *(
            Line(
                quantity=f"the same with half of the room learned, {words}, at least",
                paper=f"more than {claim:.0%}",
                ours=half[0],
                band=f"a bound: above {claim:.0%}, by two standard errors",
                verdict=under(half[1], READING),
                why=f"the least cut is {of_cuts(part) / claim:.1f} times the bound",
                reading=READING,
                tried=TRIED,
            )
            for words, claim, part in (
                (f"up to S = {FEW}", 0.6, {size: value for size, value in halves.items() if size <= FEW}),
                ("larger topics", 0.2, {size: value for size, value in halves.items() if size > FEW}),
            )
            for half in (least(part, claim),)
        ),
        Line(
            quantity=f"mean hops at S = 10 and {largest:,}: ATM-TBPS of L = 60 and 120, SG-TBPS, Scribe",
            paper="not in numbers",
            ours="; ".join(
                f"{found[10]['mean']:.2f} and {found[largest]['mean']:.2f}"
                for found in (*flexible.values(), plain, other)
            ),
            verdict="beyond",
        ),
        one_run(
            TABLE,
            slots,
            quantity="largest table of SG-TBPS",
            paper=f"{TABLE}",
            ours=f"{fmean(slots):.0f} ({min(slots):.0f} to {max(slots):.0f}), two a level",
            why="the paper does not say what it counts. Here two places a level are; fewer are filled, and "
            "fewer yet are different neighbours",
            reading="two places a level",
            tried=3,
        ),
    ]


def draw(summary: Summary) -> list[Picture]:
    series = {method: curve(of(summary, method)) for method in METHODS}
    caption = "Mean over graphs; bars from the smallest to the largest."
    words = Words("A10", "Length of the path of publishing", "subscribers of the topic", "mean hops", caption)
    return [curves(words, series, errors=ends(summary), log_x=2, limit_y=(0, None))]


EXPERIMENT = Experiment(
    name="A10",
    title="Mean length of the path of publishing",
    parameters=topic.parameters,
    run=topic.run,
    summarise=summarise,
    compare=compare,
    draw=draw,
    notes=("The publisher of Scribe knows the root: its first message is one hop.",),
)
