"""Many content filters, and which of them match a message, or can match one that is announced.

Filters with the same topic filter form a group (:mod:`ildm_algorithms.octopia.content.group`), found through
a trie.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Generic, TypeVar

from ildm.mqtt import FilterTable
from ildm_algorithms.octopia.content.content import ContentFilter, Value
from ildm_algorithms.octopia.content.group import Group, Row
from ildm_algorithms.octopia.content.relations import Kind, domains

__all__ = ["Attributes", "ContentIndex"]

Owner = TypeVar("Owner", bound=Hashable)
Attributes = Callable[[], Mapping[str, Value]]
"""Gives the attributes of a message; called only if they are needed, and once."""


class ContentIndex(Generic[Owner]):
    """Content filters, each held by any number of owners with a QoS (0, 1 or 2).

    ``match`` costs about as much as the filters that match, however many there are. For that, these have to
    be found through an attribute with a value, a prefix or a range that few of the others ask for. A filter
    with broad ranges of several attributes costs some bits besides.
    """

    __slots__ = (
        "_groups",
        "_next",
        "_rows",
        "_size",
        "_topics",
        "examined",
    )

    def __init__(self) -> None:
        self._rows: dict[ContentFilter, Row[Owner]] = {}
        self._groups: dict[str, Group[Owner]] = {}
        self._topics: FilterTable[Group[Owner]] = FilterTable()
        self._next = 0
        self._size = 0
        self.examined = 0
        """Filters that were looked at one by one in all searches so far."""

    def __len__(self) -> int:
        """Number of (filter, owner) entries."""
        return self._size

    def __iter__(self) -> Iterator[tuple[ContentFilter, Owner, int]]:
        """All entries as (filter, owner, qos). The index must not change meanwhile."""
        for filter, row in self._rows.items():
            for owner, qos in row.owners.items():
                yield filter, owner, qos

    def __contains__(self, filter: ContentFilter) -> bool:
        """Whether anybody holds the filter."""
        return filter in self._rows

    def check_sums(self) -> None:
        """Count all again that is counted as it changes. Raises: AssertionError, it was counted wrong."""
        size = sum(len(row.owners) for row in self._rows.values())
        assert size == self._size, f"{size} entries count {self._size}"
        rows: dict[str, list[Row[Owner]]] = {topic_filter: [] for topic_filter in self._groups}
        for filter, row in self._rows.items():
            rows[filter.topic_filter].append(row)
        for topic_filter, group in self._groups.items():
            group.check_rows(rows[topic_filter])

    def owners(self, filter: ContentFilter) -> dict[Owner, int]:
        """The owners of a filter with their QoS, as a copy."""
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
            row = self._rows[filter] = Row(self._next, filter, owner, qos)
            self._next += 1
            group = self._groups.get(filter.topic_filter)
            if group is None:
                group = self._groups[filter.topic_filter] = Group()
                self._topics.add(filter.topic_filter, group)
            group.add(row)
        self._size += before is None
        return before is None

    def remove(self, filter: ContentFilter, owner: Owner) -> bool:
        """Remove one entry; False if there is none."""
        row = self._rows.get(filter)
        if row is None or owner not in row.owners:
            return False
        self._size -= 1
        if row.take(owner):
            return True
        del self._rows[filter]
        group = self._groups[filter.topic_filter]
        group.remove(row)
        if not group.size:
            del self._groups[filter.topic_filter]
            self._topics.remove(filter.topic_filter, group)
        return True

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

        The same as :func:`~ildm_algorithms.octopia.content.relations.overlaps` with each of them. Those are
        not looked at that ``filter`` excludes by what they are found through. The index must not change
        meanwhile.
        """
        said = domains(filter.expression)
        if any(domain.kind is Kind.NOTHING for domain in said.values()):
            return
        for group in self._topics.intersecting(filter.topic_filter):
            for rows in group.meeting(said):
                self.examined += len(rows)
                for row in rows:
                    if row.overlaps(said):
                        yield row.filter, row.owners

    def _matching(self, topic: str, attributes: Attributes) -> list[Row[Owner]]:
        found: list[Row[Owner]] = []
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
            self.examined += group.match(given, numbers, found)
        return found


def _merge(found: dict[Owner, int], owners: Mapping[Owner, int]) -> None:
    for owner, qos in owners.items():
        if found.get(owner, -1) < qos:
            found[owner] = qos
