"""Keys of topics and filters (thesis 3.2.1)."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from algorithms.overlay.keys import EVERYTHING
from algorithms.tbps.keys import (
    MAX_PATH,
    KeyFormatError,
    Role,
    Segment,
    default_key,
    key_text,
    literal_prefix,
    parse_key,
    segment_of_filter,
    segments_of_topic,
    topics_below,
)
from ildm.mqtt import topic_matches

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
        Segment.exact("a-b").subscriber_key("n1"),
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
    assert key_text(default_key("n3")) == "default n3"
    assert key_text(b"\x05") == "05"


@given(st.binary(max_size=12))
@example(b"\x01\x02\x00\x00\x00\x00n")
@example(b"\x01\xfe\x00\x00\x00\x00n")
@example(b"\xff\xfe")
@example(b"\x00\x02\x00\x00")
def test_any_bytes_are_a_key_or_refused(data: bytes) -> None:
    try:
        key = parse_key(data)
    except KeyFormatError:
        return
    if key.segment is None:
        assert default_key(key.node_id) == data
    else:
        make = key.segment.publisher_key if key.role is Role.PUBLISHER else key.segment.subscriber_key
        assert make(key.node_id, key.locality) == data
