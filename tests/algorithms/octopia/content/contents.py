"""Small worlds of expressions and messages in which everything meets, and what filters mean, by force."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hypothesis import strategies as st

from ildm_algorithms.octopia.content.content import (
    ABSENT,
    COMPARISONS,
    PRESENT,
    ContentFilter,
    Expression,
    Predicate,
    Value,
)
from tests.mqtt.topic_model import FILTERS, TOPICS, naive_matches

ATTRIBUTES = ("a", "b", "c")
NUMBERS = (-1.5e308, -1.0, 0.0, 5e-324, 1.0, 1.5, 2.0, 100.0, 1.5e308)
TEXTS = ("", "I", "IB", "IBM", "IBM\0", "J", "1", "true", "\U0010ffff")
VALUES: tuple[Value, ...] = (*NUMBERS, *TEXTS, True, False)
BESIDE: tuple[Value, ...] = (
    -1.6e308,
    -2.0,
    0.5,
    1.25,
    50.0,
    1e9,
    1.6e308,
    "H",
    "IBMX",
    "IC",
    "K",
    "\U0010ffffx",
)
"""Values that no predicate names: between those and beyond them."""

values = st.sampled_from(VALUES)
attribute_maps = st.dictionaries(st.sampled_from(ATTRIBUTES), values)


def _allowed(attribute: str, op: str, value: Value) -> Predicate:
    if op == "^=":
        return Predicate(attribute, op, value if isinstance(value, str) else "I")
    if isinstance(value, bool) and op != "!=":
        return Predicate(attribute, "=", value)
    return Predicate(attribute, op, value)


predicates = st.one_of(
    st.builds(_allowed, st.sampled_from(ATTRIBUTES), st.sampled_from(COMPARISONS), values),
    st.builds(Predicate, st.sampled_from(ATTRIBUTES), st.sampled_from([PRESENT, ABSENT]), st.none()),
)
expressions = st.builds(Expression, st.lists(predicates, max_size=5).map(tuple))
topics = st.sampled_from(TOPICS)
filters = st.builds(ContentFilter, st.sampled_from(FILTERS), expressions)


def naive_holds(predicate: Predicate, attributes: Mapping[str, Value]) -> bool:
    """What a predicate means, said once more and otherwise."""
    name, op, wanted = predicate
    if op in (PRESENT, ABSENT):
        return (name in attributes) == (op == PRESENT)
    if name not in attributes:
        return False
    actual = attributes[name]
    if {bool, str} & {type(actual), type(wanted)} and type(actual) is not type(wanted):
        return False
    if op == "^=":
        assert isinstance(actual, str)
        assert isinstance(wanted, str)
        return actual[: len(wanted)] == wanted
    less, equal = actual < wanted, actual == wanted  # type: ignore[operator]
    return {"=": equal, "!=": not equal, "<": less, "<=": less or equal}.get(
        op, {">": not less and not equal, ">=": not less}.get(op, False)
    )


def naive_content_matches(filter: ContentFilter, topic: str, attributes: Mapping[str, Value]) -> bool:
    return naive_matches(filter.topic_filter, topic) and all(
        naive_holds(predicate, attributes) for predicate in filter.expression.predicates
    )


def attribute_space(names: Iterable[str] = ATTRIBUTES[:2]) -> list[dict[str, Value]]:
    """Every message over a few attributes, with values between and beside those that expressions name."""
    given: list[dict[str, Value]] = [{}]
    for name in names:
        choices: list[Value] = [*VALUES, *BESIDE]
        given = [*given, *({**known, name: value} for known in given for value in choices)]
    return given
