"""The tables of the reports, as text: pages and Markdown are made of the same cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ildm_bench.measure.figures import Comparison, Limit, Point, RunFigures
from ildm_bench.report import numbers
from ildm_bench.report.entries import (
    Entry,
    cpu_of_target,
    in_order,
    latency_key,
    latency_of,
    latency_words,
    limits_of,
    reference_of,
    runs_of,
    voids_of,
)
from ildm_bench.report.errors import ReportError

MOST_ROWS = 200
"""Longer tables are cut and say so: a run with thousands of subscribers must not give a page of megabytes."""


@dataclass(frozen=True)
class Table:
    """Cells of plain text. The first column heads its row; the first ``texts`` columns and the last
    ``remarks`` are words, the others numbers."""

    caption: str
    head: list[str]
    rows: list[list[str]]
    texts: int = 1
    remarks: int = 0

    def is_number(self, column: int) -> bool:
        return self.texts <= column < len(self.head) - self.remarks


def run_table(figures: RunFigures) -> Table:
    """The figures of a run that are one number each."""
    due = f"ingress {numbers.TIMES} sp-ratio"
    rows = [
        ["Interval of a t-publisher", numbers.interval(figures.interval_ms), "between two messages"],
        ["Measured", f"{numbers.significant(figures.seconds)} s", "without warm-up and cool-down"],
        ["sp-ratio", numbers.significant(figures.sp_ratio, 4), "deliveries per message"],
        ["Ingress", rate_of(figures.ingress), "messages sent by t-clients"],
        ["Egress", rate_of(figures.egress), "messages received by t-clients"],
        ["Ratio", numbers.ratio(figures.ratio), f"egress / ({due}), under the limit from 0.99 to 1.01"],
        ["Pending", numbers.duration(1e6 * figures.queued_seconds), "at the end, as time of its delivery"],
        ["Others", numbers.significant(figures.disturbance.others), "cores that other programs used"],
        ["Stolen", numbers.significant(figures.disturbance.stolen), "cores that the host kept back"],
        ["Expected", numbers.count(figures.expected), "deliveries to t-clients of what was measured"],
        ["Missing", numbers.count(figures.missing), "of those expected"],
        ["Loss rate", numbers.share(figures.loss_rate), "missing / expected"],
        ["Duplicates", numbers.count(figures.duplicates), "received more than once"],
        ["Order violations", numbers.count(figures.order_violations), "after a later one of its publisher"],
    ]
    return Table("Figures of the run", ["Figure", "Value", "What it is"], rows, remarks=1)


def rate_of(value: float | None) -> str:
    return numbers.NONE if value is None else numbers.rate(value)


def latency_table(figures: RunFigures) -> Table | None:
    """Percentiles by kind of client and start of the time; None without any."""
    rows = [
        [
            latency_words(key),
            numbers.count(latency.count),
            *map(numbers.duration, (latency.mean, latency.p50, latency.p95)),
            *map(numbers.duration, (latency.p99, latency.p999, latency.max)),
        ]
        for key in in_order(figures.latency)
        for latency in [figures.latency[key]]
    ]
    head = ["Latency", "Messages", "Mean", "p50", "p95", "p99", "p99.9", "Largest"]
    return Table("Latency of what was received", head, rows) if rows else None


def process_table(figures: RunFigures) -> Table | None:
    """What each process used; None where nothing was sampled."""
    rows = [
        [
            process.name,
            " ".join(part for part in (process.role, process.label) if part),
            numbers.NONE if process.site is None else str(process.site),
            numbers.NONE if process.quota is None else numbers.significant(process.quota),
            numbers.significant(process.cores),
            numbers.duration(process.cpu_us_per_delivery),
            numbers.size(process.rss_bytes),
            numbers.count(process.voluntary_switches),
            numbers.count(process.involuntary_switches),
        ]
        for process in figures.processes
    ]
    head = ["Process", "Role", "Site", "Cores allowed", "Cores used", "CPU per delivery", "Memory"]
    head += ["Switches, voluntary", "involuntary"]
    return _cut(Table("Use of resources within the window", head, rows, texts=2)) if rows else None


def loss_table(figures: RunFigures) -> Table | None:
    """Subscribers that miss messages, the worst first; None if there is none."""
    losses = sorted(figures.losses, key=lambda loss: (-loss.missing, loss.topic, loss.subscriber))
    rows = [
        [
            loss.subscriber,
            loss.topic,
            numbers.count(loss.expected),
            numbers.count(loss.missing),
            numbers.share(loss.missing / loss.expected) if loss.expected else numbers.NONE,
        ]
        for loss in losses
    ]
    head = ["Subscriber", "Topic", "Expected", "Missing", "Loss rate"]
    return _cut(Table("Subscribers that miss messages", head, rows, texts=2)) if rows else None


def network_table(figures: RunFigures) -> Table | None:
    """Growth of the kernel's counters that moved; None where none was read."""
    if not figures.network:
        return None
    rows = [
        [namespace, counter, numbers.count(growth)]
        for namespace, counters in sorted(figures.network.items())
        for counter, growth in sorted(counters.items())
        if growth
    ]
    head = ["Network namespace", "Counter", "Growth"]
    caption = "TCP counters of the kernel that moved during the run"
    return _cut(Table(caption, head, rows or [["all", "none of them", "0"]], texts=2))


def point_words(point: Point) -> str:
    """What a measurement of the search says."""
    if point.verdict == "void":
        return "void"
    if point.verdict == "refused":
        return "over: refused"
    return "under the limit" if point.under_limit else "over the limit"


