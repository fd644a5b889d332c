"""Batches of messages on several topics against the messages one by one.

They are looked at as a whole, in parts, and as they are acknowledged and leave a queue.
"""

from __future__ import annotations

from binascii import crc32
from collections.abc import Hashable, Iterator
from dataclasses import replace
from random import Random

from ildm.core.transfer.batch import Batch, batch_of, may_join
from ildm.core.transfer.inbound import Inbound
from ildm.core.transfer.queue import Backlog, Entry
from ildm.core.transfer.window import Inflight, Window
from ildm.mqtt import MqttError, PubAck, Publish, PubRec, Version, decode
from tests.fuzz.engine import Known
from tests.fuzz.streams import split

MOST = 200
"""Messages of a batch; more say nothing new."""
LAST_ID = 65_535


def check_batches(stream: bytes, found: set[Hashable], known: Known) -> None:
    """Take what may be a batch as one, wherever it is in a stream of MQTT 5."""
    for packets, frames in _plain(stream):
        joined = b"".join(frames)
        part = ("batch", joined)
        said = known.get(part)
        if said is None:
            chance = Random(crc32(joined))
            batch = batch_of(joined, len(frames))
            check_parts(batch, packets, frames, chance)
            if batch.qos:
                check_identifiers(batch, packets, frames, chance)
                check_window(batch, frames, chance)
            check_queue(batch, frames, chance)
            said = ("batch", batch.qos, not batch.size, len(frames).bit_length())
            known.put(part, len(joined), said)
        found.add(said)


def _plain(stream: bytes) -> Iterator[tuple[list[Publish], list[bytes]]]:
    """Messages that follow each other and may be one batch."""
    packets: list[Publish] = []
    frames: list[bytes] = []
    for frame in split(stream):
        packet = _decoded(frame)
        if packets and (packet is None or packet.qos != packets[0].qos or len(packets) == MOST):
            yield packets, frames
            packets, frames = [], []
        if packet is not None:
            packets.append(packet)
            frames.append(frame)
    if packets:
        yield packets, frames


def _decoded(frame: bytes) -> Publish | None:
    """A message that may be part of a batch."""
    try:
        packet = decode(frame, Version.V5)
    except MqttError:
        return None
    if not isinstance(packet, Publish) or packet.dup or not may_join(packet):
        return None
    return packet if frame == packet.encode(Version.V5) else None  # no length is in more bytes than it needs


def check_parts(batch: Batch, packets: list[Publish], frames: list[bytes], chance: Random) -> None:
    """A batch and its parts are the messages that they were made of."""
    count = len(frames)
    assert (batch.count, batch.largest) == (count, max(map(len, frames)))
    runs = batch.runs()
    assert b"".join(run.frames for run in runs) == batch.frames
    assert sum(run.count for run in runs) == count
    place = 0
    for run in runs:
        topics = {packet.topic for packet in packets[place : place + run.count]}
        assert (len(run.frames), len(topics)) == (run.size * run.count, 1)
        place += run.count
    first = chance.randrange(count)
    number = chance.randint(1, count - first)
    inner = batch.part(first, number)
    assert split(inner.frames) == frames[first : first + number]
    at = chance.randrange(number)
    assert inner.part(at, 1).frames == frames[first + at]
    assert batch.bytes_of(first, number) == len(inner.frames)
    size = chance.randrange(2 * len(batch.frames))
    fitting = batch.fitting(size, first)
    assert sum(map(len, frames[first : first + fitting])) <= size
    assert first + fitting == count or sum(map(len, frames[first : first + fitting + 1])) > size
    for qos in range(batch.qos + 1):
        less = [
            replace(packet, qos=qos, packet_id=packet.packet_id if qos else None).encode(Version.V5)
            for packet in packets
        ]
        assert split(batch.at_qos(qos).frames) == less


def check_identifiers(batch: Batch, packets: list[Publish], frames: list[bytes], chance: Random) -> None:
    """The identifiers of a batch are those of its messages; others are put in their place in all of them."""
    ids = [packet.packet_id for packet in packets]
    assert list(batch.ids()) == ids
    assert batch.first_id == ids[0]
    found, answers = batch.acknowledgements(batch.qos)
    assert list(found) == ids
    answer = PubAck if batch.qos == 1 else PubRec
    assert answers == b"".join(answer(packet_id=packet_id).encode(Version.V5) for packet_id in found)
    first_id = chance.randint(1, LAST_ID + 1 - len(frames))
    again = batch.with_ids(first_id, dup=True)
    numbered = batch.numbered(first_id)
    assert list(numbered.ids()) == list(range(first_id, first_id + len(frames)))
    for place, (packet, frame) in enumerate(zip(packets, split(numbered.frames), strict=True)):
        changed = replace(packet, packet_id=first_id + place)
        assert frame == changed.encode(Version.V5)
        changed.dup = True
        assert split(again)[place] == changed.encode(Version.V5)


def check_window(batch: Batch, frames: list[bytes], chance: Random) -> None:
    """However the acknowledgements of a batch come, each message is disposed of once."""
    batch = batch.numbered(1)
    frames = split(batch.frames)
    answers: list[bytes] = []
    inbound = Inbound(LAST_ID, len(batch.frames), answers.append)
    inbound.take(batch)
    window = Window(LAST_ID)
    first_id = chance.randint(1, LAST_ID + 1 - len(frames))
    place = 0
    while place < len(frames):
        count = chance.randint(1, len(frames) - place)
        window.add(Inflight(batch.part(place, count), first_id + place, inbound.receipt))
        place += count
    ids = list(range(first_id, first_id + len(frames)))
    if chance.random() < 0.5:
        chance.shuffle(ids)
    while ids:
        count = chance.randint(1, len(ids))
        some, ids = ids[:count], ids[count:]
        in_order = some[-1] - some[0] == count - 1 and some == sorted(some)
        if batch.qos == 2:
            released = [packet_id for packet_id in some if chance.random() < 0.5]
            assert all(map(window.release, released))
            window.acknowledged(released)  # no answer to them any more
            assert all(map(window.is_released, released))
        end = window.acknowledged if batch.qos == 1 else window.completed
        end(range(some[0], some[-1] + 1) if in_order else some)
        window.check()
        left = [
            item.part(begin, number).frames
            for item, begin, number, released in window.stretches()
            if isinstance(item, Inflight) and not released
        ]
        answered = [frames[(answer[2] << 8 | answer[3]) - 1] for answer in split(b"".join(answers))]
        assert sorted(split(b"".join(left)) + answered) == sorted(frames)
        inbound.check()
    assert (len(window), window.bytes) == (0, 0)


def check_queue(batch: Batch, frames: list[bytes], chance: Random) -> None:
    """What leaves a queue at one end, and is cut off at the other, is what was asked for."""
    queue, left = Backlog(), list(frames)
    queue.append(Entry(batch))
    while len(left) > 1:
        count = chance.randint(1, len(left) - 1)
        if chance.random() < 0.5:
            queue.remove(count)
            del left[:count]
        else:
            assert queue.cut(len(left) - count, 1 << 62) == count
            del left[len(left) - count :]
        entry = queue.first
        assert isinstance(entry, Entry)
        assert split(entry.batch.frames) == left
        runs = [run.batch.frames for run in entry.runs() if isinstance(run, Entry)]
        assert b"".join(runs) == b"".join(left)
        queue.check()
    queue.remove(1)
    assert (queue.messages, queue.bytes) == (0, 0)
