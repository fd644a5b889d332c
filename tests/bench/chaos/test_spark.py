"""Spark and DuckDB find the same in the same histories."""

from __future__ import annotations

import random
from pathlib import Path

from pyspark.sql import SparkSession

from ildm_bench.chaos.check import check, check_directories, check_histories
from ildm_bench.chaos.engines import DuckDb, Spark
from ildm_bench.chaos.files import parquet_files
from ildm_bench.chaos.history import History, Run
from ildm_bench.chaos.outcome import Outcome
from tests.bench.chaos import making


def write(directory: Path, histories: int) -> None:
    """Correct random runs, and each mutation of each."""
    for seed in range(histories):
        rows = making.random_history(seed)
        variants = {"whole": rows} | {
            name: altered
            for name, mutate in making.MUTATIONS.items()
            if (altered := mutate(rows, random.Random(seed))) is not None
        }
        for name, events in variants.items():
            with History(f"{seed}-{name}", directory) as history:
                for event in events:
                    history.add(event)
                history.finish(
                    Run(
                        history.run,
                        engine="live",
                        algorithm=random.Random(seed).choice(["pf", "stla"]),
                        seed=seed,
                        settle=making.SETTLE,
                    )
                )


def comparable(outcome: Outcome) -> dict[str, object]:
    """Without the order of rows, which no query asks for, and the last bits of sums."""
    plain = outcome.model_dump()
    for key in ("counted", "found", "findings", "durations"):
        plain[key] = sorted(map(str, plain[key]))
    plain["courses"] = [
        (course.run, len(course.moments), [round(moment.p50 or 0.0, 9) for moment in course.moments])
        for course in outcome.courses
    ]
    return plain


def test_both_find_the_same(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, 4)
    by_duckdb = check_directories([tmp_path], DuckDb(threads=1))
    by_spark = check_directories([tmp_path], Spark(spark))
    assert comparable(by_spark) == comparable(by_duckdb)
    assert {one.invariant for one in by_spark.findings} >= set(making.MUTATIONS)
    assert by_spark.courses[0].moments


def test_a_table_in_memory_is_as_good_as_a_file(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, 1)
    files = parquet_files(tmp_path)
    in_memory = check_histories([making.history(making.random_history(1))], Spark(spark))
    assert in_memory.runs == 1
    assert check(files["history"], files["runs"], DuckDb(threads=1)).runs > 1
