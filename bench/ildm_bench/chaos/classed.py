"""Classes of links (`link.classes`) in schedules: which are drawn, and what a history says of them."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any, NamedTuple

from ildm.mqtt import topic_matches

CONFLATED, EXPIRED = "link_conflated", "link_dropped_aged"
"""The counters by which a node says that it has let go of messages."""
SET_BACK = "link_set_back"
"""The same of messages that went after newer ones."""
CONFLATING: tuple[list[str], ...] = (["t/0", "u/0"], ["t/#"], ["#"], ["r/#"])
"""Filters of a class of which only the newest message of each topic waits."""

LATER: tuple[list[str], ...] = (["t/0", "t/3", "u/#"], ["t/#"], ["#"])
"""Filters of a class whose messages go after newer ones if they waited when a link came up."""


class Class(NamedTuple):
    """What the judge has to know of one: the row ``class`` of a history, one for each filter."""

    filter: str
    number: int
    conflates: bool
    expires: bool
    after_live: bool = False


def drawn(random: Random) -> list[dict[str, Any]]:
    """Classes of all links of a setting."""
    conflating: dict[str, Any] = {"topics": random.choice(CONFLATING), "conflate": "last"}
    if random.random() < 0.7:
        conflating["conflate_acknowledged"] = True
    urgent: dict[str, Any] = {"topics": ["t/1"], "priority": random.choice((-3, 5))}
    aging: dict[str, Any] = {"topics": ["t/2"], "expire": 1, "expire_acknowledged": True}
    found = [
        each for each, often in ((conflating, 0.7), (urgent, 0.6), (aging, 0.3)) if random.random() < often
    ]
    random.shuffle(found)
    if random.random() < 0.5:
        found.append({"topics": random.choice(LATER), "backlog": "after_live"})
    return found or [conflating]


def rows(given: Iterable[dict[str, Any]]) -> list[Class]:
    """Those of a configuration."""
    return [
        Class(
            each,
            number,
            "conflate" in terms,
            "expire" in terms,
            terms.get("backlog", "in_order") != "in_order",
        )
        for number, terms in enumerate(given, 1)
        for each in terms["topics"]
    ]


def class_of(classes: Iterable[Class], topic: str) -> Class | None:
    """The first that matches decides."""
    return next((each for each in classes if topic_matches(each.filter, topic)), None)
