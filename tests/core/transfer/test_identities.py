"""Which numbers have come: by hand for what matters, and against a set for everything else."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from ildm.core.transfer.identity import Identities


def test_what_comes_in_order_leaves_no_gap() -> None:
    identities = Identities(10)
    assert identities.come("a", 1, 5) == [(0, 5)]
    assert identities.come("a", 6, 1) == [(0, 1)]
    assert len(identities) == 1  # the origin


def test_what_comes_again_is_not_new() -> None:
    identities = Identities(10)
    identities.come("a", 1 << 32, 5)
    assert identities.come("a", 1 << 32, 5) == []
    assert identities.come("a", (1 << 32) + 3, 4) == [(2, 2)]


def test_what_is_late_fills_its_gap() -> None:
    identities = Identities(10)
    identities.come("a", 1, 2)
    identities.come("a", 10, 2)
    assert identities.come("a", 5, 2) == [(0, 2)]
    assert identities.come("a", 1, 12) == [(2, 2), (6, 3), (11, 1)]
    assert identities.come("a", 1, 12) == []


def test_origins_have_nothing_to_do_with_each_other() -> None:
    identities = Identities(10)
    identities.come("a", 1, 2)
    assert identities.come("b", 1, 2) == [(0, 2)]


def test_of_too_many_gaps_the_oldest_are_forgotten_and_what_is_in_them_is_new() -> None:
    identities = Identities(16)
    for number in range(2, 200, 2):
        identities.come("a", number, 1)
    assert len(identities) <= 16
    assert identities.forgotten
    assert [identities.has("a", number) for number in (2, 197, 198, 199)] == [None, False, True, False]
    assert identities.has("b", 1) is None
    assert identities.come("a", 2, 1) == [(0, 1)]  # nobody knows
    assert identities.come("a", 198, 1) == []


def test_of_too_many_origins_the_oldest_is_forgotten() -> None:
    identities = Identities(16)
    for number in range(40):
        identities.come(f"n{number}", 0xFFFF, 1)
    assert len(identities) <= 16


Runs = list[tuple[str, int, int]]
runs = st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 60), st.integers(1, 8)))


@given(runs)
def test_as_a_set_would_know(runs: Runs) -> None:
    identities, come = Identities(1000), set[tuple[str, int]]()
    for origin, number, count in runs:
        fresh = {(origin, number + place) for place in range(count)} - come
        found = identities.come(origin, number, count)
        assert {(origin, number + first + i) for first, many in found for i in range(many)} == fresh
        assert all(one[0] + one[1] < other[0] for one, other in itertools.pairwise(found))
        come |= fresh
    for origin, number in itertools.product("ab", range(1, 80)):
        assert identities.has(origin, number) == ((origin, number) in come)


@given(runs, runs)
def test_a_later_life_knows_the_same(
    before: list[tuple[str, int, int]], after: list[tuple[str, int, int]]
) -> None:
    one = Identities(12)
    for run in before:
        one.come(*run)
    other = Identities(12)
    other.restore(one.snapshot())
    assert len(other) == len(one)
    for run in after:
        assert one.come(*run) == other.come(*run)
