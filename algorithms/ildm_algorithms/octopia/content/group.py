"""The content filters that have one topic filter, as rows of an index.

A row is found through one of its attributes (:mod:`ildm_algorithms.octopia.content.access`), and is then
looked at as a whole. Where many rows would be found that have ranges of further attributes, they are in
tables instead (:mod:`ildm_algorithms.octopia.content.bits`), searched by all these ranges together.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Generic, TypeVar

from ildm_algorithms.octopia.content.access import Access, Rows, key_of_value
from ildm_algorithms.octopia.content.bits import BitTable
from ildm_algorithms.octopia.content.content import ContentFilter, Predicate, Value
from ildm_algorithms.octopia.content.relations import (
    ANY,
    Domain,
    Kind,
    domains,
    domains_overlap,
    number_bounds,
)

__all__ = ["BROAD", "MANY", "Group", "Row"]

Owner = TypeVar("Owner", bound=Hashable)

BROAD = 0.05
"""If more of the messages than this lead to a row, it is looked for by all its ranges."""
MANY = 64
"""Rows found through an attribute before its share of the messages is believed. If one value of it leads to
so many, further ones are found by their other ranges."""

Ranges = tuple[tuple[str, float, float], ...]
"""(attribute, least, greatest number)."""
Point = tuple[str, Value]
"""An attribute and its value."""


class Row(Generic[Owner]):
    """One filter, whoever holds it."""

    __slots__ = (
        "attribute",
        "filter",
        "held",
        "number",
        "others",
        "owner",
        "place",
        "point",
        "qos",
        "ranges",
    )

    def __init__(self, number: int, filter: ContentFilter, owner: Owner, qos: int) -> None:
        self.number = number
        self.filter = filter
        self.owner = owner
        self.qos = qos
        self.held: dict[Owner, int] | None = None
        """All who hold it with their QoS, if there are several: most rows have one, and a dict is large."""
        self.attribute: str | None = None
        """The one through which it is found, if it is in no table."""
        self.point: Point | None = None
        """In a table: what all rows of it ask for exactly."""
        self.place: tuple[object, int] | None = None
        """In a table: where."""
        self.ranges: Ranges = ()
        """Ranges of numbers, but those that are known to suit when the row is found."""
        self.others: tuple[Predicate, ...] = ()
        """Its other predicates."""

    @property
    def owners(self) -> Mapping[Owner, int]:
        return {self.owner: self.qos} if self.held is None else self.held

    def give(self, owner: Owner, qos: int) -> None:
        """Enter an owner, or replace its QoS."""
        if self.held is not None:
            self.held[owner] = qos
        elif owner == self.owner:
            self.qos = qos
        else:
            self.held = {self.owner: self.qos, owner: qos}

    def take(self, owner: Owner) -> bool:
        """Take out an owner that it has; whether others are left."""
        if self.held is None:
            return False
        del self.held[owner]
        if len(self.held) == 1:
            ((self.owner, self.qos),) = self.held.items()
            self.held = None
        return True

    def overlaps(self, said: Mapping[str, Domain]) -> bool:
        """Whether it overlaps what has led to it by :meth:`Group.meeting`; neither is a contradiction."""
        found_by = None if self.attribute is None else said.get(self.attribute)
        known = found_by is None or (found_by.kind is Kind.NUMBER and not found_by.excluded)
        if self.others or self.point is not None or not known:
            return domains_overlap(domains(self.filter.expression), said)
        for name, low, high in self.ranges:
            domain = said.get(name)
            if domain is not None and not domain.meets_range(low, high):
                return False
        return True


class _Tables(Generic[Owner]):
    """Tables of rows that all ask for one value of an attribute, or have nothing in common."""

    __slots__ = ("by_names", "point")

    def __init__(self, point: Point | None) -> None:
        self.point = point
        self.by_names: dict[tuple[str, ...], BitTable[Row[Owner]]] = {}
        """By the attributes of which the rows name ranges."""


class Group(Generic[Owner]):
    """The rows with one topic filter."""

    __slots__ = ("_accesses", "_rest", "_tables", "plain", "size")

    def __init__(self) -> None:
        self.size = 0
        self.plain: Row[Owner] | None = None
        """The one without predicates."""
        self._accesses: dict[str, Access[Row[Owner]]] = {}
        self._tables: dict[Hashable, _Tables[Owner]] = {}
        """By what the rows ask for exactly (None: nothing in common)."""
        self._rest: dict[Row[Owner], None] = {}
        """Those that only say which attributes must not be there."""

    def add(self, row: Row[Owner]) -> None:
        """Enter a row."""
        self.size += 1
        said = domains(row.filter.expression)
        if not said:
            self.plain = row
            return
        if any(domain.kind is Kind.NOTHING for domain in said.values()):
            return  # it matches nothing, so nobody has to find it
        best, share = self._best(said)
        ranges = tuple(
            (name, *number_bounds(domain)) for name, domain in said.items() if domain.kind is Kind.NUMBER
        )
        row.others = _besides_ranges(row, said, None)
        if best is None:
            self._rest[row] = None
            return
        access, domain = self._accesses[best], said[best]
        point = domain.point
        further = tuple(each for each in ranges if each[0] != best)
        if share > BROAD and len(ranges) > 1 and access.size >= MANY:
            self._tabulate(row, None, ranges)
        elif point is not None and len(further) > 1 and access.sharing(point) >= MANY:
            row.others = _besides_ranges(row, said, best)
            self._tabulate(row, (best, point), further)
        else:
            if point is not None:
                row.others = _besides_ranges(row, said, best)
            row.attribute = best
            row.ranges = _shared(further)
            access.add(row, domain)

    def remove(self, row: Row[Owner]) -> None:
        """Take out a row that was entered."""
        self.size -= 1
        if row is self.plain:
            self.plain = None
            return
        said = domains(row.filter.expression)
        if any(domain.kind is Kind.NOTHING for domain in said.values()):
            return
        if row.attribute is not None:
            self._accesses[row.attribute].remove(row, said[row.attribute])
        elif row.ranges:
            names = tuple(name for name, _, _ in row.ranges)
            key = _key(row.point)
            tables = self._tables[key].by_names
            tables[names].remove(row)
            if not tables[names]:
                del tables[names]
            if not tables:
                del self._tables[key]
        else:
            del self._rest[row]
        for name, domain in said.items():
            if domain.kind is not Kind.ABSENT:
                self._accesses[name].named -= 1
                if not self._accesses[name].named:
                    del self._accesses[name]

    def check_rows(self, rows: Sequence[Row[Owner]]) -> None:
        """Count all again that is counted as it changes, with all rows that were entered.

        Raises:
            AssertionError: it was counted wrong.
        """
        assert len(rows) == self.size, f"{len(rows)} rows of a topic filter count {self.size}"
        named: Counter[str] = Counter()
        for row in rows:
            said = domains(row.filter.expression)
            if all(domain.kind is not Kind.NOTHING for domain in said.values()):
                named.update(name for name, domain in said.items() if domain.kind is not Kind.ABSENT)
        counted = {name: access.named for name, access in self._accesses.items()}
        assert named == counted, f"attributes of {dict(named)} rows count {counted}"
        for access in self._accesses.values():
            access.check_sums()

    def match(
        self, attributes: Mapping[str, Value], numbers: Mapping[str, float], found: list[Row[Owner]]
    ) -> int:
        """Add the rows with predicates that match a message to ``found``; how many were looked at.

        Args:
            attributes: of the message.
            numbers: those of them that are numbers.
        """
        examined = 0
        for rows in self._holding(attributes):
            examined += len(rows)
            _examine(rows, numbers, attributes, found)
        for tables in self._tables_of(attributes):
            for names, table in tables.by_names.items():
                values = [numbers[name] for name in names if name in numbers]
                if len(values) == len(names):
                    sure, unsure = table.search(values)
                    examined += len(sure) + len(unsure)
                    _examine(unsure, numbers, attributes, found)
                    found += [row for row in sure if all(each.holds(attributes) for each in row.others)]
        return examined

    def meeting(self, said: Mapping[str, Domain]) -> Iterator[Rows[Row[Owner]]]:
        """The rows that may have messages in common with a filter that says this, and is no contradiction."""
        if self.plain is not None:
            yield (self.plain,)
        if self._rest:
            yield self._rest
        for name, access in self._accesses.items():
            if access.size:
                yield from access.meeting(said.get(name))
        for tables in self._tables.values():
            if tables.point is not None and not said.get(tables.point[0], ANY).admits(tables.point[1]):
                continue
            for names, table in tables.by_names.items():
                asked = [said.get(name, ANY) for name in names]
                if all(domain.kind in (Kind.ANY, Kind.NUMBER) for domain in asked):
                    yield from table.meeting(
                        [None if domain.kind is Kind.ANY else number_bounds(domain) for domain in asked]
                    )

    def _best(self, said: Mapping[str, Domain]) -> tuple[str | None, float]:
        """The attribute through which a filter that says this is best found, and the share of the messages.

        There is an access for it then. None: it has no attribute that has to be there.
        """
        best, least = None, math.inf
        for name, domain in said.items():
            if domain.kind is not Kind.ABSENT:
                access = self._accesses.get(name)
                if access is None:
                    access = self._accesses[name] = Access()
                access.see(domain)
                # an attribute that few rows name is taken to be seldom in messages
                share = access.share(domain) * access.named / self.size
                if share < least:
                    best, least = name, share
        return best, least

    def _tabulate(self, row: Row[Owner], point: Point | None, ranges: Ranges) -> None:
        row.point, row.ranges = point, ranges
        names = tuple(name for name, _, _ in ranges)
        key = _key(point)
        if key not in self._tables:
            self._tables[key] = _Tables(point)
        tables = self._tables[key].by_names
        if names not in tables:
            tables[names] = BitTable()
        tables[names].add(row)

    def _holding(self, attributes: Mapping[str, Value]) -> Iterator[Rows[Row[Owner]]]:
        """The rows in no table that a message with these attributes leads to."""
        if self._rest:
            yield self._rest
        if len(attributes) < len(self._accesses):
            for name, value in attributes.items():
                access = self._accesses.get(name)
                if access is not None and access.size:
                    yield from access.holding(value)
            return
        for name, access in self._accesses.items():
            given = attributes.get(name)
            if given is not None and access.size:
                yield from access.holding(given)

    def _tables_of(self, attributes: Mapping[str, Value]) -> Iterator[_Tables[Owner]]:
        """The tables that a message with these attributes leads to."""
        if self._tables:
            for point in (None, *attributes.items()):
                tables = self._tables.get(_key(point))
                if tables is not None:
                    yield tables


def _key(point: Point | None) -> Hashable:
    return None if point is None else (point[0], key_of_value(point[1]))


def _besides_ranges(row: Row[Owner], said: Mapping[str, Domain], exact: str | None) -> tuple[Predicate, ...]:
    """The predicates that ranges do not express, but those on an attribute of which it has the only value."""
    return tuple(
        predicate
        for predicate in row.filter.expression.predicates
        if (predicate.op == "!=" or said[predicate.attribute].kind is not Kind.NUMBER)
        and predicate.attribute != exact
    )


@lru_cache(maxsize=4096)
def _shared(ranges: Ranges) -> Ranges:
    """One object for all filters that ask the same: little memory, and near at hand for the processor."""
    return ranges


def _examine(
    rows: Rows[Row[Owner]],
    numbers: Mapping[str, float],
    attributes: Mapping[str, Value],
    found: list[Row[Owner]],
) -> None:
    """Add those of ``rows`` to ``found`` that match."""
    get = numbers.get
    nothing = math.nan  # lies between no bounds
    for row in rows:
        for name, low, high in row.ranges:
            if not low <= get(name, nothing) <= high:
                break
        else:
            for predicate in row.others:
                if not predicate.holds(attributes):
                    break
            else:
                found.append(row)
