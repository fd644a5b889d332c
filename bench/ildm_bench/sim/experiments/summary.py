"""The jobs of the experiments: functions of DataFrames that give DataFrames, nothing is run here.

`collected` alone runs one. Distributions are the log-linear histograms of `ildm_bench.analysis.histogram`,
which are exact below 128.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from ildm_bench.analysis.histogram import bucket_column, from_buckets
from ildm_bench.measure.figures import Histogram


def collected(frame: DataFrame, *order: str) -> list[dict[str, Any]]:
    """Run the job; its rows in the order of those columns."""
    rows = [row.asDict() for row in frame.collect()]
    return sorted(rows, key=lambda row: tuple(row[column] for column in order))


def means(frame: DataFrame, by: Sequence[str], value: str, weight: str | None = None) -> DataFrame:
    """Of each group the columns of ``by``, ``count``, ``mean``, ``smallest`` and ``largest``.

    ``weight``: a column that says how many values a row stands for; rows of weight 0 must not be there.
    """
    each = F.col(weight).cast("long") if weight else F.lit(1).cast("long")
    return frame.groupBy(*by).agg(
        F.sum(each).alias("count"),
        (F.sum(F.col(value).cast("double") * each) / F.sum(each)).alias("mean"),
        F.min(value).alias("smallest"),
        F.max(value).alias("largest"),
    )


def means_of_repeats(
    frame: DataFrame, by: Sequence[str], repeat: str, value: str, weight: str | None = None
) -> DataFrame:
    """Of each group ``repeats`` and, over the means of the repeats, ``mean``, ``sd``, ``smallest``,
    ``largest``; ``sd`` is that of a sample, 0 where there is one repeat."""
    each = means(frame, [*by, repeat], value, weight)
    return each.groupBy(*by).agg(
        F.count("*").alias("repeats"),
        F.mean("mean").alias("mean"),
        F.coalesce(F.stddev_samp("mean"), F.lit(0.0)).alias("sd"),
        F.min("mean").alias("smallest"),
        F.max("mean").alias("largest"),
    )


def mean_of_sums(frame: DataFrame, by: Sequence[str], repeat: str, value: str) -> DataFrame:
    """`means` over the repeats of a measurement, each the sum of its rows."""
    return means(frame.groupBy(*by, repeat).agg(F.sum(value).alias("sum")), by, "sum")


def buckets(frame: DataFrame, by: Sequence[str], value: str, weight: str | None = None) -> DataFrame:
    """Histograms of a whole number >= 0: the columns of ``by``, ``bucket`` and ``count``."""
    each = F.col(weight).cast("long") if weight else F.lit(1).cast("long")
    number = bucket_column(F.col(value).cast("long")).alias("bucket")
    return frame.groupBy(*by, number).agg(F.sum(each).alias("count"))


def histogram_of(rows: Sequence[dict[str, Any]], **group: Any) -> Histogram:
    """The histogram of one group from the collected rows of `buckets`."""
    wanted = [row for row in rows if all(row[key] == value for key, value in group.items())]
    return from_buckets((row["bucket"], row["count"]) for row in wanted)


def ranked(frame: DataFrame, by: Sequence[str], value: str) -> DataFrame:
    """The rows with ``share``: how much of their group has less of ``value`` than they, from 0 to 1."""
    return frame.withColumn("share", F.percent_rank().over(Window.partitionBy(*by).orderBy(value)))


def correlations(frame: DataFrame, by: Sequence[str], one: str, other: str) -> DataFrame:
    """Of each group ``count`` and ``r``, Pearson's coefficient of the two columns."""
    return frame.groupBy(*by).agg(F.count("*").alias("count"), F.corr(one, other).alias("r"))


def fisher_interval(r: float, count: int, level: float = 0.99) -> tuple[float, float] | None:
    """Confidence interval of a correlation by Fisher's transformation (thesis, Table 3.3).

    None where there is none: r is 1 or -1 (up to rounding), or there are fewer than 4 pairs.
    """
    if count < 4 or abs(r) > 1 - 1e-12:
        return None
    half = NormalDist().inv_cdf((1 + level) / 2) / math.sqrt(count - 3)
    middle = math.atanh(r)
    return math.tanh(middle - half), math.tanh(middle + half)
