"""What local clients want of the messages that come."""

from __future__ import annotations

from collections import Counter

import pytest

from ildm.mqtt import FilterTable, IldmError, PingReq, Property, Publish, Version
from ildm_algorithms.tbps.topic_interest import LONGEST, TopicInterests


def frame(topic: str, qos: int = 0, **more: object) -> bytes:
    message = Publish(topic=topic, payload=b"x", qos=qos, packet_id=1 if qos else None, **more)  # type: ignore[arg-type]
    return message.encode(Version.V5)


@pytest.fixture
def interest() -> FilterTable[None]:
    return FilterTable()


@pytest.fixture
def counted() -> Counter[str]:
    return Counter()


@pytest.fixture
def interests(interest: FilterTable[None], counted: Counter[str]) -> TopicInterests:
    return TopicInterests(interest, 3, lambda name: counted.update([name]))


def test_interests_are_those_of_the_filters_at_the_time(
    interest: FilterTable[None], interests: TopicInterests
) -> None:
    for _ in range(2):
        assert interests.of(frame("a/b")) == ("a/b", None)
    interest.add("a/+", None, 0)
    for _ in range(2):
        assert interests.of(frame("a/b")) == ("a/b", 0)
        assert interests.of(frame("a/b", qos=1)) is None  # its QoS is to be lowered
    interest.add("a/#", None, 2)
    assert interests.of(frame("a/b", qos=1)) == ("a/b", 2)
    interest.remove("a/+", None)
    interest.remove("a/#", None)
    assert interests.of(frame("a/b", qos=1)) == ("a/b", None)


@pytest.mark.parametrize(
    "other",
    [
        frame("a", qos=2),
        frame("a", retain=True),
        frame("a", properties={Property.CONTENT_TYPE: "text"}),
        PingReq().encode(Version.V5),
        b"",
    ],
)
def test_what_is_not_plain_is_left_to_be_read(
    interest: FilterTable[None], interests: TopicInterests, other: bytes
) -> None:
    interest.add("#", None, 2)
    assert interests.of(other) is None
    assert len(interests) == 0


def test_a_topic_that_is_none_is_an_error_each_time(interests: TopicInterests) -> None:
    for topic in (b"", b"a/#", b"\xff"):
        wrong = bytes((0x30, 3 + len(topic), 0, len(topic))) + topic + b"\0"
        for _ in range(2):
            with pytest.raises(IldmError):
                interests.of(wrong)
    assert len(interests) == 0


def test_what_is_remembered_is_bounded(
    interest: FilterTable[None], interests: TopicInterests, counted: Counter[str]
) -> None:
    interest.add("#", None, 1)
    for topic in "abcdeab":
        assert interests.of(frame(topic)) == (topic, 1)
    assert len(interests) == 3
    assert counted == {"wishes_displaced": 4}
    long = "t" * (LONGEST + 1)
    assert interests.of(frame(long)) == (long, 1)
    assert len(interests) == 3
