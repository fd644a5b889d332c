"""Distributions of latency out of the histograms, thinned for drawing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ildm_bench.measure.figures import Histogram

MOST_POINTS = 400
"""Of a curve: more than a picture of this width can show."""

Array = NDArray[np.float64]


def cumulative(histogram: Histogram, points: int = MOST_POINTS) -> tuple[Array, Array]:
    """Latencies in microseconds and the share of messages that took at most as long, both rising.

    A bin counts at its upper end, so that a share is never reached earlier than it was. Of large histograms
    at most `points` bins are kept, half of them even in the share, half even in the logarithm of the share
    that took longer, so that the tail keeps its form; the first and the last are always among them.
    """
    order = np.argsort(np.asarray(histogram.lower, dtype=np.int64), kind="stable")
    lower = np.asarray(histogram.lower, dtype=np.int64)[order]
    counts = np.asarray(histogram.counts, dtype=np.int64)[order]
    if not counts.sum():
        return np.empty(0), np.empty(0)
    upper = (lower + _widths(lower)) / 1e3
    share = np.cumsum(counts) / counts.sum()
    if len(share) > points:
        half = points // 2
        rest = 1.0 / counts.sum()
        wanted = np.concatenate((np.linspace(0, 1, half), 1 - np.geomspace(1, rest, points - half - 2)))
        kept = np.minimum(np.searchsorted(share, wanted), len(share) - 1)
        kept = np.unique(np.concatenate((kept, [0, len(share) - 1])))
        upper, share = upper[kept], share[kept]
    return upper, share


def _widths(lower: NDArray[np.int64]) -> NDArray[np.int64]:
    # 64 bins in each octave, none narrower than a nanosecond.
    exponent = np.frexp(np.maximum(lower, 1).astype(np.float64))[1].astype(np.int64) - 1
    widths: NDArray[np.int64] = np.left_shift(np.int64(1), np.maximum(exponent - 6, 0))
    return widths
