"""The limit once more, from where it was found before: how far apart are limits of the same target?

A search of `ildm_bench.measure.procedure` ends between two neighbours among the intervals of Steps 1 to 4, of
which the larger holds and the smaller does not. To find it again all of that need not be measured again: from
the interval that was found one goes down while the intervals hold, or up until one does. Each is measured
anew, so under the same assumption, that what holds stays so when the load gets lighter, it is a limit of its
own.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

from ildm_bench.measure.figures import Limit, Point
from ildm_bench.measure.procedure import SearchConfig, SearchError, SearchHeader, Standing, standing_of

FURTHEST = 20
"""Intervals that are measured at most: one segment of Step 3."""


class NextLimit:
    """Another limit near ``header.config.start_ms``, the one found before. Used as a `Search` is."""

    def __init__(self, header: SearchHeader) -> None:
        if header.config.start_ms is None:
            raise SearchError("a limit is found again from one that was found")
        self.header = header
        self._intervals = intervals(header.config)
        start = Fraction(str(header.config.start_ms))
        self._at = min(range(len(self._intervals)), key=lambda place: abs(self._intervals[place] - start))
        self._measured: dict[int, Standing] = {}
        self._points: list[Point] = []

    step: Literal[4] = 4

    @property
    def remaining(self) -> tuple[int, int]:
        """Measurements that may still come, at least and at most."""
        due = self._due()
        return (0, 0) if due is None else (1, FURTHEST - len(self._points))

    def next(self) -> float | None:
        """Interval in milliseconds to be measured next, None when the limit is found, or too far away."""
        due = self._due()
        return None if due is None else float(self._intervals[due])

    def record(self, point: Point) -> Point:
        """Take the measurement of the interval that `next` gave.

        Raises:
            SearchError: another interval is due, or none.
        """
        due = self._due()
        if due is None or point.interval_ms != float(self._intervals[due]):
            wanted = "none is due" if due is None else f"{float(self._intervals[due]):g} ms is due"
            raise SearchError(f"a measurement at {point.interval_ms:g} ms: {wanted}")
        point = point.model_copy(update={"step": self.step})
        self._measured[due] = standing_of(point)
        self._points.append(point)
        return point

    @property
    def outcome(self) -> Limit | None:
        """The limit, without figures; None as long as it is looked for."""
        if self._due() is not None:
            return None
        found = self._found()
        bounded_by: Literal["target", "generator", "schedule"] = "target"
        if not found:
            bounded_by = "schedule"
        elif self._measured.get(found - 1) == "void":
            bounded_by = "generator"
        return Limit(
            label=self.header.label,
            scenario=self.header.scenario,
            interval_ms=None if found is None else float(self._intervals[found]),
            bounded_by=bounded_by,
            points=list(self._points),
            notes=[] if found is not None else ["measured again, no interval nearby was under the limit"],
        )

    def _due(self) -> int | None:
        """Place of the interval that is to be measured."""
        if self._at not in self._measured:
            return self._at
        if len(self._measured) == FURTHEST:
            return None
        if self._measured[self._at] == "under":
            place = min(self._measured)
            on = place - 1
            return on if self._measured[place] == "under" and on >= 0 else None
        place = max(self._measured)
        on = place + 1
        return on if self._measured[place] != "under" and on < len(self._intervals) else None

    def _found(self) -> int | None:
        held = [place for place, standing in self._measured.items() if standing == "under"]
        return min(held) if held else None


def intervals(config: SearchConfig) -> list[Fraction]:
    """All that a search may measure, rising: the rungs of Step 1, each segment divided as in Step 3."""
    first, largest = Fraction(str(config.first_ms)), Fraction(str(config.largest_ms))
    found, rung = [], first
    while rung * 2 <= largest:
        found += [rung + rung * part / config.divisions for part in range(config.divisions)]
        rung *= 2
    return [*found, rung]
