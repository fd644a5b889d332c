"""Naive models of matching and covering, and small worlds of filters and topics in which all collide."""

from __future__ import annotations

from functools import cache
from itertools import product

FILTER_LEVELS = ("", "a", "$s", "+")
TOPIC_LEVELS = ("", "a", "b", "$s", "z")
"""With one level that no filter names, so that ``+`` differs from every union of literals."""


def naive_matches(topic_filter: str, topic: str) -> bool:
    wanted, given = topic_filter.split("/"), topic.split("/")
    if topic[:1] == "$" and wanted[0] in ("+", "#"):
        return False
    if wanted[-1] == "#":
        wanted.pop()
        given = given[: len(wanted)]
    return len(wanted) == len(given) and all(w in ("+", g) for w, g in zip(wanted, given, strict=True))


def _joined(levels: tuple[str, ...], depth: int) -> list[str]:
    return ["/".join(parts) for n in range(1, depth + 1) for parts in product(levels, repeat=n)]


TOPICS = [topic for topic in _joined(TOPIC_LEVELS, 4) if topic]
"""All topics of up to four levels, one more than any filter has before its ``#``."""

_PREFIXES = [prefix for prefix in _joined(FILTER_LEVELS, 3) if prefix]
FILTERS = ["#", "/#", *_PREFIXES, *(f"{prefix}/#" for prefix in _PREFIXES)]


@cache
def matched(topic_filter: str) -> int:
    """The topics of ``TOPICS`` that the filter matches, as a bit set."""
    return sum(1 << n for n, topic in enumerate(TOPICS) if naive_matches(topic_filter, topic))


def naive_covers(a: str, b: str) -> bool:
    return matched(b) & ~matched(a) == 0
