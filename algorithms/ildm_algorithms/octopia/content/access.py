"""Where the rows of an index are found by the value of one attribute.

Each row has one attribute through which it is found. The best attribute is the one whose values lead to the
row in the fewest messages. The index knows no messages, so it judges by its rows: values that many rows ask
for are taken to be frequent.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterator
from enum import Enum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ildm_algorithms.octopia.content.content import Value
from ildm_algorithms.octopia.content.ordered import OrderedItems
from ildm_algorithms.octopia.content.relations import Domain, Kind, number_bounds

__all__ = ["Access", "Numbered", "Rows", "key_of_value"]


class Numbered(Protocol):
    """A row that can be found; it has a number of its own."""

    @property
    def number(self) -> int: ...


K = TypeVar("K", bound=Hashable)
Row = TypeVar("Row", bound=Numbered)
Rows = Collection[Row]
"""Some that are found together; not to be changed."""

_NARROWEST, _WIDEST = -40, 80
"""Binary logarithms of the widths that are distinguished: a search looks at each class that has ranges."""
_LEAST = 0.1
"""Share of the messages that an open range is taken to hold at least."""


class _AccessPath(Enum):
    """How a row is found by the value of an attribute."""

    EXACT = "one value"
    RANGE = "two bounds"
    FROM = "a lower bound"
    TO = "an upper bound"
    PREFIX = "texts that begin so"
    PRESENT = "any value"
    """The value itself is not looked at here."""


class _Place(NamedTuple):
    path: _AccessPath
    key: Any = None
    """EXACT: the value; RANGE: the class of the width; FROM, TO: the bound; PREFIX: the text."""


class _Buckets(Generic[Row]):
    """Rows by what they ask for exactly."""

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows: dict[Hashable, dict[Row, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self.rows.values()))

    def share(self, key: Hashable, among: int) -> float:
        """The rows here, with one more, that ask for the same, as a share of so many; below 1."""
        return (len(self.rows.get(key, ())) + 1) / (among + 2)

    def add(self, key: Hashable, row: Row) -> bool:
        """Whether the key is new."""
        bucket = self.rows.get(key)
        if bucket is not None:
            bucket[row] = None
            return False
        self.rows[key] = {row: None}
        return True

    def remove(self, key: Hashable, row: Row) -> bool:
        """Whether the key has left."""
        bucket = self.rows[key]
        del bucket[row]
        if bucket:
            return False
        del self.rows[key]
        return True


class Access(Generic[Row]):
    """The rows found through one attribute, by their domain of it (neither ``ABSENT`` nor ``NOTHING``)."""

    __slots__ = (
        "_begins",
        "_cells",
        "_exact",
        "_from",
        "_high",
        "_lengths",
        "_low",
        "_points",
        "_present",
        "_ranged",
        "_ranges",
        "_to",
        "named",
        "size",
    )

    def __init__(self) -> None:
        self.size = 0
        """How many there are."""
        self.named = 0
        """Rows that name the attribute, also those found through another one or in a table."""
        self._exact: _Buckets[Row] = _Buckets()
        self._points: OrderedItems[dict[Row, None]] = OrderedItems()
        """Of those the buckets of numbers."""
        self._ranges: dict[int, OrderedItems[Row]] = {}
        """By the class of their width, sorted by their lower bounds."""
        self._cells: Counter[tuple[int, int]] = Counter()
        """How many of one class begin near each other."""
        self._ranged = 0
        self._from: OrderedItems[Row] = OrderedItems()
        self._to: OrderedItems[Row] = OrderedItems()
        self._begins: _Buckets[Row] = _Buckets()
        self._lengths: Counter[int] = Counter()
        """Of the texts that others have to begin with."""
        self._present: dict[Row, None] = {}
        self._low, self._high = math.inf, -math.inf
        """The least and the greatest bound that was ever seen."""

    def see(self, domain: Domain) -> None:
        """Learn from a row's domain where numbers lie, whether the row is found through it or not."""
        self.named += 1
        if domain.kind is Kind.NUMBER:
            for bound in (domain.low, domain.high):
                if isinstance(bound, float) and math.isfinite(bound):
                    self._low, self._high = min(self._low, bound), max(self._high, bound)

    def share(self, domain: Domain) -> float:
        """The share of messages that would lead to a row with this domain, by a guess.

        It is of the messages that have the attribute. A value or a prefix is judged by all rows that name the
        attribute: if rows were never found by it for want of others, each message would lead to all of them.
        """
        path, key = _place(domain)
        span = self._high - self._low
        match path:
            case _AccessPath.EXACT:
                return self._exact.share(key, self.named)
            case _AccessPath.PREFIX:
                return self._begins.share(key, self.named)
            case _AccessPath.RANGE:
                low, high = number_bounds(domain)
                near = (self._cells[_cell(key, low)] + 1) / (self._ranged + 2)
                return max(near, (high - low) / span if 0 < span < math.inf else 1.0)
            case _AccessPath.FROM:
                return max(_LEAST, (self._high - key) / span if 0 < span < math.inf else 0.5)
            case _AccessPath.TO:
                return max(_LEAST, (key - self._low) / span if 0 < span < math.inf else 0.5)
        return 1.0

    def sharing(self, value: Value) -> int:
        """How many rows ask for this value."""
        return len(self._exact.rows.get(key_of_value(value), ()))

    def check_sums(self) -> None:
        """Count all again that is counted as it changes. Raises: AssertionError, it was counted wrong."""
        ranged = sum(map(len, self._ranges.values()))
        assert ranged == self._ranged, f"{ranged} rows with a range count {self._ranged}"
        near = {cell: count for cell, count in self._cells.items() if count}
        assert sum(near.values()) == ranged, f"{ranged} rows with a range are counted in cells as {near}"
        points = len(self._exact) + len(self._begins)
        size = ranged + points + len(self._from) + len(self._to) + len(self._present)
        assert size == self.size, f"{size} rows are found by an attribute and count {self.size}"

    def add(self, row: Row, domain: Domain) -> None:
        """Enter a row that is to be found through its domain."""
        self.size += 1
        path, key = _place(domain)
        match path:
            case _AccessPath.EXACT:
                if self._exact.add(key, row) and isinstance(key, float):
                    self._points.add((key, 0), self._exact.rows[key])
            case _AccessPath.PREFIX:
                self._begins.add(key, row)
                self._lengths[len(key)] += 1
            case _AccessPath.RANGE:
                low, high = number_bounds(domain)
                self._cells[_cell(key, low)] += 1
                self._ranged += 1
                self._ranges.setdefault(key, OrderedItems()).add((low, row.number), row, high)
            case _AccessPath.FROM:
                self._from.add((key, row.number), row)
            case _AccessPath.TO:
                self._to.add((key, row.number), row)
            case _AccessPath.PRESENT:
                self._present[row] = None

    def remove(self, row: Row, domain: Domain) -> None:
        """Take out a row that was entered with this domain."""
        self.size -= 1
        path, key = _place(domain)
        match path:
            case _AccessPath.EXACT:
                if self._exact.remove(key, row) and isinstance(key, float):
                    self._points.remove((key, 0))
            case _AccessPath.PREFIX:
                self._begins.remove(key, row)
                _decrement(self._lengths, len(key))
            case _AccessPath.RANGE:
                low, _ = number_bounds(domain)
                _decrement(self._cells, _cell(key, low))
                self._ranged -= 1
                self._ranges[key].remove((low, row.number))
                if not self._ranges[key]:
                    del self._ranges[key]
            case _AccessPath.FROM:
                self._from.remove((key, row.number))
            case _AccessPath.TO:
                self._to.remove((key, row.number))
            case _AccessPath.PRESENT:
                del self._present[row]

    def holding(self, value: Value) -> Iterator[Rows[Row]]:
        """The rows whose domain holds a value, but for the values it excludes, and those of ``PRESENT``."""
        if self._present:
            yield self._present
        if isinstance(value, str):
            yield from self._texts(value)
            return
        bucket = self._exact.rows.get(key_of_value(value))
        if bucket is not None:
            yield bucket
        if not isinstance(value, bool):
            yield from self._numbers(value, value)

    def meeting(self, domain: Domain | None) -> Iterator[Rows[Row]]:
        """The rows whose domain may have a value in common with this one; None: all of them may.

        If the domain is one of numbers, these are exactly the rows that do, but for excluded values.
        """
        if domain is not None and domain.kind in (Kind.ABSENT, Kind.NOTHING):
            return
        if self._present:
            yield self._present
        point = None if domain is None else domain.point
        if isinstance(point, str):
            yield from self._texts(point)
        elif domain is not None and domain.kind is Kind.NUMBER:
            low, high = number_bounds(domain)
            for buckets in self._points.between(low, high):
                yield from buckets
            yield from self._numbers(low, high)
        else:
            yield from self._exact.rows.values()
            yield from self._begins.rows.values()
            yield from self._numbers(-math.inf, math.inf)

    def _texts(self, text: str) -> Iterator[Rows[Row]]:
        bucket = self._exact.rows.get(text)
        if bucket is not None:
            yield bucket
        for length in self._lengths:
            if length <= len(text):
                bucket = self._begins.rows.get(text[:length])
                if bucket is not None:
                    yield bucket

    def _numbers(self, low: float, high: float) -> Iterator[Rows[Row]]:
        """The ranges, open ones too, that have a number in common with [low, high]."""
        for level, ranges in self._ranges.items():
            yield from ranges.meeting(low, high, _width(level))
        if self._from:
            yield from self._from.between(high=high)
        if self._to:
            yield from self._to.between(low=low)


