"""Many content filters, and which of them match a message, or can match one that is announced.

Filters with the same topic filter form a group, found through a trie. In a group each filter is found through
one of its attributes (:mod:`algorithms.octopia.access`), and is then looked at as a whole; or, if none of
them tells it from many others, through all its ranges together (:mod:`algorithms.octopia.bits`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import lru_cache
from typing import Generic, TypeVar

from algorithms.octopia.access import Access, Rows
from algorithms.octopia.bits import BitTable
from algorithms.octopia.content import ContentFilter, Predicate, Value
from algorithms.octopia.relations import ANY, Domain, Kind, domains, domains_overlap, number_bounds
from ildm.mqtt import FilterTable

__all__ = ["Attributes", "ContentIndex"]

Owner = TypeVar("Owner", bound=Hashable)
Attributes = Callable[[], Mapping[str, Value]]
"""Gives the attributes of a message; called only if they are needed, and once."""


BROAD = 0.05
"""If more of the messages than this lead to a filter, it is looked for by all its ranges."""
EVIDENCE = 64
"""Filters found through an attribute before its share of the messages is believed."""

Ranges = tuple[tuple[str, float, float], ...]
"""(attribute, least, greatest number)."""


class _Row(Generic[Owner]):
    """One filter, whoever holds it."""

    __slots__ = ("attribute", "filter", "held", "number", "others", "owner", "place", "qos", "ranges")

    def __init__(self, number: int, filter: ContentFilter, owner: Owner, qos: int) -> None:
        self.number = number
        self.filter = filter
        self.owner = owner
        self.qos = qos
        self.held: dict[Owner, int] | None = None
        """All who hold it with their QoS, if there are several: most rows have one, and a dict is large."""
        self.attribute: str | None = None
        """The one through which it is found, if it is found through one."""
        self.place: tuple[object, int] | None = None
        self.ranges: Ranges = ()
        """What it asks of numbers, but of those that are known to suit when it is found."""
        self.others: tuple[Predicate, ...] = ()
        """What it asks else."""

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


class _Group(Generic[Owner]):
    """The filters with one topic filter."""

    __slots__ = ("accesses", "broad", "evidence", "plain", "rest", "size", "tables")

    def __init__(self, broad: float, evidence: int) -> None:
        self.broad, self.evidence = broad, evidence
        self.size = 0
        self.plain: _Row[Owner] | None = None
        """The one without predicates."""
        self.accesses: dict[str, Access[_Row[Owner]]] = {}
        self.tables: dict[tuple[str, ...], BitTable[_Row[Owner]]] = {}
        """By the attributes of which the filters in it name ranges."""
        self.rest: dict[_Row[Owner], None] = {}
        """Those that only say which attributes must not be there."""

    def add(self, row: _Row[Owner]) -> None:
        self.size += 1
        said = domains(row.filter.expression)
        if not said:
            self.plain = row
            return
        if any(domain.kind is Kind.NOTHING for domain in said.values()):
            return  # it matches nothing, so nobody has to find it
        best, share = self._best(said)
        numbers = {name: number_bounds(domain) for name, domain in said.items() if domain.kind is Kind.NUMBER}
        row.others = tuple(
            predicate
            for predicate in row.filter.expression.predicates
            if predicate.op == "!=" or said[predicate.attribute].kind is not Kind.NUMBER
        )
        if best is None:
            self.rest[row] = None
        elif share > self.broad and len(numbers) > 1 and self.accesses[best].size >= self.evidence:
            row.ranges = tuple((name, low, high) for name, (low, high) in numbers.items())
            names = tuple(numbers)
            if names not in self.tables:
                self.tables[names] = BitTable()
            self.tables[names].add(row)
        else:
            row.attribute = best
            row.ranges = _shared(
                tuple((name, low, high) for name, (low, high) in numbers.items() if name != best)
            )
            self.accesses[best].add(row, said[best])

    def _best(self, said: Mapping[str, Domain]) -> tuple[str | None, float]:
        """The attribute through which a filter that says this is best found, and the share of the messages.

        There is an access for it then. None: it has no attribute that has to be there.
        """
        best, least = None, math.inf
        for name, domain in said.items():
            if domain.kind is not Kind.ABSENT:
                access = self.accesses.get(name)
                if access is None:
                    access = self.accesses[name] = Access()
                access.see(domain)
                share = access.share(domain)
                if share < least:
                    best, least = name, share
        return best, least

    def remove(self, row: _Row[Owner]) -> None:
        self.size -= 1
        if row is self.plain:
            self.plain = None
        elif row.attribute is not None:
            self.accesses[row.attribute].remove(row, domains(row.filter.expression)[row.attribute])
        elif row.ranges:
            names = tuple(name for name, _, _ in row.ranges)
            self.tables[names].remove(row)
            if not self.tables[names]:
                del self.tables[names]
        else:
            self.rest.pop(row, None)

    def holding(self, attributes: Mapping[str, Value]) -> Iterator[Rows[_Row[Owner]]]:
        """The filters with predicates that a message with these attributes leads to."""
        if self.rest:
            yield self.rest
        if len(attributes) < len(self.accesses):
            for name, value in attributes.items():
                access = self.accesses.get(name)
                if access is not None and access.size:
                    yield from access.holding(value)
            return
        for name, access in self.accesses.items():
            given = attributes.get(name)
            if given is not None and access.size:
                yield from access.holding(given)

    def meeting(self, said: Mapping[str, Domain]) -> Iterator[Rows[_Row[Owner]]]:
        """The filters that may have messages in common with one that says this."""
        if self.plain is not None:
            yield (self.plain,)
        if self.rest:
            yield self.rest
        for names, table in self.tables.items():
            asked = [said.get(name, ANY) for name in names]
            if all(domain.kind in (Kind.ANY, Kind.NUMBER) for domain in asked):
                yield from table.meeting(
                    [None if domain.kind is Kind.ANY else number_bounds(domain) for domain in asked]
                )
        for name, access in self.accesses.items():
            if access.size:
                yield from access.meeting(said.get(name))


class ContentIndex(Generic[Owner]):
    """Content filters, each held by any number of owners with a QoS (0, 1 or 2).

    ``match`` costs about as much as the filters that match, if these can be found through an attribute with
    a value, a prefix or a range that few of the others ask for: how many filters there are does not matter.
    Of those with broad ranges of several attributes it costs some bits for each besides.

    Args:
        broad: see :data:`BROAD`.
        evidence: see :data:`EVIDENCE`.
    """

    __slots__ = (
        "_broad",
        "_by_owner",
        "_evidence",
        "_groups",
        "_next",
        "_rows",
        "_size",
        "_topics",
        "examined",
        "generation",
    )

    def __init__(self, broad: float = BROAD, evidence: int = EVIDENCE) -> None:
        self._broad, self._evidence = broad, evidence
        self._rows: dict[ContentFilter, _Row[Owner]] = {}
        self._groups: dict[str, _Group[Owner]] = {}
        self._topics: FilterTable[_Group[Owner]] = FilterTable()
        self._by_owner: dict[Owner, dict[ContentFilter, int]] = {}
        self._next = 0
        self._size = 0
        self.examined = 0
        """Filters that were looked at one by one in all searches so far."""
        self.generation = 0
        """Grows with each change."""

    def __len__(self) -> int:
        """Number of (filter, owner) entries."""
        return self._size

    def __iter__(self) -> Iterator[tuple[ContentFilter, Owner, int]]:
        """All entries as (filter, owner, qos). The index must not change meanwhile."""
        for owner, held in self._by_owner.items():
            for filter, qos in held.items():
                yield filter, owner, qos

    def __contains__(self, filter: ContentFilter) -> bool:
        """Whether anybody holds the filter."""
        return filter in self._rows

    @property
    def distinct(self) -> int:
        """Number of different filters."""
        return len(self._rows)

    def filters(self, owner: Owner) -> dict[ContentFilter, int]:
        """The filters of an owner with their QoS, as a copy; empty for an unknown one."""
        return dict(self._by_owner.get(owner, ()))

    def owners(self, filter: ContentFilter) -> dict[Owner, int]:
        """Who holds a filter, with which QoS, as a copy."""
        row = self._rows.get(filter)
        return {} if row is None else dict(row.owners)

    def qos(self, filter: ContentFilter, owner: Owner) -> int | None:
        """The QoS of an entry; None if there is none."""
        row = self._rows.get(filter)
        return None if row is None else row.owners.get(owner)

    def add(self, filter: ContentFilter, owner: Owner, qos: int = 0) -> bool:
        """Enter the filter for ``owner``, or replace its QoS; True if the entry is new.

        Cost: that of its predicates, and O(log n).

        Raises:
            ValueError: ``qos`` is not 0, 1 or 2.
        """
        if qos not in (0, 1, 2):
            raise ValueError(f"qos must be 0, 1 or 2, not {qos!r}")
        row = self._rows.get(filter)
        before = None
        if row is not None:
            before = row.owners.get(owner)
            if before == qos:
                return False
            row.give(owner, qos)
        else:
            row = self._rows[filter] = _Row(self._next, filter, owner, qos)
            self._next += 1
            group = self._groups.get(filter.topic_filter)
            if group is None:
                group = self._groups[filter.topic_filter] = _Group(self._broad, self._evidence)
                self._topics.add(filter.topic_filter, group)
            group.add(row)
        self._by_owner.setdefault(owner, {})[row.filter] = qos
        self._size += before is None
        self.generation += 1
        return before is None

    def remove(self, filter: ContentFilter, owner: Owner) -> bool:
        """Remove one entry; False if there is none."""
        held = self._by_owner.get(owner)
        if held is None or held.pop(filter, None) is None:
            return False
        if not held:
            del self._by_owner[owner]
        self._unlink(filter, owner)
        return True

    def remove_owner(self, owner: Owner) -> dict[ContentFilter, int]:
        """Remove all entries of ``owner``; answers which there were, with their QoS."""
        held = self._by_owner.pop(owner, {})
        for filter in held:
            self._unlink(filter, owner)
        return held

    def match(self, topic: str, attributes: Attributes) -> dict[Owner, int]:
        """The owners of filters that match a message, each with the maximum QoS of those filters.

        Args:
            topic: of the message.
            attributes: called at most once, and only if a filter with predicates has a matching topic filter.
        """
        found: dict[Owner, int] = {}
        for row in self._matching(topic, attributes):
            if row.held is None:
                if found.get(row.owner, -1) < row.qos:
                    found[row.owner] = row.qos
            else:
                _merge(found, row.held)
        return found

    def match_filters(self, topic: str, attributes: Attributes) -> list[ContentFilter]:
        """The filters that match a message, each once; ``attributes`` as of :meth:`match`."""
        return [row.filter for row in self._matching(topic, attributes)]

    def overlapping(self, filter: ContentFilter) -> Iterator[tuple[ContentFilter, Mapping[Owner, int]]]:
        """The filters that overlap one, as an advertisement, with their owners.

        The same as :func:`~algorithms.octopia.relations.overlaps` with each of them. Those are not looked at
        that ``filter`` excludes by what they are found through. The index must not change meanwhile.
        """
        said = domains(filter.expression)
        if any(domain.kind is Kind.NOTHING for domain in said.values()):
            return
        for group in self._topics.intersecting(filter.topic_filter):
            for rows in group.meeting(said):
                self.examined += len(rows)
                for row in rows:
                    if _overlaps(row, said):
                        yield row.filter, row.owners

    def _matching(self, topic: str, attributes: Attributes) -> list[_Row[Owner]]:
        found: list[_Row[Owner]] = []
        given: Mapping[str, Value] | None = None
        numbers: dict[str, float] = {}
        for group in self._topics.match(topic):
            if group.plain is not None:
                self.examined += 1
                found.append(group.plain)
                if group.size == 1:
                    continue
            if given is None:
                given = attributes()
                numbers = {
                    name: value
                    for name, value in given.items()
                    if not isinstance(value, str) and not isinstance(value, bool)
                }
            for rows in group.holding(given):
                self.examined += len(rows)
                _examine(rows, numbers, given, found)
            for names, table in group.tables.items():
                values = [numbers[name] for name in names if name in numbers]
                if len(values) == len(names):
                    sure, unsure = table.search(values)
                    self.examined += len(sure) + len(unsure)
                    _examine(unsure, numbers, given, found)
                    found += [row for row in sure if all(each.holds(given) for each in row.others)]
        return found

    def _unlink(self, filter: ContentFilter, owner: Owner) -> None:
        row = self._rows[filter]
        self._size -= 1
        self.generation += 1
        if row.take(owner):
            return
        del self._rows[filter]
        group = self._groups[filter.topic_filter]
        group.remove(row)
        if not group.size:
            del self._groups[filter.topic_filter]
            self._topics.remove(filter.topic_filter, group)


def _examine(
    rows: Rows[_Row[Owner]],
    numbers: Mapping[str, float],
    attributes: Mapping[str, Value],
    found: list[_Row[Owner]],
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


@lru_cache(maxsize=4096)
def _shared(ranges: Ranges) -> Ranges:
    """One object for all filters that ask the same: little memory, and near at hand for the processor."""
    return ranges


def _merge(found: dict[Owner, int], owners: Mapping[Owner, int]) -> None:
    for owner, qos in owners.items():
        if found.get(owner, -1) < qos:
            found[owner] = qos


def _overlaps(row: _Row[Owner], said: Mapping[str, Domain]) -> bool:
    """Whether a filter that was found through what another says overlaps it; neither is a contradiction."""
    found_by = None if row.attribute is None else said.get(row.attribute)
    known = found_by is None or (found_by.kind is Kind.NUMBER and not found_by.excluded)
    if row.others or not known:
        return domains_overlap(domains(row.filter.expression), said)
    for name, low, high in row.ranges:
        domain = said.get(name)
        if domain is not None and not domain.meets_range(low, high):
            return False
    return True
