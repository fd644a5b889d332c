"""Implying, covering and overlapping, against all messages of a small world."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings

from ildm_algorithms.octopia.content.content import ContentFilter, Expression, Predicate, Value, parse
from ildm_algorithms.octopia.content.relations import contradictions, covers, domains, implies, overlaps
from tests.algorithms.octopia.content.contents import (
    attribute_maps,
    attribute_space,
    expressions,
    filters,
    naive_content_matches,
    naive_holds,
    predicates,
    topics,
)

SPACE = attribute_space()
ONE = [attributes for attributes in attribute_space("a") if attributes]


def content(topic_filter: str, text: str = "") -> ContentFilter:
    return ContentFilter(topic_filter, parse(text)) if text else ContentFilter(topic_filter)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("x>3", "x>5", True),
        ("x>5", "x>3", False),
        ("x>3", "x>=3", False),
        ("x>=3", "x>3", True),
        ("x>3", "x=4", True),
        ("x>3", "x='4'", False),
        ("x>3&x<9", "x>4&x<8", True),
        ("x>3", "y>5", False),
        ("x>3", "x>5&y=1", True),
        ("x>3&y=1", "x>5", False),
        ("x!=3", "x>3", True),
        ("x!=3", "x>=3", False),
        ("x!=3", "x!=3&x>0", True),
        ("x!=true", "x=false", True),
        ("?x", "x=1", True),
        ("?x", "!x", False),
        ("!x", "y=1", False),
        ("s^=IB", "s=IBM", True),
        ("s^=IB", "s^=IBM", True),
        ("s^=IBM", "s^=IB", False),
        ("s^=IB", "s>=IB&s<IC", True),
        ("s>=I", "s^=IB", True),
        ("x=1", "y>5&y<3", True),  # nothing matches the second
    ],
)
def test_covering_by_example(a: str, b: str, expected: bool) -> None:
    assert covers(content("t", a), content("t", b)) is expected
    assert covers(content("+", a), content("t", b)) is expected
    assert not covers(content("t", a), content("u", b))


def test_a_plain_subscription_covers_all_of_its_topics() -> None:
    assert covers(content("a/#"), content("a/b", "x>1"))
    assert not covers(content("a/b", "x>1"), content("a/b"))


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("x>3", "x<5", True),
        ("x>5", "x<5", False),
        ("x>=5", "x<=5", True),
        ("x>=5", "x<=5&x!=5", False),
        ("x=5", "x!=5", False),
        ("x=5", "x='5'", False),
        ("x=5", "y=6", True),
        ("x=5", "!x", False),
        ("!x", "!x", True),
        ("?x", "!x", False),
        ("?x", "x=1", True),
        ("s^=IB", "s^=IBM", True),
        ("s^=IB", "s^=IC", False),
        ("s^=IB", "s>=IC", False),
        ("s^=IB", "s>IA", True),
        ("x=true", "x=false", False),
        ("x=true", "x!=false", True),
        ("x>5&x<3", "y=1", False),
        ("sym=5", "sym>=0&sym<10&p>=0", True),
        ("sym=10", "sym>=0&sym<10&p>=0", False),
    ],
)
def test_overlapping_by_example(a: str, b: str, expected: bool) -> None:
    assert overlaps(content("t", a), content("t", b)) is expected
    assert overlaps(content("+/#", b), content("t", a)) is expected
    assert not overlaps(content("t", a), content("u", b))


def test_contradictions() -> None:
    assert contradictions(parse("x>5&x<3&y=1&z=1&z='1'&?w&!w")) == ["w", "x", "z"]
    assert contradictions(parse("x>5&x<=6&s<''")) == ["s"]


@given(predicates, predicates)
def test_implying(p: Predicate, q: Predicate) -> None:
    if implies(p, q):
        assert all(naive_holds(q, attributes) for attributes in SPACE if naive_holds(p, attributes))


@given(predicates)
def test_a_predicate_implies_itself(p: Predicate) -> None:
    assert implies(p, p)


@given(expressions)
def test_a_domain_has_exactly_the_values_that_satisfy_its_predicates(expression: Expression) -> None:
    for name, domain in domains(expression).items():
        own = [p._replace(attribute="a") for p in expression.predicates if p.attribute == name]
        for attributes in [{}, *ONE]:
            assert domain.admits(attributes.get("a")) is all(naive_holds(p, attributes) for p in own)


@given(filters, filters, topics, attribute_maps)
@settings(max_examples=500)
def test_what_both_match_overlaps(
    a: ContentFilter, b: ContentFilter, topic: str, attributes: dict[str, Value]
) -> None:
    if naive_content_matches(a, topic, attributes) and naive_content_matches(b, topic, attributes):
        assert overlaps(a, b)
    assert overlaps(a, b) is overlaps(b, a)


@given(expressions, expressions)
def test_expressions_against_all_messages(a: Expression, b: Expression) -> None:
    first, second = ContentFilter("t", a), ContentFilter("t", b)
    both = [a.matches(attributes) and b.matches(attributes) for attributes in SPACE]
    assert overlaps(first, second) or not any(both)
    if covers(first, second):
        assert all(a.matches(attributes) for attributes in SPACE if b.matches(attributes))
    assert covers(first, first)


@given(predicates, predicates)
def test_of_two_predicates_overlapping_is_exact(p: Predicate, q: Predicate) -> None:
    """But where all they have in common lies between the values of the small world."""
    p, q = p._replace(attribute="a"), q._replace(attribute="a")
    together = any(naive_holds(p, attributes) and naive_holds(q, attributes) for attributes in [{}, *ONE])
    said = overlaps(ContentFilter("t", Expression((p,))), ContentFilter("t", Expression((q,))))
    assert said or not together
    assert together or not said or {p.op, q.op} <= {"<", "<=", ">", ">=", "!=", "^="}


def test_whoever_covers_overlaps_what_has_messages() -> None:
    texts = ["x>1", "x<5", "x=3", "x!=3", "s^=a", "?x", "!x", "x=true"]
    for a, b in product(texts, texts):
        if covers(content("t", a), content("t", b)):
            assert overlaps(content("t", a), content("t", b))
