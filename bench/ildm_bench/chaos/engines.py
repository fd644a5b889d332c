"""Where the SQL of the invariants runs: DuckDB within this process, or Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pyarrow as pa

from ildm_bench.analysis.errors import AnalysisError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Source: TypeAlias = "pa.Table | Sequence[Path]"
"""A table, or the Parquet files of it."""


class Engine(Protocol):
    def load(self, name: str, source: Source) -> None:
        """Have this table under this name."""

    def define(self, name: str, query: str) -> None:
        """Have the rows of a query, worked out once, under this name."""

    def ask(self, query: str) -> list[dict[str, Any]]:
        """The rows of a query."""

    def close(self) -> None:
        """Forget all tables."""


class DuckDb:
    """Up to some ten million events in memory, in seconds.

    Raises:
        AnalysisError: the package duckdb is not installed.
    """

    def __init__(self, threads: int | None = None) -> None:
        try:
            import duckdb  # noqa: PLC0415 - optional
        except ModuleNotFoundError as error:
            raise AnalysisError("this needs duckdb: install the extra 'bench', or use Spark") from error
        self._db = duckdb.connect()
        if threads is not None:
            self._db.execute(f"SET threads = {threads}")

    def load(self, name: str, source: Source) -> None:
        if isinstance(source, pa.Table):
            self._db.register(name, source)
        else:
            files = ", ".join("'{}'".format(str(path).replace("'", "''")) for path in source)
            self._db.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS SELECT * FROM read_parquet([{files}])")

    def define(self, name: str, query: str) -> None:
        self._db.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {query}")

    def ask(self, query: str) -> list[dict[str, Any]]:
        result = self._db.execute(query)
        names = [column[0] for column in result.description or ()]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]

    def close(self) -> None:
        self._db.close()


class Spark:
    """Any number of events, on a cluster if need be.

    Raises (all of its methods):
        AnalysisError: Spark failed.
    """

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._cached: list[DataFrame] = []

    def load(self, name: str, source: Source) -> None:
        if isinstance(source, pa.Table):
            self._keep(name, self._session.createDataFrame(source))
        else:  # columns that a query needs are read again faster than all are kept
            frame = self._session.read.parquet(*(f"file:{path.resolve()}" for path in source))
            frame.createOrReplaceTempView(name)

    def define(self, name: str, query: str) -> None:
        self._keep(name, self._run(query))

    def ask(self, query: str) -> list[dict[str, Any]]:
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # noqa: PLC0415
        from pyspark.errors import PySparkException  # noqa: PLC0415

        try:
            return [row.asDict() for row in self._run(query).collect()]
        except (PySparkException, Py4JJavaError) as error:
            raise AnalysisError(f"Spark failed: {str(error).splitlines()[0]}") from error

    def close(self) -> None:
        for frame in self._cached:
            frame.unpersist()
        self._cached.clear()

    def _run(self, query: str) -> DataFrame:
        from pyspark.errors import PySparkException  # noqa: PLC0415

        try:
            return self._session.sql(query)
        except PySparkException as error:
            raise AnalysisError(f"Spark failed: {str(error).splitlines()[0]}") from error

    def _keep(self, name: str, frame: DataFrame) -> None:
        self._cached.append(frame.persist())
        frame.createOrReplaceTempView(name)
