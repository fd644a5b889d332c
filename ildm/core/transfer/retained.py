"""What keeps retained messages the same at all sites (thesis 5.3.3, and beyond it).

Forwarding alone does not: of two sites that set a topic at the same time each ends with the other's
value, and what is set while a link is down is missing at the far side. So each retained message gets
a stamp where it enters the network, and the newest stamp of a topic wins everywhere. Nodes remember
the newest message of each topic; neighbours that meet and find that they differ tell each other
everything they remember. A stamp is a hybrid logical clock: wall-clock milliseconds, but always later
than what the node has seen, so that a reaction never loses to its cause by skewed clocks.

A retained message which a broker had before a node stood before it is not known to the node.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ildm.api import STAMP_PROPERTY, Stamp
from ildm.core.tables import RETAINED
from ildm.mqtt import MqttError, Property, Publish, Version, decode, topic_matches

if TYPE_CHECKING:
    from ildm.config import LimitsConfig
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver, Store

OVERHEAD = 200
"""Bytes an entry is taken to need besides its topic and payload."""


class Entry(NamedTuple):
    """The newest retained message of a topic; with an empty payload, that it was deleted."""

    stamp: Stamp
    message: Publish
    expires_at: float | None

    @property
    def size(self) -> int:
        return len(self.message.payload) + len(self.message.topic) + OVERHEAD


class Judged(NamedTuple):
    """What is to be done with a retained message from another node."""

    here: Publish
    """As the local broker gets it: without the stamp, and without the retain flag if a newer one is known."""
    onward: Publish | None
    """As other nodes get it; None: nobody needs it, not even the local broker."""
    stamped: bool
    """It carried a node's stamp."""


