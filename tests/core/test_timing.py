"""Times in buckets."""

from __future__ import annotations

import pytest

from ildm.core.timing import BUCKETS, Timing


@pytest.mark.parametrize(
    ("seconds", "bucket"), [(0.0, 0), (0.001, 0), (0.0011, 1), (10.0, len(BUCKETS) - 1), (11.0, len(BUCKETS))]
)
def test_a_bound_belongs_to_its_bucket_and_what_is_longer_to_the_last(seconds: float, bucket: int) -> None:
    timing = Timing()
    timing.observe(seconds)
    timing.observe(seconds)
    assert [index for index, count in enumerate(timing.counts) if count] == [bucket]
    assert timing.counts[bucket] == 2
    assert timing.sum == 2 * seconds
