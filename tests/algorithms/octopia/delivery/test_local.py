"""Filters of local clients: what they ask for, on which topics they get it, and which are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from ildm.mqtt import Publish
from ildm_algorithms.octopia.content.content import ContentFilter, Value, parse
from ildm_algorithms.octopia.content.rules import AccessRule, refusal
from ildm_algorithms.octopia.delivery.local import ContentConfig, InterestChange, LocalFilters


class Local:
    """Local filters, and what was counted and logged."""

    def __init__(self, **options: Any) -> None:
        self.counted: list[str] = []
        self.logged: list[tuple[str, str, str]] = []
        self.filters = LocalFilters(ContentConfig(**options), self.counted.append, self.log)

    def log(self, event: str, *, filter: str, reason: str) -> None:
        self.logged.append((event, filter, reason))

    def copies(
        self, topic: str, attributes: Mapping[str, Value], plain: bool = True, qos: int = 2
    ) -> list[tuple[str, int]]:
        message = Publish(topic=topic, qos=qos, packet_id=1 if qos else None)
        return [tuple(each) for each in self.filters.copies(message, lambda: attributes, plain)]


@pytest.fixture
def local() -> Local:
    return Local(expressions={"hot": "price>80"})


def content(topic_filter: str, text: str = "") -> ContentFilter:
    return ContentFilter(topic_filter, parse(text)) if text else ContentFilter(topic_filter)


def test_a_filter_with_an_expression(local: Local) -> None:
    filters = local.filters
    wanted = filters.change("filter/price>80&sym=IBM/stock/#", 1)
    assert wanted == InterestChange(content("stock/#", "price>80&sym=IBM"), 1)
    assert filters.expressions == 1
    assert local.copies("stock/nyse", {"price": 81.0, "sym": "IBM"}) == [
        ("filter/price>80&sym=IBM/stock/nyse", 1)
    ]
    assert local.copies("stock/nyse", {"price": 81.0, "sym": "IBM"}, qos=0) == [
        ("filter/price>80&sym=IBM/stock/nyse", 0)
    ]
    assert local.copies("stock/nyse", {"price": 79.0, "sym": "IBM"}) == []
    assert local.copies("other", {"price": 81.0, "sym": "IBM"}) == []
    gone = filters.change("filter/price>80&sym=IBM/stock/#", None)
    assert gone == InterestChange(content("stock/#", "price>80&sym=IBM"), None)
    assert local.copies("stock/nyse", {"price": 81.0, "sym": "IBM"}) == []
    assert list(filters) == []


def test_names_and_escapes(local: Local) -> None:
    assert local.filters.change("filter/hot/a/+", 0) == InterestChange(content("a/+", "price>80"), 0)
    assert local.filters.change("filter/hot&t%2Eu=%2F/#", 0) == InterestChange(
        content("#", "price>80&t%2Eu='/'"), 0
    )
    assert local.copies("a/b", {"price": 90.0, "t.u": "/"}) == [
        ("filter/hot&t%2Eu=%2F/a/b", 0),
        ("filter/hot/a/b", 0),
    ]


def test_two_texts_of_one_expression_are_two_topics_and_one_filter(local: Local) -> None:
    filters = local.filters
    expected = content("s/#", "price>80")
    assert filters.change("filter/hot/s/#", 1) == InterestChange(expected, 1)
    assert filters.change("filter/price>80/s/#", 0) is None
    assert filters.change("filter/price > 80/s/#", 2) == InterestChange(expected, 2)
    assert local.copies("s/x", {"price": 90.0}) == [
        ("filter/hot/s/x", 1),
        ("filter/price > 80/s/x", 2),
        ("filter/price>80/s/x", 0),
    ]
    assert filters.change("filter/price > 80/s/#", None) == InterestChange(expected, 1)
    assert filters.change("filter/price>80/s/#", None) is None
    assert filters.change("filter/hot/s/#", 0) == InterestChange(expected, 0)
    assert filters.change("filter/hot/s/#", None) == InterestChange(expected, None)
    assert filters.change("filter/hot/s/#", None) is None


def test_overlapping_filters_with_one_expression_give_one_copy(local: Local) -> None:
    local.filters.change("filter/hot/s/#", 0)
    local.filters.change("filter/hot/s/+", 2)
    assert local.copies("s/x", {"price": 90.0}) == [("filter/hot/s/x", 2)]


def test_ordinary_subscriptions_go_on_beside_it(local: Local) -> None:
    assert local.filters.change("s/#", 1) == InterestChange(content("s/#"), 1)
    local.filters.change("filter/hot/s/#", 1)
    assert local.copies("s/x", {"price": 90.0}) == [("filter/hot/s/x", 1), ("s/x", 1)]
    assert local.copies("s/x", {"price": 90.0}, plain=False) == [("filter/hot/s/x", 1)]
    assert local.copies("s/x", {}) == [("s/x", 1)]
    assert dict(local.filters) == {content("s/#"): 1, content("s/#", "price>80"): 1}
    assert local.filters.change("s/#", None) == InterestChange(content("s/#"), None)
    assert local.copies("s/x", {}) == []


def test_what_is_below_the_root_does_not_cross(local: Local) -> None:
    for topic_filter in ("filter/#", "filter/+/s/#", "filter/+/#", "$SYS/#"):
        assert local.filters.admit(topic_filter) is None
        assert local.filters.change(topic_filter, 1) is None
        assert local.filters.change(topic_filter, None) is None
    assert local.filters.change("#", 1) == InterestChange(content("#"), 1)
    assert local.copies("filter/hot/s/x", {"price": 90.0}) == []
    assert local.copies("filters/x", {}) == [("filters/x", 1)]
    assert local.filters.change("filter", 1) == InterestChange(content("filter"), 1)
    assert local.counted == []


@pytest.mark.parametrize(
    ("topic_filter", "part"),
    [
        ("filter/price>80", "no topic filter follows"),
        ("filter/price>80/", "no topic filter follows"),
        ("filter//s/#", "an empty expression"),
        ("filter/cold/s/#", "no expression has the name 'cold'"),
        ("filter/price>/s/#", "a value is missing; an empty text is written '' (at character 7)"),
        ("filter/a=1/$SYS/#", "begin with $"),
        ("filter/a=1/filter/b=1/s", "below filter does not cross"),
    ],
)
def test_what_is_refused_is_counted_logged_once_and_listed(
    local: Local, topic_filter: str, part: str
) -> None:
    filters = local.filters
    why = filters.admit(topic_filter)
    assert why is not None
    assert part in why
    assert filters.admit(f"$share/group/{topic_filter}") == why
    assert not filters.refused
    assert filters.change(topic_filter, 1) is None
    assert dict(filters.refused) == {topic_filter: why}
    assert local.logged == [("expression refused", topic_filter, why)]
    assert local.counted == ["expressions_refused"] * 3
    assert filters.change(topic_filter, None) is None
    assert not filters.refused
    assert local.copies("s/x", {"price": 90.0}) == []


def test_what_is_remembered_of_the_refused_is_bounded() -> None:
    local = Local(refused_listed=3)
    for number in range(10):
        local.filters.change(f"filter/bad{number}/s", 1)
    assert list(local.filters.refused) == [f"filter/bad{number}/s" for number in (7, 8, 9)]
    assert len(local.logged) == 10
    local.filters.change("filter/bad9/s", 0)
    assert len(local.logged) == 10


def test_a_node_has_so_many_filters_with_expressions() -> None:
    local = Local(max_expressions=2)
    for number in range(2):
        assert local.filters.change(f"filter/a={number}/s", 1)
    why = local.filters.admit("filter/a=3/s")
    assert why == "there are 2 filters with expressions already"
    assert local.filters.change("filter/a=3/s", 1) is None
    assert local.filters.admit("filter/a=1/s") is None
    assert local.filters.change("filter/a=1/s", 2) == InterestChange(content("s", "a=1"), 2)
    assert local.filters.change("plain/#", 2)
    local.filters.change("filter/a=0/s", None)
    assert local.filters.admit("filter/a=3/s") is None


def test_a_copy_that_needs_too_long_a_topic_is_counted(local: Local) -> None:
    local.filters.change("filter/hot/#", 1)
    assert local.copies("x" * 65_524, {"price": 90.0}) == [("filter/hot/" + "x" * 65_524, 1)]
    assert local.copies("é" * 32_763, {"price": 90.0}) == []
    assert local.counted == ["topics_too_long"]


def test_one_filter_alone(local: Local) -> None:
    local.filters.change("filter/hot/s/#", 1)
    local.filters.change("s/#", 2)
    message = Publish(topic="s/x", qos=2, packet_id=1)
    assert local.filters.copy("filter/hot/s/#", message, lambda: {"price": 90.0}) == (
        "filter/hot/s/x",
        1,
    )
    assert local.filters.copy("filter/hot/s/#", message, lambda: {"price": 9.0}) is None
    assert local.filters.copy("filter/hot/s/#", Publish(topic="t"), lambda: {"price": 90.0}) is None
    assert local.filters.copy("s/#", message, dict) is None


def test_another_root() -> None:
    local = Local(root="where/content")
    assert local.filters.change("where/content/a=1/s", 1) == InterestChange(content("s", "a=1"), 1)
    assert local.filters.change("filter/a=1/s", 1) == InterestChange(content("filter/a=1/s"), 1)
    assert local.copies("s", {"a": 1.0}) == [("where/content/a=1/s", 1)]


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"root": "$filter"}, "must not begin with"),
        ({"root": "a/+"}, "cannot begin a topic"),
        ({"root": ""}, "cannot begin a topic"),
        ({"root": "a/"}, "end with /"),
        ({"expressions": {"hot": "price>"}}, "expression hot: a value is missing"),
        ({"expressions": {"a": "b=1&c=1"}, "expression_predicates": 1}, "more than 1 predicates"),
        ({"access": [{"allow": ["a"], "deny": ["b"]}]}, "either allow or deny"),
        ({"access": [{"user": "x"}]}, "either allow or deny"),
        ({"access": [{"deny": []}]}, "at least one topic filter"),
        ({"access": [{"deny": ["a/#/b"]}]}, "no topic filter"),
    ],
)
def test_a_wrong_configuration_is_refused(options: dict[str, Any], part: str) -> None:
    with pytest.raises(ValidationError, match=part):
        ContentConfig(**options)


def test_access_is_about_the_topic_filter_behind_the_expression() -> None:
    rules = [{"allow": ["stock/public/#"]}, {"allow": ["#"], "user": "trader*"}, {"deny": ["stock/#"]}]
    local = Local(access=rules)
    admit = local.filters.admit
    assert admit("filter/a=1/stock/public/x") is None
    assert admit("filter/a=1/stock/x") == "no access to stock/x"
    assert admit("$share/g/filter/a=1/stock/x", "guest", "c") == "no access to stock/x"
    assert admit("filter/a=1/+/x") == "no access to +/x"
    assert admit("filter/a=1/#", "trader7") is None
    assert admit("filter/a=1/other") is None
    assert admit("stock/x") is None
    assert admit("filter/a=/stock/public/x") is not None


def test_rules_are_for_clients_by_name() -> None:
    rules = [AccessRule(deny=["#"], client_id="guest-[0-9]"), AccessRule(deny=["a"], user="")]
    assert refusal(rules, "x", None, "guest-7") == "no access to x"
    assert refusal(rules, "x", None, "guest-x") is None
    assert refusal(rules, "a", None, "c") == "no access to a"
    assert refusal(rules, "a", "u", "c") is None
