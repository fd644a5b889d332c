"""Log of the messages of QoS 1 and 2 of local clients, for sites that missed them.

A node with a spool writes a message to disk before its client gets the acknowledgement. After a restart the
node offers the messages again, by the numbers they had.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import inf
from struct import Struct
from typing import TYPE_CHECKING

from ildm.mqtt import IldmError, Property, Publish, Version, decode
from ildm_algorithms.exchange.gone import KIND, Gone, read
from ildm_algorithms.exchange.messages import Message, MessageError

if TYPE_CHECKING:
    from ildm.api import NodeApi

__all__ = ["OVERHEAD", "Log", "LogEntry", "read_message"]

OVERHEAD = 500
"""Bytes a message takes besides its topic and frame (measured: 280, or 340 if each has its own topic)."""
UNSUBSCRIBED_SHARE = 8
"""Messages without a known subscriber get this part of the bytes; they never displace others."""
SWEEPS = 10
"""How often within the period what is too old is looked for."""
SWEEP = 600.0
"""Seconds between two looks at most."""
UNSENT = 15.0
"""Seconds before its last message in which a node that was away for longer than the period may have begun
to send what it has not sent to everybody."""
LOGGED = 10
"""Topics named in the log at once."""
GATHER = 1.0
"""Seconds in which they are gathered."""
_ON_DISK = Struct(">dd")
"""Before the payload: Unix times when it was published, and when it expires (0.0: never)."""


def read_message(payload: bytes) -> tuple[Message, Publish]:
    """What is kept. Raises: IldmError: it is no client's message."""
    carried = Message.decode(payload)
    message = decode(carried.frame, Version.V5)
    if isinstance(message, Publish) and message.topic:
        return carried, message
    raise MessageError("no message of a client")


class LogEntry:
    """A message that is kept."""

    __slots__ = (
        "at",
        "casts",
        "expires_at",
        "missed",
        "on_disk",
        "payload",
        "reached",
        "topic",
        "unconfirmed",
    )

    def __init__(
        self, at: float, topic: str, payload: bytes, expires_at: float | None, on_disk: int | None
    ) -> None:
        self.at = at
        """When it was published."""
        self.on_disk = on_disk
        """Its number there (:meth:`NodeApi.keep`)."""
        self.topic = topic
        self.payload = payload
        """An encoded :class:`Message`."""
        self.expires_at = expires_at
        self.unconfirmed = 0
        """Segments in which some may have missed it."""
        self.casts = 0
        """Segments it is under way to."""
        self.reached = inf
        """When all had acknowledged it; infinite: not yet, or it was published in an earlier incarnation."""
        self.missed: frozenset[str] = frozenset()
        """Nodes that had not, as far as they are known by name."""

    @property
    def size(self) -> int:
        return len(self.payload) + len(self.topic) + OVERHEAD

    def lacks(self, node_id: str, heard: float) -> bool:
        """Whether a node without memory may lack it, of which the last sign of life was ``heard`` then."""
        return self.reached >= heard or node_id in self.missed

    def aged(self, now: float) -> bytes | None:
        """The payload with what is left of the expiry interval (MQTT-3.3.2-6); None: it has expired."""
        if self.expires_at is None:
            return self.payload
        left = self.expires_at - now
        if left <= 0:
            return None
        carried, message = read_message(self.payload)
        # seconds begun count whole
        properties = {**message.properties, Property.MESSAGE_EXPIRY_INTERVAL: int(left) + (left > int(left))}
        return carried._replace(frame=replace(message, properties=properties).encode(Version.V5)).encode()


