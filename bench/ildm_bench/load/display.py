"""What one run shows while it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from ildm_bench.load.coordinator import RunProgress
from ildm_bench.load.scenario import Scenario


@contextmanager
def run_display(
    scenario: Scenario, console: Console | None = None
) -> Iterator[Callable[[RunProgress], None]]:
    """A bar for one run, on a terminal; gives what takes the progress."""
    console = console or Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[counts]}"))
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bars:
        task = bars.add_task(f"{scenario.name}, connecting", total=scenario.duration, counts="")

        def show(progress: RunProgress) -> None:
            counts = f"{progress.sent:,} sent, {progress.received:,} received"
            over = progress.passed > scenario.duration
            text = f"{scenario.name}, {'waiting for the last' if over else 'running'}"
            bars.update(task, description=text, completed=progress.passed, counts=counts)

        yield show
