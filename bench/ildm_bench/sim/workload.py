"""Who publishes and subscribes to what in the comparisons with PADRES (the paper's data are not public).

Each message has seven attributes, of which six may have any value: what decides is ``sym``, one of
``SYMBOLS``. A publisher advertises one symbol, a subscription asks for a range of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from random import Random
from typing import NamedTuple

from ildm_algorithms.octopia.content.content import ContentFilter, Expression, Predicate

SYMBOLS = 500
TOPIC = "stock"
OTHERS = ("open", "high", "low", "close", "volume", "date")
"""Attributes that everybody takes as they come."""


class Publisher(NamedTuple):
    uid: int
    node_id: str
    symbol: int

    @property
    def advertised(self) -> ContentFilter:
        return _filter((Predicate("sym", "=", self.symbol),))


class Subscriber(NamedTuple):
    uid: int
    node_id: str
    low: float
    high: float
    """The first symbol that it does not want."""

    @property
    def wanted(self) -> ContentFilter:
        return _filter((Predicate("sym", ">=", self.low), Predicate("sym", "<", self.high)))

    def wants(self, symbol: int) -> bool:
        return self.low <= symbol < self.high


class Publication(NamedTuple):
    """One message of a client."""

    number: int
    symbol: int
    began: float


@lru_cache(maxsize=1 << 16)  # asked for at each broker
def _filter(predicates: tuple[Predicate, ...]) -> ContentFilter:
    anything = [
        bound for name in OTHERS for bound in (Predicate(name, ">=", 0.0), Predicate(name, "<=", 1e9))
    ]
    return ContentFilter(TOPIC, Expression((*predicates, *anything)))


def attributes(symbol: int) -> dict[str, float]:
    """Those of a message."""
    return {"sym": float(symbol), **dict.fromkeys(OTHERS, 1.0)}


def publishers(random: Random, nodes: Sequence[str], count: int) -> list[Publisher]:
    """Symbols evenly spread, brokers drawn."""
    return [Publisher(uid, random.choice(nodes), SYMBOLS * uid // count) for uid in range(count)]


def subscribers(random: Random, nodes: Sequence[str], count: int, width: int) -> list[Subscriber]:
    """``width`` symbols each: 10 are 2 % of all. Brokers and ranges are drawn, and hardly
    two are the same."""
    found = []
    for uid in range(count):
        low = random.uniform(-1, SYMBOLS - width)
        found.append(Subscriber(uid, random.choice(nodes), low, low + width))
    return found
