"""The limit of performance by the five steps of thesis 5.5.5, as a state machine without input or output.

Step 1 doubles the interval between two messages of a t-publisher until Definition 1 holds; Step 2 takes the
smallest interval that holds; Step 3 divides the segment below it into 20; Steps 4 and 5 find the smallest
interval there that holds. The throughput one division further is at most 1/20 higher, which is the bound of
the error.

Two ways lead through the steps. With ``full`` every interval of Step 4 is measured, and Step 1 begins at the
smallest interval. Without, Step 1 begins at a guess and walks from there up or down, and Step 4 bisects: 4 or
5 measurements instead of 19. Both give the same answer if the outcomes are monotone, that is if each interval
above one that holds also holds: then the boundary between "does not hold" and "holds" is unique, and any way
that ends between two neighbours of which the smaller does not hold and the larger does has found it. If they
are not monotone the full search takes Step 5 literally (the smallest that holds), the quick one ends at one
of the boundaries, which it measured on both sides; the notes of the limit say so where it was seen.

A measured limit is noisy. With ``repeat`` above one an interval holds if more than half of its repeats do.
The full search repeats every interval, the quick one the two that decide: the answer and its smaller
neighbour. If a repeat overturns what was measured before, the search goes on from what is known then. It
always ends, because no interval is measured more than ``repeat`` times.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator

from ildm.mqtt import IldmError
from ildm_bench.load.scenario import Scenario
from ildm_bench.measure.figures import Limit, Point
from ildm_bench.measure.manifest import Record

Standing = Literal["under", "over", "void"]
"""Where an interval stands: under the limit (Definition 1 holds), over it, or unknown since the generator
missed its target. A refused load is over."""


class SearchError(IldmError):
    """A search that cannot go on: a measurement nobody asked for, a journal of another search."""


class SearchConfig(Record):
    """How to search. Intervals are in milliseconds; decimal values are taken exactly as written."""

    model_config = ConfigDict(frozen=True)

    first_ms: float = Field(default=1.0, gt=0, allow_inf_nan=False, description="Smallest interval allowed.")
    largest_ms: float = Field(
        default=1024.0, gt=0, allow_inf_nan=False, description="Step 1 doubles first_ms up to here."
    )
    divisions: int = Field(
        default=20, ge=2, le=1000, description="Of the segment of Step 3; 20 in the thesis."
    )
    full: bool = Field(default=False, description="Measure all of Step 4, and Step 1 from first_ms up.")
    start_ms: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Guess at which a quick search begins; any will do.",
    )
    repeat: int = Field(default=1, ge=1, le=99, description="Measurements of an interval that decides.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.largest_ms < self.first_ms:
            raise ValueError(f"largest_ms {self.largest_ms:g} is less than first_ms {self.first_ms:g}")
        return self


class SearchHeader(Record):
    """What is searched: identifies a search in its journal.

    ``targets`` has to be the same words whenever the search is resumed: host:port of brokers that stand, the
    names of a testbed's parts if it is built anew on free ports each time.
    """

    journal: Literal["ildm-bench limit 1"] = "ildm-bench limit 1"
    label: str = Field(default="", description="Of the target, for legends; may change between two sittings.")
    scenario: str
    scenario_hash: str = Field(description="SHA-256 of the load, without description and interval.")
    targets: list[str]
    config: SearchConfig

    @classmethod
    def of(
        cls, scenario: Scenario, targets: Sequence[str], config: SearchConfig | None = None, label: str = ""
    ) -> SearchHeader:
        load = scenario.model_dump(mode="json", exclude={"description", "interval"})
        digest = hashlib.sha256(json.dumps(load, sort_keys=True).encode()).hexdigest()
        return cls(
            label=label,
            scenario=scenario.name,
            scenario_hash=digest,
            targets=list(targets),
            config=config or SearchConfig(),
        )

    def differences(self, other: SearchHeader) -> list[str]:
        """What makes the other one another search, one line for each key; the label does not count."""
        mine, theirs = (_flat(header.model_dump(exclude={"label"})) for header in (self, other))
        return [f"{key}: {theirs[key]!r}, now {mine[key]!r}" for key in mine if mine[key] != theirs[key]]


@dataclass(frozen=True)
class _State:
    """What the points so far lead to: an interval to measure, or with ``ask`` None the outcome."""

    ask: Fraction | None
    least: int = 0
    most: int = 0
    found: Fraction | None = None
    smaller: Fraction | None = None  # neighbour of the found one; of none found the largest interval


class Search:
    """A limit search. Ask `next`, measure, `record`; after that `next` is None and `outcome` is the limit.

    What comes next is a function of the points recorded so far, so that a search which is given the points of
    an interrupted one continues where that stopped.
    """

    def __init__(self, header: SearchHeader) -> None:
        self.header = header
        self.config = config = header.config
        first, largest = (Fraction(str(value)) for value in (config.first_ms, config.largest_ms))
        self._ladder = [first]
        while self._ladder[-1] * 2 <= largest:
            self._ladder.append(self._ladder[-1] * 2)
        self._start = 0
        if config.start_ms is not None and not config.full:
            nearest = round(math.log2(config.start_ms) - math.log2(config.first_ms))
            self._start = min(max(nearest, 0), len(self._ladder) - 1)
        self._holds_needed = config.repeat // 2 + 1
        self._fails_needed = config.repeat - self._holds_needed + 1
        self._measured: dict[Fraction, Counter[Standing]] = {}
        self._points: list[Point] = []
        self._state = self._replay()

    @property
    def points(self) -> tuple[Point, ...]:
        """The points recorded, in the order of measurement."""
        return tuple(self._points)

    @property
    def step(self) -> Literal[1, 4]:
        """The step of the thesis to which the next measurement belongs."""
        return 1 if self._state.ask in self._ladder else 4

    @property
    def remaining(self) -> tuple[int, int]:
        """Measurements that may still come, at least and at most.

        Without repeats these are bounds whatever is measured. With repeats they hold for a full search too,
        for a quick one as long as the repeats of an interval agree.
        """
        return self._state.least, self._state.most

    def next(self) -> float | None:
        """Interval in milliseconds to be measured next, None when the search is over."""
        return None if self._state.ask is None else float(self._state.ask)

    def record(self, point: Point) -> Point:
        """Take the measurement of the interval that `next` gave; gives it back with its step.

        Raises:
            SearchError: another interval is due, or none.
        """
        due = self._state.ask
        if due is None or point.interval_ms != float(due):
            wanted = "none is due" if due is None else f"{float(due):g} ms is due"
            raise SearchError(f"a measurement at {point.interval_ms:g} ms: {wanted}")
        point = point.model_copy(update={"step": self.step})
        self._measured.setdefault(due, Counter())[standing_of(point)] += 1
        self._points.append(point)
        self._state = self._replay()
        return point

    @property
    def outcome(self) -> Limit | None:
        """The limit, without figures; None as long as the search runs."""
        state = self._state
        if state.ask is not None:
            return None
        bounded_by: Literal["target", "generator", "schedule"] = "target"
        if state.smaller is None:
            bounded_by = "schedule"
        elif self._standing(state.smaller) == "void":
            bounded_by = "generator"
        return Limit(
            label=self.header.label,
            scenario=self.header.scenario,
            interval_ms=None if state.found is None else float(state.found),
            bounded_by=bounded_by,
            points=list(self._points),
            figures=None,
            notes=self._notes(state),
        )

    # Standing of an interval

    def _count(self, interval: Fraction) -> tuple[int, int, int]:
        """How often it held, was over, was void."""
        seen = self._measured.get(interval, Counter())
        return seen["under"], seen["over"], seen["void"]

    def _settled(self, interval: Fraction) -> bool:
        """Whether further repeats could not change where it stands."""
        under, over, void = self._count(interval)
        return under >= self._holds_needed or over + void >= self._fails_needed

    def _standing(self, interval: Fraction) -> Standing | None:
        """Where it stands by what is known, None if it has to be measured to tell."""
        under, over, void = self._count(interval)
        if under >= self._holds_needed:
            return "under"
        if over + void >= self._fails_needed:
            # Void ones make it "not under", but only the others can make it "over".
            return "over" if over >= self._fails_needed else "void"
        if self.config.full or under == over + void:
            return None
        if under > over + void:
            return "under"
        return "over" if over > void else "void"

    def _to_settle(self, interval: Fraction, holds: bool) -> int:
        """Measurements until it is settled if all of them agree."""
        if self._settled(interval):
            return 0
        under, over, void = self._count(interval)
        return self._holds_needed - under if holds else self._fails_needed - over - void

    # The steps

    def _replay(self) -> _State:
        """Steps 1 and 2 on what is known, then the rest in the segment that they end at."""
        ladder, top = self._ladder, len(self._ladder) - 1
        rung = self._start
        standing = self._standing(ladder[rung])
        if standing is None:
            return self._climbing(rung, 0, top + 1)
        if standing == "under":
            while rung > 0:
                standing = self._standing(ladder[rung - 1])
                if standing is None:
                    return self._climbing(rung - 1, 0, rung)
                if standing != "under":
                    break
                rung -= 1
            else:
                return self._confirming(ladder[0], None)
        else:
            while standing != "under":
                if rung == top:
                    return self._confirming(None, ladder[top])
                rung += 1
                standing = self._standing(ladder[rung])
                if standing is None:
                    return self._climbing(rung, rung, top + 1)
        return self._dividing(ladder[rung - 1], ladder[rung])

    def _climbing(self, rung: int, lowest: int, highest: int) -> _State:
        """Step 1 needs a rung of the ladder. The smallest that holds is one of ``lowest`` to ``highest``; one
        past the ladder stands for none."""
        top = len(self._ladder) - 1
        costs = []
        for answer in range(lowest, highest + 1):
            # The rungs that lead to this answer, up or down.
            way = range(rung, min(answer, top) + 1) if answer > rung else range(max(answer - 1, 0), rung + 1)
            unknown = [self._ladder[on] for on in way if self._standing(self._ladder[on]) is None]
            costs.append(self._cost(unknown, answer))
        ask = self._ladder[rung]
        return _State(ask, min(low for low, _ in costs), max(high for _, high in costs))

    def _cost(self, rungs: list[Fraction], answer: int) -> tuple[int, int]:
        """Measurements, at least and at most, of these rungs and all that follows if ``answer`` is the first
        rung that holds."""
        config = self.config
        segment = 0 < answer < len(self._ladder)
        if config.full:
            holds = [answer < len(self._ladder) and rung >= self._ladder[answer] for rung in rungs]
            low = sum(self._to_settle(rung, held) for rung, held in zip(rungs, holds, strict=True))
            high = sum(config.repeat - sum(self._count(rung)) for rung in rungs)
            if segment:
                low += (config.divisions - 1) * min(self._holds_needed, self._fails_needed)
                high += (config.divisions - 1) * config.repeat
            return low, high
        confirmations = (answer < len(self._ladder)) * (self._holds_needed - 1)
        confirmations += (answer > 0) * (self._fails_needed - 1)
        low = high = len(rungs) + confirmations
        if segment:
            low += config.divisions.bit_length() - 1  # log2 rounded down: the shallowest leaf of a bisection
            high += (config.divisions - 1).bit_length()  # rounded up: the deepest
        return low, high

    def _dividing(self, lower: Fraction, upper: Fraction) -> _State:
        """Steps 3 to 5 in the segment between the largest rung that does not hold and the next one."""
        divisions = self.config.divisions
        grid = [lower + (upper - lower) * part / divisions for part in range(divisions + 1)]
        if self.config.full:
            unknown = [interval for interval in grid if self._standing(interval) is None]
            if unknown:
                least = sum(min(self._to_settle(at, True), self._to_settle(at, False)) for at in unknown)
                most = sum(self.config.repeat - sum(self._count(at)) for at in unknown)
                return _State(unknown[0], least, most)
            part = next(part for part in range(1, divisions + 1) if self._standing(grid[part]) == "under")
            return self._confirming(grid[part], grid[part - 1])
        low, high = 0, divisions
        while high - low > 1:
            middle = (low + high) // 2
            standing = self._standing(grid[middle])
            if standing is None:
                return self._bisecting(grid, low, high, middle)
            if standing == "under":
                high = middle
            else:
                low = middle
        return self._confirming(grid[high], grid[low])

    def _bisecting(self, grid: list[Fraction], low: int, high: int, middle: int) -> _State:
        # The ends may have been confirmed already, in a round that a later repeat overturned.
        ends = [self._to_settle(grid[low], False), self._to_settle(grid[high], True)]
        fresh = [self._fails_needed - 1, self._holds_needed - 1]
        least = (high - low).bit_length() - 1 + sum(min(pair) for pair in zip(ends, fresh, strict=True))
        most = (high - low - 1).bit_length() + sum(max(pair) for pair in zip(ends, fresh, strict=True))
        return _State(grid[middle], least, most)

    def _confirming(self, found: Fraction | None, smaller: Fraction | None) -> _State:
        """The answer, once it and its neighbour have been repeated often enough."""
        costs = [(at, self._to_settle(at, at == found)) for at in (found, smaller) if at is not None]
        open_costs = [(at, cost) for at, cost in costs if cost]
        if open_costs:
            total = sum(cost for _, cost in open_costs)
            return _State(open_costs[0][0], total, total, found, smaller)
        return _State(None, found=found, smaller=smaller)

    def _notes(self, state: _State) -> list[str]:
        found, notes = state.found, []
        standings = {at: self._standing(at) for at in sorted(self._measured)}
        if found is None:
            notes.append(f"no interval up to {_ms(self._ladder[-1])} is under the limit")
        if state.smaller is not None and standings[state.smaller] == "void":
            notes.append(
                f"the load generator missed its target at {_ms(state.smaller)}: the limit may be higher"
            )
        held = [at for at, standing in standings.items() if standing == "under"]
        over = [at for at, standing in standings.items() if standing == "over" and held and at > held[0]]
        if over:
            rule = (
                "the smallest that holds counts (thesis 5.5.5, Step 5)"
                if self.config.full
                else "the answer is a boundary measured on both sides, a full search looks at every interval"
            )
            notes.append(
                f"not monotone: {', '.join(map(_ms, over))} over the limit, {_ms(held[0])} under it; {rule}"
            )
        for at, count in sorted(self._measured.items()):
            if len(count) > 1:
                parts = ", ".join(f"{standing} {times}" for standing, times in count.items())
                notes.append(f"repeats at {_ms(at)} differ: {parts}")
        return notes


def standing_of(point: Point) -> Standing:
    """Where one measurement puts its interval."""
    if point.verdict == "void":
        return "void"
    return "under" if point.under_limit and point.verdict == "ok" else "over"


def limit_point(limit: Limit) -> Point | None:
    """The measurement that stands for the limit: of the repeats that held the one of median egress.

    None if no interval held. Its ``run`` is the run whose figures belong to the limit.
    """
    held = [
        point
        for point in limit.points
        if point.interval_ms == limit.interval_ms and standing_of(point) == "under"
    ]
    return sorted(held, key=lambda point: point.egress)[(len(held) - 1) // 2] if held else None


def _ms(interval: Fraction) -> str:
    return f"{float(interval):.6g} ms"


def _flat(values: dict[str, object], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
