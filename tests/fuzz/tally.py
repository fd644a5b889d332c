"""The ledger of executions: what was run by whom, added up over machines and days.

Each run leaves a file in ``.cache/fuzz/runs``, which ``--tally`` adds to `LEDGER`, a CSV file in the
repository. A run has an identifier, which stands in the row that counts it: nothing counts twice, wherever
its file goes.
"""

from __future__ import annotations

import csv
import json
import os
import secrets
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

LEDGER = Path(__file__).parent / "executions.csv"
RUNS = Path(".cache/fuzz/runs")


class LedgerError(Exception):
    """A file is no ledger, or none of a run."""


@dataclass(frozen=True)
class Row:
    """Executions of one target at one commit."""

    commit: str
    """Of what was run; with ``+`` where files were changed since."""
    target: str
    how: str
    """``atheris``, ``own`` mutator, or the same on what is ``compiled``."""
    executions: int
    cpu_minutes: float
    finds: int
    """Different places where the target has failed."""
    note: str = ""
    """What was found, and where it was mended."""
    runs: str = ""
    """Identifiers of what is counted here."""

    @property
    def setting(self) -> tuple[str, str, str]:
        return self.commit, self.target, self.how

    def __add__(self, other: Row) -> Row:
        """Both in one."""
        return replace(
            self,
            executions=self.executions + other.executions,
            cpu_minutes=round(self.cpu_minutes + other.cpu_minutes, 2),
            finds=self.finds + other.finds,
            note="; ".join(note for note in dict.fromkeys((self.note, other.note)) if note),
            runs=" ".join(filter(None, (self.runs, other.runs))),
        )


COLUMNS = tuple(field.name for field in fields(Row))


class Run:
    """What a run leaves: written anew as it goes on, so that what is killed counts, too."""

    def __init__(self, directory: Path, target: str, how: str, commit: str) -> None:
        self.name = secrets.token_hex(4)
        self._path = directory / f"{self.name}.json"
        self._row = Row(commit, target, how, 0, 0.0, 0, runs=self.name)
        directory.mkdir(parents=True, exist_ok=True)

    def write(self, executions: int, cpu: float, finds: int, ended: bool = False) -> None:
        row = replace(self._row, executions=executions, cpu_minutes=round(cpu / 60, 2), finds=finds)
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps({"row": asdict(row), "process": None if ended else os.getpid()}))
        part.replace(self._path)


def left(directory: Path) -> tuple[list[Row], int]:
    """What runs have left in a directory, and how many go on still.

    Raises:
        LedgerError: a file is none of a run.
    """
    rows, going = [], 0
    for path in sorted(directory.glob("*.json")):
        try:
            said = json.loads(path.read_text())
            row, process = Row(**said["row"]), said["process"]
        except (ValueError, KeyError, TypeError) as error:
            raise LedgerError(f"{path}: no run: {error}") from error
        if process is not None and lives(process):
            going += 1
        elif row.executions:
            rows.append(row)
    return rows, going


def lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def read(path: Path) -> list[Row]:
    """
    Raises:
        LedgerError: it is none.
    """
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        lines = list(reader)
    if tuple(reader.fieldnames or ()) != COLUMNS:
        raise LedgerError(f"{path}: its columns are not {', '.join(COLUMNS)}")
    rows = []
    for number, line in enumerate(lines, 2):
        try:
            numbers = int(line["executions"]), float(line["cpu_minutes"]), int(line["finds"])
        except (TypeError, ValueError) as error:
            raise LedgerError(f"{path}:{number}: {error}") from error
        if None in line or None in line.values():
            raise LedgerError(f"{path}:{number}: a note with a comma stands in quotation marks")
        executions, minutes, finds = numbers
        texts = {name: line[name] for name in ("commit", "target", "how", "note", "runs")}
        rows.append(Row(**texts, executions=executions, cpu_minutes=minutes, finds=finds))
    return rows


def write(path: Path, rows: Iterable[Row]) -> None:
    whole = path.with_suffix(".part")
    with whole.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
    whole.replace(path)


def merged(ledger: Iterable[Row], new: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    """A ledger with runs added, and those of them that it had: what is of one setting becomes one row."""
    rows: dict[tuple[str, str, str], Row] = {}
    counted: set[str] = set()
    had = []
    for row in ledger:
        counted.update(row.runs.split())
        rows[row.setting] = rows[row.setting] + row if row.setting in rows else row
    for row in new:
        if row.runs in counted:
            had.append(row)
            continue
        counted.add(row.runs)
        rows[row.setting] = rows[row.setting] + row if row.setting in rows else row
    return [rows[setting] for setting in sorted(rows)], had


def totals(rows: Iterable[Row]) -> dict[str, Row]:
    """Sums by target; of what names a setting only that holds."""
    sums: dict[str, Row] = {}
    for row in sorted(rows, key=lambda row: row.target):
        bare = replace(row, note="", runs="")
        sums[row.target] = sums[row.target] + bare if row.target in sums else bare
    return sums


def tally(ledger: Path, directory: Path) -> str:
    """Add what was run to a ledger; what it then says.

    Raises:
        LedgerError: a file is no ledger, or none of a run.
    """
    new, going = left(directory)
    rows, had = merged(read(ledger) if ledger.exists() else [], new)
    write(ledger, rows)
    sums = totals(rows)
    lines = [f"{'':15}{'executions':>12}{'cpu minutes':>13}{'a second':>10}{'finds':>7}"]
    whole = sum(sums.values(), Row("", "all", "", 0, 0.0, 0))
    for row in (*sums.values(), whole):
        rate = row.executions / max(row.cpu_minutes * 60, 1e-9)
        lines.append(
            f"{row.target:15}{row.executions:12,}{row.cpu_minutes:13,.1f}{rate:10,.0f}{row.finds:7,}"
        )
    lines.append(f"{len(new) - len(had)} runs added, {len(had)} counted before, {going} go on still")
    return "\n".join(lines)
