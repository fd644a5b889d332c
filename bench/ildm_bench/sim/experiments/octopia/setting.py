"""What the experiments of this folder share: costs, systems, and how two systems are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from ildm_bench.report.svg import Picture
from ildm_bench.sim.brokers import Costs, Links, neighbors, whole_grid
from ildm_bench.sim.experiments.drawing import Points, Words, panels
from ildm_bench.sim.experiments.framework import Frames, Line, Summary, Verdict, in_all
from ildm_bench.sim.experiments.summary import collected, means
from ildm_bench.sim.octopia import Octopia
from ildm_bench.sim.padres import Padres

OCTOPIA, PADRES = "OctopiA", "PADRES"
COSTS: dict[str, Costs] = {
    "constant": Costs(exponential=False),
    "exponential": Costs(),
    "links apart": Costs(shared=False),
    "hops alone": Costs(hop=0.0035, matching=0.0, sending=0.0),
}
GRID = whole_grid()
NODES = [*GRID.members]
NEIGHBORS = neighbors(GRID)
Row = Mapping[str, Any]
APART = 0.1
"""Seconds between two things that clients do, so that each is over before the next."""


def system(name: str, costs: Costs, seed: str) -> Octopia | Padres:
    """All brokers, with empty tables."""
    links = Links(costs, Random(f"{seed}/{name}"))
    return Octopia(GRID, links) if name == OCTOPIA else Padres(NEIGHBORS, links)


class Delays:
    """The longest time until each advertisement or subscription was where it had to get."""

    def __init__(self) -> None:
        self._began: dict[tuple[str, int], float] = {}
        self.longest: dict[tuple[str, int], float] = {}

    def begin(self, what: Any, at: float) -> None:
        self._began[type(what).__name__, what.uid] = at

    def reached(self, node_id: str, what: Any, at: float) -> None:
        key = (type(what).__name__, what.uid)
        self.longest[key] = max(self.longest.get(key, 0.0), at - self._began[key])

    def mean(self, kind: str) -> float:
        """In milliseconds."""
        found = [seconds for (of, _), seconds in self.longest.items() if of == kind]
        return 1e3 * sum(found) / len(found)


@dataclass(frozen=True)
class Quantity:
    """Something that is measured of two systems, and what the paper says of it."""

    name: str
    """``O7``: its figure. Of quantities of one figure the first is drawn."""
    text: str
    first: str
    second: str
    """What is said is how much more ``first`` has than ``second``."""
    paper: str
    unit: str
    below: bool = False
    """The paper's change is below zero."""
    least: float = 0.0
    """So far from zero at least."""
    within: float | None = None
    """Instead of a sign: so near to zero in all cases."""
    times: bool = False
    """Said as "so many times as many"."""
    check: bool = False
    """It follows from the shape of the overlay alone."""
    why: str = ""
    """Said unless it agrees, or if ``always``."""
    always: bool = False

    @property
    def band(self) -> str:
        """What the change has to keep under each of the costs."""
        if self.within is not None:
            return f"at most {self.within:.0%} from none"
        least = f", by {self.least:.0%} at least" if self.least else ""
        return f"sign: {'less' if self.below else 'more'}{least}, all seeds and costs"

    @property
    def measure(self) -> str:
        return f"{self.name}: {self.text}"

    @property
    def key(self) -> str:
        return f"{self.measure}, {self.first} against {self.second}"


def measured(quantity: Quantity, costs: str, repeat: int, size: int, values: Mapping[str, float]) -> Row:
    """A row: what each of the two systems has, and how much more the first."""
    first, second = values[quantity.first], values[quantity.second]
    return {
        "quantity": quantity.key,
        "costs": costs,
        "repeat": repeat,
        "size": size,
        "first": first,
        "second": second,
        "change": first / second - 1,
    }


def summarise(frames: Frames) -> Summary:
    """``overall``: the change by costs; ``sizes``, ``first``, ``second``: by size, too."""
    rows = frames["rows"]
    wide, narrow = ["quantity", "costs"], ["quantity", "costs", "size"]
    return {
        "overall": collected(means(rows, wide, "change"), *wide),
        "sizes": collected(means(rows, narrow, "change"), *narrow),
        "first": collected(means(rows, narrow, "first"), *narrow),
        "second": collected(means(rows, narrow, "second"), *narrow),
    }


