"""What keeps retained messages the same at all sites (thesis 5.3.3, and beyond it).

Forwarding alone does not: of two sites that set a topic at the same time each ends with the other's
value, and what is set while a link is down is missing at the far side. So each retained message gets
a stamp where it enters the network, and the newest stamp of a topic wins everywhere. Nodes remember
the newest message of each topic, and compare digests of what they remember: when they meet, and now
and then. A stamp is that of a hybrid logical clock, see :mod:`ildm.core.transfer.stamps`.

A *value* is what a broker has for new subscribers. A *deletion* is remembered for a time, so that an
older value does not come back from a site that was away; values and deletions have bounds of their own.
A value whose message expiry is over leaves a deletion behind, too. Digests are of values alone: what has
been forgotten of deletions makes no difference.

A retained message which a broker had before a node stood before it is not known to the node.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ildm.api import Stamp
from ildm.api.retained_view import RetainedView
from ildm.core.calendar import Calendar
from ildm.core.tables import CLOCK, RETAINED
from ildm.core.transfer.contention import Contention, Releases
from ildm.core.transfer.stamps import LEEWAY, HybridClock, read_stamp, stamped, take_stamp
from ildm.mqtt import EncodeError, MqttError, Property, Publish, Version, decode, topic_matches

if TYPE_CHECKING:
    from ildm.config import LimitsConfig
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver, Store

OVERHEAD = 500
"""Bytes a topic is taken to need besides its name and the frame kept."""
CONTESTED = 100_000
DELETION_QOS = 1
"""With it a deletion is repeated to those who have missed it."""


class RetainedValue(NamedTuple):
    """The newest of a topic. It is kept as a frame of MQTT 5 with its stamp: many small properties would
    take twenty times as much."""

    stamp: Stamp
    frame: bytes
    """Empty for a deletion."""
    expires_at: float | None
    """Monotonic time: the value is no more; the deletion is forgotten."""
    over: bool = False
    """A deletion that nobody has sent: the value's message expiry is over."""
    repeated: Stamp | None = None
    """Of the last message of the topic that has come as a repetition before it came itself."""

    @property
    def message(self) -> Publish:
        """The message without its stamp."""
        message = decode(self.frame, Version.V5)
        assert isinstance(message, Publish)
        take_stamp(message)
        message.packet_id = None
        return message


class Merged(NamedTuple):
    """What is to be done with a retained message from another node."""

    here: Publish
    """As the local broker gets it: without the stamp, and without the retain flag if a newer one is known."""
    onward: Publish | None
    """As other nodes get it; None: nobody needs it, not even the local broker."""
    stamped: bool
    """It carried a node's stamp."""


