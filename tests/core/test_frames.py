"""Runs of frames and the header scanner, against the plain framer."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ildm.core.frames import HeaderScanner, frames_to_v311, has_payload, publish_run, run_to_v5
from ildm.core.local.actions import broker_wanted
from ildm.mqtt import (
    Framer,
    MalformedPacket,
    PacketType,
    PingResp,
    Property,
    PubAck,
    Publish,
    SubAck,
    Version,
    decode,
    decode_varint,
)

PUBLISHES = st.builds(
    Publish,
    topic=st.sampled_from(["a", "a/b", "topic/long/enough/to/matter" * 6]),
    payload=st.sampled_from([b"", b"x", b"y" * 32, b"0" * 200, b"z" * 20000]),
)


@st.composite
def repeated(draw: st.DrawFn) -> list[Publish]:
    """Messages in runs, as a publisher sends them."""
    out: list[Publish] = []
    for message, times in draw(st.lists(st.tuples(PUBLISHES, st.integers(1, 30)), max_size=6)):
        out.extend([message] * times)
    return out


def split(data: bytes, properties: bool) -> list[tuple[bytes, int]]:
    """Topics and sizes of all frames, taken apart run by run."""
    out: list[tuple[bytes, int]] = []
    pos = 0
    while pos < len(data):
        length = decode_varint(data, pos + 1)
        assert length is not None
        run = publish_run(data, pos, length[1], length[1] + length[0], properties)
        assert run is not None
        end, size, topic, _ = run
        out.extend([(topic, size)] * ((end - pos) // size))
        pos = end
    return out


@settings(deadline=None)
@given(repeated(), st.sampled_from([Version.V311, Version.V5]))
def test_runs_are_the_frames(messages: list[Publish], version: Version) -> None:
    data = b"".join(m.encode(version) for m in messages)
    expected = [(m.topic.encode(), len(m.encode(version))) for m in messages]
    assert split(data, version is Version.V5) == expected


@settings(deadline=None)
@given(repeated())
def test_conversion_between_versions_keeps_every_message(messages: list[Publish]) -> None:
    data = b"".join(m.encode(Version.V311) for m in messages)
    pos = 0
    there: list[Publish] = []
    back = b""
    while pos < len(data):
        length = decode_varint(data, pos + 1)
        assert length is not None
        run = publish_run(data, pos, length[1], length[1] + length[0], False)
        assert run is not None
        frames, size = run_to_v5(data, pos, length[1], run)
        assert len(frames) == size * ((run[0] - pos) // run[1])
        there.extend(decode(frame, Version.V5) for frame in Framer().feed(frames))  # type: ignore[misc]
        back += frames_to_v311(frames, size)
        pos = run[0]
    assert there == messages
    assert back == data


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_long_runs_whose_payloads_contain_the_head_of_a_frame(version: Version) -> None:
    """The quick conversion of a long run must see through payloads that look like frames."""
    plain = Publish(topic="a/0", payload=b"." * 40)
    head = plain.encode(version)[:7]
    tricks = [head + b"." * 33, b"." * 33 + head, b"." * 36 + b"0" * 4, head[:1] * 40, b"." * 40]
    messages = [Publish(topic="a/0", payload=tricks[i % len(tricks)]) for i in range(200)]
    data = b"".join(message.encode(version) for message in messages)
    size = len(data) // len(messages)
    if version is Version.V5:
        converted = frames_to_v311(data, size)
        there = [decode(frame, Version.V311) for frame in Framer().feed(converted)]
    else:
        run = publish_run(data, 0, 2, size, False)
        assert run is not None
        converted, new_size = run_to_v5(data, 0, 2, run)
        assert len(converted) == new_size * len(messages)
        there = [decode(frame, Version.V5) for frame in Framer().feed(converted)]
    assert there == messages


def test_a_frame_with_properties_is_no_run() -> None:
    frame = Publish(topic="t", payload=b"x", properties={Property.CONTENT_TYPE: "text"}).encode(Version.V5)
    assert publish_run(frame, 0, 2, len(frame), True) is None


@pytest.mark.parametrize("frame", [b"\x30\x00", b"\x30\x01\x00", b"\x30\x03\x00\x05a"])
def test_a_publish_shorter_than_its_topic(frame: bytes) -> None:
    with pytest.raises(MalformedPacket) as error:
        publish_run(frame, 0, 2, len(frame), False)
    assert error.value.clause == "MQTT-3.3.2-1"


def test_an_incomplete_last_frame_is_not_part_of_the_run() -> None:
    frame = Publish(topic="t", payload=b"x" * 10).encode(Version.V311)
    run = publish_run(frame * 3 + frame[:-1], 0, 2, len(frame), False)
    assert run is not None
    assert run[0] == 3 * len(frame)


PACKETS = st.one_of(
    PUBLISHES,
    st.builds(SubAck, packet_id=st.integers(1, 9), reason_codes=st.just([0, 1])),
    st.just(PingResp()),
    st.builds(PubAck, packet_id=st.integers(1, 9)),
)


@settings(deadline=None)
@given(st.lists(PACKETS, max_size=20), st.lists(st.integers(1, 60), min_size=1, max_size=20))
def test_the_scanner_finds_what_is_wanted_however_the_stream_is_cut(
    packets: list[Publish], cuts: list[int]
) -> None:
    data = b"".join(p.encode(Version.V311) for p in packets)
    scanner = HeaderScanner(broker_wanted(frozenset({PacketType.PUBACK})), 1 << 20)
    found: list[bytes] = []
    pos = turn = 0
    while pos < len(data):
        step = cuts[turn % len(cuts)]
        found += scanner.feed(data[pos : pos + step])
        pos += step
        turn += 1
    expected = [p.encode(Version.V311) for p in packets if isinstance(p, SubAck | PubAck)]
    assert found == expected
    assert scanner.publishes == sum(isinstance(p, Publish) for p in packets)
    assert HeaderScanner(broker_wanted(frozenset({PacketType.PUBACK})), 1 << 20).feed(data) == expected


def test_the_scanner_does_not_hold_more_than_its_limit() -> None:
    big = SubAck(packet_id=1, reason_codes=[0] * 500).encode(Version.V311)
    scanner = HeaderScanner(broker_wanted(frozenset()), 100)
    assert scanner.feed(big[:50]) == []
    assert scanner.feed(big[50:] + PingResp().encode(Version.V311)) == []
    small = SubAck(packet_id=1, reason_codes=[0]).encode(Version.V311)
    assert scanner.feed(small) == [small]


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_headers_of_long_runs_are_counted_as_one_by_one(cut: int) -> None:
    """Runs of several lengths of frame after each other, cut anywhere."""
    messages = [Publish(topic="a", payload=b"x" * (10 + i // 12)) for i in range(60)]
    acknowledgement = PubAck(packet_id=7).encode(Version.V311)
    data = b"".join(message.encode(Version.V311) for message in messages) + acknowledgement
    scanner = HeaderScanner(broker_wanted(frozenset({PacketType.PUBACK})), 1 << 20)
    found = [*scanner.feed(data[:cut]), *scanner.feed(data[cut:])]
    assert found == [acknowledgement]
    assert scanner.publishes == len(messages)
    assert scanner.between_frames


@given(
    st.integers(0, 2),
    st.sampled_from(["t", "topic/long/enough/to/matter" * 6]),
    st.sampled_from([b"", b"x", b"0" * 200]),
    st.sampled_from([0, 1, 120, 200, 20_000]),
)
def test_whether_there_is_a_payload(qos: int, topic: str, payload: bytes, size: int) -> None:
    properties: dict[int, object] = {Property.CONTENT_TYPE: "c" * size} if size else {}
    message = Publish(
        topic=topic, payload=payload, qos=qos, packet_id=1 if qos else None, properties=dict(properties)
    )
    assert has_payload(message.encode(Version.V5)) is bool(payload)
