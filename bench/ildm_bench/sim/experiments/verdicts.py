"""Verdicts: what a value of the paper is held against, and what comes of it.

A band goes with every verdict: limits in numbers, or a relation in words. Values are judged by intervals, not
by one draw. The 95 % interval of the mean over graphs, runs or seeds lies within the limits (*agree*),
outside (*differs*), or does both (*open*).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from ildm_bench.sim.experiments.framework import Line, Verdict

Interval = tuple[float, float]
VALUE = 0.1
"""A value of the paper (ms, hops, times) stands for itself plus and minus this share."""
CHANGE, LEAST_CHANGE = 0.25, 1.0
"""A change in percent stands for itself plus and minus this share, and at least so many points."""
RATIO = 0.05
"""A ratio of two times stands for itself plus and minus this."""
CENTRAL = 0.9
"""One run of the paper has to lie in this share of ours, the middle one."""
GRAPHS = 200
"""Fewer graphs of ours do not decide about one run of the paper."""
_STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Quantiles of Student's t at 97.5 %, for 1 to 30 degrees of freedom."""


class Band(NamedTuple):
    """Limits that our value has to keep; None: no limit on that side."""

    low: float | None
    high: float | None
    words: str

    def holds(self, interval: Interval) -> Verdict:
        """Whether an interval lies in the band."""
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        if low <= interval[0] and interval[1] <= high:
            return "agree"
        return "differs" if interval[1] < low or high < interval[0] else "open"


def around(value: float) -> Band:
    """The band of a value of the paper."""
    low, high = sorted((value * (1 - VALUE), value * (1 + VALUE)))
    return Band(low, high, f"{low:.4g} to {high:.4g} ({value:g} ± {VALUE:.0%})")


def change(percent: float) -> Band:
    """The band of a change that the paper gives in percent; -34 is a third less."""
    off = max(CHANGE * abs(percent), LEAST_CHANGE)
    words = f"{percent - off:+.4g} to {percent + off:+.4g} % ({percent:+g} % ± a quarter, at least 1 point)"
    return Band(percent - off, percent + off, words)


def ratio(value: float) -> Band:
    """The band of a ratio of two times."""
    return Band(
        value - RATIO, value + RATIO, f"{value - RATIO:.4g} to {value + RATIO:.4g} ({value:g} ± {RATIO})"
    )


def at_least(value: float) -> Band:
    """A lower bound of the paper."""
    return Band(value, None, f"a bound: at least {value:g}")


def at_most(value: float) -> Band:
    """An upper bound of the paper."""
    return Band(None, value, f"a bound: at most {value:g}")


def mean_interval(values: Sequence[float]) -> Interval:
    """The 95 % interval of the mean of independent values by Student's t; of one value, the value twice.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("an interval of no values")
    middle = fmean(values)
    if len(values) == 1:
        return middle, middle
    freedom = len(values) - 1
    t = _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else 1.960 + 2.4 / freedom
    half = t * stdev(values) / math.sqrt(len(values))
    return middle - half, middle + half


def paired_interval(ones: Sequence[float], others: Sequence[float]) -> Interval:
    """The 95 % interval of the mean of the differences, one minus other; a pair shares a graph or seed.

    Raises:
        ValueError: not as many of the one as of the other, or none.
    """
    return mean_interval([one - other for one, other in zip(ones, others, strict=True)])


def central(values: Sequence[float], share: float = CENTRAL) -> Interval:
    """The limits of that share of the values which is in the middle, both included.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("the middle of no values")
    ordered = sorted(values)
    cut = math.floor(round((1 - share) / 2 * len(ordered), 9))
    return ordered[cut], ordered[-1 - cut]


def among(theirs: float, values: Sequence[float]) -> Verdict:
    """Whether one run of the paper is one of ours; ``open`` with fewer than `GRAPHS` of ours."""
    if len(values) < GRAPHS:
        return "open"
    low, high = central(values)
    return "agree" if low <= theirs <= high else "differs"


def judged(
    band: Band,
    values: Sequence[float],
    *,
    quantity: str,
    paper: str,
    ours: str,
    why: str = "",
    reading: str = "",
    tried: int = 0,
) -> Line:
    """The line of a quantity whose mean over ``values`` (graphs, runs) has to keep a band."""
    return Line(
        quantity=quantity,
        paper=paper,
        ours=ours,
        verdict=under(band.holds(mean_interval(values)), reading),
        band=band.words,
        why=why,
        reading=reading,
        tried=tried,
        value=fmean(values),
        limits=(band.low, band.high),
    )


def one_run(
    theirs: float,
    values: Sequence[float],
    *,
    quantity: str,
    paper: str,
    ours: str,
    why: str = "",
    reading: str = "",
    tried: int = 0,
) -> Line:
    """The line of one run of the paper beside many graphs of ours."""
    return Line(
        quantity=quantity,
        paper=paper,
        ours=ours,
        verdict=under(among(theirs, values), reading),
        band=f"one run of the paper: in the central {CENTRAL:.0%} of at least {GRAPHS} graphs of ours",
        why=why,
        reading=reading,
        tried=tried,
        theirs=theirs,
        sample=tuple(values),
    )


def paired(
    differences: Sequence[float],
    *,
    quantity: str,
    paper: str,
    ours: str,
    why: str = "",
    reading: str = "",
    tried: int = 0,
) -> Line:
    """The line of a sign: the mean of the differences of pairs, each of one graph, is above zero."""
    return Line(
        quantity=quantity,
        paper=paper,
        ours=ours,
        verdict=under(Band(0.0, None, "").holds(mean_interval(differences)), reading),
        band="sign: 95 % interval of the mean difference in pairs, above zero",
        why=why,
        reading=reading,
        tried=tried,
        value=fmean(differences),
        limits=(0.0, None),
        sample=tuple(differences),
    )


def under(verdict: Verdict, reading: str) -> Verdict:
    """``agree`` is ``agrees under`` where the reading is one of several."""
    return "agrees under" if reading and verdict == "agree" else verdict


def over_seeds(lines: Sequence[Line]) -> Verdict:
    """The verdict of one line over several seeds.

    Graphs for one run of the paper are put together, and so are differences in pairs. Of all other lines a
    verdict stands that is the same with each seed; values with limits are judged anew by the interval of
    their mean over the seeds.
    """
    first = lines[0]
    if first.theirs is not None and first.verdict != "beyond":
        return under(among(first.theirs, [value for line in lines for value in line.sample]), first.reading)
    if first.sample and first.limits is not None and first.verdict != "beyond":
        differences = [value for line in lines for value in line.sample]
        return under(Band(*first.limits, "").holds(mean_interval(differences)), first.reading)
    verdicts = {line.verdict for line in lines}
    if len(verdicts) > 1:
        return "open"
    values = [line.value for line in lines if line.value is not None]
    if first.limits is None or len(values) < len(lines) or first.verdict in {"beyond", "check"}:
        return first.verdict
    return under(Band(*first.limits, "").holds(mean_interval(values)), first.reading)
