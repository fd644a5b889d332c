"""The figures of a run and of a limit search: what the pipeline gives and the reports draw."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ildm_bench.manifest import Record, Verdict

LIMIT_RATIO = 0.99
"""Definition 1 of the thesis (5.5.4): egress / (ingress x sp-ratio) at or under the limit."""


class Latency(Record):
    """Latency in microseconds of what was received within the window."""

    count: int
    mean: float
    p50: float
    p95: float
    p99: float
    p999: float
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
    under_limit: bool = Field(description="Definition 1 holds and the run is not refused.")
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


class Point(Record):
    """One measurement of a limit search."""

    interval_ms: float
    ingress: float
    egress: float
    ratio: float
    verdict: Verdict
    under_limit: bool
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
