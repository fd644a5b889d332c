"""Histories on disk: from JSON lines to Parquet, and read back run by run.

Raises what `ildm_bench.analysis.errors` has for files of no use.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
import pyarrow.parquet as pq

from ildm_bench.analysis.errors import CorruptLog, MissingLog, WrongSchema
from ildm_bench.chaos.history import OPS, PHASES, Event, Run
from ildm_bench.chaos.tables import EVENTS, RUNS

KINDS = {"history": EVENTS, "runs": RUNS}
BATCH = 1 << 16
"""Events that are there as objects at the same time, beside those that are kept."""
_DEFAULTS = {"history": Event(0.0, "", "", "")._asdict(), "runs": Run("")._asdict()}
_REQUIRED = {"history": ("run", "n", "t", "process", "op", "phase"), "runs": ("run",)}


def to_parquet(directory: Path) -> list[Path]:
    """Make Parquet of the JSON lines there, which are removed; answers the files made.

    A last line without its end, as a killed writer leaves it, is passed over.

    Raises:
        CorruptLog: a line is no JSON object, or an event of no known kind.
        WrongSchema: a column that must be there is missing, or is of another type.
    """
    made = []
    for kind, schema in KINDS.items():
        for source in sorted(directory.glob(f"{kind}-*.jsonl")):
            table = _parsed(source, kind, schema)
            target = source.with_suffix(".parquet")
            whole = target.with_suffix(".part")
            if target.exists():  # the same writer has gone on after an earlier conversion
                table = pa.concat_tables([read_file(target, schema), table])
            pq.write_table(table, whole, compression="zstd", write_page_checksum=True)
            whole.replace(target)
            source.unlink()
            made.append(target)
    return made


def parquet_files(directory: Path) -> dict[str, list[Path]]:
    """By kind the Parquet files of a directory; JSON lines there become Parquet before.

    Raises:
        MissingLog: it has no history, or no runs.
        CorruptLog, WrongSchema: as `to_parquet`.
    """
    to_parquet(directory)
    found = {kind: sorted(directory.glob(f"{kind}-*.parquet")) for kind in KINDS}
    for kind, paths in found.items():
        if not paths:
            raise MissingLog(directory, f"no {kind}-NAME.jsonl or .parquet there")
    return found


class Stock(NamedTuple):
    """What directories hold."""

    runs: dict[str, Run]
    files: list[Path]
    """Of events."""


def stock_of(directories: Iterable[Path]) -> Stock:
    """JSON lines there become Parquet before.

    Raises:
        MissingLog: a directory has no history, or no runs.
        CorruptLog, WrongSchema: a file is of no use, or two runs have one name.
    """
    stock = Stock({}, [])
    for directory in directories:
        found = parquet_files(directory)
        stock.files.extend(found["history"])
        for path in found["runs"]:
            for row in read_file(path, RUNS).to_pylist():
                if row["run"] in stock.runs:
                    raise CorruptLog(path, f"a run of the name {row['run']} was there before")
                stock.runs[row["run"]] = Run(**row)
    return stock


def histories(stock: Stock) -> Iterator[tuple[Run, pa.Table]]:
    """Each run, with its events in order; of runs that were not finished there is none.

    Raises:
        CorruptLog, WrongSchema: a file is of no use, or a run has events in two files.
    """
    left = dict(stock.runs)
    for path in stock.files:
        events = read_file(path, EVENTS).sort_by([("run", "ascending"), ("n", "ascending")])
        first = 0
        for each in pc.value_counts(events["run"]).to_pylist():
            name, count = each["values"], each["counts"]
            if name in left:
                yield left.pop(name), events.slice(first, count)
            elif name in stock.runs:
                raise CorruptLog(path, f"run {name} has events in another file, too")
            first += count
    for about in left.values():
        yield about, EVENTS.empty_table()


def events_of(table: pa.Table) -> Iterator[Event]:
    """The rows of `EVENTS`, as events."""
    for batch in table.select(Event._fields).to_batches(max_chunksize=BATCH):
        yield from map(Event._make, zip(*(column.to_pylist() for column in batch.columns), strict=True))


def read_file(path: Path, schema: pa.Schema) -> pa.Table:
    """One Parquet file, its columns checked.

    Raises:
        CorruptLog, WrongSchema: it is of no use.
    """
    try:
        table = pq.ParquetFile(path, page_checksum_verification=True).read()
    except (OSError, pa.ArrowException) as error:
        raise CorruptLog(path, str(error).splitlines()[0]) from error
    for field in schema:
        place = table.schema.get_field_index(field.name)
        other = table.schema.field(place).type if place >= 0 else None
        if other != field.type:
            raise WrongSchema(path, field.name, str(field.type), str(other) if other else None)
    return table.select(schema.names).cast(schema)


def _parsed(path: Path, kind: str, schema: pa.Schema) -> pa.Table:
    data = path.read_bytes()
    data = data[: data.rfind(b"\n") + 1]
    if not data:
        return schema.empty_table()
    options = pa.json.ParseOptions(
        explicit_schema=pa.schema([field.with_nullable(True) for field in schema]),
        unexpected_field_behavior="error",
    )
    try:
        table = pa.json.read_json(io.BytesIO(data), parse_options=options)
    except pa.ArrowException as error:
        raise CorruptLog(path, str(error).splitlines()[0]) from error
    columns = []
    for field in schema:
        column = table[field.name]
        if column.null_count and field.name in _REQUIRED[kind]:
            raise WrongSchema(path, field.name, f"{field.type} not null", "null")
        columns.append(
            pc.fill_null(column, pa.scalar(_DEFAULTS[kind][field.name], field.type))
            if column.null_count
            else column
        )
    filled = pa.Table.from_arrays(columns, schema=schema)
    if kind == "history":
        _known(path, filled)
    return filled


def _known(path: Path, events: pa.Table) -> None:
    for name, allowed in (("op", OPS), ("phase", PHASES)):
        if strange := set(pc.unique(events[name]).to_pylist()) - allowed:
            raise CorruptLog(path, f"{name} {sorted(strange)[0]!r} is none that there is")
