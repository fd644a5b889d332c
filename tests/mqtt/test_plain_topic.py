"""A PUBLISH that can be passed on as it is is recognised by its bytes."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ildm.mqtt import (
    MalformedPacket,
    MqttError,
    Property,
    ProtocolViolation,
    Publish,
    Version,
    decode,
    plain_topic,
)
from tests.mqtt.packet_strategies import packets, publishes


def is_plain(packet: object) -> bool:
    return isinstance(packet, Publish) and not (
        packet.qos == 2 or packet.dup or packet.retain or packet.properties
    )


@settings(deadline=None, max_examples=300)
@given(st.one_of(packets(Version.V5), publishes(Version.V5)))
def test_it_has_the_topic_of_the_packet(packet: Publish) -> None:
    frame = packet.encode(Version.V5)
    assert plain_topic(frame) == (packet.topic.encode() if is_plain(packet) else None)


@pytest.mark.parametrize("size", [122, 123, 124, 16_377, 16_378, 16_379, 70_000])
@pytest.mark.parametrize("qos", [0, 1])
def test_frames_of_any_length(size: int, qos: int) -> None:
    frame = Publish(topic="t", payload=bytes(size), qos=qos, packet_id=1 if qos else None).encode(Version.V5)
    assert plain_topic(frame) == b"t"
    assert plain_topic(frame[:-1]) is None
    assert plain_topic(frame + b"\0") is None


@settings(deadline=None, max_examples=500)
@given(publishes(Version.V5), st.data())
def test_what_is_no_packet_is_not_plain_but_for_its_topic(packet: Publish, data: st.DataObject) -> None:
    """Cut off, or with a byte that is another."""
    frame = packet.encode(Version.V5)
    at = data.draw(st.integers(0, len(frame) - 1))
    changed = data.draw(
        st.sampled_from([frame[:at], frame[:at] + data.draw(st.binary(max_size=3)) + frame[at + 1 :]])
    )
    topic = plain_topic(changed)
    if topic is None:
        return
    with suppress(
        MalformedPacket, ProtocolViolation
    ):  # of its topic, which is all that is left to be checked
        assert is_plain(decode(changed, Version.V5))
    if topic:
        start = changed.index(len(topic).to_bytes(2) + topic, 2) + 2
        legal = changed[:start] + b"t" * len(topic) + changed[start + len(topic) :]
        assert is_plain(decode(legal, Version.V5))


def test_a_remaining_length_that_is_longer_than_needed() -> None:
    frame = b"\x30\x84\0\0\1t\0"
    assert plain_topic(frame) is None
    with pytest.raises(MqttError):
        decode(frame, Version.V5)


def test_properties_and_flags() -> None:
    for changed in (
        {"retain": True},
        {"dup": True, "qos": 1},
        {"qos": 2},
        {"properties": {Property.CONTENT_TYPE: "x"}},
    ):
        packet = Publish(topic="t", packet_id=1 if "qos" in changed else None, **changed)  # type: ignore[arg-type]
        assert plain_topic(packet.encode(Version.V5)) is None
