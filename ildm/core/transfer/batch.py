"""Messages that came together, as one thing on their way through router, custody, sender and window."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ildm.core.frames import (
    DUP,
    PUBLISH,
    PUBLISH_QOS_1,
    RETAIN,
    expiry_interval,
    expiry_place,
    frames_to_qos_0,
    frames_topic,
    has_properties,
    id_offset,
    packet_ids,
    publish_run,
    runs_of,
    with_ids,
)
from ildm.core.transfer.ack_runs import PUBACK, PUBREC, acknowledgements
from ildm.mqtt import MalformedPacket, Property, Publish, Version, decode, frame_bounds

if TYPE_CHECKING:
    from ildm.core.transfer.receipt import Receipt


class Ordered(ABC):
    """The place of a retained message among others of its topic, on their way into the broker."""

    __slots__ = ()

    @abstractmethod
    def may_go(self) -> bool:
        """Whether it need not wait for another message, in whatever sender."""

    @abstractmethod
    def outgoing(self, frame: bytes) -> bytes:
        """Its frame as it is to be sent now; empty: it is outdated, and says nothing to anybody."""

    @abstractmethod
    def settled(self) -> None:
        """It has reached the broker, or never will."""


class Batch:
    """PUBLISH frames of MQTT 5 with equal first bytes, without DUP.

    Their properties go on as they are (:data:`CONSTANT`), but for the message expiry interval.

    Args:
        frames: one after the other.
        count: how many.
        size: bytes of each, where it is one, or all have one topic, one length and no properties; 0: they
            differ.
        since: monotonic time from which on their expiry intervals count; None: none of them has one.
        ordered: of a retained message for the broker.
    """

    __slots__ = ("_places", "_starts", "count", "frames", "ordered", "since", "size")

    def __init__(
        self,
        frames: bytes,
        count: int,
        size: int,
        since: float | None = None,
        ordered: Ordered | None = None,
    ) -> None:
        self.frames = frames
        self.count = count
        self.size = size
        self.since = since
        self.ordered = ordered
        self._starts: list[int] | None = None
        """Where each begins, and at last where all end; made when somebody asks."""
        self._places: list[int] | None = None
        """Where the packet identifier of each is."""

    @property
    def qos(self) -> int:
        return (self.frames[0] - PUBLISH) >> 1

    @property
    def retain(self) -> bool:
        return self.frames[0] & RETAIN != 0

    def changed(self, frames: bytes, size: int) -> Batch:
        """The same messages in other frames."""
        return Batch(frames, self.count, size, self.since, self.ordered)

    def settle(self, receipt: Receipt | None, first: int, count: int) -> None:
        """Messages of it have been disposed of, from the place ``first`` on."""
        if receipt is not None:
            receipt.settle(self, first, count)
        if self.ordered is not None:
            self.ordered.settled()

    # messages of it ---------------------------------------------------------------------------

    def _bounds(self) -> list[int]:
        starts = self._starts
        if starts is None:
            starts, pos, frames = [0], 0, self.frames
            while pos < len(frames):
                begin, pos = pos, frame_bounds(frames, pos)[1]
                if pos <= begin or pos > len(frames):
                    raise MalformedPacket(
                        f"message {len(starts)} of {self.count} is cut", clause="MQTT-2.1.4"
                    )
                starts.append(pos)
            self._starts = starts
        return starts

    def verify(self) -> None:
        """Look at what comes from a disk. Raises: MalformedPacket, the frames are not so many messages."""
        count, size = self.count, self.size
        if size:
            whole = size * count == len(self.frames) and frame_bounds(self.frames, 0)[1] == size
            found = count if whole else 0
        else:
            found = len(self._bounds()) - 1
        if found != count:
            raise MalformedPacket(f"{len(self.frames)} bytes are not {count} messages", clause="MQTT-2.1.4")
        if self.qos and not size:
            self._id_places()

    def start(self, place: int) -> int:
        """Offset of the message at a place; of the one beyond the last: where all end."""
        return place * self.size if self.size else self._bounds()[place]

    def bytes_of(self, first: int, count: int) -> int:
        """Bytes of ``count`` messages from a place on."""
        size = self.size
        return count * size if size else self.start(first + count) - self.start(first)

    def part(self, first: int, count: int) -> Batch:
        """``count`` messages from a place on."""
        if count == self.count:
            return self
        begin, end = self.start(first), self.start(first + count)
        part = Batch(self.frames[begin:end], count, end - begin if count == 1 else self.size, self.since)
        if not part.size:
            part._starts = [start - begin for start in self._bounds()[first : first + count + 1]]
        return part

    def fitting(self, size: int, first: int = 0) -> int:
        """How many from a place on have so many bytes together, or fewer."""
        if self.size:
            return max(0, min(self.count - first, size // self.size))
        starts = self._bounds()
        return max(0, bisect_right(starts, starts[first] + size) - 1 - first)

    def runs(self) -> list[Batch]:
        """The same as batches of like frames."""
        if self.size:
            return [self]
        return [Batch(frames, len(frames) // size, size, self.since) for frames, size in runs_of(self.frames)]

    @property
    def largest(self) -> int:
        """Bytes of the largest message."""
        if self.size:
            return self.size
        starts = self._bounds()
        return max(starts[i + 1] - starts[i] for i in range(self.count))

    def at_qos(self, qos: int) -> Batch:
        """The same messages at this QoS, or at their own, which is lower."""
        if qos >= self.qos:
            return self
        if qos:
            batch = self.changed(self._beginning_with(PUBLISH_QOS_1 | self.frames[0] & RETAIN), self.size)
            batch._starts, batch._places = self._starts, self._places
            return batch
        if self.size:
            frames, size = frames_to_qos_0(self.frames, self.size)
            return self.changed(frames, size)
        return self.changed(b"".join([frames_to_qos_0(run.frames, run.size)[0] for run in self.runs()]), 0)

    def _beginning_with(self, first: int) -> bytes:
        """The frames with another first byte."""
        changed = bytearray(self.frames)
        for i in range(self.count):
            changed[self.start(i)] = first
        return bytes(changed)

    # packet identifiers, of QoS 1 and 2 -----------------------------------------------------------

    def _id_places(self) -> list[int]:
        places = self._places
        if places is None:
            starts, frames = self._bounds(), self.frames
            places = []
            for i in range(self.count):
                at = starts[i] + 1
                while frames[at] & 0x80:
                    at += 1
                if at + 3 > starts[i + 1]:
                    raise _without_id(i + 1, self.count)
                place = at + 3 + (frames[at + 1] << 8 | frames[at + 2])
                if place + 2 > starts[i + 1]:
                    raise _without_id(i + 1, self.count)
                places.append(place)
            self._places = places
        return places

    @property
    def first_id(self) -> int:
        """The identifier of the first."""
        frames = self.frames
        at = id_offset(frames)
        return frames[at] << 8 | frames[at + 1]

    def ids(self) -> Sequence[int]:
        """The identifiers of all."""
        if self.count == 1:
            first = self.first_id
            return range(first, first + 1)
        high, low = self._id_bytes()
        return packet_ids(high, low)

    def _id_bytes(self) -> tuple[bytes, bytes]:
        """The two bytes of all identifiers, one above the other."""
        frames, size = self.frames, self.size
        if size:
            offset = id_offset(frames)
            return frames[offset::size], frames[offset + 1 :: size]
        places = self._id_places()
        return bytes([frames[at] for at in places]), bytes([frames[at + 1] for at in places])

    def acknowledgements(self, qos: int) -> tuple[Sequence[int], bytes]:
        """The identifiers of all, and of each the answer at a QoS: PUBACK or PUBREC, joined."""
        frames = self.frames
        answer = PUBREC if qos == 2 else PUBACK
        if self.count == 1:
            offset = id_offset(frames)
            high_byte, low_byte = frames[offset], frames[offset + 1]
            first = high_byte << 8 | low_byte
            return range(first, first + 1), bytes((answer, 2, high_byte, low_byte))
        high, low = self._id_bytes()
        return packet_ids(high, low), acknowledgements(answer, high, low)

    def numbered(self, first_id: int) -> Batch:
        """The same messages with consecutive identifiers; the last is 65535 at most."""
        batch = self.changed(self.with_ids(first_id), self.size)
        batch._starts, batch._places = self._starts, self._places
        return batch

    def with_ids(self, first_id: int, dup: bool = False) -> bytes:
        """The frames with consecutive identifiers; with ``dup`` marked as sent before."""
        size = self.size
        first = self.frames[0] | DUP if dup else 0
        if size:
            return with_ids(self.frames, size, id_offset(self.frames), first_id, first)
        changed = bytearray(self._beginning_with(first) if first else self.frames)
        packet_id = first_id
        for at in self._id_places():
            changed[at] = packet_id >> 8
            changed[at + 1] = packet_id & 0xFF
            packet_id += 1
        return bytes(changed)

    # a single message --------------------------------------------------------------------------

    @property
    def topic(self) -> str:
        """That of the first, and of all where they are alike."""
        return frames_topic(self.frames).decode()

    @property
    def message(self) -> Publish:
        """A single message, decoded. Raises: MqttError: it is none."""
        message = decode(self.frames, Version.V5)
        assert isinstance(message, Publish)
        return message

    @property
    def expires_at(self) -> float | None:
        """Monotonic time after which nobody wants a single message; None: there is no such time."""
        interval = None if self.since is None else expiry_interval(self.frames)
        return None if self.since is None or interval is None else self.since + interval

    def left_at(self, now: float) -> Batch | None:
        """A single message with what is left of its expiry interval (MQTT-3.3.2-6); None: nothing is."""
        place = 0 if self.since is None else expiry_place(self.frames)
        if self.since is None or not place:
            return self
        frame = self.frames
        waited = max(0, math.floor(now - self.since))  # what is rounded may begin a little later
        left = int.from_bytes(frame[place : place + 4]) - waited
        if left <= 0:
            return None
        if not waited:
            return self
        return self.changed(frame[:place] + left.to_bytes(4) + frame[place + 4 :], self.size)

    def has_aged(self, now: float) -> bool:
        """Whether expiry intervals are no longer what the frames say."""
        return self.since is not None and now >= self.since + 1


CONSTANT = frozenset(
    (
        Property.PAYLOAD_FORMAT_INDICATOR,
        Property.CONTENT_TYPE,
        Property.RESPONSE_TOPIC,
        Property.CORRELATION_DATA,
        Property.USER_PROPERTY,
    )
)
"""Properties of a PUBLISH that no node changes, but for the name of a response topic on a link with rules."""


JOINING = CONSTANT | {Property.MESSAGE_EXPIRY_INTERVAL}
"""Properties of a PUBLISH that may be part of a batch."""


def may_join(message: Publish) -> bool:
    """Whether a message may be part of a batch."""
    properties = message.properties
    return not message.retain and (
        not properties
        or (JOINING.issuperset(properties) and properties.get(Property.MESSAGE_EXPIRY_INTERVAL) != 0)
    )


def single(message: Publish, qos: int, expires_at: float | None = None) -> Batch:
    """One message at a QoS. Its packet identifier is that of its receipt.

    Raises:
        EncodeError: it cannot be sent to anybody.
    """
    properties, since = message.properties, expires_at
    if expires_at is not None:
        interval = properties.get(Property.MESSAGE_EXPIRY_INTERVAL)
        if interval is None:
            interval = 1  # set as it is sent
            properties = {**properties, Property.MESSAGE_EXPIRY_INTERVAL: interval}
        since = expires_at - int(interval)
    frame = Publish(
        topic=message.topic,
        payload=message.payload,
        qos=qos,
        retain=message.retain,
        packet_id=(message.packet_id or 1) if qos else None,
        properties=properties,
    ).encode(Version.V5)
    return Batch(frame, 1, len(frame), since)


def with_answer(batch: Batch, rename: Callable[[str], str]) -> Batch:
    """A single message with another name for its response topic, if it has one."""
    if not has_properties(batch.frames):
        return batch
    message = batch.message
    answer = message.properties.get(Property.RESPONSE_TOPIC)
    if not isinstance(answer, str) or rename(answer) == answer:
        return batch
    message.properties[Property.RESPONSE_TOPIC] = rename(answer)
    frame = message.encode(Version.V5)
    return batch.changed(frame, len(frame))


def without_retain(frame: bytes) -> bytes:
    """A single message without the flag."""
    return bytes((frame[0] & ~RETAIN,)) + frame[1:]


def _without_id(message: int, count: int) -> MalformedPacket:
    return MalformedPacket(f"message {message} of {count} has no packet identifier", clause="MQTT-2.2.1-2")


def batch_of(frames: bytes, count: int) -> Batch:
    """A batch of frames of which no more is known than how many there are."""
    if count == 1:
        return Batch(frames, 1, len(frames))
    header_end, end = frame_bounds(frames, 0)
    if end * count == len(frames):
        run = publish_run(frames, 0, header_end, end, True)
        if run is not None and run[0] == len(frames):
            return Batch(frames, count, end)
    return Batch(frames, count, 0)
