"""Numbers as they are read."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ildm_bench.report import numbers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (numbers.rate(0), "0 /s"),
        (numbers.rate(0.25), "0.25 /s"),
        (numbers.rate(850), "850 /s"),
        (numbers.rate(12_345), "12.3 k/s"),
        (numbers.rate(999_600), "1 M/s"),
        (numbers.rate(1.23e6), "1.23 M/s"),
        (numbers.duration(0), "0 µs"),
        (numbers.duration(0.5), "500 ns"),
        (numbers.duration(85.04), "85 µs"),
        (numbers.duration(999.9), "1 ms"),
        (numbers.duration(1234), "1.23 ms"),
        (numbers.duration(2.5e6), "2.5 s"),
        (numbers.size(0), "0 B"),
        (numbers.size(89_400_000), "85.3 MiB"),
        (numbers.share(0), "0 %"),
        (numbers.share(0.001234), "0.123 %"),
        (numbers.share(1e-7), "0.00001 %"),
        (numbers.count(1_234_567), "1,234,567"),
        (numbers.counted(1, "world"), "1 world"),
        (numbers.counted(1_000, "world"), "1,000 worlds"),
        (numbers.counted(0, "world"), "0 worlds"),
        (numbers.interval(2.1), "2.1 ms"),
        (numbers.interval(None), numbers.NONE),
        (numbers.factor(2.104), "\N{MULTIPLICATION SIGN}2.1"),
        (numbers.significant(123_456), "123,000"),
        (numbers.rate(math.nan), numbers.NONE),
        (numbers.ratio(math.inf), numbers.NONE),
    ],
)
def test_format(text: str, expected: str) -> None:
    assert text == expected


@given(st.floats(0, 1.5))
def test_ratio_never_looks_better_than_it_is(value: float) -> None:
    assert float(numbers.ratio(value)) <= value < float(numbers.ratio(value)) + 0.00011


def test_ratio_at_the_limit() -> None:
    assert numbers.ratio(0.99) == "0.9900"
    assert numbers.ratio(0.9899999) == "0.9899"


@given(st.floats(1e-3, 1e9))
def test_unit_keeps_the_value(value: float) -> None:
    number, unit = numbers.duration(value).split()
    micros = float(number.replace(",", "")) * {"ns": 1e-3, "µs": 1, "ms": 1e3, "s": 1e6}[unit]
    assert micros == pytest.approx(value, rel=0.0051)
