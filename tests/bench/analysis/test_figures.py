"""Figures of small runs that can be worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ildm_bench.analysis.pipeline import analyse, write_figures
from ildm_bench.measure.figures import RunFigures, Second
from ildm_bench.measure.manifest import Manifest, Process
from ildm_bench.measure.schema import NETWORK, RESOURCES
from tests.bench.analysis.logs import (
    BEGAN,
    SECOND,
    Received,
    Sent,
    every_message,
    manifest,
    write_run,
    write_table,
)


def one(spark: SparkSession, results: Path) -> RunFigures:
    (figures,) = analyse(spark, results)
    return figures


def test_definition_1_with_two_topics(spark: SparkSession, tmp_path: Path) -> None:
    """2 publishers x 3 subscribers and 1 x 1: 7 deliveries for 3 messages; l-clients stay out of it."""
    made = manifest("a", [("throughput", 2, 3), ("latency", 1, 1), ("throughput", 1, 1)])
    write_run(tmp_path, made, *every_message(made, 40, SECOND // 10, 5_000_000))
    figures = one(spark, tmp_path)
    assert figures.sp_ratio == pytest.approx(7 / 3)
    assert (figures.ingress, figures.egress, figures.ratio) == (30, 70, 1)
    assert figures.under_limit
    assert (figures.expected, figures.missing) == (140, 0)
    assert figures.per_second == [Second(second=s, ingress=30, egress=70) for s in range(4)]
    assert figures.latency.keys() == {
        f"{k}.{s}" for k in ("throughput", "latency") for s in ("sent", "intended")
    }
    assert figures.latency["latency.sent"].count == 20
    assert figures.latency["latency.sent"].max == figures.latency["latency.sent"].mean == 5000
    assert figures.latency["latency.sent"].p50 == pytest.approx(5000, rel=1 / 64)


def test_nothing_arrives(spark: SparkSession, tmp_path: Path) -> None:
    made = manifest("a", [("throughput", 1, 2)])
    sent, _ = every_message(made, 40, SECOND // 10, 0)
    write_run(tmp_path, made, sent, [])
    figures = one(spark, tmp_path)
    assert (figures.ratio, figures.egress, figures.loss_rate, figures.under_limit) == (0, 0, 1, False)
    assert (figures.latency, figures.histograms) == ({}, {})
    assert [(loss.subscriber, loss.expected, loss.missing) for loss in figures.losses] == [
        ("client-1", 20, 20),
        ("client-2", 20, 20),
    ]


def test_duplicates_do_not_hide_losses_and_order_is_by_arrival(spark: SparkSession, tmp_path: Path) -> None:
    """0 1 3 1 2 arrive in the same chunk: 4 is lost, 1 doubled, the second 1 and the 2 come after 3."""
    made = manifest("a", [("throughput", 1, 1), ("latency", 0, 1)])
    at = BEGAN + 2 * SECOND
    sent = [Sent(0, 0, seq, at + seq, at + seq) for seq in range(5)]
    received = [Received(*sent[seq], 1, at + 900, n) for n, seq in enumerate([0, 1, 3, 1, 2])]
    early = Received(0, 0, 0, at, at, 2, at - 70, 0)
    unknown = Received(9, 0, 0, at, at, 1, at, 5)
    write_run(tmp_path, made, sent, [*received, early, unknown])
    figures = one(spark, tmp_path)
    assert (figures.expected, figures.missing, figures.loss_rate) == (5, 1, 0.2)
    assert (figures.duplicates, figures.order_violations) == (1, 2)
    assert figures.notes == [
        "2 deliveries of topics that their receiver is not a subscriber of",
        "1 of 6 latencies throughput.intended were negative (clock error), taken as 0",
        "1 of 6 latencies throughput.sent were negative (clock error), taken as 0",
    ]


def with_samples(**changes: object) -> Manifest:
    processes = [
        Process(name="broker-0", role="broker", site=0, label="mosquitto", quota=1.0),
        Process(name="node-0", role="node", site=0, label="sf"),
    ]
    return manifest("a", [("throughput", 1, 1)], processes=processes, **changes)


def test_processes_and_counters(spark: SparkSession, tmp_path: Path) -> None:
    """Samples on neither end of the window (1 s to 3 s): the CPU time between two grows evenly."""
    made = with_samples(verdict="refused")
    directory = write_run(tmp_path, made, *every_message(made, 400, SECOND // 100, 1))
    half = SECOND // 2
    write_table(
        directory / "resources.parquet",
        RESOURCES,
        [
            (BEGAN + 3 * SECOND + half, "broker-0", 2.0, 1.0, 900, 3, 60, 6),
            (BEGAN + half, "broker-0", 0.0, 0.0, 100, 3, 0, 0),
            (BEGAN + 2 * SECOND, "broker-0", 1.0, 0.0, 500, 3, 30, 3),
        ],
    )
    write_table(
        directory / "network.parquet",
        NETWORK,
        [
            (BEGAN + 9, "host", "RetransSegs", 17),
            (BEGAN + 1, "host", "RetransSegs", 5),
            (BEGAN + 1, "site-1", "InSegs", 3),
        ],
    )
    figures = one(spark, tmp_path)
    (broker,) = figures.processes
    assert (broker.name, broker.role, broker.label, broker.quota) == ("broker-0", "broker", "mosquitto", 1.0)
    cpu = 2 / 3 + (2 / 3 + 2 / 3)
    assert broker.cores == pytest.approx(cpu / 2)
    assert broker.cpu_us_per_delivery == pytest.approx(cpu * 1e6 / 200)
    assert (broker.rss_bytes, broker.voluntary_switches, broker.involuntary_switches) == (500, 40, 4)
    assert figures.network == {"host": {"RetransSegs": 12}, "site-1": {"InSegs": 0}}
    assert figures.notes == ["no samples of the process node-0"]
    assert figures.ratio == 1
    assert (figures.verdict, figures.under_limit) == ("refused", False)


def test_written_beside_the_logs_or_elsewhere(spark: SparkSession, tmp_path: Path) -> None:
    made = manifest("a")
    directory = write_run(tmp_path, made, *every_message(made, 10, SECOND // 5, 1))
    figures = analyse(spark, tmp_path, ["a"])
    assert write_figures(figures, tmp_path) == [directory / "figures.json"]
    (elsewhere,) = write_figures(figures, tmp_path, tmp_path / "out")
    assert elsewhere == tmp_path / "out" / "run=a" / "figures.json"
    assert RunFigures.model_validate(json.loads(elsewhere.read_text())) == figures[0]
