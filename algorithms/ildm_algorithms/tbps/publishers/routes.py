"""Through which keys the topics of local clients are published: keys of their own, or aggregates.

A topic has keys of its own as long as there are few below its prefix (``siblings``) and in all
(``max_topics``). Each further topic goes through the aggregate of a prefix. An aggregate has one key behind
all that is below the prefix. It is publisher in the wildcard segments of the prefixes above.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ildm_algorithms.overlay.keys import Range
from ildm_algorithms.tbps.keys.encoding import Segment, prefixes_above, segments_of_topic, topics_below

if TYPE_CHECKING:
    from ildm.mqtt import Publish
    from ildm_algorithms.exchange.messages import Message
    from ildm_algorithms.tbps.config import TbpsConfig
    from ildm_algorithms.tbps.keys.segments import Segments
    from ildm_algorithms.tbps.publishers.aggregates import Aggregate
    from ildm_algorithms.tbps.publishers.surveys import Surveys

__all__ = ["AwaitsKeys", "PublisherRoute", "PublisherRoutes"]


class AwaitsKeys(NamedTuple):
    """A message that waits for keys."""

    message: Publish
    turn: int
    at: float
    """Since when."""
    expires_at: float | None
    size: int
    carried: Message


class PublisherRoute:
    """A way out for messages: a topic with keys of its own, or an aggregate."""

    __slots__ = (
        "aggregate",
        "below",
        "holds",
        "late",
        "missing",
        "name",
        "segments",
        "sent_at",
        "used",
        "waiting",
    )

    def __init__(self, name: str, segments: Sequence[Segment], now: float) -> None:
        self.name = name
        """The topic, or the prefix with ``#`` behind it."""
        self.segments = segments
        """Where this node has keys for it: that of the topic or of aggregates first, then wildcard ones."""
        self.aggregate: Aggregate | None = None
        self.below: Range | None = None
        """What the aggregate knows about; None for a topic."""
        self.missing: set[bytes] = set()
        """Codes of segments with no key of this node in the graph yet."""
        self.waiting: deque[AwaitsKeys] = deque()
        self.sent_at: OrderedDict[bytes, float] = OrderedDict()
        """When an aggregate sent to segments below that are known to have subscribers, the latest last."""
        self.late = False
        """Messages do not wait any more for the keys that are missing."""
        self.holds = False
        """Retained messages have gone through an aggregate: it stays, for new subscribers to find them."""
        self.used = now

    @property
    def ready(self) -> bool:
        """Messages need not wait."""
        return self.late or not self.missing

    def covers(self, segment: Segment) -> bool:
        """Whether an aggregate knows if a segment has subscribers."""
        return self.below is not None and segment.code in self.below


