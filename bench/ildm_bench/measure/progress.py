"""What a limit search shows: a line for each measurement, a bar with the time left, the limit at the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ildm_bench.measure.figures import Limit, Point, RunFigures
from ildm_bench.measure.procedure import limit_point, standing_of
from ildm_bench.report.entries import latency_words

_BOUNDS = {
    "target": "the next smaller interval does not hold",
    "generator": "the load generator missed its target at the next smaller interval, the limit may be higher",
    "schedule": "the smallest interval that is allowed holds, the limit may be higher",
}


class Progress:
    """The display of one search, a context manager.

    On a terminal a bar below the lines shows what is measured and the time left; elsewhere each line carries
    the time left itself. ``seconds`` is what one measurement takes as far as it is known before the first
    (length of the scenario), after that the mean of those seen counts. ``clock`` gives seconds.
    """

    def __init__(
        self,
        console: Console | None = None,
        seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console = console or Console(stderr=True, highlight=False)
        self._clock = clock
        self._expected = seconds
        self._spent: list[float] = []
        self._done = 0
        self._remaining = (0, 0)
        self._now = ""
        self._began = clock()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            # One update a second: the load runs on the same machine.
            self._live = Live(
                get_renderable=self._bar, console=self.console, refresh_per_second=1, transient=True
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def note(self, text: str) -> None:
        """A line of its own, such as a warning."""
        self.console.print(Text(text, style="yellow"), soft_wrap=True)

    def resumed(self, point: Point) -> None:
        """A measurement that the journal had."""
        self._done += 1
        line = point_line(point)
        line.append("  (journal)")
        line.stylize("dim")
        self.console.print(line, soft_wrap=True)

    def begins(self, interval_ms: float, step: int, remaining: tuple[int, int]) -> None:
        """A measurement begins; ``remaining`` counts it."""
        self._now = f"step {step}: {interval_ms:.6g} ms"
        self._remaining = remaining
        self._began = self._clock()
        if self._live is not None:
            self._live.refresh()

    def ended(self, point: Point, remaining: tuple[int, int]) -> None:
        """The measurement that began last is there; ``remaining`` are those after it."""
        self._spent.append(self._clock() - self._began)
        self._began = self._clock()
        self._done += 1
        self._remaining = remaining
        line = point_line(point)
        if self._live is None and remaining[1]:
            line.append(f"  ({self.time_left()})")
        self.console.print(line, soft_wrap=True)

    def time_left(self) -> str:
        """How many measurements may still come and how long they take, in words."""
        least, most = self._remaining
        if not most:
            return "done"
        number = f"{least} more" if least == most else f"{least} to {most} more"
        each = self._each()
        if not each:
            return number
        # A measurement that takes longer than the others does not make the time left negative.
        under_way = min(self._clock() - self._began, each)
        low, high = (_duration(count * each - under_way) for count in (least, most))
        if low == high:
            return f"{number}, {low} left"
        figure, _, unit = low.partition(" ")
        # "4 to 9 min" instead of "4 min to 9 min", but hours have minutes behind them.
        same = unit == high.partition(" ")[2]
        span = f"{figure} to {high}" if same and " " not in unit else f"{low} to {high}"
        return f"{number}, {span} left"

    def _each(self) -> float:
        return sum(self._spent) / len(self._spent) if self._spent else self._expected

    def _bar(self) -> RenderableType:
        most = self._remaining[1]
        each = self._each()
        part = min((self._clock() - self._began) / each, 1.0) if each and most else 0.0
        # Counted to the most that may come, which only shrinks: the bar never moves back.
        bar = ProgressBar(total=self._done + most or 1, completed=self._done + part, width=20)
        row = Table.grid(padding=(0, 2))
        row.add_row(Text(self._now), bar, Text(self.time_left()))
        return row


def point_line(point: Point) -> Text:
    """One measurement in a line: step, interval, throughput of the t-clients, ratio of Definition 1."""
    standing = standing_of(point)
    words, style = {
        "under": ("under the limit", "green"),
        "over": ("over the limit", "red"),
        "void": ("void: the generator missed its target", "yellow"),
    }[standing]
    if point.verdict == "refused":
        words = "over the limit: load refused"
    if point.disturbed:
        words, style = f"{words}, but void: {point.disturbed}", "yellow"
    line = Text(
        f"step {point.step}  {point.interval_ms:>9.6g} ms  ingress {point.ingress:>10,.0f}/s  "
        f"egress {point.egress:>10,.0f}/s  ratio {point.ratio:.4f}  "
    )
    line.append(words, style=style)
    return line


def render_limit(limit: Limit) -> RenderableType:
    """The outcome of a search: limit, throughput, latency percentiles, loss, CPU time per delivery.

    Latency, loss and the processes' CPU time need ``limit.figures``.
    """
    parts: list[RenderableType] = [_summary(limit)]
    if limit.figures is not None:
        parts.append(_latencies(limit.figures))
        parts.append(_processes(limit.figures))
    notes = [*limit.notes, *(limit.figures.notes if limit.figures is not None else [])]
    parts += [Text(f"note: {note}", style="yellow") for note in dict.fromkeys(notes)]
    return Group(*parts)


def _summary(limit: Limit) -> Table:
    table = Table(title=f"Limit of {limit.label or limit.scenario}", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    table.add_row("scenario", limit.scenario)
    figures, point = limit.figures, limit_point(limit)
    if limit.interval_ms is None or point is None:
        table.add_row("limit", Text("none: no interval is under the limit", style="red"))
    else:
        table.add_row("limit", Text(f"{limit.interval_ms:.6g} ms between messages", style="green"))
        if limit.void:
            table.add_row("VOID", Text(limit.void, style="red"))
        table.add_row("bounded by", f"{limit.bounded_by}: {_BOUNDS[limit.bounded_by]}")
        seen = figures or point
        table.add_row("ingress", f"{seen.ingress:,.0f} messages/s")
        table.add_row("egress", f"{seen.egress:,.0f} messages/s")
        table.add_row("ratio", f"{seen.ratio:.4f} of ingress x sp-ratio")
        if found := limit.spread.get("interval_ms"):
            table.add_row("found again", ", ".join(f"{each:.6g} ms" for each in found))
    if figures is not None:
        table.add_row("loss", f"{figures.loss_rate:.4%} ({figures.missing:,} of {figures.expected:,})")
    table.add_row("measurements", str(len(limit.points)))
    return table


def _latencies(figures: RunFigures) -> Table:
    table = Table(title="Latency at the limit, ms", title_justify="left")
    table.add_column("latency")
    for name in ("p50", "p95", "p99", "p99.9", "max"):
        table.add_column(name, justify="right")
    for key, latency in figures.latency.items():
        values = (latency.p50, latency.p95, latency.p99, latency.p999, latency.max)
        cells = ("" if value is None else f"{value / 1000:,.3f}" for value in values)
        table.add_row(latency_words(key), *cells)
    return table


def _processes(figures: RunFigures) -> Table:
    table = Table(title="Processes at the limit", title_justify="left")
    for name in ("process", "role", "label"):
        table.add_column(name)
    for name in ("cores", "quota", "CPU us per delivery", "RSS MiB"):
        table.add_column(name, justify="right")
    for use in figures.processes:
        quota = "-" if use.quota is None else f"{use.quota:g}"
        memory = f"{use.rss_bytes / 2**20:.1f}"
        cores, each = f"{use.cores:.2f}", f"{use.cpu_us_per_delivery:.2f}"
        table.add_row(use.name, use.role, use.label, cores, quota, each, memory)
    return table


def _duration(seconds: float) -> str:
    seconds = max(round(seconds), 0)
    if seconds < 90:
        return f"{seconds} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02} min"
