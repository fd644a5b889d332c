"""Rows searched together by the bits of their ranges, against a look at each."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ildm_algorithms.octopia.content.bits import SLABS, BitTable
from ildm_algorithms.octopia.content.content import ContentFilter, Expression, Predicate, Value
from ildm_algorithms.octopia.content.index import ContentIndex
from ildm_algorithms.octopia.content.relations import overlaps

Ranges = tuple[tuple[str, float, float], ...]


class Row:
    """What a table holds."""

    def __init__(self, *bounds: tuple[float, float]) -> None:
        self.ranges: Ranges = tuple((f"a{at}", low, high) for at, (low, high) in enumerate(bounds))
        self.place: tuple[object, int] | None = None

    def holds(self, values: tuple[float, ...]) -> bool:
        return all(low <= value <= high for (_, low, high), value in zip(self.ranges, values, strict=True))


def check(table: BitTable[Row], rows: list[Row], values: tuple[float, ...]) -> None:
    """What is said to match does, and what matches is among what is to be looked at."""
    sure, unsure = table.search(values)
    together = [*sure, *unsure]
    assert len(set(together)) == len(together)
    assert all(row.holds(values) for row in sure)
    assert {row for row in together if row.holds(values)} == {row for row in rows if row.holds(values)}
    assert set(table) == set(rows)


points = st.sampled_from([-math.inf, -1.5e308, -2.0, -1.0, 0.0, 5e-324, 1.0, 2.0, 3.0, 1.5e308, math.inf])
bounds = st.tuples(points, points).map(lambda pair: (min(pair), max(pair)))
values = points.filter(math.isfinite)


@given(
    st.lists(st.tuples(bounds, bounds), max_size=60),
    st.lists(st.integers(0, 59), max_size=40),
    st.lists(st.tuples(values, values), max_size=5),
)
@settings(deadline=None)
def test_rows_that_come_and_go(
    made: list[tuple[tuple[float, float], tuple[float, float]]],
    leaving: list[int],
    messages: list[tuple[float, float]],
) -> None:
    table: BitTable[Row] = BitTable(young=3, block=12)
    rows = [Row(*each) for each in made]
    for row in rows:
        table.add(row)
    for values in messages:
        check(table, rows, values)
    for at in leaving:
        if rows:
            table.remove(rows.pop(at % len(rows)))
            for values in messages:
                check(table, rows, values)
    assert bool(table) is bool(rows)
    for low, high in messages:
        if low <= high:
            met = {row for part in table.meeting([(low, high), None]) for row in part}
            assert met >= {row for row in rows if row.ranges[0][1] <= high and low <= row.ranges[0][2]}
            assert met <= set(rows)


def test_with_few_bounds_nothing_is_left_to_look_at() -> None:
    table: BitTable[Row] = BitTable(young=10, block=1000)
    rows = [Row((float(n % 20), float(n % 20 + 10)), (-math.inf, float(n % 7))) for n in range(200)]
    for row in rows:
        table.add(row)
    sure, unsure = table.search((15.0, 3.0))
    assert unsure == []
    assert set(sure) == {row for row in rows if row.holds((15.0, 3.0))}


def test_with_many_bounds_little_is_left_to_look_at() -> None:
    random = Random(5)
    table: BitTable[Row] = BitTable(young=128, block=2048)
    rows = []
    for _ in range(4096):
        lows = [random.uniform(0, 500) for _ in range(3)]
        rows.append(Row(*((low, low + 500) for low in lows)))
        table.add(rows[-1])
    for row in rows[::3]:
        table.remove(row)
    left = [row for at, row in enumerate(rows) if at % 3]
    check(table, left, (400.0, 500.0, 600.0))
    sure, unsure = table.search((400.0, 500.0, 600.0))
    assert len(sure) > 500
    # a message lies in one slab of each attribute, and two bounds of 2/SLABS of the rows do
    assert len(unsure) < len(left) * 3 * 4 / SLABS
    for row in left:
        table.remove(row)
    assert not table


def test_filters_with_broad_ranges_alone() -> None:
    """None of the ranges tells one filter from many; together they do."""
    random = Random(11)
    index: ContentIndex[int] = ContentIndex()
    filters: list[ContentFilter] = []
    for number in range(2000):
        predicates = [Predicate("kind", "!=", "odd")] if number % 5 == 0 else []
        for name in "abcde":
            low = random.uniform(0, 800)
            predicates += [Predicate(name, ">", low), Predicate(name, "<=", low + 200)]
        filters.append(ContentFilter("t", Expression(tuple(predicates))))
        index.add(filters[-1], number)
    for number in range(0, 1500, 2):
        assert index.remove(filters[number], number)
    left = {filter: number for number, filter in enumerate(filters) if number >= 1500 or number % 2}
    matched = 0
    for _ in range(300):
        attributes: dict[str, Value] = {name: random.uniform(300, 700) for name in "abcde"}
        attributes["kind"] = random.choice(["odd", "even"])
        before = index.examined
        found = index.match("t", lambda given=attributes: given)  # type: ignore[misc]
        assert set(found) == {n for each, n in left.items() if each.expression.matches(attributes)}
        assert index.examined - before < len(left) / 2
        matched += len(found)
        del attributes["c"]
        assert index.match("t", lambda given=attributes: given) == {}  # type: ignore[misc]
    assert matched > 300
    for text in (100.0, 400.0, 990.0):
        for asked in (
            [Predicate("a", "<", text), Predicate("b", ">", text)],
            [Predicate("a", "=", text)],
            [Predicate("a", "?"), Predicate("b", "=", text)],
            [Predicate("a", "=", "text")],
            [Predicate("x", "=", text)],
        ):
            advert = ContentFilter("+", Expression(tuple(asked)))
            met = {filter for filter, _ in index.overlapping(advert)}
            assert met == {filter for filter in left if overlaps(filter, advert)}
    for filter, number in left.items():
        assert index.remove(filter, number)
    assert index.match("t", lambda: dict.fromkeys("abcde", 500.0)) == {}
    assert len(index) == 0


@pytest.mark.parametrize("symbols", [["s0", "s1", "s2", "s3"], [0.0, 1.0, 2.0, 3.0], [True, False]])
def test_filters_that_share_a_value_and_have_broad_ranges(symbols: list[Value]) -> None:
    """Many of one value are told apart by their ranges together."""
    random = Random(12)
    index: ContentIndex[int] = ContentIndex()
    filters: list[ContentFilter] = []
    for number in range(1600):
        predicates = [Predicate("sym", "=", symbols[number % len(symbols)])]
        if number % 5 == 0:
            predicates.append(Predicate("kind", "^=", "e"))
        predicates += [Predicate(name, ">", random.uniform(0, 800)) for name in "abcdef"]
        filters.append(ContentFilter("t", Expression(tuple(predicates))))
        index.add(filters[-1], number)
    for number in range(0, 1000, 3):
        assert index.remove(filters[number], number)
    left = {filter: number for number, filter in enumerate(filters) if number >= 1000 or number % 3}
    matched = looked = 0
    for _ in range(200):
        attributes: dict[str, Value] = {name: random.uniform(200, 800) for name in "abcdef"}
        attributes |= {"kind": random.choice(["odd", "even"]), "sym": random.choice(symbols)}
        before = index.examined
        found = index.match("t", lambda given=attributes: given)  # type: ignore[misc]
        looked += index.examined - before
        assert set(found) == {n for each, n in left.items() if each.expression.matches(attributes)}
        matched += len(found)
    assert matched > 200
    assert looked < 200 * len(left) / len(symbols) / 1.5
    for asked in (
        [Predicate("sym", "=", symbols[0])],
        [Predicate("sym", "!=", symbols[1])],
        [Predicate("sym", "!")],
    ):
        asked.append(Predicate("a", "<", 300.0))
        advert = ContentFilter("#", Expression(tuple(asked)))
        met = {filter for filter, _ in index.overlapping(advert)}
        assert met == {filter for filter in left if overlaps(filter, advert)}
    for filter, number in left.items():
        assert index.remove(filter, number)
    assert index.match("t", lambda: {"sym": symbols[0], **dict.fromkeys("abcdef", 900.0)}) == {}
    assert list(index.overlapping(ContentFilter("t"))) == []
