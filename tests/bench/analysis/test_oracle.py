"""Spark and a literal count agree on random runs."""

from __future__ import annotations

import random
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from ildm_bench.analysis.histogram import bucket, lower_bound
from ildm_bench.analysis.pipeline import analyse
from ildm_bench.measure.figures import RunFigures
from ildm_bench.measure.manifest import Manifest
from tests.bench.analysis.logs import BEGAN, SECOND, manifest, random_messages, write_run
from tests.bench.analysis.oracle import truth

TOPIC = st.tuples(st.sampled_from(["throughput", "latency"]), st.integers(1, 3), st.integers(1, 3))
RUN = st.tuples(
    st.lists(TOPIC, min_size=1, max_size=3),
    st.tuples(st.integers(0, 2 * SECOND), st.integers(SECOND // 10, 2 * SECOND)),
    st.integers(1, 3),
    st.integers(0, 2**32),
)


@settings(
    max_examples=2,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(RUN, min_size=12, max_size=12))
def test_random_runs(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    batch: list[tuple[list[tuple[str, int, int]], tuple[int, int], int, int]],
) -> None:
    results = tmp_path_factory.mktemp("results")
    manifests = []
    for number, (topics, (start, length), workers, seed) in enumerate(batch):
        window = (BEGAN + start, BEGAN + start + length)
        made = manifest(f"{number:04}", topics, window=window, workers=workers)
        write_run(results, made, *random_messages(made, random.Random(seed)))
        manifests.append(made)
    for made, figures in zip(manifests, analyse(spark, results), strict=True):
        compare(results, made, figures)


def compare(results: Path, made: Manifest, figures: RunFigures) -> None:
    right = truth(results, made)
    seconds = made.seconds
    assert figures.run == made.run
    assert (figures.ingress, figures.egress) == (right.ingress / seconds, right.egress / seconds)
    per_second = {s.second: (s.ingress, s.egress) for s in figures.per_second if s.ingress or s.egress}
    assert per_second == right.per_second
    assert {loss.subscriber: (loss.expected, loss.missing) for loss in figures.losses} == right.losses
    assert (figures.expected, figures.missing) == (right.expected, right.missing)
    assert figures.duplicates == right.duplicates
    assert figures.order_violations == right.order_violations
    t_topics = [topic for topic in made.scenario.topics if topic.clients == "throughput"]
    publishers = [made.scenario.counts(topic, "publishers")[0] for topic in t_topics]
    due = sum(
        count * made.scenario.counts(topic, "subscribers")[0]
        for count, topic in zip(publishers, t_topics, strict=True)
    )
    expected_ratio = right.egress * sum(publishers) / (right.ingress * due) if right.ingress * due else 0.0
    assert figures.ratio == pytest.approx(expected_ratio)
    assert figures.latency.keys() == figures.histograms.keys() == right.latencies.keys()
    for key, values in right.latencies.items():
        latency, histogram = figures.latency[key], figures.histograms[key]
        assert latency.count == len(values)
        assert latency.mean == pytest.approx(sum(values) / len(values) / 1e3)
        assert latency.max == values[-1] / 1e3
        for permille, quantile in (
            (500, latency.p50),
            (950, latency.p95),
            (990, latency.p99),
            (999, latency.p999),
        ):
            if quantile is None:
                assert permille > 500
                assert len(values) * (1000 - permille) < 1000  # none of them lies beyond it
                continue
            exact = values[-(-len(values) * permille // 1000) - 1]
            if permille > 500 and len(values) * (1000 - permille) < 1000:
                assert quantile is None, "no sample lies beyond it"
                continue
            assert quantile is not None
            assert abs(quantile * 1e3 - exact) <= exact / 64 + 1e-6
        assert histogram.lower == sorted({lower_bound(bucket(value)) for value in values})
        below = list(accumulate(histogram.counts))
        for lower, count in zip(histogram.lower[1:], below, strict=False):
            assert count == sum(value < lower for value in values)
