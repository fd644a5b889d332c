"""Buckets, merging, quantiles and the distribution function."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ildm_bench.analysis.histogram import (
    BUCKETS_PER_OCTAVE,
    bucket,
    bucket_column,
    cdf,
    from_buckets,
    lower_bound,
    merge,
    quantile,
    width,
)
from ildm_bench.measure.figures import Histogram

NANOSECONDS = st.integers(0, 2**60)
VALUES = st.lists(st.one_of(st.integers(0, 300), NANOSECONDS), min_size=1, max_size=80)


def of(values: list[int]) -> Histogram:
    return from_buckets((bucket(value), 1) for value in values)


@given(NANOSECONDS)
def test_value_lies_in_its_bucket(value: int) -> None:
    lower = lower_bound(bucket(value))
    assert lower <= value < lower + width(lower)
    assert (width(lower) - 1) * 64 <= lower
    assert lower_bound(bucket(value) + 1) == lower + width(lower)


def test_64_buckets_to_the_octave() -> None:
    for octave in range(7, 60):
        assert bucket(2 << octave) - bucket(1 << octave) == BUCKETS_PER_OCTAVE


def test_column_agrees_near_every_power_of_two(spark: SparkSession) -> None:
    values = sorted({max(0, (1 << power) + away) for power in range(62) for away in (-2, -1, 0, 1, 2)})
    rows = spark.createDataFrame([(value,) for value in values], "value long")
    counted = rows.select("value", bucket_column(F.col("value")).alias("bucket")).collect()
    assert {row["value"]: row["bucket"] for row in counted} == {value: bucket(value) for value in values}


@given(VALUES, st.sampled_from([0, 1, 250, 500, 950, 990, 999, 1000]))
def test_quantile_is_off_by_a_64th_at_most(values: list[int], permille: int) -> None:
    exact = sorted(values)[max(0, -(-len(values) * permille // 1000) - 1)]
    assert abs(quantile(of(values), permille / 1000) - exact) <= exact / 64


@given(VALUES, VALUES)
def test_merged_is_that_of_all_values(first: list[int], second: list[int]) -> None:
    assert merge([of(first), of(second)]) == of(first + second)


def test_merging_nothing_is_empty() -> None:
    assert merge([]) == Histogram(lower=[], counts=[])
    assert cdf(merge([]), [5]) == [0.0]
    with pytest.raises(ValueError, match="empty"):
        quantile(merge([]), 0.5)


def test_share_beyond_one_is_refused() -> None:
    with pytest.raises(ValueError, match="not 2"):
        quantile(of([1]), 2)


@given(VALUES)
def test_cdf_rises_to_one_and_is_exact_between_buckets(values: list[int]) -> None:
    histogram = of(values)
    ends = [lower + width(lower) - 1 for lower in histogram.lower]
    shares = cdf(histogram, ends)
    assert shares == sorted(shares)
    assert shares[-1] == 1
    for end, share in zip(ends, shares, strict=True):
        assert share == pytest.approx(sum(value <= end for value in values) / len(values))
    assert cdf(histogram, [histogram.lower[0] - 1]) == [0.0]


def test_cdf_is_straight_within_a_bucket() -> None:
    histogram = Histogram(lower=[1024, 1040], counts=[16, 16])
    assert cdf(histogram, [1023, 1031, 1039, 1047]) == [0, 0.25, 0.5, 0.75]
