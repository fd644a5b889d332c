"""What a check of histories gives: counts, what was found, how long things took; to be added up."""

from __future__ import annotations

from collections.abc import Iterable
from math import exp, log
from typing import ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from ildm_bench.chaos.excuses import OURS
from ildm_bench.chaos.stored import Stored

OUTCOME = "chaos.json"
KEPT = 200
"""Findings that an outcome has in full."""
STEP = 1.1
"""Buckets of durations: number n holds those from STEP ** n seconds up to STEP ** (n + 1)."""


P = TypeVar("P", bound="Part")


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Setting(Part):
    """What runs have in common; see `ildm_bench.chaos.tables.RUNS`."""

    engine: str
    target: str
    algorithm: str
    broker: str
    store: str
    mode: str
    sites: int
    fault: str

    @property
    def name(self) -> str:
        """What was checked: the algorithm, or what else stood in its place."""
        return self.algorithm if self.target == "ildm" else self.target


class Counted(Part):
    """Sums of all runs of a setting; messages by subscriber from ``received`` on."""

    setting: Setting
    runs: int
    seconds: float
    incomplete: int = Field(description="Runs that ended before quiet.")
    published: int
    acknowledged: int
    refused: int
    received: int
    repeated: int = Field(description="More than once at QoS 1, which it allows.")
    owed: int
    owed_qos0: int
    missing_qos0: int
    faults: int


class Found(Part):
    """How often an invariant did not hold, and in how many runs."""

    setting: Setting
    invariant: str
    cause: str
    found: int
    runs: int


class Finding(Part):
    """One time that an invariant did not hold; see `ildm_bench.chaos.verdict`."""

    invariant: str
    run: str
    seed: int
    cause: str
    site: str
    session: str
    publisher: str
    seq: int
    topic: str
    t: float

    def __str__(self) -> str:
        words = [f"run {self.run}", self.invariant, f"({self.cause})" if self.cause != OURS else ""]
        if self.publisher:
            words.append(f"{self.publisher}/{self.seq}")
        words += [self.topic, f"at {self.session or self.site}" if self.session or self.site else ""]
        if not self.publisher and self.seq >= 0:
            words.append(str(self.seq))
        return " ".join([*filter(None, words), f"t={self.t:.3f}" if self.t else ""]).strip()


class Durations(Part):
    """How long something took, as a histogram: ``counts`` by bucket (see `STEP`), and the longest, in s.

    ``kind``: ``latency`` of first receipts, from the publisher's socket to the subscriber's application, in
    runs without a fault (``fault`` is none) or with (any). ``recovery``: from the end of a fault to the first
    message that a session got from another site, either of which the fault had hit; ``fault`` is its kind.
    """

    kind: str
    engine: str
    target: str
    algorithm: str
    broker: str
    fault: str
    counts: dict[int, int]
    longest: float

    @property
    def messages(self) -> int:
        return sum(self.counts.values())

    def quantile(self, share: float) -> float:
        """In seconds, to within 5 %; it is the middle of its bucket, and at most the longest."""
        wanted = share * self.messages
        below = 0
        for bucket, count in sorted(self.counts.items()):
            below += count
            if below >= wanted:
                return min(exp((bucket + 0.5) * log(STEP)), self.longest)
        raise ValueError("an empty histogram has no quantiles")


class Moment(Part):
    """A stretch of a run in which something was received: its latency, in s."""

    t: float
    p50: float
    longest: float
    messages: int


class Trouble(Part):
    """A fault of a run, from when to when, in s."""

    kind: str
    target: str
    begins: float
    ends: float | None


class Course(Part):
    """One run as it went."""

    run: str
    name: str
    broker: str
    moments: list[Moment]
    troubles: list[Trouble]


class Outcome(Stored):
    """Of any number of runs."""

    FILE: ClassVar[str] = OUTCOME

    counted: list[Counted] = []
    found: list[Found] = []
    findings: list[Finding] = Field(default=[], description=f"Of each invariant and cause the first, {KEPT}.")
    durations: list[Durations] = []
    courses: list[Course] = []
    counters: dict[str, int] = Field(default={}, description="Of all nodes, summed up over their lives.")
    notes: list[str] = []

    @property
    def runs(self) -> int:
        return sum(each.runs for each in self.counted)

    def total(self, invariant: str, cause: str | None = OURS, target: str = "ildm") -> int:
        """How often an invariant did not hold; with any cause if it is None."""
        return sum(
            each.found
            for each in self.found
            if each.invariant == invariant
            and each.setting.target == target
            and (cause is None or each.cause == cause)
        )

    def holds(self) -> bool:
        """Whether nothing was found against the nodes themselves, in runs of them."""
        return not any(each.cause == OURS and each.setting.target == "ildm" for each in self.found)


def added(outcomes: Iterable[Outcome]) -> Outcome:
    """Of all their runs together; no run may be in two of them."""
    total = Outcome()
    counted: dict[Setting, Counted] = {}
    found: dict[tuple[Setting, str, str], Found] = {}
    durations: dict[tuple[str, ...], Durations] = {}
    kept: dict[tuple[str, str], int] = {}
    courses: dict[tuple[str, str], Course] = {}
    for outcome in outcomes:
        for count in outcome.counted:
            counted[count.setting] = _sum(counted.get(count.setting), count)
        for one in outcome.found:
            key = (one.setting, one.invariant, one.cause)
            found[key] = _sum(found.get(key), one)
        for each in outcome.durations:
            names = (each.kind, each.engine, each.target, each.algorithm, each.broker, each.fault)
            durations[names] = merged(durations.get(names), each)
        for finding in outcome.findings:
            kind = (finding.invariant, finding.cause)
            kept[kind] = kept.get(kind, 0) + 1
            if kept[kind] <= KEPT:
                total.findings.append(finding)
        for course in outcome.courses:
            before = courses.setdefault((course.name, course.broker), course)
            if len(course.troubles) > len(before.troubles):
                courses[course.name, course.broker] = course
        for name, value in outcome.counters.items():
            total.counters[name] = total.counters.get(name, 0) + value
        total.notes += [note for note in outcome.notes if note not in total.notes]
    total.counted, total.found = list(counted.values()), list(found.values())
    total.durations, total.courses = list(durations.values()), list(courses.values())
    return total


def _sum(first: P | None, second: P) -> P:
    """Both with their numbers added up; all else is the same in them."""
    if first is None:
        return second
    numbers = {name: value + getattr(first, name) for name, value in second if isinstance(value, int | float)}
    return second.model_copy(update=numbers)


def merged(first: Durations | None, second: Durations) -> Durations:
    """One histogram of both; the rest is that of the second."""
    if first is None:
        return second
    counts = dict(first.counts)
    for bucket, count in second.counts.items():
        counts[bucket] = counts.get(bucket, 0) + count
    return second.model_copy(update={"counts": counts, "longest": max(first.longest, second.longest)})
