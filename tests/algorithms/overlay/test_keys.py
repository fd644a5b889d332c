"""Ranges over bytes, and the digits of membership vectors in any base."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ildm_algorithms.overlay.keys import EVERYTHING, VECTOR_BITS, Range, common_digits, prefix

keys = st.binary(max_size=3)
vectors = st.integers(0, 2**VECTOR_BITS - 1)
bases = st.sampled_from([2, 3, 4, 5, 10, 16])


@given(keys, keys, keys)
def test_a_range_is_half_open(low: bytes, high: bytes, key: bytes) -> None:
    assert (key in Range(low, high)) == (low <= key < high)
    assert Range(low, high).empty == (low >= high)


@given(keys, keys, keys, keys)
def test_a_key_cuts_a_range_into_the_parts_below_at_and_beyond_it(
    low: bytes, high: bytes, cut: bytes, key: bytes
) -> None:
    whole = Range(low, high)
    assert (key in whole.below(cut)) == (key in whole and key < cut)
    assert (key in whole.from_(cut)) == (key in whole and key >= cut)
    assert (key in whole.beyond(cut)) == (key in whole and key > cut)


def test_what_is_no_key_is_in_no_range() -> None:
    thing: object = "a"
    assert thing not in Range(b"", b"z")


@given(st.binary())
def test_everything_has_all_keys_that_do_not_begin_with_eight_0xff(key: bytes) -> None:
    assert (key in EVERYTHING) == (not key.startswith(b"\xff" * 8))


@pytest.mark.parametrize(
    ("vector", "base", "digits"),
    [
        (0b1011 << 60, 2, [1, 0, 1, 1, 0]),
        (0b1011 << 60, 4, [2, 3, 0]),
        ((1 << 64) // 3, 3, [0, 2, 2, 2]),  # just below one third
        (-(-(1 << 64) // 3), 3, [1, 0, 0, 0]),  # just above
        (1 << 63, 10, [5, 0, 0]),
    ],
)
def test_the_digits_are_those_of_the_fraction(vector: int, base: int, digits: list[int]) -> None:
    number = 0
    for count, digit in enumerate(digits, start=1):
        number = number * base + digit
        assert prefix(vector, count, base) == number


@given(vectors, st.integers(0, 80), bases)
def test_a_prefix_is_the_fraction_rounded_down(vector: int, digits: int, base: int) -> None:
    whole = Fraction(vector, 2**VECTOR_BITS) * base**digits
    assert prefix(vector, digits, base) == whole.numerator // whole.denominator


@given(vectors, vectors, bases)
def test_vectors_share_as_many_digits_as_their_prefixes_say(a: int, b: int, base: int) -> None:
    shared = common_digits(a, b, base)
    assert shared == common_digits(b, a, base)
    assert prefix(a, shared, base) == prefix(b, shared, base)
    if a != b:
        assert prefix(a, shared + 1, base) != prefix(b, shared + 1, base)


@given(vectors, st.integers(0, 63), bases)
def test_close_vectors_share_as_many_digits_as_their_prefixes_say(vector: int, bit: int, base: int) -> None:
    other = vector ^ (1 << bit)
    shared = common_digits(vector, other, base)
    assert prefix(vector, shared, base) == prefix(other, shared, base)
    assert prefix(vector, shared + 1, base) != prefix(other, shared + 1, base)


def test_equal_vectors_share_all_digits() -> None:
    assert common_digits(7, 7) == 64
    assert common_digits(7, 7, 4) == 32
    assert common_digits(7, 7, 3) == 40