class Retained:
    """The newest retained message of each topic, bounded in number and bytes; the oldest go first."""

    def __init__(self, driver: Driver, node_id: str, limits: LimitsConfig, counters: Counters, store: Store):
        self.driver = driver
        self.node_id = node_id
        self.limits = limits
        self.counters = counters
        self.store = store
        self.entries: dict[str, Entry] = {}
        self.bytes = 0
        self._digest = 0
        self._last = 0

    def restore(self) -> None:
        """Take up what an earlier run has saved."""
        for key, (frame, expires_at) in list(self.store.load(RETAINED)):
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
            if taken is not None:
                self._last = max(self._last, taken[0].time)
            if taken is not None and not self._over(expires_at):
                self._put(Entry(taken[0], message, expires_at), save=False)

    @property
    def digest(self) -> bytes:
        """Equal for two nodes exactly when they remember the same (but for a chance of 2^-64)."""
        return self._digest.to_bytes(8, "big")

    def next_stamp(self) -> Stamp:
        """A stamp for what comes now, later than all there are."""
        self._last = max(self._last + 1, int(self.driver.wall() * 1000))
        return Stamp(self._last, self.node_id)

    def entered(self, message: Publish, stamp: Stamp | None = None) -> Stamp:
        """A retained message of a local client is transferred; answers its stamp.

        It may have got its stamp when it came, and be older news by now.
        """
        stamp = stamp or self.next_stamp()
        known = self.entries.get(message.topic)
        if known is None or known.stamp < stamp:
            self._put(self._entry(stamp, message))
        return stamp

    def arrived(self, message: Publish, stamp: Stamp) -> bool | None:
        """A retained message has come over a link: True if it is the newest, False if a newer one is
        known, None if this very one is."""
        self._last = max(self._last, stamp.time)
        known = self.entries.get(message.topic)
        if known is not None and known.stamp >= stamp:
            return None if known.stamp == stamp else False
        self._put(self._entry(stamp, message))
        return True

    def judge(self, message: Publish) -> Judged:
        """Compare a retained message from another node with what is known on its topic, and remember it if
        it is the newest."""
        message = replace(message, properties=dict(message.properties))
        taken = take_stamp(message)
        if taken is None:
            return Judged(message, message, False)
        stamp, repeated = taken
        newest = self.arrived(message, stamp)
        if newest is None or (repeated and not newest):
            return Judged(message, None, True)
        # live subscribers get an older one, but it does not replace the newer value
        here = message if newest else replace(message, retain=False)
        return Judged(here, stamped(message, stamp, repeated), True)

    def judge_injected(self, message: Publish) -> Publish | None:
        """Judge a retained message which the algorithm gives to the local broker; None: it is old news.

        After one without a stamp nobody else knows what the broker has, so its topic is forgotten.
        """
        judged = self.judge(message)
        if judged.onward is None:
            return None
        if not judged.stamped:
            self.forget(message.topic)
        return judged.here

    def everything(self) -> Iterator[tuple[Publish, float | None]]:
        """All that is remembered, stamped for a link as repeated, with the time of expiry."""
        for topic in list(self.entries):
            entry = self.entries.get(topic)
            if entry is not None and not self._over(entry.expires_at):
                left = None if entry.expires_at is None else entry.expires_at - self.driver.wall()
                expires_at = None if left is None else self.driver.now() + left
                yield stamped(entry.message, entry.stamp, repeated=True), expires_at

    def matching(self, topic_filter: str) -> Iterator[Publish]:
        """What is remembered on matching topics, stamped as repeated, with the rest of its expiry."""
        if "+" in topic_filter or "#" in topic_filter:
            entries = [e for topic, e in self.entries.items() if topic_matches(topic_filter, topic)]
        else:
            entry = self.entries.get(topic_filter)
            entries = [] if entry is None else [entry]
        for entry in entries:
            if self._over(entry.expires_at):
                continue
            message = stamped(entry.message, entry.stamp, repeated=True)
            if entry.expires_at is not None:
                left = max(1, math.ceil(entry.expires_at - self.driver.wall()))
                message.properties[Property.MESSAGE_EXPIRY_INTERVAL] = left
            yield message

    def forget(self, topic: str) -> None:
        """No longer remember what was retained on a topic."""
        if topic in self.entries:
            self._remove(topic)
            self.store.put(RETAINED, (topic,), None)

    def _over(self, expires_at: float | None) -> bool:
        return expires_at is not None and expires_at <= self.driver.wall()

    def _entry(self, stamp: Stamp, message: Publish) -> Entry:
        expiry = message.properties.get(Property.MESSAGE_EXPIRY_INTERVAL)
        return Entry(stamp, message, None if expiry is None else self.driver.wall() + expiry)

    def _put(self, entry: Entry, save: bool = True) -> None:
        topic = entry.message.topic
        self._remove(topic)
        self.entries[topic] = entry
        self.bytes += entry.size
        self._digest ^= _hash(topic, entry.stamp)
        if save:
            message = stamped(entry.message, entry.stamp)
            message.packet_id = 1 if message.qos else None
            message.dup = False
            self.store.put(RETAINED, (topic,), (message.encode(Version.V5), entry.expires_at))
        while len(self.entries) > self.limits.retained_messages or self.bytes > self.limits.retained_bytes:
            oldest = next(iter(self.entries))
            self._remove(oldest)
            self.store.put(RETAINED, (oldest,), None)
            self.counters["retained_forgotten"] += 1

    def _remove(self, topic: str) -> None:
        old = self.entries.pop(topic, None)
        if old is not None:
            self.bytes -= old.size
            self._digest ^= _hash(topic, old.stamp)


def stamped(message: Publish, stamp: Stamp, repeated: bool = False) -> Publish:
    """A copy of a message that carries its stamp over a link."""
    # a client may have set a property of this name: only the node's own counts
    users = [pair for pair in message.properties.get(Property.USER_PROPERTY, ()) if pair[0] != STAMP_PROPERTY]
    users.append((STAMP_PROPERTY, stamp.text(repeated)))
    return Publish(
        topic=message.topic,
        payload=message.payload,
        qos=message.qos,
        retain=True,
        packet_id=message.packet_id,
        properties={**message.properties, Property.USER_PROPERTY: users},
    )


def take_stamp(message: Publish) -> tuple[Stamp, bool] | None:
    """Remove the stamp from a message; answers it and whether the message is a repetition."""
    users = list(message.properties.get(Property.USER_PROPERTY, ()))
    found = next((value for key, value in users if key == STAMP_PROPERTY), None)
    if found is None:
        return None
    rest = [pair for pair in users if pair[0] != STAMP_PROPERTY]
    if rest:
        message.properties[Property.USER_PROPERTY] = rest
    else:
        del message.properties[Property.USER_PROPERTY]
    stamp, repeated = Stamp.parse(found)
    return None if stamp is None else (stamp, repeated)


def _hash(topic: str, stamp: Stamp) -> int:
    text = f"{stamp.text()}\0{topic}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
