"""Matching, covering, shared filters and the filter table (MQTT 5, 4.7 and 4.8.2)."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ildm.mqtt.filter_table import FilterTable
from ildm.mqtt.topics import (
    LONGER_TWINS,
    covers,
    highest_qos,
    intersection,
    intersects,
    split_shared,
    topic_matches,
)
from tests.mqtt.topic_model import FILTERS, TOPICS, matched, naive_covers, naive_matches

DEEP_TOPIC = "/" * 65_534
DEEP_FILTERS = [DEEP_TOPIC, "/" * 65_534 + "#", "+/" * 32_767 + "#", "/" * 65_534 + "+"]

filters = st.sampled_from(FILTERS)
topics = st.sampled_from(TOPICS)
keys = st.sampled_from("xyz")


@pytest.mark.parametrize(
    ("topic_filter", "topic", "expected"),
    [
        # 4.7.1.2: the multi-level wildcard
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/tennis/player1/#", "sport/tennis/player10", False),
        ("sport/#", "sport", True),
        ("#", "sport/tennis", True),
        # 4.7.1.3: the single-level wildcard
        ("sport/tennis/+", "sport/tennis/player1", True),
        ("sport/tennis/+", "sport/tennis/player2", True),
        ("sport/tennis/+", "sport/tennis/player1/ranking", False),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/tennis/#", "sport/tennis/player1", True),
        ("sport/+/player1", "sport/tennis/player1", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        # 4.7.2: topics beginning with $
        ("#", "$SYS/monitor/Clients", False),
        ("+/monitor/Clients", "$SYS/monitor/Clients", False),
        ("$SYS/#", "$SYS/monitor/Clients", True),
        ("$SYS/#", "$SYS", True),
        ("$SYS/monitor/+", "$SYS/monitor/Clients", True),
        ("a/+", "a/$SYS", True),
        ("a/#", "a/$SYS", True),
        # 4.7.3: case, spaces, leading and trailing separators, no normalisation
        ("ACCOUNTS", "Accounts", False),
        ("Accounts payable", "Accounts payable", True),
        ("/finance", "finance", False),
        ("finance/", "finance", False),
        ("/", "/", True),
        ("+/", "/", True),
        ("#", "/", True),
        ("/", "//", False),
        ("caf\u00e9", "cafe\u0301", False),
    ],
)
def test_examples_of_the_standard(topic_filter: str, topic: str, expected: bool) -> None:
    assert topic_matches(topic_filter, topic) is expected
    assert naive_matches(topic_filter, topic) is expected
    table: FilterTable[str] = FilterTable()
    table.add(topic_filter, "k", 1)
    assert table.match(topic) == ({"k": 1} if expected else {})


def test_matching_agrees_with_the_model_everywhere() -> None:
    for topic_filter in FILTERS:
        bits = sum(1 << n for n, topic in enumerate(TOPICS) if topic_matches(topic_filter, topic))
        assert bits == matched(topic_filter), topic_filter


def test_covering_agrees_with_enumeration_everywhere() -> None:
    for a in FILTERS:
        for b in FILTERS:
            assert covers(a, b) is naive_covers(a, b), (a, b)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("#", "a", True),
        ("#", "#", True),
        ("#", "+/#", True),
        ("+/#", "#", True),
        ("a/+/#", "a/#", False),
        # The topic "" would tell these apart, but a topic has at least one character (MQTT-4.7.3-1).
        ("/+/#", "/#", True),
        ("+/+/#", "/#", True),
        ("/+/+/#", "/#", False),
        ("a/#", "a/+/#", True),
        ("a/#", "a", True),
        ("a/#", "a/+", True),
        ("a/+", "a/#", False),
        ("+/x", "a/x", True),
        ("a/x", "+/x", False),
        ("#", "$SYS/x", False),
        ("+/x", "$a/x", False),
        ("+/#", "$SYS/#", False),
        ("$SYS/#", "$SYS/+/x", True),
        ("#", "$SYS", False),
        ("+", "/", False),
    ],
)
def test_covering_by_example(a: str, b: str, expected: bool) -> None:
    assert covers(a, b) is expected


def test_only_the_twins_are_equal() -> None:
    equal = {(a, b) for a in FILTERS for b in FILTERS if len(a) < len(b) and covers(a, b) and covers(b, a)}
    assert equal == set(LONGER_TWINS.items()) == {("#", "+/#"), ("/#", "/+/#")}


@given(filters, filters, topics)
def test_a_covering_filter_matches_what_the_covered_matches(a: str, b: str, topic: str) -> None:
    if topic_matches(b, topic) and not topic_matches(a, topic):
        assert not covers(a, b)


@given(st.dictionaries(filters, st.integers(0, 2)), topics)
def test_the_highest_qos_is_that_of_the_filters_that_match(held: dict[str, int], topic: str) -> None:
    expected = max((qos for each, qos in held.items() if topic_matches(each, topic)), default=None)
    assert highest_qos(held, topic) == expected
    many = held | {f"x{number}": 2 for number in range(64)}  # so that they are looked up
    assert highest_qos(many, topic) == expected
    assert highest_qos(many, topic, 2) is None


@pytest.mark.parametrize("topic_filter", DEEP_FILTERS)
def test_filters_of_maximum_depth(topic_filter: str) -> None:
    assert topic_matches(topic_filter, DEEP_TOPIC)
    assert not topic_matches(topic_filter, "a" + DEEP_TOPIC[1:-1] + "a") or topic_filter.startswith("+")
    assert covers("#", topic_filter)
    assert covers(topic_filter, topic_filter)
    assert covers(topic_filter, DEEP_TOPIC)
    assert covers(DEEP_TOPIC, topic_filter) is (topic_filter == DEEP_TOPIC)


@pytest.mark.parametrize(
    ("topic_filter", "expected"),
    [
        ("$share/g/a/+", ("g", "a/+")),
        ("$share/g/#", ("g", "#")),
        ("$share/g//", ("g", "/")),
        ("$share/g/$SYS/x", ("g", "$SYS/x")),
        ("$share/consumer1//finance", ("consumer1", "/finance")),
        ("a/b", (None, "a/b")),
        ("$SHARE/g/a", (None, "$SHARE/g/a")),
        ("a/$share/g/b", (None, "a/$share/g/b")),
        # MQTT-4.8.2-1, -2: without group, without filter, with a wildcard in the group
        ("$share", (None, "$share")),
        ("$share/g", (None, "$share/g")),
        ("$share/g/", (None, "$share/g/")),
        ("$share//a", (None, "$share//a")),
        ("$share/+/a", (None, "$share/+/a")),
        ("$share/g#/a", (None, "$share/g#/a")),
    ],
)
def test_split_shared(topic_filter: str, expected: tuple[str | None, str]) -> None:
    assert split_shared(topic_filter) == expected


operations = st.lists(
    st.one_of(
        st.tuples(st.just("add"), filters, keys, st.integers(0, 2)),
        st.tuples(st.just("remove"), filters, keys, st.just(0)),
        st.tuples(st.just("remove_key"), st.just(""), keys, st.just(0)),
    ),
    max_size=40,
)


@given(operations, st.lists(topics, min_size=1, max_size=8))
@example([("add", "a/#", "x", 0), ("add", "a", "x", 2), ("remove", "a", "x", 0)], ["a", "a/a"])
def test_filter_table_agrees_with_a_list_of_entries(
    steps: list[tuple[str, str, str, int]], probes: list[str]
) -> None:
    table: FilterTable[str] = FilterTable()
    model: dict[tuple[str, str], int] = {}
    for name, topic_filter, key, qos in steps:
        before, generation = dict(model), table.generation
        if name == "add":
            model[topic_filter, key] = qos
            assert table.add(topic_filter, key, qos) is (model != before)
        elif name == "remove":
            assert table.remove(topic_filter, key) is (model.pop((topic_filter, key), None) is not None)
        else:
            model = {entry: q for entry, q in model.items() if entry[1] != key}
            assert table.remove_key(key) == len(before) - len(model)
        assert (table.generation > generation) is (model != before)
        assert len(table) == len(model)
        assert {(f, k): q for f, k, q in table} == model
        assert table.filters(key) == {f: q for (f, k), q in model.items() if k == key}
        for topic in probes:
            expected: dict[str, int] = {}
            for (f, k), q in model.items():
                if naive_matches(f, topic):
                    expected[k] = max(q, expected.get(k, 0))
            assert table.match(topic) == expected


@given(st.lists(st.tuples(filters, keys), max_size=30), st.randoms(use_true_random=False))
def test_an_emptied_filter_table_keeps_no_node(entries: list[tuple[str, str]], random: object) -> None:
    table: FilterTable[str] = FilterTable()
    for topic_filter, key in entries:
        table.add(topic_filter, key)
    held = list(table)
    random.shuffle(held)  # type: ignore[attr-defined]
    for topic_filter, key, _ in held:
        assert table.remove(topic_filter, key)
    assert len(table) == 0
    for root in (table._plain, table._dollar):
        assert (root.children, root.exact, root.multi) == (None, None, None)
    assert not table._alone
    assert not table._tails


def test_filters_that_end_alike_share_their_end_until_they_part() -> None:
    table: FilterTable[str] = FilterTable()
    for device in range(50):
        table.add(f"device{device}/state/power", "x", 1)
    assert table._plain.children is not None
    assert len(set(map(id, table._plain.children.values()))) == 1
    table.add("device7/state/power", "y", 2)
    table.add("device8/state", "y", 0)
    table.add("device9/state/#", "y", 0)
    assert table.match("device6/state/power") == {"x": 1}
    assert table.match("device7/state/power") == {"x": 1, "y": 2}
    assert table.match("device8/state") == {"y": 0}
    assert table.match("device8/state/power") == {"x": 1}
    assert table.match("device9/state/power") == {"x": 1, "y": 0}
    assert table.match("device9/state") == {"y": 0}
    table.remove_key("x")
    assert table.match("device7/state/power") == {"y": 2}
    assert table.match("device8/state/power") == {}


@given(st.lists(filters, max_size=12, unique=True), filters)
def test_intersecting_agrees_with_a_list_whatever_the_others_are(held: list[str], asked: str) -> None:
    table: FilterTable[str] = FilterTable()
    for topic_filter in held:
        table.add(topic_filter, topic_filter, 1)
    assert set(table.intersecting(asked)) == {each for each in held if intersects(asked, each)}


def test_filters_is_a_copy() -> None:
    table: FilterTable[str] = FilterTable()
    table.add("a", "x", 1)
    table.filters("x").clear()
    assert table.filters("x") == {"a": 1}
    assert table.filters("unknown") == {}


@pytest.mark.parametrize("qos", [-1, 3, 256])
def test_filter_table_refuses_another_qos(qos: int) -> None:
    table: FilterTable[str] = FilterTable()
    with pytest.raises(ValueError, match="qos must be 0, 1 or 2"):
        table.add("a", "x", qos)
    assert len(table) == table.generation == 0


def test_filter_table_of_maximum_depth() -> None:
    table: FilterTable[str] = FilterTable()
    for topic_filter in DEEP_FILTERS:
        table.add(topic_filter, topic_filter, 1)
    assert table.match(DEEP_TOPIC) == dict.fromkeys(DEEP_FILTERS, 1)
    for topic_filter in DEEP_FILTERS[:2]:
        assert table.remove(topic_filter, topic_filter)
    assert table.match(DEEP_TOPIC) == dict.fromkeys(DEEP_FILTERS[2:], 1)
    # A table that is let go with its deep branches must not exhaust the C stack either.
    del table


def test_intersecting_agrees_with_enumeration_everywhere() -> None:
    for a in FILTERS:
        for b in FILTERS:
            assert intersects(a, b) is bool(matched(a) & matched(b)), (a, b)


def test_the_intersection_of_two_filters_is_one_filter_or_none() -> None:
    for a in FILTERS:
        for b in FILTERS:
            common = intersection(a, b)
            assert (0 if common is None else matched(common)) == matched(a) & matched(b), (a, b)
            assert (common is not None) is intersects(a, b), (a, b)


@pytest.mark.parametrize("topic_filter", DEEP_FILTERS)
def test_the_intersection_of_filters_of_maximum_depth(topic_filter: str) -> None:
    assert intersection(topic_filter, "#") == topic_filter
    assert intersection(topic_filter, topic_filter) == topic_filter


def test_the_table_finds_the_filters_that_intersect() -> None:
    table: FilterTable[str] = FilterTable()
    for topic_filter in FILTERS:
        table.add(topic_filter, topic_filter, 1)
    for asked in FILTERS:
        assert set(table.intersecting(asked)) == {each for each in FILTERS if intersects(asked, each)}, asked


def test_intersecting_filters_answer_with_the_highest_qos() -> None:
    table: FilterTable[str] = FilterTable()
    table.add("a/+", "k", 0)
    table.add("a/b", "k", 2)
    table.add("b/#", "l", 1)
    assert table.intersecting("a/#") == {"k": 2}
    assert table.intersecting("+/c") == {"k": 0, "l": 1}
    assert table.intersecting("c") == {}
