"""Histories on disk: from JSON lines to Parquet, and whole tables read back.

Raises what `ildm_bench.analysis.errors` has for files of no use.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
import pyarrow.parquet as pq

from ildm_bench.analysis.errors import CorruptLog, MissingLog, WrongSchema
from ildm_bench.chaos.history import OPS, PHASES, Event, Run
from ildm_bench.chaos.tables import EVENTS, RUNS

KINDS = {"history": EVENTS, "runs": RUNS}
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


def read(directories: Iterable[Path]) -> tuple[pa.Table, pa.Table]:
    """Events and runs of directories, as `EVENTS` and `RUNS`; JSON lines there become Parquet before.

    Raises:
        MissingLog: a directory has no history, or no runs.
        CorruptLog, WrongSchema: a file is of no use, or two runs have one name.
    """
    found = {kind: [schema.empty_table()] for kind, schema in KINDS.items()}
    for directory in directories:
        for kind, paths in parquet_files(directory).items():
            found[kind] += [read_file(path, KINDS[kind]) for path in paths]
        names = pa.concat_tables(found["runs"])["run"]
        if len(names) != len(pc.unique(names)):
            raise CorruptLog(directory, "a run of this name was there before")
    return pa.concat_tables(found["history"]), pa.concat_tables(found["runs"])


def parquet_files(directory: Path) -> dict[str, list[Path]]:
    """By kind the Parquet files of a directory; JSON lines there become Parquet before.

    Raises: as `read`.
    """
    to_parquet(directory)
    found = {kind: sorted(directory.glob(f"{kind}-*.parquet")) for kind in KINDS}
    for kind, paths in found.items():
        if not paths:
            raise MissingLog(directory, f"no {kind}-NAME.jsonl or .parquet there")
    return found


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