class Log:
    """By number, for ``period`` seconds, within ``max_bytes``; the oldest makes room.

    What some site may have missed by the time it goes is counted (``kept_missed``) and logged by topic.
    Numbers and topics of what is gone stay (:mod:`~ildm_algorithms.exchange.gone`).
    """

    def __init__(
        self, api: NodeApi, period: float, max_bytes: int, count: Callable[[str, int], None]
    ) -> None:
        self._api = api
        self._period = period
        self._count = count
        self._shelves: dict[bool, OrderedDict[int, LogEntry]] = {True: OrderedDict(), False: OrderedDict()}
        """With a subscriber in this period, or without."""
        self._most = {True: max_bytes, False: max_bytes // UNSUBSCRIBED_SHARE}
        self.bytes = {True: 0, False: 0}
        self._gone = {subscribed: Gone(api, _ON_DISK.pack(0.0, 0.0), count) for subscribed in self._shelves}
        self._topics: dict[str, int] = {}
        """Messages by topic."""
        self.newest = 0
        """The highest number there was, in earlier incarnations as well."""
        self.owed: Callable[[float], bool] = lambda published: False
        """Whether some site is known to lack what was published at a time."""
        self.reaches_all: Callable[[], bool] = lambda: True
        """Whether this node sends to all others just now, or knows which it does not reach."""
        self._unwritten: dict[int, str] = {}
        """Numbers of the newest messages that are not on disk yet, and their topics. If the node is killed
        now, clients send these again, as others. No node receives them."""
        self._unwritten_topics: Counter[str] = Counter()
        self._sweeping = False
        self._given_up: Counter[str] = Counter()
        """Messages by topic that are still to be named in the log."""
        self._unnamed = 0
        """Those of other topics."""

    def __len__(self) -> int:
        return sum(map(len, self._shelves.values()))

    def add(self, number: int, topic: str, payload: bytes, expiry: int | None, subscribed: bool) -> None:
        """Keep a message; ``subscribed``: it has a subscriber, or had one within the period."""
        api = self._api
        now, wall = api.now(), api.wall()
        on_disk = api.keep(_ON_DISK.pack(wall, 0.0 if expiry is None else wall + expiry) + payload)
        expires_at = None if expiry is None else now + expiry
        if on_disk is not None:
            self._unwritten[number] = topic
            self._unwritten_topics[topic] += 1
        self._enter(number, LogEntry(now, topic, payload, expires_at, on_disk), subscribed)

    def written(self, number: int) -> None:
        """A message is on disk that was added."""
        topic = self._unwritten.pop(number, None)
        if topic is not None:
            self._unwritten_topics[topic] -= 1
            if not self._unwritten_topics[topic]:
                del self._unwritten_topics[topic]

    def done(self, number: int, missed: frozenset[str] = frozenset()) -> None:
        """A message has reached all that it could; ``missed``: nodes that may want it and have not got it."""
        entry = self.get(number)
        if entry is not None and self.reaches_all():
            entry.reached, entry.missed = self._api.now(), missed

    def came_to(self, node_id: str, numbers: Iterable[int]) -> None:
        """A node has got some that it had missed."""
        for number in numbers:
            entry = self.get(number)
            if entry is not None and node_id in entry.missed:
                entry.missed -= {node_id}

    def under_way(self) -> Iterator[LogEntry]:
        """Messages that not all have acknowledged."""
        return (entry for shelf in self._shelves.values() for entry in shelf.values() if entry.reached == inf)

    def is_unwritten(self, topic: str) -> bool:
        """Whether one on a topic is still to be written."""
        return topic in self._unwritten_topics

    def _enter(self, number: int, entry: LogEntry, subscribed: bool) -> None:
        self.newest = max(self.newest, number)
        self._topics[entry.topic] = self._topics.get(entry.topic, 0) + 1
        self._shelves[subscribed][number] = entry
        self.bytes[subscribed] += entry.size
        while self.bytes[subscribed] > self._most[subscribed]:
            self._count("kept_displaced" if subscribed else "kept_unheard_displaced", 1)
            self._drop(subscribed)
        if not self._sweeping:
            self._sweeping = True
            self._api.call_later(min(self._period / SWEEPS, SWEEP), self._sweep)

    def restore(self) -> None:
        """Take up what earlier incarnations have left, to be called before anything is added."""
        kept = list(self._api.kept())
        times = [
            _ON_DISK.unpack_from(data)[0] for _, data in kept if len(data) > _ON_DISK.size
        ]  # 0: of what is gone
        ended = max(times, default=0.0)
        unsent = min(UNSENT, self._period / 2)
        if self._api.wall() - ended < self._period - unsent:
            reference, most = self._api.wall(), self._period
        else:  # it was away for so long, or its clock has been set: the last ones may not have been sent yet
            reference, most = ended, unsent
        gone: list[tuple[int, float, str]] = []
        records: list[int] = []
        now, wall = self._api.now(), self._api.wall()
        for on_disk, data in kept:
            try:
                if data[_ON_DISK.size :][:1] == KIND:
                    found = read(data[_ON_DISK.size :])
                    gone += ((number, min(now, now + at - wall), topic) for number, at, topic in found)
                    records.append(on_disk)
                    continue
                number, entry = self._restored(on_disk, data, reference)
            except IldmError as error:
                self._count("kept_unreadable", 1)
                self._api.log("a message of an earlier life that cannot be understood", error=str(error))
                self._api.unkeep(on_disk)
                continue
            if entry.expires_at is not None and entry.expires_at <= now:
                self._api.unkeep(on_disk)
            elif entry.at <= now - most:
                gone.append((number, min(now, now + _ON_DISK.unpack_from(data)[0] - wall), entry.topic))
                records.append(on_disk)
            else:
                self._count("kept_restored", 1)
                self._enter(number, entry, subscribed=True)
        self._gone[True].restore(gone, records)
        self.newest = max((self.newest, *(number for number, _, _ in gone)))

    def _restored(self, on_disk: int, data: bytes, reference: float) -> tuple[int, LogEntry]:
        """Number and entry, as old as it is at the Unix time ``reference``. Raises: IldmError: it is none."""
        carried, message = read_message(data[_ON_DISK.size :])
        at, expires_at = _ON_DISK.unpack_from(data)
        now = self._api.now()
        age = max(0.0, reference - at)  # a clock that was set back does not tell
        expires = now + expires_at - self._api.wall() if expires_at else None
        return carried.number, LogEntry(now - age, message.topic, data[_ON_DISK.size :], expires, on_disk)

    def newest_within(self, seconds: float, most: int) -> list[LogEntry]:
        """The newest messages, published within so many seconds, in order."""
        found: list[LogEntry] = []
        for _, entry in self.since(-inf):
            if len(found) == most or (found and entry.at < found[0].at - seconds):
                break
            found.append(entry)
        return found[::-1]

    def topics(self) -> set[str]:
        """Of all messages, those that are gone as well."""
        return set().union(self._topics, *(gone.topics for gone in self._gone.values()))

    def topics_since(self, at: float) -> list[str]:
        """Of the messages not older than a time, each once."""
        return list({entry.topic: None for _, entry in self.since(at)})

    def all_since(self, at: float, recent: float = inf, known: int = -1) -> Iterator[tuple[int, float, str]]:
        """Numbers, times and topics of messages not older than a time, those that are gone as well. Up to the
        number ``known`` there are only those not older than ``recent``."""
        for number, entry in self.since(at):
            if number <= known and entry.at < recent:
                break
            yield number, entry.at, entry.topic
        for gone in self._gone.values():
            for one in gone.since(at):
                if one[0] > known or one[1] >= recent:
                    yield one

    def gone(self, number: int) -> tuple[float, str] | None:
        """When a message that is gone was published, and on which topic; None: it is not known."""
        return self._gone[True].find(number) or self._gone[False].find(number)

    @property
    def newest_written(self) -> int:
        """The highest number up to which all are on disk."""
        return min(self._unwritten, default=self.newest + 1) - 1

    def __contains__(self, number: int) -> bool:
        return any(number in shelf for shelf in self._shelves.values())

    def get(self, number: int) -> LogEntry | None:
        return self._shelves[True].get(number) or self._shelves[False].get(number)

    def since(self, at: float) -> Iterator[tuple[int, LogEntry]]:
        """Numbers and messages not older than a time that are on disk, the newest first."""
        ways = [iter(reversed(shelf.items())) for shelf in self._shelves.values()]
        heads = [next(way, None) for way in ways]
        while True:
            newest = max(
                (index for index, head in enumerate(heads) if head is not None and head[1].at >= at),
                key=lambda index: heads[index][0],  # type: ignore[index]
                default=None,
            )
            if newest is None:
                return
            head = heads[newest]
            assert head is not None
            if head[0] not in self._unwritten:
                yield head
            heads[newest] = next(ways[newest], None)

    def _sweep(self) -> None:
        due = self._api.now() - self._period
        for subscribed, shelf in self._shelves.items():
            while shelf and next(iter(shelf.values())).at <= due:
                self._drop(subscribed)
            self._gone[subscribed].write()
        self._sweeping = bool(len(self))
        if self._sweeping:
            self._api.call_later(min(self._period / SWEEPS, SWEEP), self._sweep)

    def _drop(self, subscribed: bool) -> None:
        number, entry = self._shelves[subscribed].popitem(last=False)
        self.bytes[subscribed] -= entry.size
        self._topics[entry.topic] -= 1
        if not self._topics[entry.topic]:
            del self._topics[entry.topic]
        if entry.expires_at is None or entry.expires_at > self._api.now():
            self._gone[subscribed].add(number, entry.at, entry.topic, entry.on_disk, entry.size)
        elif entry.on_disk is not None:
            self._api.unkeep(entry.on_disk)
        if entry.unconfirmed or self.owed(entry.at):
            self.give_up(entry.topic)

    def give_up(self, topic: str) -> None:
        """Some site may have missed a message, and it will not be offered any more."""
        self._count("kept_missed", 1)
        if not self._given_up:
            self._api.call_later(GATHER, self._name_given_up)
        if topic in self._given_up or len(self._given_up) < LOGGED:
            self._given_up[topic] += 1
        else:
            self._unnamed += 1

    def _name_given_up(self) -> None:
        for topic, number in self._given_up.most_common():
            self._api.log("messages some site may have missed", topic=topic, messages=number)
        if self._unnamed:
            self._api.log("messages of other topics some site may have missed", messages=self._unnamed)
        self._given_up.clear()
        self._unnamed = 0
