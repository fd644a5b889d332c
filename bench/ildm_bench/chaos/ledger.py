"""The ledger of hunts in virtual time: what was run by whom, added up over machines and days.

A hunt leaves `HUNTED` in its directory, rows of the ledger. That is a CSV file in the repository, so that
rows of several people merge as text. No schedule counts twice: rows of one commit and setting never overlap.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from ildm.mqtt import IldmError
from ildm_bench.chaos.virtual.hunt import Batch, Tally

HUNTED = "hunted.csv"
"""What a hunt leaves in its ``--out``."""
COUNTED = {
    "lost": "lost",
    "twice": "twice",
    "order": "order",
    "retained": "retained",
    "stale": "retained",
    "unadmitted": "lost",
}
"""Invariant -> column; what else fails is ``other``."""


class LedgerError(IldmError):
    """A file is no ledger, or rows of two contradict each other."""


class Row(BaseModel):
    """Schedules of one setting, of the seeds ``first`` to ``last``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    commit: str
    """Of what was run; with ``+`` where files were changed since."""
    algorithm: str
    fault: str
    make: str
    """Of brokers, joined by ``+``."""
    mode: str
    scale: str = ""
    """What was asked for beside the usual: sites, seconds, a rate."""
    first: int
    last: int
    schedules: int
    minutes: float
    """Of processors."""
    owed: int
    lost: int = 0
    """Schedules in which messages were; likewise to ``other``."""
    twice: int = 0
    order: int = 0
    retained: int = 0
    other: int = 0
    excused: int = 0
    """Findings said apart, with a cause."""
    failed: int = 0
    """Schedules in which something did not hold."""
    note: str = ""
    """What was found, and where it was mended."""

    @property
    def setting(self) -> tuple[str, ...]:
        return self.commit, self.algorithm, self.fault, self.make, self.mode, self.scale

    def overlaps(self, other: Row) -> bool:
        return self.setting == other.setting and self.first <= other.last and other.first <= self.last

    def __add__(self, other: Self) -> Self:
        """Both in one, seeds from the first to the last."""
        numbers = {
            name: round(value + getattr(other, name), 2)
            for name, value in self
            if isinstance(value, int | float) and name not in {"first", "last"}
        }
        notes = [note for note in dict.fromkeys((self.note, other.note)) if note]
        return self.model_copy(update={**numbers, "last": other.last, "note": "; ".join(notes)})


COLUMNS = tuple(Row.model_fields)
BEYOND = "..."
"""Where the reader puts what a line has behind the last column."""


def row_of(batches: list[Batch], tally: Tally, commit: str) -> Row:
    """What has come of batches that differ in their seeds alone."""
    first = batches[0]
    columns = dict.fromkeys(("lost", "twice", "order", "retained", "other"), 0)
    for failure in tally.failures:
        for column in {COUNTED.get(kind, "other") for kind in failure.kinds}:
            columns[column] += 1
    scale = (
        "" if first.scale is None else f"{first.scale.seconds:g} s, {first.scale.publications} publications"
    )
    sites = "" if first.sites is None else f"{first.sites} sites"
    return Row(
        commit=commit,
        algorithm=first.algorithm,
        fault=first.fault,
        make="+".join(first.brokers) or "mosquitto",
        mode=first.mode,
        scale=", ".join(filter(None, (sites, scale))),
        first=first.seeds[0],
        last=batches[-1].seeds[-1],
        schedules=tally.schedules,
        minutes=round(tally.spent / 60, 2),
        owed=tally.owed,
        excused=sum(tally.apart.values()),
        failed=len(tally.failures),
        note=" ".join(f"{failure.schedule.seed}: {failure}" for failure in tally.failures[:5]),
        **columns,
    )


def read(path: Path) -> list[Row]:
    """
    Raises:
        OSError: it cannot be read.
        LedgerError: it is none.
    """
    with path.open(encoding="utf-8", newline="") as file:
        lines: list[dict[str, Any]] = list(csv.DictReader(file, restkey=BEYOND))
    rows = []
    for number, line in enumerate(lines, 2):
        beyond = line.get(BEYOND)
        if beyond is not None:
            raise LedgerError(
                f"{path}:{number}: {len(line) - 1 + len(beyond)} columns in place of {len(line) - 1}; "
                "a note with a comma stands in quotation marks"
            )
        try:
            rows.append(Row.model_validate(line))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise LedgerError(f"{path}:{number}: {where}: {first['msg']}") from error
    return rows


def write(path: Path, rows: Iterable[Row]) -> None:
    """
    Raises:
        OSError: it cannot be written.
    """
    whole = path.with_suffix(".part")
    with whole.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(row.model_dump() for row in rows)
    whole.replace(path)


def merged(ledger: Iterable[Row], new: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    """A ledger with rows added, and those of them that it had: neighbours in seeds become one row.

    Raises:
        LedgerError: a row has some of the seeds of another, and not all of them.
    """
    rows = list(ledger)
    had = []
    for row in new:
        covering = [each for each in rows if each.overlaps(row)]
        if any(each.first <= row.first and row.last <= each.last for each in covering):
            had.append(row)
        elif covering:
            one = covering[0]
            raise LedgerError(
                f"{row.commit} {row.algorithm} {row.fault}: seeds {row.first} to {row.last} overlap "
                f"{one.first} to {one.last}, which the ledger has"
            )
        else:
            rows.append(row)
    joined: list[Row] = []
    for row in sorted(rows, key=lambda row: (row.setting, row.first)):
        if joined and joined[-1].setting == row.setting and joined[-1].last + 1 == row.first:
            joined[-1] += row
        else:
            joined.append(row)
    return joined, had


def totals(rows: Iterable[Row]) -> dict[tuple[str, str], Row]:
    """Sums of all commits, by algorithm and fault; of the columns that name a setting only these two hold."""
    sums: dict[tuple[str, str], Row] = {}
    for row in sorted(rows, key=lambda row: (row.algorithm, row.fault)):
        key = row.algorithm, row.fault
        bare = row.model_copy(update={"note": ""})
        sums[key] = sums[key] + bare if key in sums else bare
    return sums