class RetainedStore:
    """The newest retained message, or deletion, of each topic.

    Args:
        store: keeps it for the next run; None: there is none.
        expiry: seconds for which deletions are remembered.
    """

    def __init__(
        self,
        driver: Driver,
        node_id: str,
        limits: LimitsConfig,
        counters: Counters,
        store: Store | None,
        expiry: float,
        calendar: Calendar | None = None,
    ):
        self.driver = driver
        self.node_id = node_id
        self.limits = limits
        self.expiry = expiry
        self.counters = counters
        self.store = store
        self.calendar = calendar or Calendar(driver)
        self.clock = HybridClock(driver, limits.clock_skew)
        self.contention = Contention(driver.now, CONTESTED, self._contested_forgotten)
        self.releases = Releases(driver.now, self.newest, self.contention)
        self.values: dict[str, RetainedValue] = {}
        self.deletions: dict[str, RetainedValue] = {}
        self.bytes = 0
        """Taken by the values."""
        self.deletion_bytes = 0
        self.expired: Callable[[str], None] = lambda topic: None
        """Told of each value whose message expiry is over."""
        self.scheduled: Callable[[float], None] = lambda at: None
        """Told the monotonic time when :meth:`look_for_expired` has something to do next."""
        self._all = RetainedView()
        self._views = [self._all]
        self._oldest: list[tuple[Stamp, str]] = []  # heaps; entries that have been replaced are among them
        self._expiring: list[tuple[float, str]] = []
        self._floor = Stamp(0, "")
        self._disbelieved: set[str] = set()
        self._saving = True

    def restore(self) -> None:
        """Take up what an earlier run has saved."""
        if self.store is None:
            return
        now = self.driver.now()
        for _, (time,) in self.store.load(CLOCK):
            assert isinstance(time, int)
            self.clock.take(time)
        found: list[tuple[Publish, Stamp, float | None, Stamp | None]] = []
        for key, (frame, expires_at, came) in list(self.store.load(RETAINED)):
            assert isinstance(frame, bytes)
            assert not isinstance(expires_at, str | bytes)
            try:
                message = decode(frame, Version.V5)
            except MqttError as error:
                self.store.set_aside(RETAINED, key, str(error))
                continue
            if not isinstance(message, Publish) or message.topic != key[0]:
                self.store.set_aside(RETAINED, key, "no PUBLISH of this topic")
                continue
            taken = take_stamp(message)
            if taken is None:
                self.store.set_aside(RETAINED, key, "no stamp")
                continue
            self.clock.take(taken[0].time)
            repeated = Stamp.parse(came)[0] if isinstance(came, str) else None
            found.append((message, taken[0], expires_at, repeated))
        limit = self.clock.limit
        self.clock.turn_back()
        for message, stamp, saved_expiry, repeated in found:
            expires_at = (
                None if saved_expiry is None else now + saved_expiry - self._reading(bool(message.payload))
            )
            wrong = stamp.time > limit + LEEWAY  # made with a wrong clock, and believed nowhere
            self._saving = wrong
            right = Stamp(self.clock.next(), self.node_id) if wrong else stamp
            self._put(message, right, expires_at, repeated)
        self._saving = True
        self.look_for_expired()

    def own(self) -> Iterator[tuple[str, bytes]]:
        """Topic and payload of what began at this node and is the newest; that of a deletion is empty."""
        for topic, entry in self.values.items():
            if entry.stamp.node == self.node_id:
                yield topic, entry.message.payload
        for topic, entry in self.deletions.items():
            if entry.stamp.node == self.node_id:
                yield topic, b""

    # digests ----------------------------------------------------------------------------------

    @property
    def digest(self) -> bytes:
        """Equal for two nodes exactly when they remember the same values (but for a chance of 2^-64)."""
        return self.view().digest

    def view(self, of: RetainedView | None = None) -> RetainedView:
        """The digests of all values, or those of :meth:`watch`, as they are now."""
        self.look_for_expired()
        return of or self._all

    def watch(self, wire: Callable[[str], str | None]) -> RetainedView:
        """Keep digests of the values that cross a link, by the names they have there, until
        :meth:`unwatch`. Cost: some microseconds for each topic remembered."""
        view = RetainedView(wire)
        for topic, entry in self.values.items():
            view.put(topic, entry.stamp)
        for topic in self.deletions:
            view.put(topic, None)
        self._views.append(view)
        return view

    def unwatch(self, view: RetainedView) -> None:
        self._views.remove(view)

    # news -------------------------------------------------------------------------------------

    def next_stamp(self) -> Stamp:
        """A stamp for what comes now, later than all there are."""
        if self.clock.turn_back():
            self._stamp_anew()
        return Stamp(self.clock.next(), self.node_id)

    def entered(self, message: Publish, stamp: Stamp | None = None, way: Hashable = None) -> Stamp:
        """A retained message of a local client is transferred; answers its stamp.

        Args:
            stamp: it got it when it came, and may be older news by now.
            way: the connection it takes to the broker.
        """
        stamp = stamp or self.next_stamp()
        if way is not None:
            self.contention.touched(message.topic, way)
        known = self.newest(message.topic)
        if known is None or known < stamp:
            self._put(message, stamp, self._expiry(message))
        else:
            self.contention.contest(message.topic)
        return stamp

    def arrived(self, message: Publish, stamp: Stamp, repeated: bool = False) -> bool | None:
        """A retained message has come from another node: True if it is the newest, False if a newer one is
        known (or the stamp is not to be believed), None if this very one is."""
        newest = self._is_newest(message.topic, stamp, repeated)
        if not newest:
            return newest
        came = stamp if repeated else None
        if message.payload or not repeated:
            self._put(message, stamp, self._expiry(message), came)
        else:
            left = message.properties.get(Property.MESSAGE_EXPIRY_INTERVAL, self.expiry)
            expires_at = self.driver.now() + min(left, self.expiry)
            self._put(message, stamp, expires_at, came)
        return True

    def _is_newest(self, topic: str, stamp: Stamp, repeated: bool) -> bool | None:
        """As :meth:`arrived` answers."""
        if not self.clock.sees(stamp):
            self._disbelieve(stamp)
            return False
        known = self.newest(topic)
        if known is not None and known >= stamp:
            return None if known == stamp else False
        # as old as what was forgotten for want of room, perhaps just that
        return known is not None or not repeated or stamp > self._floor

    def is_old_repetition(self, message: Publish) -> bool:
        """Whether a message from another node is the repetition of one that is not news here."""
        taken = read_stamp(message)
        return taken is not None and taken[1] and not self._is_newest(message.topic, *taken)

    def merge(self, message: Publish, is_new: bool = False) -> Merged:
        """Compare a retained message from another node with what is known on its topic, and remember it if
        it is the newest. ``is_new``: that very message has not come before, even if its stamp is known; then
        it is stale only if its value has come already, as a repetition."""
        message = replace(message, properties=dict(message.properties))
        taken = take_stamp(message)
        if taken is None:
            return Merged(message, message, False)
        stamp, repeated = taken
        newest = self.arrived(message, stamp, repeated)
        if is_new and not repeated and not newest:
            known = self.values.get(message.topic) or self.deletions.get(message.topic)
            if known is not None and known.repeated == stamp:
                newest = None
            elif newest is None:
                newest = True
        if newest is None or (repeated and not newest):
            return Merged(message, None, True)
        onward = stamped(message, stamp, repeated)
        if repeated and not message.payload:
            # how long a deletion is remembered is no expiry of the message
            message.properties.pop(Property.MESSAGE_EXPIRY_INTERVAL, None)
        # live subscribers get an older one, but it does not replace the newer value
        return Merged(message if newest else replace(message, retain=False), onward, True)

    def merge_injected(self, message: Publish) -> Publish | None:
        """Merge a retained message which the algorithm gives to the local broker; None: it is stale.

        After one without a stamp nobody else knows what the broker has, so its topic is forgotten.
        """
        merged = self.merge(message)
        if merged.onward is None:
            return None
        if not merged.stamped:
            self.forget(message.topic)
        return merged.here

    # what is remembered -----------------------------------------------------------------------

    def newest(self, topic: str) -> Stamp | None:
        """The stamp of the newest on a topic, perhaps a deletion."""
        self.look_for_expired()
        entry = self.values.get(topic) or self.deletions.get(topic)
        return None if entry is None else entry.stamp

    def wanted(self, topic: str) -> tuple[Publish, float | None] | None:
        """What the local broker should have on a topic (an empty payload: nothing), and until which
        monotonic time; None: whatever it has."""
        self.look_for_expired()
        entry = self.values.get(topic)
        if entry is not None:
            return entry.message, entry.expires_at
        if topic in self.deletions:
            return Publish(topic=topic, qos=DELETION_QOS, retain=True), None
        return None

    def repetition(self, topic: str) -> tuple[Publish, float | None] | None:
        """What is remembered of a topic as another node gets it, and until which monotonic time."""
        self.look_for_expired()
        entry = self.values.get(topic)
        if entry is not None:
            return stamped(entry.message, entry.stamp, repeated=True), entry.expires_at
        entry = self.deletions.get(topic)
        if entry is None:
            return None
        deletion = Publish(topic=topic, qos=DELETION_QOS, retain=True)
        return stamped(deletion, entry.stamp, repeated=True), entry.expires_at

    def matching(self, topic_filter: str) -> Iterator[Publish]:
        """What is remembered on matching topics, stamped as repeated, with the rest of its expiry."""
        self.look_for_expired()
        if "+" in topic_filter or "#" in topic_filter:
            found = [
                (entry.stamp, topic)
                for entries in (self.values, self.deletions)
                for topic, entry in entries.items()
                if topic_matches(topic_filter, topic)
            ]
            topics = [topic for _, topic in sorted(found)]
        else:
            topics = [topic_filter]
        for topic in topics:
            repetition = self.repetition(topic)
            if repetition is not None and not (topic in self.deletions and self.deletions[topic].over):
                message, expires_at = repetition
                if expires_at is not None and message.payload:
                    left = max(1, math.ceil(expires_at - self.driver.now()))
                    message.properties[Property.MESSAGE_EXPIRY_INTERVAL] = left
                yield message

    def stamps(self) -> Iterator[tuple[str, Stamp]]:
        """Topics of what :meth:`matching` finds, with their stamps, in no order. Changes in between are no
        harm."""
        self.look_for_expired()
        for topic in self._all.topics():
            entry = self.values.get(topic) or self.deletions.get(topic)
            if entry is not None and not entry.over:
                yield topic, entry.stamp

    def forget(self, topic: str) -> None:
        """No longer remember what was retained on a topic."""
        if self._remove(topic):
            self._save(topic, None)

    def check(self) -> None:
        """Count all again that is counted as it changes. Raises: AssertionError, it was counted wrong."""
        self.releases.check()
        sizes = [
            sum(_size(topic, entry) for topic, entry in entries.items())
            for entries in (self.values, self.deletions)
        ]
        counted = [self.bytes, self.deletion_bytes]
        assert sizes == counted, f"retained values and deletions of {sizes} bytes count {counted}"

    # keeping ----------------------------------------------------------------------------------

    def _expiry(self, message: Publish) -> float | None:
        if not message.payload:
            return self.driver.now() + self.expiry
        expiry = message.properties.get(Property.MESSAGE_EXPIRY_INTERVAL)
        return None if expiry is None else self.driver.now() + expiry

    def _put(
        self, message: Publish, stamp: Stamp, expires_at: float | None, repeated: Stamp | None = None
    ) -> None:
        topic = message.topic
        if not message.payload:
            self._delete(topic, stamp, expires_at, repeated=repeated)
            return
        whole = stamped(message, stamp)
        whole.packet_id = 1 if whole.qos else None
        try:
            frame = whole.encode(Version.V5)
        except EncodeError:  # the stamp makes it larger than a packet may be
            self.counters["retained_too_large"] += 1
            self.forget(topic)
            return
        before = self._remove(topic)
        if repeated is None and before is not None:
            repeated = before.repeated
        self.values[topic] = entry = RetainedValue(stamp, frame, expires_at, repeated=repeated)
        self.bytes += _size(topic, entry)
        for view in self._views:
            view.put(topic, stamp)
        heapq.heappush(self._oldest, (stamp, topic))
        if len(self._oldest) > 2 * len(self.values) + 100:
            self._oldest = [(entry.stamp, topic) for topic, entry in self.values.items()]
            heapq.heapify(self._oldest)
        self._expires(topic, expires_at)
        self._save(topic, frame, expires_at, repeated)
        while len(self.values) > self.limits.retained_messages or self.bytes > self.limits.retained_bytes:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        stamp, topic = heapq.heappop(self._oldest)
        entry = self.values.get(topic)
        if entry is not None and entry.stamp == stamp:
            self._floor = max(self._floor, stamp)
            self.forget(topic)
            self.counters["retained_forgotten"] += 1

    def _delete(
        self,
        topic: str,
        stamp: Stamp,
        expires_at: float | None,
        over: bool = False,
        repeated: Stamp | None = None,
    ) -> None:
        """Remember that there is nothing (more) on a topic."""
        before = self._remove(topic)
        if repeated is None and before is not None:
            repeated = before.repeated
        if expires_at is None:  # saved before deletions had one
            expires_at = self.driver.now() + self.expiry
        self.deletions[topic] = entry = RetainedValue(stamp, b"", expires_at, over, repeated)
        self.deletion_bytes += _size(topic, entry)
        for view in self._views:
            view.put(topic, None)
        self._expires(topic, expires_at)
        frame = stamped(Publish(topic=topic, retain=True), stamp).encode(Version.V5)
        self._save(topic, frame, expires_at, repeated)
        limits = self.limits
        while (
            len(self.deletions) > limits.retained_deletions
            or self.deletion_bytes > limits.retained_deletion_bytes
        ):
            self.forget(next(iter(self.deletions)))
            self.counters["retained_deletions_forgotten"] += 1

    def _remove(self, topic: str) -> RetainedValue | None:
        entry = self.values.pop(topic, None)
        stamp = None
        if entry is not None:
            self.bytes -= _size(topic, entry)
            stamp = entry.stamp
        else:
            entry = self.deletions.pop(topic, None)
            if entry is None:
                return None
            self.deletion_bytes -= _size(topic, entry)
        for view in self._views:
            view.remove(topic, stamp)
        return entry

    def _expires(self, topic: str, expires_at: float | None) -> None:
        if expires_at is None:
            return
        if not self._expiring or expires_at < self._expiring[0][0]:
            self.scheduled(expires_at)
        heapq.heappush(self._expiring, (expires_at, topic))
        if len(self._expiring) > 2 * (len(self.values) + len(self.deletions)) + 100:
            self._expiring = [
                (entry.expires_at, topic)
                for entries in (self.values, self.deletions)
                for topic, entry in entries.items()
                if entry.expires_at is not None
            ]
            heapq.heapify(self._expiring)

    def look_for_expired(self) -> None:
        """A value that is over leaves a deletion behind; a deletion that is over is forgotten."""
        now = self.driver.now()
        looked = False
        while self._expiring and self._expiring[0][0] <= now:
            looked = True
            expires_at, topic = heapq.heappop(self._expiring)
            entry = self.values.get(topic)
            if entry is not None and entry.expires_at == expires_at:
                self._delete(topic, entry.stamp, expires_at + self.expiry, over=True)
                self.expired(topic)
                continue
            entry = self.deletions.get(topic)
            if entry is not None and entry.expires_at == expires_at:
                self.forget(topic)
        if looked and self._expiring:
            self.scheduled(self._expiring[0][0])

    def _save(
        self,
        topic: str,
        frame: bytes | None,
        expires_at: float | None = None,
        repeated: Stamp | None = None,
    ) -> None:
        if self.store is not None and self._saving:
            wall = (
                None
                if expires_at is None
                else expires_at - self.driver.now() + self._reading(topic in self.values)
            )
            came = None if repeated is None else repeated.text()
            self.store.put(RETAINED, (topic,), None if frame is None else (frame, wall, came))
            self.store.put(CLOCK, ("retained",), (self.clock.last,))

    def _reading(self, value: bool) -> float:
        """What saved ends are counted by: a value expires as its publisher has said, a deletion not sooner
        than other sites have heard of it."""
        return self.calendar.date() if value else self.calendar.cautious()

    # clocks -----------------------------------------------------------------------------------

    def _disbelieve(self, stamp: Stamp) -> None:
        self.counters["retained_refused_future"] += 1
        if stamp.node not in self._disbelieved and len(self._disbelieved) < 1000:
            self._disbelieved.add(stamp.node)
            self.driver.log(
                "warning",
                "a retained message is stamped far in the future",
                node=stamp.node,
                seconds_ahead=stamp.time // 1000 - int(self.driver.wall()),
            )

    def _stamp_anew(self) -> None:
        """The clock of this node was wrong: stamps made meanwhile would be believed nowhere."""
        limit = self.clock.limit
        wrong = [topic for topic, entry in self.values.items() if entry.stamp.time > limit]
        self.driver.log(
            "warning", "the clock was set back; retained messages are stamped anew", topics=len(wrong)
        )
        for topic in wrong:
            entry = self.values[topic]
            self._put(entry.message, Stamp(self.clock.next(), self.node_id), entry.expires_at)
        for topic in [topic for topic, entry in self.deletions.items() if entry.stamp.time > limit]:
            self._delete(topic, Stamp(self.clock.next(), self.node_id), self.deletions[topic].expires_at)

    def _contested_forgotten(self) -> None:
        self.counters["retained_checks_forgotten"] += 1


def _size(topic: str, entry: RetainedValue) -> int:
    return len(entry.frame) + 4 * len(topic) + OVERHEAD
