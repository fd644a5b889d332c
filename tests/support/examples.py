"""How many examples a property over whole worlds is tried with.

A run of all tests tries the same few each time; with ``ILDM_EXAMPLES=100 pytest --timeout=0`` it is a hundred
times as many, and others each time. With ``ILDM_HUNT`` (`make hunt`) as few, and others each time.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import product

import pytest
from hypothesis import HealthCheck, settings

MORE = int(os.environ.get("ILDM_EXAMPLES", "1"))


def examples(count: int) -> settings:
    """So many examples, or ``ILDM_EXAMPLES`` times as many."""
    return settings(
        max_examples=count * MORE,
        deadline=None,
        derandomize=MORE == 1 and not os.environ.get("ILDM_HUNT"),
        suppress_health_check=list(HealthCheck),
    )


def spread(
    names: tuple[str, str],
    first: Sequence[object],
    second: Sequence[object],
    shown: Callable[[object], str | None] = lambda value: None,
) -> pytest.MarkDecorator:
    """All pairs. A run of all tests takes so many that each value is in one; `make long` takes the rest."""
    size = min(len(first), len(second))
    cases = [
        pytest.param(one, other, marks=() if (row - column) % size == 0 else pytest.mark.long)
        for (row, one), (column, other) in product(enumerate(first), enumerate(second))
    ]
    return pytest.mark.parametrize(names, cases, ids=shown)


def spare(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Cases that tests with several parameters can do without, as each value is in another one as well."""
    cases: dict[str, list[tuple[pytest.Item, list[int]]]] = defaultdict(list)
    for item in items:
        if call := getattr(item, "callspec", None):
            cases[item.nodeid.partition("[")[0]].append((item, list(call.indices.values())))
    left_out: set[pytest.Item] = set()
    for each in cases.values():
        sizes = [1 + max(column) for column in zip(*(places for _, places in each), strict=True)]
        several = [size for size in sizes if size > 1]
        if len(several) > 1:
            left_out |= {item for item, places in each if sum(places) % min(several)}
    return left_out
