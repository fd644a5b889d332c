"""Log-linear histograms of latencies in nanoseconds: mergeable, of bounded relative error.

Values below 128 have a bucket each. From there on each octave, from a power of two to the next, is cut
into 64 buckets of equal width. A value is known from its bucket to within 1/64; the middle of the bucket,
which stands for all of it, is off by at most half of that.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as in all of Spark's own documentation

from ildm_bench.measure.figures import Histogram, Latency, percentile

OCTAVE_BITS = 6
BUCKETS_PER_OCTAVE = 1 << OCTAVE_BITS


def bucket(value: int) -> int:
    """Number of the bucket of a value of at least 0."""
    shift = max(0, value.bit_length() - OCTAVE_BITS - 1)
    return (shift << OCTAVE_BITS) + (value >> shift)


def bucket_column(value: Column) -> Column:
    """`bucket` for a column of int64 that holds nothing negative; int64."""
    shift = _shift(value, 0, 63 - OCTAVE_BITS - 1)
    return (shift * BUCKETS_PER_OCTAVE).cast("long") + F.call_function("shiftright", value, shift)


def _shift(value: Column, low: int, high: int) -> Column:
    """By how many bits a value is shifted that is below 2 ** (high + OCTAVE_BITS + 1): six comparisons,
    which cost less than a logarithm and are not rounded.
    """
    if low == high:
        return F.lit(low)
    middle = (low + high) // 2
    below = value < F.lit(1 << (middle + OCTAVE_BITS + 1))
    return F.call_function("if", below, _shift(value, low, middle), _shift(value, middle + 1, high))


def lower_bound(number: int) -> int:
    """Smallest value of a bucket."""
    if number < 2 * BUCKETS_PER_OCTAVE:
        return number
    shift = (number >> OCTAVE_BITS) - 1
    return (number - (shift << OCTAVE_BITS)) << shift


def width(lower: int) -> int:
    """Number of values in the bucket that begins with ``lower``."""
    return 1 << max(0, lower.bit_length() - OCTAVE_BITS - 1)


def from_buckets(counts: Iterable[tuple[int, int]]) -> Histogram:
    """A histogram of (number of the bucket, count); a bucket may come more than once."""
    total: Counter[int] = Counter()
    for number, count in counts:
        total[number] += count
    return _histogram({lower_bound(number): count for number, count in total.items()})


def merge(histograms: Iterable[Histogram]) -> Histogram:
    """The histogram of all the values together."""
    total: Counter[int] = Counter()
    for histogram in histograms:
        for lower, count in zip(histogram.lower, histogram.counts, strict=True):
            total[lower] += count
    return _histogram(total)


def quantile(histogram: Histogram, share: float) -> float:
    """The middle of the bucket where the value of rank ceil(share x count) is, in nanoseconds.

    Raises:
        ValueError: the histogram is empty, or the share is not within 0..1.
    """
    if not histogram.counts:
        raise ValueError("an empty histogram has no quantiles")
    if not 0 <= share <= 1:
        raise ValueError(f"a share is within 0 and 1, not {share}")
    sums = list(accumulate(histogram.counts))
    # 0.999 x 1000 is a hair over 999 as a float, which must not become rank 1000.
    rank = max(1, math.ceil(share * sums[-1] - 1e-9 * sums[-1]))
    lower = histogram.lower[bisect_right(sums, rank - 1)]
    return lower + (width(lower) - 1) / 2


def latency_of(histogram: Histogram, mean_us: float, max_us: float) -> Latency:
    """Mean, percentiles and largest of latencies; percentiles where there are samples enough."""
    count = sum(histogram.counts)
    p50, p95, p99, p999 = (min(quantile(histogram, q) / 1e3, max_us) for q in (0.5, 0.95, 0.99, 0.999))
    return Latency(
        count=count,
        mean=mean_us,
        p50=p50,
        p95=percentile(0.95, count, p95),
        p99=percentile(0.99, count, p99),
        p999=percentile(0.999, count, p999),
        max=max_us,
    )


def cdf(histogram: Histogram, points: Sequence[float]) -> list[float]:
    """Share of the values up to each point (nanoseconds); straight lines within a bucket.

    All 0 for an empty histogram.
    """
    sums = [0, *accumulate(histogram.counts)]
    total = sums[-1]
    shares = []
    for point in points:
        place = bisect_right(histogram.lower, point)
        below = float(sums[place])
        if place:
            lower = histogram.lower[place - 1]
            inside = min(1.0, (point - lower + 1) / width(lower))
            below -= histogram.counts[place - 1] * (1 - inside)
        shares.append(below / total if total else 0.0)
    return shares


def _histogram(counts: dict[int, int]) -> Histogram:
    filled = sorted((lower, count) for lower, count in counts.items() if count)
    return Histogram(lower=[lower for lower, _ in filled], counts=[count for _, count in filled])
