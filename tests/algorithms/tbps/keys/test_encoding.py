"""Keys of topics and filters (thesis 3.2.1)."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ildm.mqtt import topic_matches
from ildm_algorithms.overlay.keys import EVERYTHING
from ildm_algorithms.tbps.keys.encoding import (
    MAX_PATH,
    KeyFormatError,
    Role,
    Segment,
    default_key,
    key_text,
    literal_prefix,
    parse_key,
    prefixes_above,
    publisher_ranges,
    segment_of_filter,
    segments_of_topic,
    topics_below,
)

LEVEL = st.text(st.sampled_from("\x01\x02\x03ab-\u00e9\uffff"), max_size=3)
TOPIC = st.lists(LEVEL, min_size=1, max_size=4).map("/".join).filter(bool)
FILTER = (
    st.lists(LEVEL | st.just("+"), min_size=1, max_size=4)
    .flatmap(lambda levels: st.sampled_from([levels, [*levels, "#"], ["#"]]))
    .map("/".join)
    .filter(bool)
)


@given(TOPIC, TOPIC, st.text("ab", max_size=2), st.text("ab", max_size=2))
@example("a/b", "a-b", "", "")
@example("a", "a\x01", "", "")
def test_keys_are_ordered_as_tuples_of_levels_are(a: str, b: str, x: str, y: str) -> None:
    def levels(topic: str) -> list[bytes]:
        return [level.encode() for level in topic.split("/")]

    one, two = Segment.exact(a).subscriber_key(x), Segment.exact(b).subscriber_key(y)
    assert (one < two) == ((levels(a), x.encode()) < (levels(b), y.encode()))


@given(TOPIC, st.lists(LEVEL, max_size=3), st.text(st.characters(exclude_categories=["Cs"]), max_size=5))
def test_a_key_can_be_read(topic: str, locality: list[str], node_id: str) -> None:
    segment = Segment.exact(topic)
    for role, key in (
        (Role.SUBSCRIBER, segment.subscriber_key(node_id, locality)),
        (Role.PUBLISHER, segment.publisher_key(node_id, locality)),
    ):
        assert parse_key(key) == (role, segment, tuple(locality), node_id)
        assert key in segment.members
        assert (key in segment.subscribers) == (role is Role.SUBSCRIBER)
        assert (key in segment.publishers) == (role is Role.PUBLISHER)
        assert key in EVERYTHING
    assert segment.levels == tuple(topic.split("/"))
    below = Segment.aggregate(topic.split("/"))
    key = below.publisher_key(node_id, locality)
    assert parse_key(key) == (Role.AGGREGATE, below, tuple(locality), node_id)
    assert below.levels == segment.levels
    assert parse_key(default_key(node_id)) == (Role.DEFAULT, None, (), node_id)
    assert default_key(node_id) in EVERYTHING


@given(FILTER, TOPIC)
@example("#", "/")
@example("+", "a")
@example("a/#", "a")
@example("/+", "/a")
def test_a_publisher_looks_where_matching_subscribers_are(topic_filter: str, topic: str) -> None:
    if topic_matches(topic_filter, topic):
        assert segment_of_filter(topic_filter) in segments_of_topic(topic)
        levels, wildcard = literal_prefix(topic_filter)
        if wildcard:
            assert Segment.exact(topic).publisher_key("n") in topics_below(levels)


@given(TOPIC, TOPIC, st.integers(0, 4), st.text("ab", max_size=2))
@example("a/b", "a\x02", 1, "")
@example("a", "a/\x02", 1, "")
def test_an_aggregate_is_behind_all_topics_below_its_prefix(
    topic: str, other: str, depth: int, node_id: str
) -> None:
    prefix = topic.split("/")[:depth]
    key = Segment.aggregate(prefix).publisher_key(node_id)
    for name in (topic, other):
        for segment in segments_of_topic(name):
            below = len(segment.levels) >= len(prefix) and list(segment.levels[: len(prefix)]) == prefix
            for one in (segment.subscriber_key("n"), segment.publisher_key("n")):
                assert (one in topics_below(prefix)) == below
                assert one < key or not below
    assert key not in topics_below(prefix)


@given(FILTER, TOPIC, st.integers(0, 4))
@example("#", "a", 0)
@example("a/#", "a", 0)
@example("a/#", "a/b", 1)
def test_publishers_of_what_a_filter_matches_are_in_its_ranges(
    topic_filter: str, topic: str, depth: int
) -> None:
    """An own key, and any aggregate the topic is below."""
    if not topic_matches(topic_filter, topic):
        return
    prefix = topic.split("/")[:-1][:depth]
    ranges = publisher_ranges(topic_filter)
    for segment in (Segment.exact(topic), Segment.aggregate(prefix)):
        assert sum(segment.publisher_key("n") in part for part in ranges) == 1


def test_ranges_of_publishers() -> None:
    assert [segment.text for segment in prefixes_above("a/b/c")] == ["a/b/#", "a/#", "#"]
    assert [segment.text for segment in prefixes_above("a/b/#")] == ["a/b/#", "a/#", "#"]
    assert [segment.text for segment in prefixes_above("a")] == ["#"]
    assert len(publisher_ranges("#")) == 1
    assert Segment.exact("a/b").publisher_key("n") in publisher_ranges("a/+")[0]
    wide = "w" * 60_000
    assert len(publisher_ranges(f"x/{wide}/y")) == 3


def test_order_inside_and_between_segments() -> None:
    keys = [
        Segment.wildcard([]).subscriber_key("n"),
        Segment.exact("a").subscriber_key("n1"),
        Segment.exact("a").subscriber_key("n2"),
        Segment.exact("a").publisher_key("n1"),
        Segment.wildcard(["a"]).subscriber_key("n9"),
        Segment.wildcard(["a"]).publisher_key("n1"),
        Segment.exact("a/").subscriber_key("n1"),
        Segment.exact("a/b").subscriber_key("n1"),
        Segment.aggregate(["a", "b"]).publisher_key("n1"),
        Segment.aggregate(["a"]).publisher_key("n1"),
        Segment.exact("a-b").subscriber_key("n1"),
        Segment.aggregate([]).publisher_key("n1"),
        default_key("n1"),
    ]
    assert keys == sorted(keys)


def test_empty_levels_are_levels() -> None:
    topics = ["a", "a/", "/a", "/", "//", "a//b", "a/b"]
    assert len({Segment.exact(topic) for topic in topics}) == len(topics)
    assert Segment.wildcard([]) != Segment.wildcard([""])
    assert [segment.text for segment in segments_of_topic("/a")] == ["/a", "/a/#", "/#", "#"]


@pytest.mark.parametrize(
    ("topic_filter", "text"),
    [("abc", "abc"), ("abc/#", "abc/#"), ("a/+/b", "a/#"), ("+/b", "#"), ("#", "#"), ("/+", "/#")],
)
def test_segment_of_filter(topic_filter: str, text: str) -> None:
    assert segment_of_filter(topic_filter).text == text


def test_long_topics_and_prefixes_have_short_keys() -> None:
    many = "/".join(["a"] * 60_000)
    assert len(segments_of_topic(many)) == 34
    assert all(len(segment.code) < MAX_PATH + 64 for segment in segments_of_topic(many))
    assert segment_of_filter(f"{many}/#") in segments_of_topic(many)
    wide = "w" * 60_000
    assert len(Segment.exact(wide).code) < MAX_PATH + 64
    assert Segment.exact(wide) != Segment.exact(wide[:-1])
    assert segment_of_filter(f"x/{wide}/#") in segments_of_topic(f"x/{wide}/y")
    assert Segment.exact(f"x/{wide}/y").publisher_key("n") in topics_below(("x", wide))
    assert parse_key(Segment.exact(wide).publisher_key("n")).node_id == "n"


def test_texts() -> None:
    assert key_text(Segment.exact("a/b").subscriber_key("n1")) == "a/b subscriber n1"
    assert key_text(Segment.wildcard(["a"]).publisher_key("n2", ["eu", "x"])) == "a/# publisher eu/x n2"
    assert key_text(Segment.aggregate(["a"]).publisher_key("n2")) == "a/# aggregate n2"
    assert key_text(default_key("n3")) == "default n3"
    assert key_text(b"\x05") == "05"


@given(st.binary(max_size=12))
@example(b"\x01\x02\x00\x00\x00\x00n")
@example(b"\x01\xfe\x00\x00\x00\x00n")
@example(b"\xff\xfe")
@example(b"\x00\x02\x00\x00")
@example(b"\x01a\x02\x01\x00n")
@example(b"\x01a\x02\x00n")
@example(b"\x01a\x02")
def test_any_bytes_are_a_key_or_refused(data: bytes) -> None:
    try:
        key = parse_key(data)
    except KeyFormatError:
        return
    if key.segment is None:
        assert default_key(key.node_id) == data
    else:
        make = key.segment.subscriber_key if key.role is Role.SUBSCRIBER else key.segment.publisher_key
        assert make(key.node_id, key.locality) == data
