"""A batch against the same messages one by one."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ildm.core.frames import frames_to_v311, frames_topic, id_offset, publish_run, run_to_v5
from ildm.core.transfer.batch import Batch, batch_of, single
from ildm.core.transfer.queue import Entry
from ildm.mqtt import (
    MalformedPacket,
    Properties,
    Property,
    PubAck,
    Publish,
    PubRec,
    Version,
    decode,
    frame_bounds,
)

SIZES = st.sampled_from([0, 1, 2, 119, 120, 121, 122, 123, 300])
"""Payloads on both sides of where a frame gets a longer header."""
MESSAGES = st.lists(st.tuples(st.sampled_from(["t", "u", "u/v", "x" * 130]), SIZES), min_size=1, max_size=12)
IDS = st.sampled_from([0, 1, 255, 256, 4711, 65_000])


USERS: Properties = {Property.CONTENT_TYPE: "text/plain", Property.USER_PROPERTY: [("a", "b" * 200)]}


def publishes(messages: list[tuple[str, int]], qos: int, first_id: int = 1, every: int = 0) -> list[Publish]:
    """``every``: one in so many has properties."""
    return [
        Publish(
            topic=topic,
            payload=bytes((n,)) * size,
            qos=qos,
            packet_id=(first_id + n) % 65536 or 1 if qos else None,
            properties=USERS if every and n % every == 0 else {},
        )
        for n, (topic, size) in enumerate(messages)
    ]


def frames_of(messages: list[Publish]) -> list[bytes]:
    return [message.encode(Version.V5) for message in messages]


def made(messages: list[tuple[str, int]], qos: int = 1, first_id: int = 1) -> tuple[Batch, list[bytes]]:
    frames = frames_of(publishes(messages, qos, first_id))
    return batch_of(b"".join(frames), len(frames)), frames


def with_properties(messages: list[tuple[str, int]], qos: int, every: int) -> tuple[Batch, list[Publish]]:
    sent = publishes(messages, qos, every=every)
    return batch_of(b"".join(frames_of(sent)), len(sent)), sent


def of_version_3(messages: list[tuple[str, int]]) -> Batch:
    """The batch that a client of MQTT 3.1.1 has sent: no message has a packet identifier yet."""
    stream = b"".join(message.encode(Version.V311) for message in publishes(messages, 1, 7))
    made: list[bytes] = []
    pos = 0
    while pos < len(stream):
        header_end, end = frame_bounds(stream, pos)
        run = publish_run(stream, pos, header_end, end, False)
        assert run is not None
        made.append(run_to_v5(stream, pos, header_end, run)[0])
        pos = run[0]
    joined = b"".join(made)
    return batch_of(joined, len(messages))


@given(MESSAGES, st.sampled_from([0, 1, 2]), st.integers(1), st.integers(0, 2))
def test_cut_frames_are_named_and_end(
    messages: list[tuple[str, int]], qos: int, missing: int, more: int
) -> None:
    batch, frames = made(messages, qos)
    batch.verify()
    whole = batch.frames
    cut = whole[: -(missing % (len(whole) - 1) + 1)]
    for hurt in (Batch(cut, batch.count, 0), Batch(whole, batch.count + 1 + more, 0)):
        with pytest.raises(MalformedPacket, match="message"):
            hurt.verify()
    assert len(frames) == batch.count


def test_a_message_without_its_packet_identifier_is_named() -> None:
    frame = bytes((0x32, 3, 0, 1)) + b"t"
    with pytest.raises(MalformedPacket, match="message 2 of 2 has no packet identifier"):
        Batch(frames_of(publishes([("t", 0)], 1))[0] + frame, 2, 0).verify()


@given(MESSAGES, st.sampled_from([0, 1, 2]), st.data())
def test_a_part_is_the_same_messages(messages: list[tuple[str, int]], qos: int, data: st.DataObject) -> None:
    batch, frames = made(messages, qos)
    assert (batch.count, batch.qos, batch.largest) == (len(frames), qos, max(map(len, frames)))
    first = data.draw(st.integers(0, len(frames) - 1))
    count = data.draw(st.integers(1, len(frames) - first))
    part = batch.part(first, count)
    assert (part.frames, part.count) == (b"".join(frames[first : first + count]), count)
    assert batch.bytes_of(first, count) == len(part.frames)
    assert [part.part(place, 1).frames for place in range(count)] == frames[first : first + count]
    assert part.largest == max(map(len, frames[first : first + count]))


@given(MESSAGES, st.integers(0, 1500))
def test_as_many_fit_as_their_sizes_say(messages: list[tuple[str, int]], size: int) -> None:
    batch, frames = made(messages)
    ends = list(itertools.accumulate(map(len, frames)))
    assert batch.fitting(size) == sum(end <= size for end in ends)


@given(MESSAGES, st.sampled_from([0, 1, 2]))
def test_runs_are_of_one_topic_and_one_size(messages: list[tuple[str, int]], qos: int) -> None:
    batch, frames = made(messages, qos)
    runs = batch.runs()
    assert b"".join(run.frames for run in runs) == b"".join(frames)
    for run in runs:
        assert run.size * run.count == len(run.frames)
        assert len({frames_topic(run.part(place, 1).frames) for place in range(run.count)}) == 1
    for one, other in itertools.pairwise(runs):
        assert (one.size, frames_topic(one.frames)) != (other.size, frames_topic(other.frames))
    assert (len(runs) == 1) is (batch.size > 0)


@given(MESSAGES, st.sampled_from([1, 2]), IDS, st.booleans())
def test_identifiers_are_those_of_messages_encoded_with_them(
    messages: list[tuple[str, int]], qos: int, first_id: int, dup: bool
) -> None:
    batch, frames = made(messages, qos, first_id)
    ids = [packet.packet_id for packet in map(decode, frames, itertools.repeat(Version.V5))]  # type: ignore[union-attr]
    assert (list(batch.ids()), batch.first_id) == (ids, ids[0])
    acknowledged, answers = batch.acknowledgements(batch.qos)
    assert list(acknowledged) == ids
    answer = PubAck if qos == 1 else PubRec
    assert answers == b"".join(answer(packet_id=packet_id).encode(Version.V5) for packet_id in ids)
    expected = publishes(messages, qos, 300)
    assert batch.numbered(300).frames == b"".join(frames_of(expected))
    for message in expected:
        message.dup = dup
    assert batch.with_ids(300, dup) == b"".join(frames_of(expected))
    assert batch.frames == b"".join(frames)


@given(MESSAGES)
def test_a_numbered_batch_forgets_no_place(messages: list[tuple[str, int]]) -> None:
    batch, _ = made(messages)
    assert list(batch.ids()) == list(range(1, batch.count + 1))
    again = batch.numbered(500).numbered(1000)
    assert list(again.ids()) == list(range(1000, 1000 + batch.count))
    assert again.part(batch.count - 1, 1).first_id == 999 + batch.count


@given(MESSAGES)
def test_at_qos_0_all_else_is_the_same(messages: list[tuple[str, int]]) -> None:
    batch, _ = made(messages)
    lower = batch.at_qos(0)
    assert (lower.frames, lower.count) == (b"".join(frames_of(publishes(messages, 0))), batch.count)
    assert lower.at_qos(0) is lower
    assert lower.size == (batch.size and len(lower.frames) // lower.count)


@given(MESSAGES)
def test_at_qos_1_messages_of_qos_2_keep_their_identifiers(messages: list[tuple[str, int]]) -> None:
    batch, _ = made(messages, 2)
    lower = batch.at_qos(1)
    assert (lower.frames, lower.size) == (b"".join(frames_of(publishes(messages, 1))), batch.size)
    assert (batch.at_qos(2), lower.at_qos(2)) == (batch, lower)
    assert batch.at_qos(0).frames == b"".join(frames_of(publishes(messages, 0)))


@given(MESSAGES, st.sampled_from([0, 1, 2]), st.integers(1, 3))
def test_a_message_with_properties_is_a_run_of_its_own(
    messages: list[tuple[str, int]], qos: int, every: int
) -> None:
    batch, sent = with_properties(messages, qos, every)
    runs = batch.runs()
    assert b"".join(run.frames for run in runs) == batch.frames
    place = 0
    for run in runs:
        assert run.count == 1 or not any(message.properties for message in sent[place : place + run.count])
        assert run.size * run.count == len(run.frames)
        place += run.count


@given(MESSAGES, st.sampled_from([0, 1, 2]), st.integers(1, 3))
def test_properties_go_with_a_lower_qos_and_end_with_mqtt_3(
    messages: list[tuple[str, int]], qos: int, every: int
) -> None:
    batch, sent = with_properties(messages, qos, every)
    lower = batch.at_qos(0)
    assert lower.frames == b"".join(frames_of(publishes(messages, 0, every=every)))
    old = b"".join(frames_to_v311(run.frames, run.size) for run in batch.runs())
    without = [
        replace(message, properties={}, packet_id=None if message.packet_id is None else 1)
        for message in sent
    ]
    expected = b"".join(message.encode(Version.V311) for message in without)
    if qos:  # the packet identifiers are 0 then
        found = split(old)
        assert [len(frame) for frame in found] == [len(frame) for frame in split(expected)]
        old = b"".join(one[:at] + b"\0\1" + one[at + 2 :] for one in found for at in [id_offset(one)])
    assert old == expected


def split(frames: bytes) -> list[bytes]:
    found, pos = [], 0
    while pos < len(frames):
        end = frame_bounds(frames, pos)[1]
        found.append(frames[pos:end])
        pos = end
    return found


@given(MESSAGES)
def test_messages_without_identifiers_are_a_batch_like_any(messages: list[tuple[str, int]]) -> None:
    batch = of_version_3(messages)
    assert b"".join(run.frames for run in batch.runs()) == batch.frames
    assert batch.at_qos(0).frames == b"".join(frames_of(publishes(messages, 0)))
    assert batch.numbered(1).frames == b"".join(frames_of(publishes(messages, 1)))


@given(MESSAGES)
def test_only_what_is_alike_has_one_size(messages: list[tuple[str, int]]) -> None:
    batch, frames = made(messages)
    topics = {(topic, len(frame)) for (topic, _), frame in zip(messages, frames, strict=True)}
    assert batch.size == (len(frames[0]) if len(topics) == 1 else 0)


def test_sizes_that_differ_and_average_out_are_no_one_size() -> None:
    batch, frames = made([("t", 10), ("t", 5), ("t", 15)])
    assert len(batch.frames) == 3 * len(frames[0])
    assert batch.size == 0
    assert [batch.part(place, 1).frames for place in range(3)] == frames


def test_topics_of_equal_length_are_no_one_topic() -> None:
    batch, frames = made([("a", 10), ("b", 10)])
    assert len(frames[0]) == len(frames[1])
    assert [run.frames for run in batch.runs()] == frames


@given(MESSAGES, st.data())
def test_what_waits_leaves_from_either_end(messages: list[tuple[str, int]], data: st.DataObject) -> None:
    batch, frames = made(messages)
    entry: Any = Entry(batch)
    while True:
        assert entry.batch.frames == b"".join(frames)
        assert (entry.count, entry.size) == (len(frames), len(b"".join(frames)))
        size = data.draw(st.integers(0, entry.size + 5))
        ends = list(itertools.accumulate(map(len, frames)))
        assert entry.needed(size) == min(sum(end < size for end in ends) + (size > 0), len(frames))
        ends = list(itertools.accumulate(map(len, reversed(frames))))
        assert entry.needed(size, last=True) == min(sum(end < size for end in ends) + (size > 0), len(frames))
        if len(frames) == 1:
            return
        count = data.draw(st.integers(1, len(frames) - 1))
        if data.draw(st.booleans()):
            assert entry.remove(count) == len(b"".join(frames[:count]))
            frames = frames[count:]
        else:
            assert entry.cut(count) == len(b"".join(frames[-count:]))
            frames = frames[:-count]


@pytest.mark.parametrize("interval", [1, 500, 2**32 - 1])
@given(st.integers(0, 10**10).map(lambda n: n * 0.0001003), st.integers(0, 3))
def test_an_expiry_interval_never_grows(interval: int, now: float, waited: int) -> None:
    """What is left of it is counted from a sum that was rounded (MQTT-3.3.2-6)."""
    message = Publish(topic="t", properties={Property.MESSAGE_EXPIRY_INTERVAL: interval})
    left = single(message, 0, now + interval).left_at(now + waited)
    found = 0 if left is None else left.message.properties[Property.MESSAGE_EXPIRY_INTERVAL]
    assert isinstance(found, int)
    assert max(0, interval - waited) <= found <= min(interval, max(0, interval - waited) + 1)
