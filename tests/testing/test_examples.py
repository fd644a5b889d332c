"""Which cases of tests with several parameters are left out."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import pytest

from tests.support.examples import spare


class Item:
    """A case of a test, as pytest makes it."""

    def __init__(self, *places: int) -> None:
        self.places = places
        self.nodeid = f"test_x.py::test_x[{places}]"
        self.callspec = SimpleNamespace(indices=dict(enumerate(places)))


@pytest.mark.parametrize(
    ("sizes", "left"), [((5,), 5), ((5, 1), 5), ((1, 1), 1), ((2, 3), 3), ((4, 3), 4), ((2, 3, 4), 12)]
)
def test_each_value_is_in_a_case_that_stays(sizes: tuple[int, ...], left: int) -> None:
    items = [Item(*places) for places in product(*map(range, sizes))]
    stays = [item for item in items if item not in spare(items)]  # type: ignore[arg-type]
    assert len(stays) == left
    for parameter, size in enumerate(sizes):
        assert {item.places[parameter] for item in stays} == set(range(size))


def test_tests_without_parameters_stay() -> None:
    assert not spare([SimpleNamespace(nodeid="test_x.py::test_x")])  # type: ignore[list-item]
