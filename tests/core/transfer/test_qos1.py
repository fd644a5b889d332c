"""Runs of QoS 1 and chunks of acknowledgements, against packets taken apart one by one."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ildm.core.frames import (
    DUP,
    PUBLISH_QOS_1,
    Run,
    frames_to_qos_0,
    frames_to_v311,
    id_offset,
    know_properties,
    packet_ids,
    publish_run,
    run_to_v5,
    with_ids,
)
from ildm.core.local.actions import Action, client_actions
from ildm.core.transfer.ack_runs import acknowledged_ids
from ildm.core.transfer.batch import Batch
from ildm.core.transfer.inbound import Inbound
from ildm.core.transfer.window import consecutive
from ildm.mqtt import (
    Framer,
    MalformedPacket,
    PacketType,
    PingResp,
    Properties,
    Property,
    ProtocolViolation,
    PubAck,
    Publish,
    PubRec,
    Version,
    decode,
    decode_varint,
)
from tests.support.senders import message_of

VERSIONS = st.sampled_from([Version.V311, Version.V5])
IDS = st.one_of(st.integers(1, 300), st.integers(65_000, 65_535))
PAYLOADS = st.sampled_from([b"", b"x", b"y" * 40, b"z" * 130, b"\0" * 9, b"2" * 200, b"2\x08\0\x01a\0\0\0"])
TOPICS = st.sampled_from(["a", "a/b", "2", "topic/" * 30])


def packets(data: bytes, version: Version) -> list[object]:
    return [decode(frame, version) for frame in Framer().feed(data)]


def first_run(data: bytes, version: Version, pos: int = 0) -> Run | None:
    length = decode_varint(data, pos + 1)
    assert length is not None
    return publish_run(data, pos, length[1], length[1] + length[0], version is Version.V5)


@st.composite
def published(draw: st.DrawFn) -> list[Publish]:
    """Messages of QoS 0 and 1, mostly in runs, some with properties."""
    out: list[Publish] = []
    for _ in range(draw(st.integers(0, 5))):
        topic, qos = draw(TOPICS), draw(st.integers(0, 1))
        for _ in range(draw(st.integers(1, 12))):
            properties = {Property.CONTENT_TYPE: "x"} if draw(st.integers(0, 9)) == 0 else {}
            packet_id = draw(IDS) if qos else None
            payload = draw(PAYLOADS)
            message = Publish(
                topic=topic, payload=payload, qos=qos, packet_id=packet_id, properties=properties
            )
            out.extend([message] * draw(st.integers(1, 3)))
    return out


@settings(deadline=None)
@given(published(), VERSIONS)
def test_runs_are_the_messages_and_end_before_others(messages: list[Publish], version: Version) -> None:
    if version is not Version.V5:
        for message in messages:
            message.properties = {}
    data = b"".join(message.encode(version) for message in messages)
    found: list[Publish] = []
    pos = 0
    while pos < len(data):
        run = first_run(data, version, pos)
        if run is None:
            frame = Framer().feed(data[pos:])[0]
            packet = decode(frame, version)
            assert isinstance(packet, Publish)
            assert packet.properties
            found.append(packet)
            pos += len(frame)
            continue
        end, size, topic, offset = run
        members = packets(data[pos:end], version)
        assert len(members) == (end - pos) // size
        for member in members:
            assert isinstance(member, Publish)
            assert member.topic.encode() == topic
            assert not member.properties or len(members) == 1  # they are known from another test
            found.append(member)
        if data[pos] == 0x32:
            assert offset == id_offset(data[pos:end])
        pos = end
    assert found == messages


@settings(deadline=None)
@given(
    TOPICS,
    st.integers(1, 200),
    st.lists(PAYLOADS, min_size=1, max_size=4),
    st.integers(1, 300),
    st.booleans(),
)
def test_conversions_keep_the_messages_and_number_them_anew(
    topic: str, count: int, payloads: list[bytes], first_id: int, dup: bool
) -> None:
    longest = max(len(payload) for payload in payloads)
    same = [payload.ljust(longest, b"\0") for payload in payloads]
    messages = [
        Publish(topic=topic, payload=same[i % len(same)], qos=1, packet_id=65_535 - 7 * i)
        for i in range(count)
    ]
    data = b"".join(message.encode(Version.V311) for message in messages)
    run = first_run(data, Version.V311)
    assert run is not None
    assert run[0] == len(data)
    length = decode_varint(data, 1)
    assert length is not None
    frames, size = run_to_v5(data, 0, length[1], run)
    assert len(frames) == size * count
    there = with_ids(frames, size, id_offset(frames), first_id, PUBLISH_QOS_1 | DUP if dup else 0)
    expected = [
        Publish(topic=topic, payload=message.payload, qos=1, packet_id=first_id + i, dup=dup)
        for i, message in enumerate(messages)
    ]
    assert packets(there, Version.V5) == expected
    back = frames_to_v311(there if not dup else frames, size)
    back = with_ids(back, len(back) // count, id_offset(back), first_id, PUBLISH_QOS_1 | DUP if dup else 0)
    assert packets(back, Version.V311) == expected
    plain, plain_size = frames_to_qos_0(frames, size)
    assert len(plain) == plain_size * count
    assert packets(plain, Version.V5) == [Publish(topic=topic, payload=m.payload) for m in messages]


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
@pytest.mark.parametrize("bad", [0, 3, 9])
def test_an_identifier_of_0_is_left_to_the_decoder(version: Version, bad: int) -> None:
    frames = [
        bytearray(Publish(topic="t", payload=b"x", qos=1, packet_id=256 * (i + 1)).encode(version))
        for i in range(10)
    ]
    offset = id_offset(bytes(frames[0]))
    frames[bad][offset : offset + 2] = b"\0\0"
    data = b"".join(frames)
    run = first_run(data, version)
    assert (run[0] if run else 0) == bad * len(frames[0])
    with pytest.raises(ProtocolViolation):
        decode(bytes(frames[bad]), version)


@pytest.mark.parametrize(
    ("payload", "length"), [(119, 1), (120, 2), (16_375, 2), (16_376, 3), (2_097_144, 4)]
)
def test_where_the_identifier_is_behind_remaining_lengths_of_every_size(payload: int, length: int) -> None:
    frame = Publish(topic="a/b", payload=bytes(payload), qos=1, packet_id=0x1234).encode(Version.V5)
    offset = id_offset(frame)
    assert offset == 1 + length + 2 + len("a/b")
    assert frame[offset : offset + 2] == b"\x12\x34"


@pytest.mark.parametrize("frame", [b"\x32\x03\x00\x01a", b"\x32\x04\x00\x01a\x00", b"\x32\x03\x00\x05a"])
@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_a_publish_of_qos_1_cut_short(frame: bytes, version: Version) -> None:
    with pytest.raises(MalformedPacket):
        first_run(frame, version)


def test_a_publish_of_mqtt_5_that_ends_with_its_identifier() -> None:
    with pytest.raises(MalformedPacket):
        first_run(b"\x32\x05\x00\x01a\x00\x07", Version.V5)


def test_only_a_plain_publish_of_qos_1_is_taken_in_runs() -> None:
    table = client_actions(Version.V311, routing=True, looked_at=frozenset())
    assert [first for first in range(0x30, 0x40) if table[first] == Action.RUN] == [0x30, 0x32]
    looked_at = frozenset({PacketType.PUBLISH})
    assert Action.RUN not in client_actions(Version.V311, routing=True, looked_at=looked_at)


# acknowledgements -----------------------------------------------------------------------------


ANSWERS = st.one_of(
    st.builds(PubAck, packet_id=IDS),
    st.builds(PubAck, packet_id=IDS, reason_code=st.sampled_from([0x10, 0x87])),
    st.builds(PubAck, packet_id=IDS, properties=st.just({Property.REASON_STRING: "x"})),
    st.builds(PubRec, packet_id=IDS),
    st.just(PingResp()),
)


@settings(deadline=None)
@given(st.lists(st.tuples(ANSWERS, st.integers(1, 9)), max_size=8))
def test_chunks_of_acknowledgements_are_the_packets(answers: list[tuple[PubAck, int]]) -> None:
    expected = [packet for packet, times in answers for _ in range(times)]
    data = b"".join(packet.encode(Version.V5) for packet in expected)
    found: list[object] = []
    pos = 0
    while pos < len(data):
        ids, end = acknowledged_ids(data, pos, Version.V5)
        for frame in Framer().feed(data[pos : end if ids else len(data)])[: None if ids else 1]:
            packet = decode(frame, Version.V5)
            if ids:
                assert isinstance(packet, PubAck)
                assert packet.reason_code < 0x80
                assert packet.properties == {}
            else:
                end = pos + len(frame)
                assert not (
                    isinstance(packet, PubAck) and packet.reason_code < 0x80 and not packet.properties
                )
            found.append(packet)
        if ids:
            assert list(ids) == [packet.packet_id for packet in found[-len(ids) :]]  # type: ignore[attr-defined]
        pos = end
    assert found == expected


@pytest.mark.parametrize(
    ("data", "version"),
    [
        (b"\x40\x02\x00\x00", Version.V5),  # no identifier
        (b"\x40\x02\x00\x01\x40\x02\x00\x00", Version.V5),
        (b"\x40\x02\x00", Version.V5),  # incomplete
        (b"\x40\x03\x00\x01", Version.V5),
        (b"\x40\x03\x00\x01\x10", Version.V311),  # a reason code in 3.1.1
        (b"\x40\x04\x00\x01\x10\x05", Version.V5),  # properties that are not there
        (b"\x40\x03\x00\x01\x05", Version.V5),  # an unknown reason
        (b"\x50\x02\x00\x01", Version.V5),
        (b"", Version.V5),
    ],
)
def test_what_is_no_plain_acknowledgement_is_left_to_the_decoder(data: bytes, version: Version) -> None:
    assert acknowledged_ids(data, 0, version) == ((), 0)


@given(st.lists(IDS, min_size=1, max_size=60), st.booleans())
def test_identifiers_from_their_bytes(ids: list[int], ascending: bool) -> None:
    if ascending:
        ids = list(range(ids[0], min(ids[0] + len(ids), 65_536)))
    data = struct.pack(f">{len(ids)}H", *ids)
    assert list(packet_ids(data[::2], data[1::2])) == ids


@given(st.sets(IDS, min_size=1))
def test_stretches_of_identifiers(ids: set[int]) -> None:
    stretches = list(consecutive(sorted(ids)))
    assert [first + i for first, count in stretches for i in range(count)] == sorted(ids)
    assert all(first + count not in ids for first, count in stretches)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 30)), max_size=12), st.integers(1, 40))
def test_runs_are_remembered_as_their_messages_would_be(runs: list[tuple[int, int]], limit: int) -> None:
    written: list[bytes] = []
    together_written: list[bytes] = []
    single = Inbound(limit + 30, 1 << 30, written.append)
    together = Inbound(limit + 30, 1 << 30, together_written.append)
    for first_id, count in runs:
        messages = [Publish(topic="t", payload=b"x", qos=1, packet_id=first_id + i) for i in range(count)]
        frames = b"".join(message.encode(Version.V5) for message in messages)
        batch = Batch(frames, count, len(frames) // count)
        assert all(single.take(batch.part(i, 1)) for i in range(count))
        assert together.take(batch)
        assert (single.unacknowledged, single.unacknowledged_bytes) == (count, len(frames))
        assert (together.unacknowledged, together.unacknowledged_bytes) == (count, len(frames))
        for i in range(count):
            single.settle(batch.part(i, 1))
        together.settle(batch)
        assert (single.unacknowledged_bytes, together.unacknowledged_bytes) == (0, 0)
        assert b"".join(together_written) == b"".join(written)
    for packet_id in range(1, 100):
        message = message_of(packet_id)
        repeated = not single.take(message, True)
        assert together.take(message, True) == (not repeated)
        if not repeated:
            single.settle(message)
            together.settle(message)


def test_answers_to_a_run() -> None:
    frames = b"".join(Publish(topic="t", qos=1, packet_id=i).encode(Version.V5) for i in (255, 256, 7))
    ids, answers = Batch(frames, 3, len(frames) // 3).acknowledgements(1)
    assert list(ids) == [255, 256, 7]
    assert answers == b"\x40\x02\x00\xff\x40\x02\x01\x00\x40\x02\x00\x07"


def test_a_frame_with_known_properties_is_a_run_of_its_own() -> None:
    users: Properties = {Property.USER_PROPERTY: [("unit", "mV")], Property.CONTENT_TYPE: "text/plain"}
    frames = [
        Publish(topic="t", payload=b"x", qos=qos, packet_id=7 if qos else None, properties=users)
        for qos in (0, 1, 2)
    ]
    for message in frames:
        frame = message.encode(Version.V5)
        assert publish_run(frame * 2, 0, 2, len(frame), True) is None
    know_properties(frames[1].encode(Version.V5))
    for message in frames:
        frame = message.encode(Version.V5)
        assert publish_run(frame * 2, 0, 2, len(frame), True) == (len(frame), len(frame), b"t", 5)
    other = replace(frames[0], properties=users | {Property.MESSAGE_EXPIRY_INTERVAL: 1}).encode(Version.V5)
    assert publish_run(other, 0, 2, len(other), True) is None
    cut = frames[0].encode(Version.V5)[:-9]  # its properties are said to go on behind its end
    assert publish_run(cut, 0, 2, len(cut), True) is None
