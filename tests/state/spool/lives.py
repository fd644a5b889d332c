"""Spools opened one after the other on a simulated disk."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from ildm.core.counters import Counters
from ildm.core.spool import Delivery, Identity, Record, Stored
from ildm.mqtt import Publish, Version, frame_bounds
from ildm.state.spool import FileSpool
from ildm.state.spool.segments import number_of
from ildm.testing.virtual.disk import SimDisk

SIZES = (5, 300, 0, 40, 41)


class Settings(NamedTuple):
    """Small, so that little fills much."""

    mode: str = "process"
    bytes: int = 64_000
    segment_bytes: int = 2_000
    expiry: float = 1000.0
    delay: float = 0.002
    full: str = "hold"


class Lives:
    """A disk, time, and the spool of the present life."""

    def __init__(self, settings: Settings | None = None, disk: SimDisk | None = None) -> None:
        self.settings = settings or Settings()
        self.time = 0.0
        self.logged: list[tuple[str, str, dict[str, Any]]] = []
        self.disk = disk or SimDisk()
        if self.settings.mode == "power":
            self.disk.call_later = self.call_later
        self._events: list[tuple[float, int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = itertools.count()
        self._life = 0
        self.counters = Counters()
        self.spool = self.open()

    def open(self) -> FileSpool:
        """The next life; what the one before still had to do never happens."""
        self._life += 1
        self.counters = Counters()
        self.spool = FileSpool(
            self.disk,
            self.settings,
            wall=lambda: 1_700_000_000 + self.time,
            call_later=self.call_later,
            log=lambda level, event, **fields: self.logged.append((level, event, fields)),
            expiry=self.settings.expiry,
            counters=self.counters,
        )
        return self.spool

    def kill(self) -> FileSpool:
        """The process ends, and begins anew."""
        self.disk.kill()
        return self.open()

    def cut_power(self) -> FileSpool:
        self.disk.cut_power()
        return self.open()

    def call_later(self, delay: float, callback: Callable[..., None], *args: Any) -> None:
        heapq.heappush(self._events, (self.time + delay, next(self._order), self._life, callback, args))

    def run(self, seconds: float) -> None:
        end = self.time + seconds
        while self._events and self._events[0][0] <= end:
            self.time, _, life, callback, args = heapq.heappop(self._events)
            if life == self._life:
                callback(*args)
        self.time = end

    def events(self) -> list[str]:
        return [event for _, event, _ in self.logged]


def segments(disk: SimDisk) -> list[str]:
    """Names of the files with entries, in order."""
    return sorted(name for name in disk.files if number_of(name) is not None)


def record(number: int, messages: int = 1, size: int = 50) -> Record:
    """Messages that say which they are."""
    frames = b"".join(b"%08d.%04d" % (number, place) + bytes(size - 13) for place in range(messages))
    return Record(frames, messages, Identity("here", number), turn=number % 7)


def mixed(number: int) -> Record:
    """A record of messages on several topics, with payloads of :data:`SIZES`."""
    frames = b"".join(
        Publish(topic=f"t/{place}", payload=bytes((number,)) * size, qos=1, packet_id=place + 1).encode(
            Version.V5
        )
        for place, size in enumerate(SIZES)
    )
    return Record(frames, len(SIZES), Identity("here", number), mixed=True)


def single(record: Record, place: int) -> bytes:
    """The frame of one of its messages."""
    begin = 0
    for _ in range(place):
        begin = frame_bounds(record.frames, begin)[1]
    return record.frames[begin : frame_bounds(record.frames, begin)[1]]


def to(*names: str, qos: int = 1, held: Collection[str] = (), priority: int = 0) -> list[Delivery]:
    return [Delivery(name, qos, priority, name in held) for name in names]


def numbers(stored: list[Stored]) -> list[tuple[int, int]]:
    """Number of the record and place of each message."""
    answer = []
    for each in stored:
        size = len(each.record.frames) // each.record.messages
        for begin in range(0, len(each.record.frames), size):
            number, _, place = each.record.frames[begin : begin + 13].partition(b".")
            answer.append((int(number), int(place)))
    return answer


def read_all(spool: FileSpool, name: str, size: int = 300) -> list[Stored]:
    """Everything a consumer has beyond, in pages."""
    answer = []
    while page := spool.consumer(name).read(size):
        answer += page
    return answer
