"""Topic names and topic filters that are valid, and those that are not (MQTT 5, 4.7 and 4.8.2)."""

from __future__ import annotations

import pytest

from ildm.mqtt import MalformedPacket, ReasonCode, validate_topic_filter, validate_topic_name

LONGEST = "a" * 65_535
GOOD_NAMES = [
    "a",
    "/",
    "//",
    " ",
    "a/b",
    "/a/",
    "$SYS/x",
    "$share/x",
    "é/\ufeff/\U0001f600",
    LONGEST,
    "/" * 65_535,
]


@pytest.mark.parametrize("topic", GOOD_NAMES, ids=ascii)
def test_valid_names_are_valid_filters_too(topic: str) -> None:
    validate_topic_name(topic)
    validate_topic_filter(topic, shared=False)


@pytest.mark.parametrize(
    ("topic", "clause"),
    [
        ("", "MQTT-4.7.3-1"),
        ("+", "MQTT-3.3.2-2"),
        ("a/#", "MQTT-3.3.2-2"),
        ("a+b", "MQTT-3.3.2-2"),
        ("a\0", "MQTT-4.7.3-2"),
        ("a\udc80", "MQTT-1.5.4-1"),
        (LONGEST + "a", "MQTT-4.7.3-3"),
        ("é" * 32_768, "MQTT-4.7.3-3"),
    ],
    ids=ascii,
)
def test_invalid_names(topic: str, clause: str) -> None:
    with pytest.raises(MalformedPacket) as caught:
        validate_topic_name(topic)
    assert caught.value.clause == clause
    assert caught.value.reason is ReasonCode.MALFORMED_PACKET


@pytest.mark.parametrize(
    "filter",
    ["#", "+", "/#", "+/#", "+/+", "/+", "a/+/b/#", "$share/g/#", "$share/g//", "$share", "$shared/x", "é/+",
     "/" * 65_534 + "#", "+/" * 32_767 + "+"],
    ids=ascii,
)  # fmt: skip
def test_valid_filters(filter: str) -> None:
    validate_topic_filter(filter)


@pytest.mark.parametrize(
    ("filter", "clause"),
    [
        ("", "MQTT-4.7.3-1"),
        ("##", "MQTT-4.7.1-1"),
        ("#/a", "MQTT-4.7.1-1"),
        ("a#", "MQTT-4.7.1-1"),
        ("a/#/", "MQTT-4.7.1-1"),
        ("+#", "MQTT-4.7.1-1"),
        ("a/b+", "MQTT-4.7.1-2"),
        ("++", "MQTT-4.7.1-2"),
        ("a/+b/#", "MQTT-4.7.1-2"),
        ("$share/", "MQTT-4.8.2-1"),
        ("$share//a", "MQTT-4.8.2-1"),
        ("$share/g", "MQTT-4.8.2-2"),
        ("$share/g/", "MQTT-4.8.2-2"),
        ("$share/#/a", "MQTT-4.8.2-2"),
        ("$share/g+/a", "MQTT-4.8.2-2"),
        ("$share/g/a#", "MQTT-4.7.1-1"),
        ("a\0", "MQTT-4.7.3-2"),
        ("a\ud800", "MQTT-1.5.4-1"),
        (LONGEST + "a", "MQTT-4.7.3-3"),
    ],
    ids=ascii,
)
def test_invalid_filters(filter: str, clause: str) -> None:
    with pytest.raises(MalformedPacket) as caught:
        validate_topic_filter(filter)
    assert caught.value.clause == clause
    assert caught.value.reason is ReasonCode.MALFORMED_PACKET


@pytest.mark.parametrize("filter", ["$share/", "$share/g", "$share/+/a", "$share//a"])
def test_before_5_share_is_a_level_like_any_other(filter: str) -> None:
    validate_topic_filter(filter, shared=False)
    with pytest.raises(MalformedPacket):
        validate_topic_filter(filter)
