"""``ildm-bench chaos tally``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rich import box
from rich.table import Table

from ildm_bench.chaos.ledger import HUNTED, LedgerError, Row, merged, read, totals, write

FIGURES = ("schedules", "owed", "lost", "twice", "order", "retained", "other", "excused")


def add_to(ledger: Path, directories: Iterable[Path]) -> str:
    """Add what hunts have left in directories, or anywhere in them; answers what that was, for people.

    Raises:
        LedgerError: a directory has none, a file is none, or seeds would count twice.
        OSError: a file cannot be read or written.
    """
    new: list[Row] = []
    for directory in directories:
        files = sorted(directory.rglob(HUNTED))
        if not files:
            raise LedgerError(f"{directory}: no {HUNTED} in it")
        new += [row for file in files for row in read(file)]
    rows, had = merged(read(ledger) if ledger.exists() else [], new)
    ledger.parent.mkdir(parents=True, exist_ok=True)
    write(ledger, rows)
    added = sum(row.schedules for row in new) - sum(row.schedules for row in had)
    known = f"; {len(had)} of {len(new)} rows were there before" if had else ""
    return f"{ledger}: {added:,} schedules added{known}"


def table_of(ledger: Path) -> Table:
    """What a ledger comes to by algorithm and fault, over all commits.

    Raises:
        LedgerError, OSError: it is none, or cannot be read.
    """
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("algorithm", "fault"):
        table.add_column(name)
    for name in (*FIGURES, "a minute and core"):
        table.add_column(name, justify="right")
    rows = read(ledger)
    timed = totals(row for row in rows if row.minutes)
    for key, row in totals(rows).items():
        figures = [f"{getattr(row, name):,}" for name in FIGURES]
        pace = f"{timed[key].schedules / timed[key].minutes:,.0f}" if key in timed else "-"
        table.add_row(*key, *figures, pace)
    return table