def point_table(limit: Limit) -> Table:
    """The measurements of a limit search by interval."""
    rows = [
        [
            numbers.interval(point.interval_ms),
            point_words(point),
            f"step {point.step}",
            rate_of(point.ingress),
            rate_of(point.egress),
            numbers.ratio(point.ratio),
        ]
        for point in sorted(limit.points, key=lambda point: point.interval_ms)
    ]
    head = ["Interval", "Verdict", "Step", "Ingress", "Egress", "Ratio"]
    return _cut(Table(f"Measurements of the search: {limit.label}", head, rows, texts=3))


def comparison_tables(comparison: Comparison) -> list[Table]:
    """The figures of the limits and those of the single runs, one table each."""
    limits, runs = limits_of(comparison), runs_of(comparison)
    both = [*limits, *runs]
    tables = []
    for entries, caption in ((limits, "Limits"), (runs, "Runs")):
        if entries:
            tables.append(_entry_table(entries, caption, reference_of(comparison, both)))
    return tables


def _entry_table(entries: Sequence[Entry], caption: str, reference: Entry | None) -> Table:
    key = latency_key(entries)
    grouped = any(entry.group for entry in entries)
    by_latency = entries[0].limit is None
    head = [*(["Group"] if grouped else []), "Target", "Interval", "Ingress", "Egress", "Ratio"]
    head += ["Latency: mean", "p50", "p99", "p99.9", "Loss rate", "CPU per delivery"]
    if reference:
        head.append(f"{'Latency' if by_latency else 'Ingress'} {numbers.TIMES} {reference.label}")
    rows = []
    for entry in entries:
        row = [entry.group] if grouped else []
        row += [entry.label, *_rates(entry), *_latencies(entry, key), *_costs(entry)]
        if reference:
            row.append(times(entry, reference, key if by_latency else None))
        rows.append(row)
    about = f"; latency: {latency_words(key)}" if key else ""
    cost = "; CPU: without the generator" if any(e.figures and e.figures.processes for e in entries) else ""
    return Table(f"{caption}{about}{cost}", head, rows, texts=2 if grouped else 1)


def _rates(entry: Entry) -> list[str]:
    ratio = numbers.NONE if entry.ratio is None else numbers.ratio(entry.ratio)
    interval = numbers.interval(entry.interval_ms)
    if entry.limit is not None and entry.interval_ms is None:
        interval = "no limit"
    elif entry.at_least:
        interval = f"≤ {interval}"
    elif entry.limit is None and entry.figures is not None and entry.figures.verdict != "ok":
        ratio = entry.figures.verdict
    return [interval, rate_of(entry.ingress), rate_of(entry.egress), ratio]


def _latencies(entry: Entry, key: str | None) -> list[str]:
    latency = latency_of(entry, key)
    if latency is None:
        return [numbers.NONE] * 4
    return [*map(numbers.duration, (latency.mean, latency.p50, latency.p99, latency.p999))]


def _costs(entry: Entry) -> list[str]:
    figures = entry.figures
    if figures is None or figures.verdict == "void":
        return [numbers.NONE] * 2
    cpu = cpu_of_target(figures)
    return [numbers.share(figures.loss_rate), numbers.NONE if cpu is None else numbers.duration(cpu)]


def times(entry: Entry, reference: Entry, key: str | None) -> str:
    """Mean latency of that kind, or without `key` ingress, as multiple of the reference's."""
    if key:
        here, there = latency_of(entry, key), latency_of(reference, key)
        return numbers.factor(here.mean / there.mean) if here and there and there.mean else numbers.NONE
    if entry.ingress is None or not reference.ingress:
        return numbers.NONE
    return numbers.factor(entry.ingress / reference.ingress)


def custom_table(comparison: Comparison) -> Table | None:
    """The table that the comparison brings along, short rows filled up; None if it has none."""
    if len(comparison.table) < 2:
        return None
    head, *rows = comparison.table
    columns = max(map(len, comparison.table))
    head = head + [""] * (columns - len(head))
    return Table(comparison.title, head, [row + [""] * (columns - len(row)) for row in rows])


def _cut(table: Table) -> Table:
    if len(table.rows) <= MOST_ROWS:
        return table
    caption = f"{table.caption} (the first {MOST_ROWS} of {numbers.count(len(table.rows))})"
    return Table(caption, table.head, table.rows[:MOST_ROWS], table.texts, table.remarks)


def markdown_table(comparison: Comparison, void: bool = False) -> str:
    """The comparison as Markdown: its own table if it brings one along, else that of its limits and runs.

    Raises:
        ReportError: some of it is void, and ``void`` does not ask for that; it is marked then.
    """
    marks = refuse_void(comparison, void)
    own = custom_table(comparison)
    tables = list(map(_markdown, [own] if own else comparison_tables(comparison)))
    if marks:
        tables.insert(0, f"**Void, no result.** {'; '.join(map(_cell, marks))}\n")
    return "\n".join(tables)


def refuse_void(comparison: Comparison, void: bool) -> list[str]:
    """What of a comparison is void, each with why.

    Raises:
        ReportError: there is something, and nobody asked for what is void.
    """
    found = voids_of(comparison)
    if found and not void:
        listed = "\n".join(f"  {line}" for line in found)
        raise ReportError(
            f"{comparison.title}: these figures are void, so they are not written:\n{listed}\n"
            "--void writes them with a mark"
        )
    return found


def _markdown(table: Table) -> str:
    rule = ["---:" if table.is_number(column) else "---" for column in range(len(table.head))]
    lines = [list(map(_cell, table.head)), rule, *(list(map(_cell, row)) for row in table.rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(text: str) -> str:
    # A bar would end the cell, a tag would be taken as HTML, a line break would end the table.
    plain = " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|")
    return plain.replace("&", "&amp;").replace("<", "&lt;")
