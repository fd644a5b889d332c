"""``ildm-bench chaos run --virtual`` and ``ildm-bench chaos shrink``."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ildm.testing.virtual.makes import MAKES
from ildm_bench.chaos.ledger import HUNTED, Row, row_of, write
from ildm_bench.chaos.outcome import added
from ildm_bench.chaos.schedule import Schedule
from ildm_bench.chaos.shrink import shrink as shrunk
from ildm_bench.chaos.virtual.hunt import Batch, Failure, Tally, batches, failure_of, hunt
from ildm_bench.chaos.virtual.reached import REACHED
from ildm_bench.commit import commit_of

SHOWN = 20
"""Failures that are printed and kept as files."""
SMALL = 3
"""Of those made small, of each algorithm."""
SHRINKING = 600.0
"""Seconds for one of them: a schedule that does not end takes a minute or two a try."""


def simulate(
    algorithms: list[str],
    runs: int,
    seed: int,
    jobs: int,
    out: Path,
    *,
    brokers: list[str],
    queries: bool = False,
    **given: Any,
) -> None:
    """Carry out ``runs`` schedules for each algorithm and say what has come of them.

    Schedules that failed go into ``out`` as ``ALGORITHM-MODE-SEED.json``, the first ones also made small.
    ``queries``: an outcome of the histories goes there as well, which takes longer. ``given``: fields of
    `Batch`. Rows for the ledger are left in ``out``.

    Raises:
        typer.Exit: something promised did not hold.
    """
    for make in brokers:
        if make not in MAKES:
            raise typer.BadParameter(f"{make!r} is none of {', '.join(MAKES)}", param_hint="--broker")
    out.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False)
    total = Tally()
    tallies: dict[str, Tally] = {}
    rows: list[Row] = []
    commit = commit_of(Path(__file__).parent)
    began = time.monotonic()
    for algorithm in algorithms:
        work = list(
            batches(runs, seed, algorithm=algorithm, brokers=tuple(brokers), queries=queries, **given)
        )
        tallies[algorithm] = _shown(console, algorithm, work, jobs, out)
        total += tallies[algorithm]
        rows.append(row_of(work, tallies[algorithm], commit))
        write(out / HUNTED, rows)
    console.print(table_of(tallies))
    _print_reached(console, total.reached)
    seconds = time.monotonic() - began
    console.print(
        f"{total.schedules:,} schedules, {total.virtual / 3600:,.1f} hours of virtual time, "
        f"in {seconds:,.0f} s: {total.schedules / max(total.spent, 0.001) * 60:,.0f} a minute and core.",
    )
    if total.outcomes:
        added(total.outcomes).write(out)
    if total.failures:
        raise typer.Exit(1)


def _shown(console: Console, algorithm: str, work: list[Batch], jobs: int, out: Path) -> Tally:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    failures: list[Failure] = []
    with Progress(*columns, console=Console(stderr=True, highlight=False), transient=True) as bars:
        task = bars.add_task(algorithm, total=sum(len(batch.seeds) for batch in work))

        def told(tally: Tally) -> None:
            bars.update(task, advance=tally.schedules)
            for failure in tally.failures:
                failures.append(failure)
                if len(failures) <= SHOWN:
                    bars.console.print(_kept(failure, out))
                bars.update(task, description=f"{algorithm}, {len(failures)} failed")

        tally = hunt(work, jobs, told)
    for failure in failures[:SMALL]:
        small, again = made_small(failure)
        path = out / f"{_name(failure.schedule)}-small.json"
        small.save(path)
        words = escape(str(again)) if again else "it does not fail again: it rests on more than the schedule"
        console.print(f"{path}: {small.size} parts of {failure.schedule.size}; {words}")
    return tally


def _name(schedule: Schedule) -> str:
    return f"{schedule.setting.algorithm}-{schedule.setting.mode}-{schedule.seed}"


def _kept(failure: Failure, out: Path) -> str:
    path = out / f"{_name(failure.schedule)}.json"
    failure.schedule.save(path)
    return f"{path}: {escape(str(failure))}"


def made_small(failure: Failure, seconds: float = SHRINKING) -> tuple[Schedule, Failure | None]:
    """The smallest part of a schedule that fails as it does, and how; None if it does not fail again. After
    ``seconds`` the smallest found so far."""
    until = time.monotonic() + seconds

    def fails(schedule: Schedule) -> bool:
        found = failure_of(schedule)
        return found is not None and bool(found.kinds & failure.kinds)

    try:
        small = shrunk(failure.schedule, fails, late=lambda: time.monotonic() >= until)
    except ValueError:
        return failure.schedule, None
    return small, failure_of(small)


def table_of(tallies: dict[str, Tally]) -> Table:
    """By algorithm: schedules, what was owed, how many failed and in what, and what is said apart."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("algorithm")
    for name in ("schedules", "owed", "failed"):
        table.add_column(name, justify="right")
    table.add_column("schedules by what failed")
    table.add_column("said apart")
    for algorithm, tally in tallies.items():
        kinds = Counter(kind for failure in tally.failures for kind in failure.kinds)
        figures = (tally.schedules, tally.owed, len(tally.failures))
        table.add_row(algorithm, *(f"{figure:,}" for figure in figures), _words(kinds), _words(tally.apart))
    return table


def _words(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.most_common()) or "-"


def _print_reached(console: Console, reached: Counter[str]) -> None:
    """How often rare states were reached: what never was is not checked."""
    words = [f"{words} {reached[name]:,}" for name, words in REACHED.items()]
    console.print("Reached: " + ", ".join(words) + ".")
    never = [words for name, words in REACHED.items() if not reached[name]]
    if never:
        console.print(f"Never reached: {', '.join(never)}.")


def replay(files: list[Path]) -> None:
    """Carry out given schedules, and say of each what fails in it.

    Raises:
        typer.Exit: something promised did not hold.
        ScheduleError: a file is no schedule.
    """
    failed = False
    for path, schedule in [(path, Schedule.load(path)) for path in files]:
        failure = failure_of(schedule)
        failed |= failure is not None
        typer.echo(f"{path}: {failure or 'everything holds'}")
    if failed:
        raise typer.Exit(1)


def shrink(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A schedule, as a failing run has left it.")],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Default: FILE-small.json.")] = None,
    seconds: Annotated[float, typer.Option(min=0, help="For trying; one try may go beyond.")] = SHRINKING,
) -> None:
    """Make a schedule small that fails in virtual time. Exit status 1: it does not fail."""
    os.environ.setdefault("PYTHONHASHSEED", "0")
    schedule = Schedule.load(file)
    failure = failure_of(schedule)
    if failure is None:
        typer.echo(f"{file}: everything holds", err=True)
        raise typer.Exit(1)
    typer.echo(f"{file}: {failure}")
    small, again = made_small(failure, seconds)
    path = out or file.with_name(f"{file.stem}-small.json")
    small.save(path)
    typer.echo(f"{path}: {small.size} parts of {schedule.size}; {again}")