def one(rows: Sequence[Row], **by: Any) -> Row:
    """The row that is meant.

    Raises:
        ValueError: there are none or several.
    """
    (found,) = (row for row in rows if all(row[key] == value for key, value in by.items()))
    return found


def percent(change: float) -> str:
    return f"{change:+.1%}" if abs(change) < 0.0995 else f"{change:+,.0%}"


def spread(row: Row, *, times: bool = False) -> str:
    """Mean and, in brackets, smallest and largest, of relative changes."""
    mean, low, high = (
        f"{1 + row[end]:.1f} times" if times else percent(row[end]) for end in ("mean", "smallest", "largest")
    )
    return mean if low == high else f"{mean} ({low} to {high})"


def line(quantity: Quantity, summary: Summary) -> Line:
    """The paper's change beside ours under each of the costs."""
    rows = [one(summary["overall"], quantity=quantity.key, costs=name) for name in COSTS]
    if quantity.within is not None:
        near = quantity.within
        holds = [max(abs(row["smallest"]), abs(row["largest"])) <= near for row in rows]
        fails = [min(abs(row["smallest"]), abs(row["largest"])) > near for row in rows]
    elif quantity.below:
        holds = [row["largest"] < -quantity.least for row in rows]
        fails = [row["smallest"] >= -quantity.least for row in rows]
    else:
        holds = [row["smallest"] > quantity.least for row in rows]
        fails = [row["largest"] <= quantity.least for row in rows]
    verdict: Verdict = "agree" if all(holds) else "differs" if all(fails) else "open"
    said = [spread(row, times=quantity.times) for row in rows]
    if len(set(said)) == 1:
        ours = said[0]
    else:
        ours = "; ".join(f"{name}: {text}" for name, text in zip(COSTS, said, strict=True))
    return Line(
        quantity=quantity.key,
        paper=quantity.paper,
        ours=ours,
        band=quantity.band,
        verdict="check" if quantity.check and verdict == "agree" else verdict,
        why=quantity.why if quantity.always or verdict != "agree" else "",
    )


def trend(quantity: Quantity, text: str, summary: Summary, why: str) -> Line:
    """Whether the difference is smaller at the largest size than at the smallest."""
    ends = []
    for name in COSTS:
        rows = [row for row in summary["sizes"] if row["quantity"] == quantity.key and row["costs"] == name]
        rows.sort(key=lambda row: int(row["size"]))
        ends.append((rows[0]["mean"], rows[-1]["mean"]))
    verdict = in_all([abs(last) < abs(first) for first, last in ends])
    said = (f"{name}: {percent(a)} to {percent(b)}" for name, (a, b) in zip(COSTS, ends, strict=True))
    return Line(
        quantity=text,
        paper="yes",
        ours="; ".join(said),
        band="sign: less at the largest size than at the smallest, under all costs",
        verdict=verdict,
        why="" if verdict == "agree" else why,
    )


def picture(quantities: Sequence[Quantity], summary: Summary, of: tuple[str, int], title: str) -> Picture:
    """All systems over the sizes, a panel for each of the costs. ``of``: what sizes are of, and of how many
    one is drawn as 1."""
    what, unit = of
    parts: dict[str, dict[str, Points]] = {}
    errors: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
    ends = [(q.first, "first", q.key) for q in quantities] + [(q.second, "second", q.key) for q in quantities]
    for name in COSTS:
        parts[name], errors[name] = {}, {}
        for label, which, key in ends:
            rows = [row for row in summary[which] if (row["quantity"], row["costs"]) == (key, name)]
            rows.sort(key=lambda row: int(row["size"]))
            sizes = [row["size"] // unit if row["size"] % unit == 0 else row["size"] / unit for row in rows]
            parts[name][label] = (sizes, [row["mean"] for row in rows])
            errors[name][label] = ([row["smallest"] for row in rows], [row["largest"] for row in rows])
    first = quantities[0]
    stated = "; ".join(f"{q.first} against {q.second} {q.paper}" for q in quantities)
    caption = f"Means of all seeds; bars: smallest and largest. The paper: {stated}."
    words = Words(first.name, title, f"{what} ({unit:,}s)", first.unit, caption)
    values = [value for part in parts.values() for _, found in part.values() for value in found]
    if max(values) > 10 * min(values):
        return panels(words, parts, errors=errors, log_y=10)
    return panels(words, parts, errors=errors, limit_y=(0, None), shared=True)
