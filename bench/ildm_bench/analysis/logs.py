"""The runs below a directory and their log files, checked before Spark reads them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812

from ildm_bench.analysis.errors import BadFile, CorruptLog, MissingLog, WrongSchema
from ildm_bench.measure.manifest import Manifest
from ildm_bench.measure.schema import MANIFEST, ROLES, log_file, run_directory

Bad = Literal["refuse", "skip"]
"""What to do with a log that is of no use: raise its error, or go on without it and put that in the notes."""

_SPARK_TYPES: dict[pa.DataType, T.DataType] = {
    pa.int16(): T.ShortType(),
    pa.int32(): T.IntegerType(),
    pa.int64(): T.LongType(),
}


QUICK_BYTES = 64 << 20
"""Of logs: some 5 million rows."""


@dataclass
class Run:
    """A run's manifest, the logs that are fit to be read, and what had to be left out."""

    directory: Path
    manifest: Manifest
    logs: dict[str, dict[Path, int]] = field(default_factory=lambda: {role: {} for role in ROLES})
    """By role the files to read, with their numbers of rows."""
    left_out: dict[str, set[str]] = field(default_factory=lambda: {role: set() for role in ROLES})
    """By role the workers whose log is missing or bad."""
    notes: list[str] = field(default_factory=list)

    def leave_out(self, role: str, error: BadFile) -> None:
        """Go on without this log, say so in the notes."""
        self.left_out[role].add(error.path.stem)
        self.logs[role].pop(error.path, None)
        try:
            path = error.path.relative_to(self.directory)
        except ValueError:
            path = error.path
        self.notes.append(f"left out {path}: {error.reason}")

    def rows(self, role: str) -> int:
        """Rows in the logs of a role, after their footers."""
        return sum(self.logs[role].values())

    def clients_left_out(self, role: str) -> set[int]:
        """Numbers of the publishers (role ``send``) or subscribers (``receive``) whose log was left out."""
        return {
            number
            for number, client in enumerate(self.manifest.clients)
            if client.publisher == (role == "send") and client.worker in self.left_out[role]
        }


def find_runs(results: Path, names: Sequence[str] | None = None, bad: Bad = "refuse") -> list[Run]:
    """The runs named, or all, in the order of their names; their logs checked.

    Raises:
        MissingLog: a run named, its manifest, or a log that one of its workers had to write is not there.
        CorruptLog: the manifest cannot be read, or a log has no footer.
        WrongSchema: a column of a log is not that of `ildm_bench.measure.schema`.

    With ``bad="skip"`` only the manifest is still refused: without it nothing of the run has a meaning.
    """
    if names is None:
        names = sorted(path.name.removeprefix("run=") for path in results.glob("run=*") if path.is_dir())
        if not names:
            raise MissingLog(results, "no directory run=ID there")
    return [_open(run_directory(results, name), name, bad) for name in dict.fromkeys(names)]


def are_small(results: Path) -> bool:
    """Whether the logs at or below a directory are so few that a quick session is the faster one."""
    return sum(path.stat().st_size for path in results.rglob("role=*/*.parquet")) < QUICK_BYTES


def check_log(path: Path, schema: pa.Schema) -> int:
    """Number of rows of a log whose footer is whole and has the columns of the schema.

    Raises:
        CorruptLog: no footer can be read.
        WrongSchema: a column is missing or of another type; those not in the schema are passed over.
    """
    try:
        footer = pq.read_metadata(path)
        found = footer.schema.to_arrow_schema()
    except (OSError, pa.ArrowException) as error:
        raise CorruptLog(path, _first_line(error)) from error
    for wanted in schema:
        place = found.get_field_index(wanted.name)
        if place < 0:
            raise WrongSchema(path, wanted.name, _type(wanted), None)
        if (_type(found.field(place))) != _type(wanted):
            raise WrongSchema(path, wanted.name, _type(wanted), _type(found.field(place)))
    return int(footer.num_rows)


def read_table(path: Path, schema: pa.Schema) -> pa.Table:
    """A small file as a whole, such as the samples of resources.

    Raises:
        MissingLog, CorruptLog, WrongSchema: as `check_log`; also CorruptLog where a page is damaged.
    """
    if not path.exists():
        raise MissingLog(path, "not there")
    check_log(path, schema)
    try:
        # Not read_table: it would take run=ID in the path for a column.
        return pq.ParquetFile(path, page_checksum_verification=True).read(columns=schema.names)
    except (OSError, pa.ArrowException) as error:
        raise CorruptLog(path, _first_line(error)) from error


def read_logs(spark: SparkSession, results: Path, role: str, runs: Sequence[Run]) -> DataFrame:
    """A role's logs, lazily: the columns of `ildm_bench.measure.schema.ROLES`, and ``run``."""
    schema = spark_schema(ROLES[role])
    partitions = [T.StructField("run", T.StringType()), T.StructField("role", T.StringType())]
    paths = [_location(path) for run in runs for path in run.logs[role]]
    full = T.StructType([*schema.fields, *partitions])
    if not paths:
        return spark.createDataFrame([], full).drop("role")
    reader = spark.read.schema(full).option("basePath", f"file:{results.resolve()}")
    # Not the default; pages that were written without a checksum pass.
    reader = reader.option("parquet.page.verify-checksum.enabled", "true")
    return reader.parquet(*paths).drop("role")


def spark_schema(schema: pa.Schema) -> T.StructType:
    """The schema of a log in Spark's terms."""
    return T.StructType([T.StructField(f.name, _SPARK_TYPES[f.type], f.nullable) for f in schema])


def _open(directory: Path, name: str, bad: Bad) -> Run:
    try:
        manifest = Manifest.read(directory)
    except FileNotFoundError as error:
        raise MissingLog(directory / MANIFEST, "not there") from error
    except (ValidationError, UnicodeDecodeError, OSError) as error:
        raise CorruptLog(directory / MANIFEST, str(error)) from error
    if manifest.run != name:
        raise CorruptLog(directory / MANIFEST, f"is that of run {manifest.run!r}")
    run = Run(directory, manifest)
    for role, schema in ROLES.items():
        due = {c.worker for c in manifest.clients if c.publisher == (role == "send")}
        known = {worker.name for worker in manifest.workers}
        there = {path.stem for path in (directory / f"role={role}").glob("*.parquet")}
        for worker in sorted(due | there):
            path = log_file(directory, role, worker)
            try:
                if worker not in there:
                    raise MissingLog(path, "not there, though its worker had clients of this role")
                if worker not in known:
                    raise CorruptLog(path, "no worker of the manifest has this name")
                run.logs[role][path] = check_log(path, schema)
            except BadFile as error:
                if bad == "refuse":
                    raise
                run.leave_out(role, error)
    return run


def _location(path: Path) -> str:
    # Spark takes a path for a pattern; the characters of patterns are legal in the names of directories.
    return "file:" + re.sub(r"([\\{}\[\]*?])", r"\\\1", str(path.resolve()))


def _type(column: pa.Field) -> str:
    return f"{column.type}{'' if column.nullable else ' not null'}"


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