def _place(domain: Domain) -> _Place:
    point = domain.point
    if point is not None:
        return _Place(_AccessPath.EXACT, key_of_value(point))
    prefix = domain.prefix
    if prefix is not None:
        return _Place(_AccessPath.PREFIX, prefix)
    if domain.kind is Kind.NUMBER:
        low, high = number_bounds(domain)
        if math.isfinite(low) and math.isfinite(high):
            return _Place(_AccessPath.RANGE, _level(high - low))
        if math.isfinite(low):
            return _Place(_AccessPath.FROM, low)
        if math.isfinite(high):
            return _Place(_AccessPath.TO, high)
    return _Place(_AccessPath.PRESENT)


def key_of_value(value: Value) -> Hashable:
    """A key to which that of no other value is equal: true is distinguished from 1."""
    return (value,) if isinstance(value, bool) else value


def _level(width: float) -> int:
    """The class of a width; ``_width`` of it is greater."""
    return _WIDEST + 1 if width >= 2.0**_WIDEST else max(_NARROWEST, math.frexp(width)[1])


def _width(level: int) -> float:
    return math.inf if level > _WIDEST else 2.0**level


def _cell(level: int, low: float) -> tuple[int, int]:
    return level, math.floor(low / 2.0**level)


def _decrement(counts: Counter[K], key: K) -> None:
    if counts[key] > 1:
        counts[key] -= 1
    else:
        del counts[key]
