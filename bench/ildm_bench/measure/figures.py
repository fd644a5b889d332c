"""The figures of a run and of a limit search: what the pipeline gives and the reports draw."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ildm_bench.measure.manifest import Record, Verdict, why_void
from ildm_bench.measure.quiet import Disturbance

LIMIT_RATIO = 0.99
"""Definition 1 of the thesis (5.5.4): egress / (ingress x sp-ratio) at or under the limit."""
LARGEST_RATIO = 1.01
"""More is no throughput that lasts: what had been queued before the window was delivered within it."""
QUEUED_SECONDS = 0.2
"""Of deliveries that may be pending at the window's end; a quota of CPU time alone holds them 0.1 s."""

Spread = dict[str, list[float]]
"""A figure in each round of a measurement, in their order, by the figure's name."""


def bears(ratio: float, queued_seconds: float) -> bool:
    """Whether a load is under the limit: Definition 1, and its premise, that nothing piles up.

    A queue that was there before the window can hide that another grows, or that the target lags behind: so
    the ratio has an upper bound as well, and what is pending at the end is bounded by the seconds it takes.
    """
    return LIMIT_RATIO <= ratio <= LARGEST_RATIO and queued_seconds <= QUEUED_SECONDS


def percentile(share: float, count: int, value: float) -> float | None:
    """A percentile where there are samples enough that one lies beyond it: 100 for the 99th; else None."""
    return value if count * (1 - share) >= 1 - 1e-9 else None


class Latency(Record):
    """Latency in microseconds of what was received within the window; None without samples enough."""

    count: int
    mean: float
    p50: float
    p95: float | None
    p99: float | None
    p999: float | None
    max: float


class Histogram(Record):
    """Log-linear: ``counts[i]`` values from ``lower[i]`` nanoseconds up to the bin's end, no empty bins."""

    lower: list[int]
    counts: list[int]


class Second(Record):
    """Throughput of one second of the run, t-clients; 0 is the first second of the load."""

    second: int
    ingress: int
    egress: int


class Loss(Record):
    """Deliveries of one subscriber for messages sent within the window."""

    topic: str
    subscriber: str
    expected: int
    missing: int


class ProcessUse(Record):
    """Resources of one process within the window."""

    name: str
    role: str
    site: int | None
    label: str
    quota: float | None
    cores: float = Field(description="CPU seconds per second.")
    cpu_us_per_delivery: float = Field(description="CPU microseconds per message delivered to a t-client.")
    rss_bytes: int = Field(description="Largest.")
    voluntary_switches: int
    involuntary_switches: int


class RunFigures(Record):
    """One run. ``latency`` and ``histograms`` have the keys KIND.SINCE: KIND is ``throughput`` (t-clients) or
    ``latency`` (l-clients), SINCE is ``sent`` or ``intended``, the time from which the latency counts."""

    run: str
    label: str
    scenario: str
    interval_ms: float
    seconds: float
    sp_ratio: float
    ingress: float
    egress: float
    ratio: float
    under_limit: bool = Field(description="Definition 1 holds, nothing piles up, the load is not refused.")
    queued_seconds: float = Field(default=0.0, description="What was pending at the window's end.")
    verdict: Verdict
    reason: str
    expected: int
    missing: int
    loss_rate: float
    losses: list[Loss] = Field(description="Topics and subscribers that miss messages.")
    duplicates: int
    order_violations: int = Field(description="Received after a later message of the same publisher.")
    latency: dict[str, Latency]
    histograms: dict[str, Histogram]
    per_second: list[Second]
    processes: list[ProcessUse]
    network: dict[str, dict[str, int]] = Field(description="Growth of the kernel's counters, by namespace.")
    machine: str
    notes: list[str]
    targets: list[str] = Field(default_factory=list, description="host:port of each site.")
    disturbance: Disturbance = Field(
        default_factory=Disturbance, description="What others did on the machine meanwhile."
    )
    spread: Spread = Field(default_factory=dict, description="Where it stands for several rounds.")

    @property
    def void(self) -> str:
        """Why it says nothing about the target, empty if it does."""
        return why_void(self.verdict, self.reason, self.disturbance)


class Point(Record):
    """One measurement of a limit search."""

    interval_ms: float
    ingress: float
    egress: float
    ratio: float
    verdict: Verdict
    under_limit: bool
    queued_seconds: float = 0.0
    disturbed: str = Field(default="", description="What others did on the machine meanwhile, if too much.")
    run: str = Field(default="", description="The run it stands for.")
    step: Literal[1, 4] = 1


class Limit(Record):
    """The outcome of a limit search (thesis 5.5.5)."""

    label: str
    scenario: str
    interval_ms: float | None = Field(description="Smallest interval under the limit, None if there is none.")
    bounded_by: Literal["target", "generator", "schedule"] = Field(
        description="generator: the next smaller interval was void, so the limit may be higher. "
        "schedule: the smallest interval that is allowed held."
    )
    points: list[Point]
    figures: RunFigures | None = Field(default=None, description="Of the run at the limit.")
    notes: list[str] = Field(default_factory=list, description="What the reader of the limit has to know.")
    spread: Spread = Field(
        default_factory=dict, description="Of the limits found one after the other, of which this is one."
    )

    @property
    def void(self) -> str:
        """Why the limit is no result, empty if it is one."""
        found = self.figures.void if self.figures is not None else ""
        return found or next((point.disturbed for point in self.points if point.disturbed), "")


class Group(Record):
    """Limits that stand beside each other in a bar chart, such as PF and SF of one pattern."""

    name: str
    limits: list[Limit]


class Line(Record):
    """Values over time; ``seconds`` rise."""

    label: str
    seconds: list[float]
    values: list[float]


class Course(Record):
    """How something went on in several runs, as lines over each other."""

    title: str
    axis: str = Field(description="What is drawn, with its unit.")
    caption: str = ""
    logarithmic: bool = False
    lines: list[Line]
    marks: dict[str, float] = Field(default_factory=dict, description="What happened, at which second.")


class Comparison(Record):
    """A result with several limits or runs: the page of Fig. 5.10-5.15, or of latencies."""

    title: str
    text: str = Field(default="", description="What was compared, on what machine; plain text.")
    command: str = ""
    groups: list[Group] = Field(default_factory=list)
    runs: list[RunFigures] = Field(default_factory=list, description="Single runs, for latency comparisons.")
    courses: list[Course] = Field(default_factory=list)
    table: list[list[str]] = Field(default_factory=list, description="First row is the heading.")
    reference: str = Field(default="", description="Label of the limit or run that ratios refer to.")
