"""Where messages go: the answers of the algorithm, remembered, as the rules of links let them be.

An algorithm that decides on each message (``route_message``) is asked each time, and nothing is remembered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ildm.mqtt import MalformedPacket, Publish, validate_topic_name

if TYPE_CHECKING:
    from ildm.core.counters import Counters
    from ildm.core.plugin.dispatch import Dispatch
    from ildm.core.transfer.ports import Neighbor, Targets

MAX_CACHED_TOPIC = 512
"""Bytes of a topic whose route is remembered; longer ones, up to 64 kB each, would fill the memory."""


class Routes:
    """Asks the algorithm once for each topic and source; ``size`` answers are remembered of each source."""

    def __init__(self, dispatch: Dispatch, counters: Counters, size: int) -> None:
        self.dispatch = dispatch
        self.counters = counters
        self.size = size
        self.local: dict[bytes, Targets] = {}
        """Routes of messages from local clients, by the bytes of the topic."""
        self._caches: dict[Neighbor, dict[bytes, Targets]] = {}
        self._routes: dict[Targets, Targets] = {}
        """Those in the caches, equal ones as one object."""

    def cache_of(self, source: Neighbor) -> dict[bytes, Targets]:
        """The cache of routes for messages from a neighbour; emptied in place, so it may be kept."""
        cache = self._caches.get(source)
        if cache is None:
            cache = self._caches[source] = {}
        return cache

    def forget(self, source: Neighbor) -> None:
        """A neighbour is gone for good."""
        self._caches.pop(source, None)

    def invalidate(self) -> None:
        """What the algorithm would answer has changed."""
        self.local.clear()
        self._routes.clear()
        for cache in self._caches.values():
            cache.clear()

    def find(self, topic: bytes, source: Neighbor | None) -> Targets:
        """Ask the algorithm about a topic that is not in the cache, and remember the answer.

        Raises:
            MalformedPacket: the bytes are no topic name.
        """
        cache = self.local if source is None else self.cache_of(source)
        route = self._ask(decode_topic(topic), False, source)
        if len(topic) <= MAX_CACHED_TOPIC:
            if len(cache) >= self.size:
                cache.clear()
                self.counters["route_cache_flushes"] += 1
            if len(self._routes) >= self.size:
                self._routes.clear()
            cache[topic] = route = self._routes.setdefault(route, route)
        return route

    def route(self, topic: bytes, retain: bool, source: Neighbor | None = None) -> Targets:
        """Where a message goes to, by memory or by the algorithm. Raises: as :meth:`find`."""
        if retain:
            return self._ask(topic.decode(), True, source)
        cache = self.local if source is None else self.cache_of(source)
        route = cache.get(topic)
        return self.find(topic, source) if route is None else route

    def _ask(self, topic: str, retain: bool, source: Neighbor | None) -> Targets:
        if topic.startswith("$"):
            return ()  # what the standard reserves for the broker stays with it (4.7.2)
        return _ruled(self.dispatch.route(topic, retain, source), topic)

    def route_message(self, message: Publish, source: Neighbor | None, turn: int) -> Targets:
        """Where a message goes that the algorithm wants to see, and to know the ``turn`` of."""
        if message.topic.startswith("$"):
            return ()
        return _ruled(self.dispatch.route_message(message.copy(), source, turn), message.topic)

    def reroute(self, topic: bytes, retain: bool, source: Neighbor | None = None) -> Targets:
        """Where a message goes that has lost its way as the tree has changed. Raises: as :meth:`find`."""
        name = decode_topic(topic)
        return () if name.startswith("$") else _ruled(self.dispatch.reroute(name, retain, source), name)

    def reroute_message(self, message: Publish, source: Neighbor | None = None) -> Targets:
        """The same for a message that the algorithm may want to see. Raises: as :meth:`find`."""
        if not self.dispatch.reroutes_each:
            return self.reroute(message.topic.encode(), message.retain, source)
        if message.topic.startswith("$"):
            return ()
        return _ruled(self.dispatch.reroute_message(message.copy(), source), message.topic)


def _ruled(route: Targets, topic: str) -> Targets:
    """What rules of the links, and what their neighbours have said of theirs, leave of a route; with ranks by
    the classes of the links."""
    if any(link.classes is not None for link, _, _ in route):
        name = topic.encode()
        route = tuple(
            (link, qos, priority if link.classes is None else link.classes.rank(name, priority))
            for link, qos, priority in route
        )
    if all(link.rules is None and link.scope is None for link, _, _ in route):
        return route
    most = [(link, link.most_qos(topic), qos, priority) for link, qos, priority in route]
    for link, at_most, _, _ in most:
        if at_most is None and link.rules is not None and link.rules.outgoing.find(topic.encode()) is None:
            link.rules.outgoing.decide(topic.encode())
    return tuple(
        (link, min(qos, at_most), priority) for link, at_most, qos, priority in most if at_most is not None
    )


def decode_topic(topic: bytes) -> str:
    """Bytes of a PUBLISH as a topic name.

    Raises:
        MalformedPacket: not UTF-8, U+0000, wildcard or empty (MQTT-1.5.4-1, -2, 3.3.2-2, 4.7.3-1).
    """
    try:
        name = topic.decode()
    except UnicodeDecodeError:
        raise MalformedPacket("topic name is not UTF-8", clause="MQTT-1.5.4-1") from None
    if not name:
        raise MalformedPacket("topic name is empty", clause="MQTT-4.7.3-1")
    validate_topic_name(name)
    return name
