"""The check of histories: each run is judged by itself, and what came of them is added up.

A plain loop does that in this process, or Spark on any number: a run is a group there, and judged as a whole
by one executor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pydantic import ValidationError

from ildm_bench.analysis.errors import AnalysisError, CorruptLog, MissingLog
from ildm_bench.chaos.figures import outcome_of
from ildm_bench.chaos.files import Stock, events_of, histories, stock_of
from ildm_bench.chaos.history import History, Run
from ildm_bench.chaos.outcome import Outcome, added

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_EVENTS = 5_000_000
"""Of one run. One process judges it, and takes 1 KiB of memory for each."""

OUTCOMES = pa.schema([pa.field("run", pa.string()), pa.field("outcome", pa.string())])

Progress = Callable[[str], None]


class TooLong(AnalysisError):  # noqa: N818 - as its siblings
    """A run has too many events for one process."""

    def __init__(self, run: str, events: int) -> None:
        super().__init__(
            f"run {run} has {events:,} events, and one of more than {MOST_EVENTS:,} is not judged: "
            "make several shorter runs (--runs, --seconds, --rate)"
        )


def check_histories(histories: Iterable[History]) -> Outcome:
    """Of runs in memory, all of them finished."""
    return added(outcome_of(each.events, each.about) for each in histories if each.about is not None)


def check_directories(directories: Sequence[Path], session: SparkSession | None = None) -> Outcome:
    """Of the runs in directories; without a session of Spark in this process.

    Raises:
        BadFile: there is no history, or it is of no use; see `ildm_bench.chaos.files`.
        AnalysisError: a run is too long, or Spark failed.
    """
    stock = stock_of(directories)
    return added(_by_loop(stock) if session is None else _by_spark(stock, session))


def checked(paths: Sequence[Path], engine: str, master: str, progress: Progress) -> Outcome:
    """Of directories of histories, by ``python`` or ``spark``, and of earlier checks (files), together.

    Raises:
        BadFile, AnalysisError: as `check_directories`; BadFile also where a file is no outcome.
    """
    outcomes = [_earlier(path) for path in paths if not path.is_dir()]
    directories = [path for path in paths if path.is_dir()]
    if directories:
        session = None
        if engine == "spark":
            from ildm_bench.analysis.session import spark_session  # noqa: PLC0415 - slow to import

            progress("starting Spark")
            session = spark_session(master)
        progress("judging runs")
        outcomes.append(check_directories(directories, session))
    return added(outcomes)


def _earlier(path: Path) -> Outcome:
    try:
        return Outcome.read(path)
    except OSError as error:
        raise MissingLog(path, error.strerror or str(error)) from error
    except ValidationError as error:
        raise CorruptLog(path, str(error).splitlines()[0]) from error


def _by_loop(stock: Stock) -> Iterable[Outcome]:
    for about, events in histories(stock):
        if len(events) > MOST_EVENTS:
            raise TooLong(about.run, len(events))
        yield outcome_of(events_of(events), about)


def _by_spark(stock: Stock, session: SparkSession) -> Iterable[Outcome]:
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        events = session.read.parquet(*(f"file:{path.resolve()}" for path in stock.files))
        lengths = {row["run"]: row["count"] for row in events.groupBy("run").count().collect()}
        for run in stock.runs:
            if lengths.get(run, 0) > MOST_EVENTS:
                raise TooLong(run, lengths[run])
        judged = events.groupBy("run").applyInArrow(_judging(stock.runs), "run string, outcome string")
        rows = sorted(judged.collect())
    except (PySparkException, Py4JJavaError) as error:
        raise AnalysisError(f"Spark failed: {str(error).splitlines()[0]}") from error
    yield from (Outcome.model_validate_json(row["outcome"]) for row in rows)
    yield from (outcome_of((), about) for name, about in stock.runs.items() if name not in lengths)


def _judging(runs: dict[str, Run]) -> Callable[[tuple[pa.Scalar, ...], pa.Table], pa.Table]:
    """What an executor does with the events of a run."""

    def judge(key: tuple[pa.Scalar, ...], events: pa.Table) -> pa.Table:
        about = runs.get(key[0].as_py())
        if about is None:  # it was not finished
            return OUTCOMES.empty_table()
        outcome = outcome_of(events_of(events.sort_by("n")), about)
        return pa.table([[about.run], [outcome.model_dump_json()]], OUTCOMES)

    return judge
