"""Which topics' retained messages the local broker may have got in another order than the node.

A message of a local client goes to the broker on the client's own connection, one from elsewhere on a
session of the node. What is on its way on two connections at a time the broker takes in whatever order;
one of QoS 2 counts for it when it is released, not when it came. Such a topic is *contested*, and looked
at in the broker when it has been quiet for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ildm.api import Stamp

SETTLE = 1.0
"""Seconds after which a broker has dealt with what it was sent."""
ABSENCE = 10.0
"""Seconds in which clients come back that do, and release what they have sent; then the node gives it to the
broker in their place."""
RELEASES = 10_000
"""Unreleased messages of clients that are followed; topics of further ones are looked at once, soon."""


class Contention:
    """Remembers who changed a topic last, as long as that matters.

    Args:
        now: monotonic time in seconds.
        limit: topics looked after; of more the longest unchanged are forgotten.
        overflown: told when that happens.
    """

    def __init__(self, now: Callable[[], float], limit: int, overflown: Callable[[], None]) -> None:
        self._now = now
        self._limit = limit
        self._overflown = overflown
        self._last: dict[str, tuple[Hashable, float]] = {}
        self._open: dict[str, dict[Hashable, int]] = {}
        self.contested: dict[str, float] = {}
        """Topic -> time of its last change."""
        self.wake: Callable[[], None] = lambda: None
        """Told of each topic that becomes contested."""

    def touched(self, topic: str, way: Hashable) -> None:
        """A retained message on a topic goes to the broker on one of the connections, or may have arrived."""
        now = self._now()
        last = self._last.pop(topic, None)
        others = self._open.get(topic)
        if (last is not None and last[0] != way and now - last[1] < SETTLE) or (
            others is not None and others.keys() != {way}
        ):
            self.contest(topic)
        elif topic in self.contested:
            self.contested[topic] = now
        self._last[topic] = way, now
        while len(self._last) > self._limit or (
            self._last and next(iter(self._last.values()))[1] <= now - SETTLE
        ):
            del self._last[next(iter(self._last))]

    def opened(self, topic: str, way: Hashable) -> None:
        """The same, and it is not known when the broker has it until :meth:`closed`."""
        ways = self._open.setdefault(topic, {})
        ways[way] = ways.get(way, 0) + 1
        self.touched(topic, way)

    def closed(self, topic: str, way: Hashable) -> None:
        """What was opened has arrived, or never will."""
        ways = self._open.get(topic)
        if ways is not None and way in ways:
            self.touched(topic, way)
            ways[way] -= 1
            if not ways[way]:
                del ways[way]
            if not ways:
                del self._open[topic]

    def contest(self, topic: str) -> None:
        """What the broker has on a topic is uncertain for another reason."""
        self.contested[topic] = self._now()
        if len(self.contested) > self._limit:
            del self.contested[next(iter(self.contested))]
            self._overflown()
        self.wake()

    def takes_effect(self, topic: str, way: Hashable) -> None:
        """What was sent on one of the connections before counts for the broker from now on."""
        last = self._last.pop(topic, None)
        self._last[topic] = way if last is None else last[0], self._now()

    def is_open(self, topic: str) -> bool:
        return topic in self._open

    def is_settling(self, topic: str) -> bool:
        """Whether something was sent to the broker just now: it may be there or not."""
        last = self._last.get(topic)
        return last is not None and self._now() - last[1] < SETTLE

    def take_quiet(self) -> list[str]:
        """The contested topics that have been quiet for long enough; they are no longer contested."""
        now = self._now()
        quiet = [
            topic
            for topic, changed in self.contested.items()
            if changed <= now - SETTLE and topic not in self._open
        ]
        for topic in quiet:
            del self.contested[topic]
        return quiet


class Releases:
    """Retained messages of QoS 2 of local clients, which the broker applies when the client releases them.

    Args:
        now: monotonic time in seconds.
        newest: the stamp of the newest on a topic.
        contention: of the topics.
    """

    def __init__(
        self, now: Callable[[], float], newest: Callable[[str], Stamp | None], contention: Contention
    ) -> None:
        self._now = now
        self._newest = newest
        self._contention = contention
        self._count = 0
        self._clients: dict[str, dict[int, tuple[str, Stamp | None]]] = {}
        self._awaited: dict[str, tuple[Stamp | None, float]] = {}
        """Of each topic the message that was sent last, and when."""

    def sent(self, client: str, packet_id: int, topic: str) -> None:
        """The message has been remembered as the newest; its client has not released it yet."""
        if self._count >= RELEASES:
            self._contention.contest(topic)
            return
        unreleased = self._clients.setdefault(client, {})
        if packet_id in unreleased:
            self._await_no_longer(*unreleased[packet_id])
        else:
            self._count += 1
        stamp = self._newest(topic)
        unreleased[packet_id] = topic, stamp
        self._awaited[topic] = stamp, self._now()

    def awaits(self, topic: str) -> bool:
        """Whether the newest on a topic is at the broker, which applies it when the client releases it: soon,
        as far as can be hoped."""
        stamp, since = self._awaited.get(topic, (None, 0.0))
        return stamp is not None and stamp == self._newest(topic) and self._now() - since < ABSENCE

    def is_unreleased(self, topic: str) -> bool:
        """Whether its client has not released the newest on a topic, however long ago it came."""
        stamp, _ = self._awaited.get(topic, (None, 0.0))
        return stamp is not None and stamp == self._newest(topic)

    def _await_no_longer(self, topic: str, stamp: Stamp | None) -> None:
        if topic in self._awaited and self._awaited[topic][0] == stamp:
            del self._awaited[topic]

    def released(self, client: str, packet_id: int) -> None:
        unreleased = self._clients.get(client)
        found = None if unreleased is None else unreleased.pop(packet_id, None)
        if unreleased is None or found is None:
            return
        self._count -= 1
        if not unreleased:
            del self._clients[client]
        topic, stamp = found
        self._await_no_longer(topic, stamp)
        if self._newest(topic) != stamp:
            self._contention.contest(topic)
        else:
            self._contention.takes_effect(topic, client)

    def check(self) -> None:
        """Count all again that is counted as it changes. Raises: AssertionError, it was counted wrong."""
        count = sum(map(len, self._clients.values()))
        assert count == self._count, f"{count} messages that are not released count {self._count}"

    def any_of(self, client: str) -> bool:
        """Whether a client has any."""
        return client in self._clients

    def overdue(self, client: str) -> None:
        """Its connection has ended :data:`ABSENCE` ago. It may never release what other sites have."""
        for topic, _ in self._clients.get(client, {}).values():
            self._contention.contest(topic)

    def gone(self, client: str) -> None:
        """The client's session has ended: the broker has forgotten what was not released."""
        unreleased = self._clients.pop(client, {})
        self._count -= len(unreleased)
        for topic, stamp in unreleased.values():
            self._await_no_longer(topic, stamp)
            self._contention.contest(topic)
