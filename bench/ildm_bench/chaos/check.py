"""The check of histories: all invariants over all runs at once, and what a report of them shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from paho.mqtt.client import topic_matches_sub
from pydantic import ValidationError

from ildm_bench.analysis.errors import CorruptLog, MissingLog
from ildm_bench.chaos.engines import DuckDb, Engine, Source, Spark
from ildm_bench.chaos.files import parquet_files
from ildm_bench.chaos.history import History
from ildm_bench.chaos.invariants import COUNTS, FINDING, GROUP, INVARIANTS, STEPS, counted, found
from ildm_bench.chaos.outcome import (
    KEPT,
    STEP,
    Counted,
    Course,
    Durations,
    Finding,
    Found,
    Moment,
    Outcome,
    Setting,
    Trouble,
    added,
)
from ildm_bench.chaos.tables import tables

MATCHES = pa.schema([pa.field("filter", pa.string()), pa.field("topic", pa.string())])
MOMENTS = 120
"""Stretches that the course of a run is divided into."""
ACROSS = "r.site <> p.site"
"""From another site: what local subscribers get does not depend on the nodes."""

Progress = Callable[[str], None]


def check_histories(histories: Iterable[History], engine: Engine | None = None) -> Outcome:
    """Of runs in memory, all of them finished."""
    events, runs = tables(histories)
    return check(events, runs, engine)


def check_directories(
    directories: Sequence[Path], engine: Engine | None = None, progress: Progress | None = None
) -> Outcome:
    """Of the runs in directories.

    Raises:
        BadFile: there is no history, or it is of no use; see `ildm_bench.chaos.files`.
        AnalysisError: Spark failed, or duckdb is not installed.
    """
    found_files: dict[str, list[Path]] = {"history": [], "runs": []}
    for directory in directories:
        for kind, paths in parquet_files(directory).items():
            found_files[kind] += paths
    return check(found_files["history"], found_files["runs"], engine, progress)


def checked(paths: Sequence[Path], engine: str, master: str, progress: Progress) -> Outcome:
    """Of directories of histories, by ``duckdb`` or ``spark``, and of earlier checks (files), together.

    Raises:
        BadFile, AnalysisError: as `check_directories`; BadFile also where a file is no outcome.
    """
    outcomes = [_earlier(path) for path in paths if not path.is_dir()]
    directories = [path for path in paths if path.is_dir()]
    if directories:
        worked: Engine
        if engine == "spark":
            from ildm_bench.analysis.session import spark_session  # noqa: PLC0415 - slow to import

            progress("starting Spark")
            worked = Spark(spark_session(master))
        else:
            worked = DuckDb()
        outcomes.append(check_directories(directories, worked, progress))
    return added(outcomes)


def _earlier(path: Path) -> Outcome:
    try:
        return Outcome.read(path)
    except OSError as error:
        raise MissingLog(path, error.strerror or str(error)) from error
    except ValidationError as error:
        raise CorruptLog(path, str(error).splitlines()[0]) from error


def check(
    events: Source, runs: Source, engine: Engine | None = None, progress: Progress | None = None
) -> Outcome:
    """All invariants; on DuckDB if no engine is given. What the engine has of it is forgotten afterwards."""
    told = progress or (lambda _: None)
    engine = engine or DuckDb()
    try:
        engine.load("events", events)
        engine.load("runs", runs)
        engine.load("matches", _matches(engine))
        told("sorting events")
        for name, query in STEPS.items():
            engine.define(name, query)
        for name, query in INVARIANTS.items():
            told(f"checking {name}")
            engine.define(f"found_{name}", query)
        told("summing up")
        return Outcome(
            counted=[_counted(row) for row in engine.ask(counted())],
            found=[
                Found(setting=_setting(row), invariant=name, **_only(row, "cause", "found", "runs"))
                for name in INVARIANTS
                for row in engine.ask(found(name))
            ],
            findings=[finding for name in INVARIANTS for finding in _findings(engine, name)],
            durations=[*_latencies(engine), *_recoveries(engine)],
            courses=_courses(engine),
            counters={row["topic"]: row["total"] for row in engine.ask(_COUNTERS)},
        )
    finally:
        engine.close()


_COUNTERS = """
    SELECT topic, CAST(SUM(highest) AS BIGINT) AS total FROM readings
    WHERE process LIKE 'node/%' AND highest > 0 AND topic NOT LIKE '%_bytes' AND topic NOT LIKE 'queued%'
    GROUP BY topic ORDER BY topic"""


def _matches(engine: Engine) -> pa.Table:
    filters = engine.ask("SELECT DISTINCT topic FROM events WHERE op = 'subscribe'")
    topics = engine.ask("SELECT DISTINCT topic FROM events WHERE op IN ('publish', 'will', 'receive')")
    pairs = [
        (one["topic"], each["topic"])
        for one in filters
        for each in topics
        if topic_matches_sub(one["topic"], each["topic"])
    ]
    columns = [pa.array([pair[place] for pair in pairs], pa.string()) for place in range(2)]
    return pa.Table.from_arrays(columns, schema=MATCHES)


def _only(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: row[name] for name in names}


def _setting(row: dict[str, Any]) -> Setting:
    return Setting(**_only(row, *GROUP))


def _counted(row: dict[str, Any]) -> Counted:
    return Counted(setting=_setting(row), **_only(row, "runs", "seconds", "incomplete", *COUNTS))


def _findings(engine: Engine, invariant: str) -> list[Finding]:
    rows = engine.ask(
        f"""SELECT * FROM (
            SELECT {", ".join(f"f.{name}" for name in FINDING)}, r.seed,
                   ROW_NUMBER() OVER (PARTITION BY f.cause
                       ORDER BY f.run, f.t, f.site, f.session, f.publisher, f.seq, f.topic) AS place
            FROM found_{invariant} f JOIN runs r ON r.run = f.run) AS numbered
        WHERE place <= {KEPT} ORDER BY cause, place"""
    )
    return [Finding(invariant=invariant, **_only(row, "seed", *FINDING)) for row in rows]


def _bucket(column: str) -> str:
    return f"CAST(FLOOR(LN(GREATEST({column}, 1e-6)) / LN({STEP})) AS INTEGER)"


def _latencies(engine: Engine) -> list[Durations]:
    return _durations(
        engine,
        "latency",
        f"""SELECT runs.engine, runs.target, runs.algorithm, runs.broker,
                   CASE WHEN runs.fault = 'none' THEN 'none' ELSE 'any' END AS fault, r.t - p.t AS took
            FROM receipts r
            JOIN published p ON p.run = r.run AND p.publisher = r.publisher AND p.seq = r.seq
                 AND p.op = 'publish' AND p.t <= r.t
            JOIN runs ON runs.run = r.run
            WHERE r.retain = 0 AND {ACROSS}""",
    )


_RECOVERED = f"""
    SELECT d.run, d.kind, MIN(r.t) - d.ends AS took
    FROM disturbances d
    JOIN receipts r ON r.run = d.run AND r.t > d.ends AND r.retain = 0
    JOIN published p ON p.run = r.run AND p.publisher = r.publisher AND p.seq = r.seq AND p.op = 'publish'
    WHERE {ACROSS} AND (d.target || '/' LIKE '%/' || r.site || '/%'
                        OR d.target || '/' LIKE '%/' || p.site || '/%')
    GROUP BY d.run, d.kind, d.target, d.begins, d.ends, r.session"""


def _recoveries(engine: Engine) -> list[Durations]:
    return _durations(
        engine,
        "recovery",
        f"""SELECT runs.engine, runs.target, runs.algorithm, runs.broker, took.kind AS fault, took.took
            FROM ({_RECOVERED}) AS took JOIN runs ON runs.run = took.run""",
    )


def _durations(engine: Engine, kind: str, query: str) -> list[Durations]:
    names = ("engine", "target", "algorithm", "broker", "fault")
    columns = ", ".join(names)
    rows = engine.ask(
        f"""SELECT {columns}, {_bucket("took")} AS bucket, COUNT(*) AS amount, MAX(took) AS longest
            FROM ({query}) AS durations GROUP BY {columns}, {_bucket("took")} ORDER BY {columns}, bucket"""
    )
    made: dict[tuple[str, ...], Durations] = {}
    for row in rows:
        key = tuple(row[name] for name in names)
        before = made.get(key)
        counts = before.counts if before else {}
        made[key] = Durations(
            kind=kind,
            **_only(row, *names),
            counts=counts | {row["bucket"]: row["amount"]},
            longest=max(row["longest"], before.longest if before else 0.0),
        )
    return list(made.values())


def _courses(engine: Engine) -> list[Course]:
    """Of each algorithm or other target and each make of broker the live run with the most faults."""
    chosen = engine.ask(
        """SELECT run, target, algorithm, broker FROM (
            SELECT r.run, r.target, r.algorithm, r.broker,
                   ROW_NUMBER() OVER (PARTITION BY r.target, r.algorithm, r.broker
                                      ORDER BY COUNT(d.kind) DESC, r.run) AS place
            FROM runs r LEFT JOIN disturbances d ON d.run = r.run
            WHERE r.engine = 'live' GROUP BY r.run, r.target, r.algorithm, r.broker) AS ranked
        WHERE place = 1 ORDER BY target DESC, algorithm, broker"""
    )
    return [_course(engine, row) for row in chosen]


def _course(engine: Engine, about: dict[str, Any]) -> Course:
    run = about["run"].replace("'", "''")
    rows = engine.ask(
        f"""SELECT moment, COUNT(*) AS messages, PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY took) AS p50,
                   MAX(took) AS longest, MIN(width) AS width, MIN(begins) AS begins
            FROM (SELECT r.t - p.t AS took, s.width, s.begins,
                         CAST(FLOOR((r.t - s.begins) / s.width) AS INTEGER) AS moment
                  FROM receipts r
                  JOIN published p ON p.run = r.run AND p.publisher = r.publisher AND p.seq = r.seq
                       AND p.op = 'publish'
                  JOIN (SELECT run, MIN(t) AS begins, GREATEST((MAX(t) - MIN(t)) / {MOMENTS}, 1e-3) AS width
                        FROM events WHERE run = '{run}' GROUP BY run) AS s ON s.run = r.run
                  WHERE r.run = '{run}' AND r.retain = 0 AND {ACROSS}) AS timed
            GROUP BY moment ORDER BY moment"""
    )
    troubles = engine.ask(
        f"SELECT kind, target, begins, ends FROM disturbances WHERE run = '{run}' ORDER BY begins, target"
    )
    begins = rows[0]["begins"] if rows else 0.0
    return Course(
        run=about["run"],
        name=about["algorithm"] if about["target"] == "ildm" else about["target"],
        broker=about["broker"],
        moments=[
            Moment(t=row["moment"] * row["width"], **_only(row, "p50", "longest", "messages")) for row in rows
        ],
        troubles=[
            Trouble(
                kind=row["kind"],
                target=row["target"],
                begins=row["begins"] - begins,
                ends=row["ends"] - begins if row["ends"] < 1e300 else None,
            )
            for row in troubles
        ],
    )
