"""Searching what there may be 100,000 of, a page at a time, while others are served.

Nothing is copied or sorted as a whole: a search goes through the node's own tables, and lets others have
their turn after each slice. What comes or goes meanwhile may be missed, or seen twice; the cursor says how
many are to be passed over next time.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ildm.mqtt import split_shared, topic_matches
from ildm.net.clients_view import (
    filters_of,
    record_row,
    retained_row,
    source_name,
    sources,
    subscription_row,
)
from ildm.text import shown_source

if TYPE_CHECKING:
    from ildm.admin.view import Row
    from ildm.core.local.record import ClientRecord
    from ildm.core.node import Node
    from ildm.net.history import History

LARGEST_PAGE = 200
SLICE = 1000
"""Entries looked at between two looks at the clock."""
FEW = 50
"""The same of events, of which each takes longer."""
LONGEST = 500
"""Characters of a text that are shown; clients may choose 65,535."""
TURN = 0.002
"""Seconds until others are served."""
LOOKED_AT = 250_000
"""Entries that one request looks at; the next one goes on from there."""
Item = TypeVar("Item")


def shortened(row: Row) -> Row:
    """With long texts cut off."""
    return {
        key: f"{value[:LONGEST]}…" if isinstance(value, str) and len(value) > LONGEST else value
        for key, value in row.items()
    }


class Cursor(NamedTuple):
    """Where to go on: entries to pass over; of two levels, where entries have entries."""

    outer: int = 0
    inner: int = 0

    @classmethod
    def parse(cls, text: str | None) -> Cursor:
        """Raises: ValueError."""
        if not text:
            return cls()
        found = re.fullmatch(r"([0-9]{1,9})\.([0-9]{1,9})", text)
        if found is None:
            raise ValueError(f"{text!r} is no cursor")
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.outer}.{self.inner}"


class _Walk:
    """Counts what is looked at, and gives others their turn."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.looked_at = 0
        self.items: list[Row] = []
        self._since = perf_counter()

    def done(self) -> bool:
        return len(self.items) >= self.limit or self.looked_at >= LOOKED_AT

    async def pause(self) -> None:
        if perf_counter() - self._since > TURN:
            await asyncio.sleep(0)
            self._since = perf_counter()

    def page(self, total: int, cursor: Cursor | None) -> Row:
        return {
            "total": total,
            "items": [shortened(row) for row in self.items],
            "looked_at": self.looked_at,
            "cursor": None if cursor is None else str(cursor),
        }


def _slice(items: Callable[[], Iterator[Item]], start: int, number: int = SLICE) -> list[Item]:
    return list(islice(items(), start, start + number))


async def _flat(
    items: Callable[[], Iterator[Item]],
    total: Callable[[], int],
    cursor: Cursor,
    limit: int,
    keep: Callable[[Item], bool],
    row: Callable[[Item], Row],
) -> Row:
    """A table of one level."""
    walk = _Walk(limit)
    position = cursor.outer
    while not walk.done():
        found = _slice(items, position)
        for item in found:
            position += 1
            walk.looked_at += 1
            if keep(item):
                walk.items.append(row(item))
                if walk.done():
                    break
        if len(found) < SLICE and not walk.done():
            return walk.page(total(), None)
        await walk.pause()
    return walk.page(total(), Cursor(position) if position < total() else None)


async def clients(node: Node, text: str, cursor: Cursor, limit: int) -> Row:
    """Those whose identifier or address contains ``text``, in small or capital letters."""
    records = node.clients.records
    needle = text.casefold()

    def keep(record: ClientRecord) -> bool:
        if not needle or needle in record.key.casefold():
            return True
        session = record.session
        return session is not None and needle in session.peer.casefold()

    return await _flat(lambda: iter(records.values()), lambda: len(records), cursor, limit, keep, record_row)


async def retained(node: Node, topic_filter: str, cursor: Cursor, limit: int) -> Row:
    """Those on topics that match a filter, which is a valid one."""
    values = node.retained.values

    def keep(topic: str) -> bool:
        return topic_filter == "#" or topic_matches(topic_filter, topic)

    if "+" not in topic_filter and "#" not in topic_filter:
        items = [shortened(retained_row(node, topic_filter))] if topic_filter in values else []
        return {"total": len(values), "items": items, "looked_at": 1, "cursor": None}

    return await _flat(
        lambda: iter(values),
        lambda: len(values),
        cursor,
        limit,
        keep,
        lambda topic: retained_row(node, topic),
    )


async def subscriptions(node: Node, text: str, topic: str, cursor: Cursor, limit: int) -> Row:
    """Those whose filter, or whose holder's name, contains ``text``; with ``topic``: which match that."""
    walk = _Walk(limit)
    needle = text.casefold()
    outer, inner = cursor

    def keep(topic_filter: str, named: bool) -> bool:
        if topic and not topic_matches(split_shared(topic_filter)[1], topic):
            return False
        return named or needle in topic_filter.casefold()

    while not walk.done():
        holders = _slice(lambda: sources(node), outer)
        for holder in holders:
            filters = filters_of(holder)
            name = source_name(holder)
            named = any(needle in each.casefold() for each in (name, shown_source(name)))
            while True:
                found = _slice(lambda: iter(filters.items()), inner)  # noqa: B023 - used up at once
                for topic_filter, qos in found:
                    inner += 1
                    walk.looked_at += 1
                    if keep(topic_filter, named):
                        row = subscription_row(holder, topic_filter, qos)
                        walk.items.append({**row, "source": shown_source(name)})
                        if walk.done():
                            return walk.page(await _filters(node, walk), Cursor(outer, inner))
                await walk.pause()
                if len(found) < SLICE:
                    break
            outer, inner = outer + 1, 0
            walk.looked_at += not filters
        if len(holders) < SLICE and not walk.done():
            return walk.page(await _filters(node, walk), None)
    return walk.page(await _filters(node, walk), Cursor(outer, inner))


async def _filters(node: Node, walk: _Walk) -> int:
    """How many filters there are."""
    total = position = 0
    while found := _slice(lambda: sources(node), position):
        position += len(found)
        total += sum(len(filters_of(holder)) for holder in found)
        await walk.pause()
    return total


async def events(history: History, text: str, before: int | None, limit: int) -> Row:
    """The newest whose words contain ``text``, of those numbered below ``before``."""
    needle = text.casefold()
    walk = _Walk(limit)
    for row in history.newest():
        walk.looked_at += 1
        if before is not None and row["number"] >= before:
            continue
        if not needle or any(needle in word.casefold() for word in _words(row)):
            walk.items.append(row)
            if walk.done():
                break
        if not walk.looked_at % FEW:
            await walk.pause()
    return {"items": walk.items, "cursor": walk.items[-1]["number"] if walk.done() else None}


def _words(row: Row) -> Collection[str]:
    return [row["level"], row["event"], *(f"{key}={value}" for key, value in row["fields"].items())]


def among(rows: Sequence[Row], names: Collection[str], text: str, cursor: Cursor, limit: int) -> Row:
    """A page of rows that are there, of those in which a column of ``names`` contains ``text``."""
    needle = text.casefold()
    found = rows
    if needle:
        found = [row for row in rows if any(needle in str(row[name] or "").casefold() for name in names)]
    end = cursor.outer + limit
    return {
        "total": len(rows),
        "found": len(found),
        "items": [shortened(row) for row in found[cursor.outer : end]],
        "cursor": str(Cursor(end)) if end < len(found) else None,
    }
