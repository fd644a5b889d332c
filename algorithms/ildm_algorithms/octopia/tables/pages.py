"""Long lists of entries in messages that a link takes: bounded in number and in bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from ildm_algorithms.octopia.content.content import ContentFilter
from ildm_algorithms.octopia.messages import AdvertEntry, SubscriptionEntry
from ildm_algorithms.octopia.tables.tables import Civ

__all__ = ["pages", "size_of_civ", "size_of_entry", "whole_or_parts"]

PAGE = 100
"""Entries in one message."""
PAGE_BYTES = 65_536
"""Bytes in one message with subscriptions or advertisements."""
UIDS = 8_000
"""Advertisements in one CIV_SET or CIV_UNSET; the wire format counts up to 65,535."""

Item = TypeVar("Item")


def pages(items: Iterable[Item], size: Callable[[Item], int], most: int = PAGE_BYTES) -> Iterator[list[Item]]:
    """The items in order, in parts that fit into a message each.

    Args:
        size: bytes of an item, about.
        most: bytes of a part; a larger item makes one of its own.
    """
    some: list[Item] = []
    total = 0
    for item in items:
        own = size(item)
        if some and (len(some) == PAGE or total + own > most):
            yield some
            some, total = [], 0
        some.append(item)
        total += own
    if some:
        yield some


def size_of_entry(entry: SubscriptionEntry | AdvertEntry) -> int:
    """Bytes of a subscription or an advertisement."""
    return 16 + _size(entry.content)


def size_of_civ(civ: Civ) -> int:
    """Bytes of a CIV_SET or CIV_UNSET."""
    return 8 + 8 * len(civ.uids) + sum(map(_size, civ.filters or ()))


def whole_or_parts(civs: Iterable[Civ]) -> Iterator[Civ]:
    """The same, those that name very many advertisements in several."""
    for civ in civs:
        if len(civ.uids) <= UIDS:
            yield civ
            continue
        for start in range(0, len(civ.uids), UIDS):
            yield civ._replace(uids=civ.uids[start : start + UIDS])


def _size(content: ContentFilter) -> int:
    """Characters of most texts have one byte; those that have more make messages larger, up to four times."""
    return 4 + content.length