class PublisherRoutes:
    """The topics and the aggregates of one node."""

    def __init__(
        self,
        segments: Segments,
        surveys: Surveys,
        config: TbpsConfig,
        now: Callable[[], float],
        opened: Callable[[PublisherRoute], None],
        closed: Callable[[PublisherRoute], None],
        count: Callable[[str], None],
    ) -> None:
        self.segments = segments
        self.surveys = surveys
        self.config = config
        self.now = now
        self.opened = opened
        self.closed = closed
        """Called with a route that is in the tables no more."""
        self.count = count
        self.topics: OrderedDict[str, PublisherRoute] = OrderedDict()
        """Topics with keys of their own, the least recently used first."""
        self.aggregates: dict[bytes, PublisherRoute] = {}
        """By the code of their segment."""
        self.named: dict[str, PublisherRoute] = {}
        self._below: Counter[bytes] = Counter()
        """How many topics with keys of their own each prefix has below it."""
        self._heat: OrderedDict[str, int] = OrderedDict()

    def find(self, topic: str) -> PublisherRoute | None:
        """Through which a topic goes by now: an aggregate also while keys of its own join."""
        own = self.topics.get(topic)
        if own is not None and (own.waiting or not own.missing):
            return own
        return self._covering(topic) or own

    def open(self, topic: str) -> PublisherRoute:
        """Through which a topic goes from now on."""
        route = self.find(topic)
        if route is None:
            prefix = self._prefix_for(topic)
            route = self._open_topic(topic) if prefix is None else self._open_aggregate(prefix)
        route.used = self.now()
        own = route if route.below is None else self.topics.get(topic)
        if own is not None:
            own.used = route.used
            self.topics.move_to_end(topic)
        return route

    def sent(self, topic: str, route: PublisherRoute) -> None:
        """An aggregate has sent a message to subscribers of one topic: if it is hot, it gets own keys."""
        if not self.config.hot or not self.config.hot_topics or topic in self.topics:
            return
        heat = self._heat.pop(topic, 0) + 1
        if heat < self.config.hot:
            self._heat[topic] = heat
            if len(self._heat) > self.config.hot_topics:
                self._heat.popitem(last=False)
        elif self.config.max_topics and not route.missing:
            if len(self.topics) >= self.config.max_topics:
                self.count("topics_displaced")
                self.close(next(iter(self.topics.values())))
            self.count("topics_hot")
            self._open_topic(topic)

    def close(self, route: PublisherRoute) -> None:
        """Leave the segments of a route, and those only it was in."""
        del self.named[route.name]
        if route.below is None:
            del self.topics[route.name]
            self._count_below(route.name, -1)
        else:
            del self.aggregates[route.segments[0].code]
            self.surveys.close(route.segments[0])
        for segment in route.segments:
            self.segments.withdraw(segment, route.name)
        self.closed(route)

    # inside -----------------------------------------------------------------------------------

    def _covering(self, topic: str) -> PublisherRoute | None:
        if self.aggregates:
            for segment in prefixes_above(topic):
                route = self.aggregates.get(segment.code)
                if route is not None:
                    return route
        return None

    def _prefix_for(self, topic: str) -> Segment | None:
        """The prefix to be aggregated for a new topic; None if it gets keys of its own.

        The subtree of the empty prefix are the topics of all nodes, so it is the last resort.
        """
        *prefixes, root = prefixes_above(topic)
        for segment in prefixes:
            if self._below[segment.code] >= max(self.config.siblings, 1):
                return segment
        if len(self.topics) < self.config.max_topics:
            return None
        for segment in prefixes:
            if self._below[segment.code]:
                return segment
        return prefixes[-1] if prefixes else root

    def _open_topic(self, topic: str) -> PublisherRoute:
        route = self.topics[topic] = PublisherRoute(topic, segments_of_topic(topic), self.now())
        self._count_below(topic, 1)
        return self._advertise(route)

    def _count_below(self, topic: str, by: int) -> None:
        for segment in prefixes_above(topic):
            self._below[segment.code] += by
            if not self._below[segment.code]:
                del self._below[segment.code]

    def _open_aggregate(self, prefix: Segment) -> PublisherRoute:
        while len(self.aggregates) >= self.config.max_aggregates:
            prefix = self._merge(prefix)
            if prefix.code in self.aggregates:
                return self.aggregates[prefix.code]
        return self._add_aggregate(prefix)

    def _merge(self, prefix: Segment) -> Segment:
        """Make room for the aggregate of ``prefix``: the longest prefix that has two or more takes their
        place. Returns the one to be opened now."""
        below = Counter(
            segment.code
            for code in (*self.aggregates, prefix.code)
            for segment in prefixes_above(Segment(code).text)
        )
        common = max(
            (Segment(code) for code, number in below.items() if number > 1),
            key=lambda segment: (len(segment.levels), segment.code),
        )
        merged = topics_below(common.levels)
        for code, route in list(self.aggregates.items()):
            if code in merged:
                self.count("aggregates_merged")
                self.close(route)
        if prefix.code in merged or prefix == common:
            return common
        if common.code not in self.aggregates:
            self._add_aggregate(common)
        return prefix

    def _add_aggregate(self, prefix: Segment) -> PublisherRoute:
        levels = prefix.levels
        above = [Segment.wildcard(levels[:depth]) for depth in reversed(range(len(levels)))]
        route = self.aggregates[prefix.code] = PublisherRoute(prefix.text, [prefix, *above], self.now())
        route.below = topics_below(levels)
        route.aggregate = self.surveys.open(prefix)
        self.count("aggregates_opened")
        return self._advertise(route)

    def _advertise(self, route: PublisherRoute) -> PublisherRoute:
        self.named[route.name] = route
        for segment in route.segments:
            member = self.segments.advertise(segment, route.name)
            if not member.ready:
                route.missing.add(segment.code)
                member.waiters.add(route.name)
        self.opened(route)
        return route
