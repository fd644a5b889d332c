"""The content language: what texts mean, what is wrong with others, that every expression can be written."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ildm_algorithms.octopia.content.content import (
    ANYTHING,
    COMPARISONS,
    ContentError,
    ContentFilter,
    Expression,
    ExpressionLimits,
    Predicate,
    Value,
    parse,
    parse_names,
    parse_scalar,
)
from tests.algorithms.octopia.content.contents import attribute_maps, expressions, naive_holds, predicates

P = Predicate


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("price>80", [P("price", ">", 80.0)]),
        ("price>80&sym=IBM", [P("price", ">", 80.0), P("sym", "=", "IBM")]),
        ("a=1&a!=1&a<1&a<=1&a>1&a>=1", [P("a", op, 1.0) for op in COMPARISONS[:-1]]),
        ("sym^=IB", [P("sym", "^=", "IB")]),
        ("sym^=80", [P("sym", "^=", "80")]),
        ("sym^=''", [P("sym", "^=", "")]),
        ("?alarm", [P("alarm", "?")]),
        ("!!alarm", [P("alarm", "?")]),
        ("!alarm", [P("alarm", "!")]),
        (" a = 1 & ! b ", [P("a", "=", 1.0), P("b", "!")]),
        ("city=New York", [P("city", "=", "New York")]),
        ("a=-1.5e-3", [P("a", "=", -0.0015)]),
        ("a=-0", [P("a", "=", 0.0)]),
        ("a=true&b=false", [P("a", "=", True), P("b", "=", False)]),
        ("a='true'", [P("a", "=", "true")]),
        ("a='80'", [P("a", "=", "80")]),
        ("a=''", [P("a", "=", "")]),
        ("a=007", [P("a", "=", "007")]),
        ("a=1.", [P("a", "=", "1.")]),
        ("a='x&y=z!'", [P("a", "=", "x&y=z!")]),
        ("a='%27'", [P("a", "=", "'")]),
        ("a=80%2E5", [P("a", "=", 80.5)]),
        ("a%2Eb>1", [P("a.b", ">", 1.0)]),
        ("a.b>1.5", [P("a.b", ">", 1.5)]),
        ("a=%2F%2B%23", [P("a", "=", "/+#")]),
        ("a=%C3%A9", [P("a", "=", "é")]),
        ("a=%20x", [P("a", "=", " x")]),
        ("a=1&a=1", [P("a", "=", 1.0)]),
    ],
)
def test_what_a_text_means(text: str, expected: list[Predicate]) -> None:
    assert parse(text) == Expression(tuple(expected))
    assert set(parse(text).predicates) == set(expected)


@pytest.mark.parametrize(
    ("text", "position", "part"),
    [
        ("", None, "empty"),
        ("  ", None, "empty"),
        ("price", 1, "no expression has the name 'price'"),
        ("a=1&price", 5, "'price'"),
        ("a=1&&b=2", 5, "predicate is missing"),
        ("a=1&", 5, "predicate is missing"),
        ("&a=1", 1, "predicate is missing"),
        ("=5", 1, "name of an attribute is missing"),
        ("a=", 3, "value is missing"),
        ("a= &b=1", 3, "value is missing"),
        ("?", 2, "name of an attribute is missing"),
        ("!=5", 2, "= is not expected"),
        ("a==5", 3, "= is not expected"),
        ("a=b=c", 4, "written %3D"),
        ("1<a<5", 4, "< is not expected"),
        ("a=>5", 3, "> is not expected"),
        ("?a=5", 3, "= is not expected"),
        ("a=x'y'", 4, "' is not expected"),
        ("a='x", 3, "quote is not closed"),
        ("a='x'y", 6, "follows a closing quote"),
        ("'a=1'", 1, "' is not expected"),
        ("a=%", 3, "hexadecimal"),
        ("a=x%2", 4, "hexadecimal"),
        ("a=%zz", 3, "hexadecimal"),
        ("a=x%FF", 4, "UTF-8"),
        ("a=nan", 3, "nan is no number"),
        ("a>-Infinity", 3, "is no number"),
        ("a>1e999", 3, "is no number"),
        ("a>true", 3, "needs a number or a text"),
        ("a=1&b<=false", 8, "needs a number or a text"),
        ("a=\0", 3, "U+0000"),
        ("a=\ud800", 3, "U+D800"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, position: int | None, part: str) -> None:
    with pytest.raises(ContentError) as caught:
        parse(text)
    assert part in str(caught.value)
    assert caught.value.position == position
    assert position is None or f"at character {position}" in str(caught.value)


def test_limits() -> None:
    limits = ExpressionLimits(length=20, predicates=2)
    assert parse("a=1&b=2", limits=limits)
    with pytest.raises(ContentError, match="of 21 characters, the limit is 20"):
        parse("a=" + "x" * 19, limits=limits)
    with pytest.raises(ContentError, match="more than 2 predicates"):
        parse("a=1&b=2&c=3", limits=limits)
    with pytest.raises(ContentError, match="more than 2 predicates"):
        parse("two&c=3", {"two": parse("a=1&b=2")}, limits)
    with pytest.raises(ContentError, match="the limit is 1024"):
        parse("a=" + "%41" * 10_000_000)
    names = {"long": parse("a=" + "x" * 18 + "&b=" + "\U0001f600" * 15, limits=ExpressionLimits(40))}
    assert parse("long", names, ExpressionLimits(21))
    with pytest.raises(ContentError, match="spelled out it has more than 80 bytes"):
        parse("long", names, ExpressionLimits(20))


def test_names() -> None:
    names = parse_names({"hot": "price>80", "very-hot": "hot & volume>=1000"})
    assert names["very-hot"] == parse("price>80&volume>=1000")
    assert parse("very-hot&sym=IBM", names) == parse("sym=IBM&price>80&volume>=1000")
    assert parse("hot=1", names) == parse("hot=1")
    with pytest.raises(ContentError, match="expression b: no expression has the name 'c'"):
        parse_names({"b": "c", "c": "a=1"})
    with pytest.raises(ContentError, match=r"expression b: a value is missing.*at character 3"):
        parse_names({"b": "x="})
    for name in ("", " x", "a=b", "a/b", "?x", "a.b", "50%"):
        with pytest.raises(ContentError, match="is no name of an expression"):
            parse_names({name: "a=1"})


@pytest.mark.parametrize(
    ("predicate", "part"),
    [
        (P("", "=", 1.0), "no name"),
        (P("a", "~", 1.0), "no operator '~'"),
        (P("a", "="), "needs a value"),
        (P("a", "?", 1.0), "takes no value"),
        (P("a", "^=", 1.0), "needs a text"),
        (P("a", "<", True), "needs a number or a text"),
        (P("a", "=", float("nan")), "is no number"),
        (P("a", "<", float("inf")), "is no number"),
    ],
)
def test_an_expression_has_sound_predicates(predicate: Predicate, part: str) -> None:
    with pytest.raises(ContentError, match=part):
        Expression((predicate,))


def test_true_is_not_the_number_one() -> None:
    assert parse("a=true") != parse("a=1")
    assert len(parse("a=true&a=1").predicates) == 2
    assert P("a", "=", True) != P("a", "=", 1.0)
    assert {P("a", "=", True): 1, P("a", "=", 1.0): 2} == {P("a", "=", 1.0): 2, P("a", "=", True): 1}
    assert ContentFilter("t", parse("a=true")) != ContentFilter("t", parse("a=1"))
    assert not parse("a=true").matches({"a": 1.0})
    assert not parse("a=1").matches({"a": True})
    assert not parse("a!=true").matches({"a": 0.0})


@pytest.mark.parametrize(
    ("text", "attributes", "expected"),
    [
        ("price>80", {"price": 80.5}, True),
        ("price>80", {"price": 80}, False),
        ("price>80", {"price": "90"}, False),
        ("price>80", {}, False),
        ("price!=80", {"price": 81.0}, True),
        # another type, or no attribute: it does not hold, and neither does its contrary
        ("price!=80", {"price": "81"}, False),
        ("price!=80", {}, False),
        ("price=80", {"price": 80}, True),
        ("name>=M", {"name": "Max"}, True),
        ("name>=M", {"name": "Lea"}, False),
        ("sym^=IB", {"sym": "IBM"}, True),
        ("sym^=IB", {"sym": "I"}, False),
        ("!a", {}, True),
        ("!a", {"a": False}, False),
        ("?a", {"a": ""}, True),
        ("?a", {"b": 1.0}, False),
    ],
)
def test_what_matches(text: str, attributes: dict[str, Value], expected: bool) -> None:
    assert parse(text).matches(attributes) is expected


@given(predicates, attribute_maps)
def test_a_predicate_holds_as_said(predicate: Predicate, attributes: dict[str, Value]) -> None:
    assert predicate.holds(attributes) is naive_holds(predicate, attributes)


def test_explaining() -> None:
    explained = parse("price>80&sym=IBM&!x").explain({"price": 79.0, "sym": "IBM"})
    assert explained == [
        (P("price", ">", 80.0), False, 79.0),
        (P("sym", "=", "IBM"), True, "IBM"),
        (P("x", "!"), True, None),
    ]
    assert [str(predicate) for predicate, _, _ in explained] == [
        "price > 80",
        "sym = 'IBM'",
        "x is not there",
    ]
    assert ANYTHING.matches({})
    assert ANYTHING.explain({}) == []


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
numbers = st.floats(allow_nan=False, allow_infinity=False)
any_predicates = st.one_of(
    predicates,
    st.builds(P, texts, st.sampled_from(COMPARISONS), st.text(st.characters(exclude_categories=["Cs"]))),
    st.builds(P, texts, st.sampled_from(COMPARISONS[:-1]), numbers),
)
any_expressions = st.builds(Expression, st.lists(any_predicates, min_size=1, max_size=5).map(tuple))


@given(any_expressions)
@example(Expression((P("a", "=", "inf"), P("b", "=", "1e999"), P(" ", "=", "  "), P("a", "=", 1e300))))
@example(Expression((P("a", "^=", "'"), P("b", "^=", "nan"), P("c", "=", -0.0), P("true", "=", 5e-324))))
def test_what_is_formatted_is_parsed_again(expression: Expression) -> None:
    text = expression.format()
    unlimited = ExpressionLimits(length=1_000_000)
    assert parse(text, limits=unlimited) == expression
    assert parse(text, limits=unlimited).predicates == expression.predicates
    assert not set(text) & set("/+#.,*?\0")
    assert text.isprintable() or not text.isascii()


@given(expressions, expressions)
def test_equal_are_those_with_the_same_predicates(a: Expression, b: Expression) -> None:
    assert (a == b) is (set(a.predicates) == set(b.predicates)) is (a.text == b.text)
    assert Expression(tuple(reversed(a.predicates))) == a
    assert hash(Expression(tuple(reversed(a.predicates)))) == hash(a)


@given(st.one_of(st.text(), st.text("a1 '%&=<>!^?2F.e-/", max_size=20)))
@example("a" * 100_000)
@example("'" * 1000)
@example("%" * 1000)
def test_any_text_is_an_expression_or_an_error(text: str) -> None:
    try:
        expression = parse(text)
    except ContentError as error:
        assert error.position is None or 1 <= error.position <= len(text) + 1  # noqa: PT017
    else:
        assert parse(expression.format(), limits=ExpressionLimits(length=10_000)) == expression


@given(st.text())
def test_scalars_are_finite(text: str) -> None:
    value = parse_scalar(text)
    assert not isinstance(value, float) or abs(value) < float("inf")
    assert not isinstance(value, str) or value == text
