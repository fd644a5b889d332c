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
from ildm_bench.sim.experiments.verdicts import change, judged, mean_interval
from ildm_bench.sim.octopia import Octopia
from ildm_bench.sim.padres import Padres

OCTOPIA, PADRES = "OctopiA", "PADRES"
FITTED = "fitted"
COSTS: dict[str, Costs] = {
    "constant": Costs(exponential=False),
    "exponential": Costs(),
    "links apart": Costs(shared=False),
    "hops alone": Costs(hop=0.0035, matching=0.0, sending=0.0),
    FITTED: Costs(hop=0.0035, matching=0.0003, srt_row=12e-6, prt_row=0.1e-6, sending=0.0),
}
ASSUMED = tuple(name for name in COSTS if name != FITTED)
FITTED_READING = (
    "costs fitted to O10 to O15: hop 3.5 ms, matching 0.3 ms, 12 us a row of SRT or CLT, 0.1 us of PRT; "
    "PADRES stores a subscription once and its TIDs apart"
)
FITTED_TRIED = 15
"""Sets of costs that were tried, on seeds 1 to 3. They were fixed before fresh seeds were run."""
GRID = whole_grid()
NODES = [*GRID.members]
NEIGHBORS = neighbors(GRID)
Row = Mapping[str, Any]
APART = 0.1
"""Seconds between two things that clients do, so that each is over before the next."""


def system(name: str, costs: str, seed: str) -> Octopia | Padres:
    """All brokers, with empty tables."""
    links = Links(COSTS[costs], Random(f"{seed}/{name}"))
    if name == OCTOPIA:
        return Octopia(GRID, links)
    return Padres(NEIGHBORS, links, stored_once=costs == FITTED)


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
    stated: float | None = None
    """The paper's change in percent."""
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
        "each": collected(rows.select(*narrow, "repeat", "change"), *narrow, "repeat"),
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


def percent(share: float) -> str:
    return f"{share:+.1%}" if abs(share) < 0.0995 else f"{share:+,.0%}"


def spread(row: Row, *, times: bool = False) -> str:
    """Mean and, in brackets, smallest and largest, of relative changes."""
    mean, low, high = (
        f"{1 + row[end]:.1f} times" if times else percent(row[end]) for end in ("mean", "smallest", "largest")
    )
    return mean if low == high else f"{mean} ({low} to {high})"


def line(quantity: Quantity, summary: Summary) -> Line:
    """The paper's change beside ours under each of the costs."""
    rows = [one(summary["overall"], quantity=quantity.key, costs=name) for name in ASSUMED]
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
        ours = "; ".join(f"{name}: {text}" for name, text in zip(ASSUMED, said, strict=True))
    sign = quantity.stated is not None and quantity.within is None
    return Line(
        quantity=quantity.key + (": sign" if sign else ""),
        paper=quantity.paper,
        ours=ours,
        band=quantity.band,
        verdict="check" if quantity.check and verdict == "agree" else verdict,
        why=quantity.why if quantity.always or verdict != "agree" else "",
    )


def sized(quantity: Quantity, summary: Summary) -> Line:
    """The paper's change in percent, and ours under each of the assumed costs held against its band."""
    assert quantity.stated is not None
    band = change(quantity.stated)
    verdicts: set[Verdict] = set()
    said = []
    for name in ASSUMED:
        low, high = mean_interval(changes(quantity, name, summary))
        verdicts.add(band.holds((low, high)))
        said.append(f"{name}: {low:+.3g} to {high:+.3g}")
    return Line(
        quantity=f"{quantity.key}: by how much",
        paper=quantity.paper,
        ours="; ".join(said) + " %",
        band=f"95 % interval in {band.words}, under all costs",
        verdict=verdicts.pop() if len(verdicts) == 1 else "open",
        why=quantity.why or "it depends on costs that the paper does not state",
    )


def changes(quantity: Quantity, costs: str, summary: Summary) -> list[float]:
    """In percent, of each repeat and size."""
    wanted = (quantity.key, costs)
    return [100 * row["change"] for row in summary["each"] if (row["quantity"], row["costs"]) == wanted]


def fitted(quantity: Quantity, summary: Summary, why: str = "") -> Line:
    """The same under the fitted costs."""
    assert quantity.stated is not None
    values = changes(quantity, FITTED, summary)
    return judged(
        change(quantity.stated),
        values,
        quantity=f"{quantity.key}, {FITTED}",
        paper=quantity.paper,
        ours=f"{sum(values) / len(values):+.1f} ({min(values):+.1f} to {max(values):+.1f}) %",
        why=why or "under one set of costs for O10 to O15",
        reading=FITTED_READING,
        tried=FITTED_TRIED,
    )


def trend(quantity: Quantity, text: str, summary: Summary, why: str) -> Line:
    """Whether the difference is smaller at the largest size than at the smallest."""
    ends = []
    for name in ASSUMED:
        rows = [row for row in summary["sizes"] if row["quantity"] == quantity.key and row["costs"] == name]
        rows.sort(key=lambda row: int(row["size"]))
        ends.append((rows[0]["mean"], rows[-1]["mean"]))
    verdict = in_all([abs(last) < abs(first) for first, last in ends])
    said = (f"{name}: {percent(a)} to {percent(b)}" for name, (a, b) in zip(ASSUMED, ends, strict=True))
    return Line(
        quantity=text,
        paper="yes",
        ours="; ".join(said),
        band="sign: less at the largest size than at the smallest, under all costs",
        verdict=verdict,
        why="" if verdict == "agree" else why,
    )


def picture(
    quantities: Sequence[Quantity],
    summary: Summary,
    of: tuple[str, int],
    title: str,
    names: Sequence[str] = ASSUMED,
) -> Picture:
    """All systems over the sizes, a panel for each of the costs. ``of``: what sizes are of, and of how many
    one is drawn as 1."""
    what, unit = of
    parts: dict[str, dict[str, Points]] = {}
    errors: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
    ends = [(q.first, "first", q.key) for q in quantities] + [(q.second, "second", q.key) for q in quantities]
    for name in names:
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
