"""Kinds of traffic, as frames built before the run: what publishers write, and what subscribers will read.

============== ============================================================================================
``uniform``    5 topics of 10 publishers and 10 subscribers each, 32 bytes: the papers' scenario
``gateway``    one connection, 100 topics in turn, 80 to 280 bytes; one subscriber of all
``gateway-10k`` the same with 10,000 topics
``gateways``   4 connections in turn, 25 topics of each in turn, 80 to 280 bytes; a subscriber of each
``devices``    1,000 connections with a topic each, 64 bytes, in turn; one subscriber of all
``fan-in``     50 publishers of one topic, 64 bytes, in turn; one subscriber
``fan-out``    one publisher, 50 subscribers of its topic, 64 bytes
============== ============================================================================================

Messages are MQTT 3.1.1, and come to subscribers in the bytes they were published in but for the packet
identifier. So where frames begin in what a subscriber reads is known beforehand (`Frames`), and reading is
counting. A payload begins with a time in nanoseconds, 0 in messages whose latency is not taken.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ildm.core.frames import id_offset
from ildm.mqtt import Publish, Version

TIME = struct.Struct("<q")
"""The time at the beginning of a payload: nanoseconds of `time.perf_counter_ns`, 0 for none."""
_SEED = 5


@dataclass(frozen=True)
class Kind:
    """Who publishes what to whom."""

    name: str
    groups: int = 1
    """Sets of clients alike, each with topics of its own."""
    publishers: int = 1
    subscribers: int = 1
    topics: int = 1
    """Of one publisher, taken in turn; several publishers with ``apart`` have one each."""
    apart: bool = False
    sizes: tuple[int, int] = (64, 64)
    """Bytes of a payload, from and to; they differ only where one publisher has one subscriber."""
    frames: int = 200
    """Of a publisher, until its packet identifiers begin again."""
    window: int = 1000
    """Messages under way when as many are sent as are borne."""

    @property
    def copies(self) -> int:
        """Deliveries of a message."""
        return self.subscribers

    def topic_filter(self, group: int) -> str:
        """What the subscribers of a group subscribe to."""
        return f"{self.name}/{group}/#"

    def publisher_frames(self, qos: int) -> Iterator[Frames]:
        """Of each publisher what it writes, over and over, group by group."""
        for group in range(self.groups):
            for number in range(self.publishers):
                names = (
                    [f"device{number:05}/state"]
                    if self.apart
                    else [f"sensor{topic:05}/value" for topic in range(self.topics)]
                )
                yield frames([f"{self.name}/{group}/{name}" for name in names], self.sizes, self.frames, qos)

    def subscriber_frames(self, qos: int) -> Frames:
        """What a subscriber reads, over and over; packet identifiers aside."""
        return next(self.publisher_frames(qos))


KINDS = {
    kind.name: kind
    for kind in (
        Kind("uniform", groups=5, publishers=10, subscribers=10, sizes=(32, 32)),
        Kind("gateway", topics=100, sizes=(80, 280), frames=10_000, window=5000),
        Kind("gateway-10k", topics=10_000, sizes=(80, 280), frames=10_000, window=5000),
        Kind("gateways", groups=4, topics=25, sizes=(80, 280), frames=10_000, window=5000),
        Kind("devices", publishers=1000, apart=True, frames=50, window=5000),
        Kind("fan-in", publishers=50),
        Kind("fan-out", subscribers=50, frames=10_000, window=200),
    )
}


@dataclass(frozen=True)
class Frames:
    """PUBLISH frames that come one after the other, over and over."""

    data: bytes
    ends: NDArray[np.int64]
    """Where each ends."""
    ids: NDArray[np.int64]
    """Where in each its packet identifier is (QoS 1), from its beginning."""
    payloads: NDArray[np.int64]
    """Where its payload begins, likewise."""

    @property
    def count(self) -> int:
        return len(self.ends)

    def whole(self, length: int) -> int:
        """How many frames are complete in so many bytes."""
        rounds, rest = divmod(length, len(self.data))
        return rounds * self.count + int(np.searchsorted(self.ends, rest, "right"))

    def begin(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where frames begin, counted on over all rounds."""
        rounds, places = np.divmod(numbers, self.count)
        starts = np.concatenate(([0], self.ends[:-1]))
        return np.asarray(rounds * len(self.data) + starts[places], np.int64)

    def part(self, first: int, count: int, stamp: int) -> bytearray:
        """Frames from ``first`` on, over and over; the last with that time."""
        out = bytearray()
        while count:
            place = first % self.count
            taken = min(count, self.count - place)
            start = int(self.ends[place - 1]) if place else 0
            out += self.data[start : self.ends[place + taken - 1]]
            first, count = first + taken, count - taken
        last = (first - 1) % self.count
        size = int(self.ends[last] - (self.ends[last - 1] if last else 0))
        TIME.pack_into(out, len(out) - size + int(self.payloads[last]), stamp)
        return out


def frames(topics: Sequence[str], sizes: tuple[int, int], count: int, qos: int) -> Frames:
    """``count`` frames, the topics in turn, payloads of random sizes, packet identifiers from 1 on."""
    chance = random.Random(_SEED)
    made, ids, payloads = [], [], []
    for number in range(count):
        payload = TIME.pack(0) + b"x" * (chance.randint(*sizes) - TIME.size)
        message = Publish(topic=topics[number % len(topics)], payload=payload)
        if qos:
            message.qos, message.packet_id = 1, number + 1
        frame = message.encode(Version.V311)
        made.append(frame)
        ids.append(id_offset(frame))
        payloads.append(len(frame) - len(payload))
    ends = np.cumsum([len(frame) for frame in made], dtype=np.int64)
    return Frames(b"".join(made), ends, np.array(ids, np.int64), np.array(payloads, np.int64))
