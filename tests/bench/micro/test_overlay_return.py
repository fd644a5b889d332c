"""What a site of an overlay gets that was killed and is back."""

from __future__ import annotations

import pytest

from ildm_bench.micro.overlay_return import Case, measured


@pytest.mark.parametrize("seed", [1_000, 1_002])
def test_a_site_that_others_take_for_its_earlier_life_is_not_left_out(seed: int) -> None:
    """They hear of its end only when it is there again, and still have its keys in their tables."""
    found = measured(Case("sg_tbps", 3, "power", 0.5), seed)
    assert found.direct < 1
    assert found.direct < found.caught_up < 4
