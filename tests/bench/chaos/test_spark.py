"""Spark and the loop find the same in the same histories."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ildm import compiled
from ildm_bench.analysis.errors import AnalysisError
from ildm_bench.chaos import check, outcome
from ildm_bench.chaos.check import TooLong, check_directories
from ildm_bench.chaos.history import History, Run
from ildm_bench.chaos.outcome import Outcome
from ildm_bench.chaos.virtual.planted import PLANTS
from tests.bench.chaos import making, planting

PROJECT = Path(__file__).parents[3]


def write(directory: Path, histories: int) -> int:
    """Correct random runs, and each mutation of each; answers how many."""
    runs = 0
    for seed in range(histories):
        rows = making.random_history(seed)
        variants = {"whole": rows} | {
            name: altered
            for name, mutate in making.MUTATIONS.items()
            if (altered := mutate(rows, random.Random(seed))) is not None
        }
        runs += len(variants)
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
    return runs


def comparable(outcome: Outcome) -> dict[str, object]:
    """Without the last bits of sums, and the order of rows."""
    plain = outcome.model_dump()
    for each in plain["counted"]:
        each["seconds"] = round(each["seconds"], 6)
    for key in ("counted", "found", "findings", "durations", "courses"):
        plain[key] = sorted(map(str, plain[key]))
    return plain


def test_both_find_the_same(spark: SparkSession, tmp_path: Path) -> None:
    runs = write(tmp_path, 4)
    with History("never finished", tmp_path) as unfinished:
        unfinished.add(making.connected(0.0))
    with History("without events", tmp_path) as empty:
        empty.finish(Run("without events"))
    by_loop = check_directories([tmp_path])
    by_spark = check_directories([tmp_path], spark)
    assert comparable(by_spark) == comparable(by_loop)
    assert {one.invariant for one in by_spark.findings} >= set(making.MUTATIONS)
    assert by_spark.courses[0].moments
    assert by_spark.runs == runs + 1


def test_both_find_planted_bugs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcome, "KEPT", 1_000_000)  # of all runs together
    code = f"from pathlib import Path; from {planting.__name__} import write; write(Path({str(tmp_path)!r}))"
    subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, env=os.environ | {compiled.SWITCH: "0"}, check=True
    )
    for session in (None, spark):
        found = check_directories([tmp_path], session).findings
        for name, plant in PLANTS.items():
            if "raised" in plant.breaks:
                continue  # the run itself fails; its history is of no use
            assert {one.invariant for one in found if one.run == name} & plant.breaks, name


def test_a_run_that_is_too_long_is_refused_by_name(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 1)
    monkeypatch.setattr(check, "MOST_EVENTS", 100)
    for session in (None, spark):
        with pytest.raises(TooLong, match=r"run 0-\w+ has [\d,]+ events, and one of more than 100 is"):
            check_directories([tmp_path], session)


def test_what_spark_says_is_passed_on(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, 1)
    stock = check.stock_of([tmp_path])
    for path in stock.files:
        path.write_bytes(b"PAR1")
    with pytest.raises(AnalysisError, match="Spark failed: "):
        list(check._by_spark(stock, spark))
