"""How filters relate: which implies which, which covers which, which have messages in common.

A :class:`Domain` is the set of values with which one attribute satisfies an expression. Domains are
intervals, because between two doubles there is a next one, and after a text there is a next one (the text and
U+0000). So strict and other bounds become one kind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple

from ildm.mqtt import covers as topic_covers
from ildm.mqtt import intersects
from ildm_algorithms.octopia.content.content import ContentFilter, Expression, Predicate, Value

__all__ = [
    "ANY",
    "Domain",
    "Kind",
    "contradictions",
    "covers",
    "domains",
    "domains_overlap",
    "implies",
    "meet",
    "number_bounds",
    "overlaps",
]


class Kind(Enum):
    """Which values a domain has."""

    ANY = "any"
    """Whatever the message has."""
    NUMBER = "number"
    """``low <= value <= high``."""
    TEXT = "text"
    """``low <= value < high``; None: no bound."""
    TRUTH = "truth"
    """As numbers: 0 is false, 1 is true."""
    ABSENT = "absent"
    """The message does not have the attribute."""
    NOTHING = "nothing"
    """The predicates contradict each other."""


class Domain(NamedTuple):
    """The values of one attribute with which it satisfies all predicates on it."""

    kind: Kind
    low: float | str | None = None
    high: float | str | None = None
    excluded: frozenset[Value] = frozenset()
    """Values between ``low`` and ``high`` that do not."""

    def admits(self, value: Value | None) -> bool:
        """Whether a value, or None for its absence, is in the domain."""
        if value is None:
            return self.kind is Kind.ABSENT
        if self.kind in (Kind.ANY, Kind.ABSENT, Kind.NOTHING):
            return self.kind is Kind.ANY
        return _kind_of(value) is self.kind and _within(self, value) and value not in self.excluded

    @property
    def point(self) -> Value | None:
        """The only value between the bounds, if there is but one."""
        low, high = self.low, self.high
        if isinstance(low, str):
            return low if high == _after(low) else None
        if low is None or low != high:
            return None
        return bool(low) if self.kind is Kind.TRUTH else low

    @property
    def prefix(self) -> str | None:
        """The prefix of all texts in the domain, if the bounds say nothing else."""
        low = self.low
        return low if isinstance(low, str) and low and self.high == _after_all(low) else None

    def meets_range(self, low: float, high: float) -> bool:
        """Whether the domain and the numbers from ``low`` to ``high`` have one in common; True in doubt."""
        if self.kind is Kind.NUMBER and not self.excluded:
            least, greatest = number_bounds(self)
            return least <= high and low <= greatest
        return meet(self, Domain(Kind.NUMBER, low, high))


ANY = Domain(Kind.ANY)
"""The attribute is there; also what is to be reckoned with where nothing is said of it."""
ABSENT = Domain(Kind.ABSENT)
NOTHING = Domain(Kind.NOTHING)
_WHOLE: dict[Kind, Domain] = {
    Kind.NUMBER: Domain(Kind.NUMBER, -math.inf, math.inf),
    Kind.TEXT: Domain(Kind.TEXT, "", None),
    Kind.TRUTH: Domain(Kind.TRUTH, 0.0, 1.0),
}


@lru_cache(maxsize=1024)
def domains(expression: Expression) -> Mapping[str, Domain]:
    """Attribute -> its domain, of all attributes that the expression names."""
    found: dict[str, Domain] = {}
    for predicate in expression.predicates:
        found[predicate.attribute] = _narrowed(found.get(predicate.attribute), predicate)
    return found


def implies(p: Predicate, q: Predicate) -> bool:
    """Whether every message that satisfies ``p`` satisfies ``q``."""
    return domains_cover(domains(Expression((q,))), domains(Expression((p,))))


def covers(a: ContentFilter, b: ContentFilter) -> bool:
    """Whether ``a`` matches every message that ``b`` matches (OctopiA, section 4); False where in doubt."""
    return topic_covers(a.topic_filter, b.topic_filter) and domains_cover(
        domains(a.expression), domains(b.expression)
    )


def overlaps(a: ContentFilter, b: ContentFilter) -> bool:
    """Whether a message can match both (OctopiA, section 4); True where in doubt.

    Each attribute is looked at by itself; one that only ``a`` or only ``b`` names speaks against nothing.
    """
    return intersects(a.topic_filter, b.topic_filter) and domains_overlap(
        domains(a.expression), domains(b.expression)
    )


def domains_cover(a: Mapping[str, Domain], b: Mapping[str, Domain]) -> bool:
    """The same as :func:`covers` for the expressions alone."""
    if any(domain.kind is Kind.NOTHING for domain in b.values()):
        return True
    return all(attribute in b and _contains(domain, b[attribute]) for attribute, domain in a.items())


def domains_overlap(a: Mapping[str, Domain], b: Mapping[str, Domain]) -> bool:
    """The same as :func:`overlaps` for the expressions alone."""
    if any(domain.kind is Kind.NOTHING for each in (a, b) for domain in each.values()):
        return False
    return all(meet(domain, b[attribute]) for attribute, domain in a.items() if attribute in b)


def meet(a: Domain, b: Domain) -> bool:
    """Whether two domains of one attribute have a value in common; True where in doubt."""
    if Kind.NOTHING in (a.kind, b.kind):
        return False
    if Kind.ABSENT in (a.kind, b.kind):
        return a.kind is b.kind
    if Kind.ANY in (a.kind, b.kind):
        return True
    if a.kind is not b.kind:
        return False
    common = _bounded(Domain(a.kind, a.low, a.high, a.excluded | b.excluded), b.low, b.high)
    return common.kind is not Kind.NOTHING


def number_bounds(domain: Domain) -> tuple[float, float]:
    """The bounds of a domain of numbers, themselves included."""
    low, high = domain.low, domain.high
    assert isinstance(low, float)
    assert isinstance(high, float)
    return low, high


def _contains(a: Domain, b: Domain) -> bool:
    """Whether each value of ``b``, which is not empty, is one of ``a``."""
    if a.kind is Kind.ANY:
        return b.kind is not Kind.ABSENT
    if a.kind is not b.kind:
        return False
    if a.kind is Kind.ABSENT:
        return True
    inside = _bounded(b, a.low, a.high)
    return (inside.low, inside.high) == (b.low, b.high) and not any(map(b.admits, a.excluded))


def _narrowed(domain: Domain | None, predicate: Predicate) -> Domain:
    """The rest of a domain under one more predicate; None: nothing was said before."""
    value, op = predicate.value, predicate.op
    if value is None:
        if op == "!":
            return ABSENT if domain is None or domain.kind is Kind.ABSENT else NOTHING
        return ANY if domain is None else NOTHING if domain.kind is Kind.ABSENT else domain
    kind = _kind_of(value)
    if domain is None or domain.kind is Kind.ANY:
        domain = _WHOLE[kind]
    elif domain.kind is not kind:
        return NOTHING
    if op == "!=" and isinstance(value, bool):
        value, op = not value, "="
    if op == "!=":
        return _bounded(domain._replace(excluded=domain.excluded | {value}), domain.low, domain.high)
    if isinstance(value, str):
        return _bounded(domain, *_text_bounds(op, value))
    return _bounded(domain, *_compared(op, float(value)))


def _text_bounds(op: str, value: str) -> tuple[str, str | None]:
    match op:
        case "=":
            return value, _after(value)
        case "<":
            return "", value
        case "<=":
            return "", _after(value)
        case ">":
            return _after(value), None
        case ">=":
            return value, None
    return value, _after_all(value)


def _compared(op: str, value: float) -> tuple[float, float]:
    match op:
        case "=":
            return value, value
        case "<":
            return -math.inf, math.nextafter(value, -math.inf)
        case "<=":
            return -math.inf, value
        case ">":
            return math.nextafter(value, math.inf), math.inf
    return value, math.inf


def _bounded(domain: Domain, low: float | str | None, high: float | str | None) -> Domain:
    """The rest of a domain between two more bounds of its kind."""
    lows: list[Any] = [bound for bound in (domain.low, low) if bound is not None]
    highs: list[Any] = [bound for bound in (domain.high, high) if bound is not None]
    narrowed = domain._replace(low=max(lows, default=None), high=min(highs, default=None))
    point = narrowed.point
    if _is_empty(narrowed) or (point is not None and point in narrowed.excluded):
        return NOTHING
    return narrowed


def _is_empty(domain: Domain) -> bool:
    low, high = domain.low, domain.high
    if isinstance(low, str):
        return isinstance(high, str) and low >= high
    assert not isinstance(high, str)
    # no message has an infinite number
    return low is not None and high is not None and (low > high or low == math.inf or high == -math.inf)


def _within(domain: Domain, value: Value) -> bool:
    low, high = domain.low, domain.high
    if isinstance(value, str):
        return (
            isinstance(low, str)
            and low <= value
            and (high is None or (isinstance(high, str) and value < high))
        )
    return isinstance(low, float) and isinstance(high, float) and low <= value <= high


def _kind_of(value: Value) -> Kind:
    return Kind.TRUTH if isinstance(value, bool) else Kind.TEXT if isinstance(value, str) else Kind.NUMBER


def _after(text: str) -> str:
    return text + "\0"


def _after_all(prefix: str) -> str | None:
    """The first text after all that begin with ``prefix``; None if there is none."""
    kept = prefix.rstrip("\U0010ffff")
    return kept[:-1] + chr(ord(kept[-1]) + 1) if kept else None


def contradictions(expression: Expression) -> list[str]:
    """The attributes whose predicates no message can satisfy."""
    return [name for name, domain in domains(expression).items() if domain.kind is Kind.NOTHING]
