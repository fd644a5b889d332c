"""The tables of the results: a row for each of what was measured, a column for each metric."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import NamedTuple

from ildm_bench.measure.figures import Limit, RunFigures
from ildm_bench.measure.spread import words

KEY = "latency.sent"


@dataclass(frozen=True)
class Row:
    """What was measured of one testbed under one load."""

    label: str
    run: RunFigures | None = None
    """None where no interval was under the limit, and of what was not run."""
    interval: str = ""
    """Of a limit."""
    reference: RunFigures | None = None
    """What the run is held against."""
    rounds: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Other figures of each round."""

    @property
    def figures(self) -> RunFigures:
        assert self.run is not None
        return self.run

    @classmethod
    def of_limit(cls, limit: Limit, reference: Limit | None = None, prefix: str = "") -> Row:
        """The run at the limit, with the spread of the limits of all rounds."""
        label = prefix + limit.label
        if limit.figures is None or limit.interval_ms is None:
            return cls(label)
        bound = "" if limit.bounded_by == "target" else " (generator's)"
        return cls(
            label,
            limit.figures.model_copy(update={"spread": limit.spread}),
            f"{words(limit.interval_ms, limit.spread.get('interval_ms', ()), 'g')} ms{bound}",
            None if reference is None else reference.figures,
        )


class Metric(NamedTuple):
    """A column."""

    heading: str
    """With the unit."""
    cell: Callable[[Row], str]


def table(rows: Sequence[Row], metrics: Sequence[Metric]) -> list[list[str]]:
    """Headings and cells. A row without any figures says so."""
    return [["", *(metric.heading for metric in metrics)], *(cells(row, metrics) for row in rows)]


def cells(row: Row, metrics: Sequence[Metric]) -> list[str]:
    if row.run is None and not row.rounds:
        return [row.label, "no interval under the limit", *[""] * (len(metrics) - 1)]
    return [row.label, *(metric.cell(row) for metric in metrics)]


def measured(heading: str, name: str, form: str) -> Metric:
    """An attribute of the figures, with its spread."""
    return Metric(
        heading,
        lambda row: words(getattr(row.figures, name), row.figures.spread.get(name, ()), form),
    )


def latency(heading: str, name: str, form: str = ".2f", scale: float = 1e-3) -> Metric:
    """A latency of l-clients (``mean``, ``p50``, ...), in ms unless scaled otherwise; empty without one."""

    def cell(row: Row) -> str:
        found = row.figures.latency.get(KEY)
        value = None if found is None else getattr(found, name)
        return words(value, row.figures.spread.get(f"{KEY}.{name}", ()), form, scale)

    return Metric(heading, cell)


def averaged(heading: str, name: str, form: str, of: Callable[[Sequence[float]], float] = mean) -> Metric:
    """A figure of :attr:`Row.rounds`, with its spread."""

    def cell(row: Row) -> str:
        values = row.rounds[name]
        return words(of(values), values, form) if values else ""

    return Metric(heading, cell)


def cpu_by_role(heading: str) -> Metric:
    """CPU us per delivery, summed over the processes of each role: ``broker 3.9, node 4.2``."""

    def cell(row: Row) -> str:
        figures = row.figures
        return ", ".join(
            f"{role} {words(_cpu(figures, role), figures.spread.get(f'cpu.{role}', ()), '.1f')}"
            for role in dict.fromkeys(use.role for use in figures.processes)
        )

    return Metric(heading, cell)


def cpu_of(heading: str, role: str) -> Metric:
    """CPU us per delivery of all processes of a role together with the spread, then of each."""

    def cell(row: Row) -> str:
        uses = [use.cpu_us_per_delivery for use in row.figures.processes if use.role == role]
        together = words(sum(uses), row.figures.spread.get(f"cpu.{role}", ()))
        return f"{together}: {' + '.join(f'{use:.2f}' for use in uses)}" if uses else ""

    return Metric(heading, cell)


def _cpu(figures: RunFigures, role: str) -> float:
    return sum(use.cpu_us_per_delivery for use in figures.processes if use.role == role)


def _ratio(row: Row) -> str:
    """Egress as multiple of the reference's; the spread is that of the row alone."""
    if row.reference is None or not row.reference.egress:
        return ""
    figures = row.figures
    return words(figures.egress, figures.spread.get("egress", ()), scale=1 / row.reference.egress)


INTERVAL = Metric("limit", lambda row: row.interval)
INGRESS = measured("ingress/s", "ingress", ",.0f")
EGRESS = measured("egress/s", "egress", ",.0f")
RATIO = Metric("ratio", _ratio)
LOST = Metric("lost", lambda row: f"{row.figures.missing} of {row.figures.expected}")
CPU = cpu_by_role("CPU us per delivery")
OF_LIMIT = (
    INTERVAL,
    INGRESS,
    EGRESS,
    RATIO,
    latency("latency ms, mean", "mean"),
    latency("p99", "p99"),
    LOST,
    CPU,
)
