"""Curves out of histograms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ildm_bench.measure.figures import Histogram
from ildm_bench.report.distribution import MOST_POINTS, cumulative
from tests.bench.report.samples import bin_of, histogram


@settings(deadline=None)
@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=60))
def test_share_is_never_reached_too_early(values: list[int]) -> None:
    bins = sorted({bin_of(value) for value in values})
    counts = [sum(bin_of(value) == low for value in values) for low in bins]
    micros, share = cumulative(Histogram(lower=bins, counts=counts))
    for latency, reached in zip(micros, share, strict=True):
        assert reached == pytest.approx(sum(value < latency * 1e3 for value in values) / len(values))
    assert share[-1] == 1
    assert micros[-1] * 1e3 <= max(values) * (1 + 1 / 64) + 1


def test_thinned_curve_keeps_ends_and_tail() -> None:
    bins = sorted({bin_of(int(value)) for value in np.geomspace(1e5, 1e9, 5000)})
    rng = np.random.default_rng(1)
    counts = rng.integers(1, 1000, len(bins)).tolist()
    full = cumulative(Histogram(lower=bins, counts=counts), points=10_000)
    thin = cumulative(Histogram(lower=bins, counts=counts))
    assert len(full[0]) == len(bins) > MOST_POINTS
    assert len(thin[0]) <= MOST_POINTS
    assert {(a, b) for a, b in zip(*thin, strict=True)} <= {(a, b) for a, b in zip(*full, strict=True)}
    assert (thin[0][0], thin[0][-1]) == (full[0][0], full[0][-1])
    assert np.diff(thin[1]).max() < 0.02
    for share in (0.5, 0.99, 0.999, 0.9999):
        exact = full[0][np.searchsorted(full[1], share)]
        assert thin[0][np.searchsorted(thin[1], share)] == pytest.approx(exact, rel=0.05)


def test_empty_histogram() -> None:
    micros, share = cumulative(Histogram(lower=[], counts=[]))
    assert len(micros) == len(share) == 0


def test_order_of_bins_does_not_matter() -> None:
    made = histogram(1, 500.0)
    turned = Histogram(lower=made.lower[::-1], counts=made.counts[::-1])
    for here, there in zip(cumulative(made), cumulative(turned), strict=True):
        assert np.array_equal(here, there)
