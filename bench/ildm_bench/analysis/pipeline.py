"""From the logs of runs to their figures (`ildm_bench.measure.figures.RunFigures`).

What counts: ingress and egress are rates of what t-clients sent and received within the window of the
manifest, `ratio` is egress / (ingress x sp-ratio) (Definition 1, thesis 5.5.4). A delivery is expected for
each message sent within the window and each subscriber of its topic, whenever it comes; duplicates do not
stand in for lost messages. Duplicates and order violations are those of all clients in the whole run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from ildm_bench.analysis import jobs
from ildm_bench.analysis.assemble import Counts, figures_of
from ildm_bench.analysis.errors import AnalysisError, CorruptLog
from ildm_bench.analysis.logs import Run, find_runs, read_logs
from ildm_bench.measure.figures import RunFigures
from ildm_bench.measure.schema import FIGURES, run_directory

SORT_ROWS = 2_000_000
"""Rows that one task sorts, at most, where they can be divided: some 100 bytes each."""

FEW_RUNS = 3
"""So many are read one by one, each by a plan that knows its run; of more the plan would be too long."""

Progress = Callable[[str], None]


def analyse(
    spark: SparkSession,
    results: Path | str,
    runs: Sequence[str] | None = None,
    bad: Literal["refuse", "skip"] = "refuse",
    progress: Progress | None = None,
) -> list[RunFigures]:
    """The figures of all runs below a directory, or of those named, in one go.

    The directory is read by the workers of the Spark master, too, so they need it under the same path.

    Raises:
        MissingLog, CorruptLog, WrongSchema: a file of a run cannot be used, see `ildm_bench.analysis.logs`.
            With ``bad="skip"`` logs are left out instead and stand in the figures' notes; the clients whose
            log it is then count neither in what was expected nor in what is missing.
        AnalysisError: Spark failed.
    """
    results = Path(results)
    found = find_runs(results, runs, bad)
    told = progress or (lambda _: None)
    while True:
        try:
            counts = _count(spark, results, found, told)
        except CorruptLog as error:
            # A damaged page shows only when it is read; then all is counted again without its file.
            if bad == "refuse":
                raise
            _leave_out(found, error)
            told(f"left out {error}")
        else:
            return [
                figures_of(run, count, skip=bad == "skip") for run, count in zip(found, counts, strict=True)
            ]


def write_figures(
    figures: Sequence[RunFigures], results: Path | str, out: Path | str | None = None
) -> list[Path]:
    """Write each run's ``figures.json`` into the directory of the run, or of the same name below ``out``."""
    paths = []
    for run in figures:
        directory = run_directory(Path(out if out is not None else results), run.run)
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / FIGURES
        path.write_text(run.model_dump_json(indent=1) + "\n")
        paths.append(path)
    return paths


def _count(spark: SparkSession, results: Path, runs: Sequence[Run], progress: Progress) -> list[Counts]:
    sends = _tagged(spark, results, "send", runs)
    receives = _tagged(spark, results, "receive", runs)
    total = sum(run.rows("receive") for run in runs)
    progress(f"{len(runs)} runs, {sum(run.rows('send') for run in runs)} rows sent, {total} received")
    without = spark.createDataFrame(
        [
            (index, number)
            for index, run in enumerate(runs)
            for number in sorted(run.clients_left_out("send"))
        ],
        jobs.CLIENTS,
    )
    partitions = max(spark.sparkContext.defaultParallelism, -(-total // SORT_ROWS))
    parts = {
        "violations": jobs.order_violations(receives, len(runs), partitions),
        "deliveries": jobs.deliveries(receives, without),
        "received": jobs.received(receives),
        "sent": jobs.sent(sends),
    }
    progress(f"counting {', '.join(parts)}")
    rows: list[dict[str, list[Row]]] = [{name: [] for name in parts} for _ in runs]
    # While one job is planned and compiled the others compute.
    with ThreadPoolExecutor(len(parts)) as pool:
        for name, counted in zip(parts, pool.map(_collect, parts.values()), strict=True):
            for row in counted:
                rows[row["index"]][name].append(row)
    return [Counts(**of_run) for of_run in rows]


def _tagged(spark: SparkSession, results: Path, role: str, runs: Sequence[Run]) -> DataFrame:
    if len(runs) > FEW_RUNS:
        return jobs.tagged(
            read_logs(spark, results, role, runs), jobs.topics(spark, [run.manifest for run in runs])
        )
    each = [
        jobs.tagged_run(read_logs(spark, results, role, [run]), index, run.manifest)
        for index, run in enumerate(runs)
    ]
    return reduce(DataFrame.union, each)


def _collect(job: DataFrame) -> list[Row]:
    try:
        return job.collect()
    except (PySparkException, Py4JJavaError) as error:
        # Which class and whose message it is depends on where in Spark it went wrong.
        match = re.search(r"while reading file (\S.*?)\.(?:\s|$)", text := str(error))
        if match is None:
            raise AnalysisError(f"Spark failed: {text.splitlines()[0]}") from error
        path = Path(re.sub(r"^file:/*", "/", unquote(match[1])))
        raise CorruptLog(path, "its rows cannot be read: a page is damaged or cut off") from error


def _leave_out(runs: Sequence[Run], error: CorruptLog) -> None:
    for run in runs:
        for role, paths in run.logs.items():
            for path in paths:
                if path.resolve() == error.path:
                    run.leave_out(role, CorruptLog(path, error.reason))
                    return
    raise error
