"""What a client has published at QoS 1 and 2 and the local broker has not answered.

Such a message is transferred when the broker has taken it, not before: one that it refuses must not be
had elsewhere (by its access rules, its quota, a hang-up), and one that it never got will come again.
Brokers answer in the order of the messages (MQTT-4.6.0-2, -3), so runs are kept and transferred as runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ildm.api import Stamp
from ildm.mqtt import Publish

OVERHEAD = 500
"""Bytes which a message on its own is taken to need besides its frame."""


_NONE: deque[WaitingRun] = deque()
"""Of all who have never sent a run; never changed. One each would be 600 bytes for every client."""


class WaitingRun:
    """A run of QoS 1 as it will be transferred; ``ids`` are the client's packet identifiers."""

    __slots__ = ("done", "frames", "holes", "ids", "size", "topic")

    def __init__(self, topic: bytes, frames: bytes, size: int, ids: Sequence[int]) -> None:
        self.topic = topic
        self.frames = frames
        self.size = size
        self.ids = ids
        self.done = 0
        """So many from the beginning on are answered."""
        self.holes: set[int] | None = None
        """Those answered out of order, by their place."""

    def part(self, first: int, end: int) -> Taken:
        whole = first == 0 and end == len(self.ids)
        frames = self.frames if whole else self.frames[first * self.size : end * self.size]
        return self.topic, frames, self.size

    def is_open(self, place: int) -> bool:
        return place >= self.done and not (self.holes and place in self.holes)

    def close(self, place: int) -> None:
        if place != self.done:
            self.holes = self.holes or set()
            self.holes.add(place)
            return
        self.done += 1
        while self.holes and self.done in self.holes:
            self.holes.remove(self.done)
            self.done += 1


class Waiting(NamedTuple):
    """One message; ``stamp`` is that of a retained one, of the time it came."""

    message: Publish
    stamp: Stamp | None
    bytes: int


Taken = tuple[bytes, bytes, int]
"""Messages of a run which the broker has taken: topic, frames, bytes of each. A plain tuple, as one is made
for every message of a client that waits for each acknowledgement."""


class Unanswered:
    """Messages of one connection by packet identifier, in the order of their arrival.

    ``messages`` and ``bytes`` are what is kept; the owner stops reading when that is too much.
    """

    __slots__ = ("_places", "_runs", "_single", "bytes", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self._runs = _NONE
        self._single: dict[int, Waiting] = {}
        self._places: dict[int, tuple[WaitingRun, int]] | None = None
        """Where in the runs an identifier is; made only when the broker answers what is not the oldest."""

    def __bool__(self) -> bool:
        return self.messages > 0

    def add_run(self, topic: bytes, frames: bytes, size: int, ids: Sequence[int]) -> None:
        """A run of QoS 1 without properties is relayed."""
        run = WaitingRun(topic, frames, size, ids)
        if self._runs is _NONE:
            self._runs = deque()
        self._runs.append(run)
        self.messages += len(ids)
        self.bytes += len(frames) + OVERHEAD
        if self._places is not None:
            self._note(run)

    def add(self, message: Publish, stamp: Stamp | None, size: int) -> None:
        """One message is relayed, whose frame has ``size`` bytes."""
        assert message.packet_id is not None
        self.single(message.packet_id)  # sent again on the same connection: one answer is enough
        self._single[message.packet_id] = Waiting(message, stamp, size + OVERHEAD)
        self.messages += 1
        self.bytes += size + OVERHEAD

    def taken(self, ids: Sequence[int]) -> Iterator[Taken | Waiting]:
        """The broker has taken messages of QoS 1: they, in the order of the answers."""
        pos = 0
        while pos < len(ids):
            run = self._runs[0] if self._runs else None
            if run is not None and run.ids[run.done] == ids[pos]:
                first = run.done
                if len(run.ids) == 1:
                    run.done = 1
                    self.messages -= 1
                    self._drop_done()
                    yield run.topic, run.frames, run.size
                    pos += 1
                    continue
                count = min(len(run.ids) - first, len(ids) - pos)
                if run.holes or not _same(run.ids[first : first + count], ids[pos : pos + count]):
                    count = 1
                if count == 1:
                    run.close(first)
                else:
                    run.done += count
                self.messages -= count
                self._drop_done()
                yield run.part(first, first + count)
                pos += count
            else:
                found = self.remove(ids[pos])
                if found is not None:
                    yield found
                pos += 1

    def single(self, packet_id: int) -> Waiting | None:
        """Take out a message that is in no run, as none of QoS 2 is; None if there is none."""
        waiting = self._single.pop(packet_id, None)
        if waiting is not None:
            self.messages -= 1
            self.bytes -= waiting.bytes
        return waiting

    def remove(self, packet_id: int) -> Taken | Waiting | None:
        """Take out one message, wherever it is; None if there is none."""
        single = self.single(packet_id)
        if single is not None or not self._runs:
            return single
        if self._places is None:
            self._places = {}
            for run in self._runs:
                self._note(run)
        run, place = self._places.pop(packet_id, (self._runs[0], -1))
        if not run.is_open(place):
            return None
        run.close(place)
        self.messages -= 1
        self._drop_done()
        return run.part(place, place + 1)

    def _note(self, run: WaitingRun) -> None:
        assert self._places is not None
        self._places.update((packet_id, (run, place)) for place, packet_id in enumerate(run.ids))

    def _drop_done(self) -> None:
        while self._runs and self._runs[0].done == len(self._runs[0].ids):
            self.bytes -= len(self._runs.popleft().frames) + OVERHEAD
        if not self._runs:
            self._places = None


def _same(one: Sequence[int], other: Sequence[int]) -> bool:
    return one == other if type(one) is type(other) else list(one) == list(other)
