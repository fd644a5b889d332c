"""Messages of local clients on their way out: topics this node publishes, waiting, sending."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from ildm.mqtt import Property, Publish, Version
from ildm_algorithms.exchange.absence import LOOKBACK
from ildm_algorithms.exchange.log import read_message
from ildm_algorithms.exchange.messages import Message
from ildm_algorithms.exchange.streams import StreamNumbers
from ildm_algorithms.tbps.keys.encoding import prefixes_above, segments_of_topic
from ildm_algorithms.tbps.messages import Newer
from ildm_algorithms.tbps.publishers.announcing import Announcer
from ildm_algorithms.tbps.publishers.routes import AwaitsKeys, PublisherRoute, PublisherRoutes

if TYPE_CHECKING:
    from ildm.api import Fact, NodeApi
    from ildm_algorithms.exchange.log import Log
    from ildm_algorithms.overlay.graph import CastResult, SkipGraph
    from ildm_algorithms.overlay.keys import Range
    from ildm_algorithms.tbps.config import TbpsConfig
    from ildm_algorithms.tbps.keys.encoding import Segment
    from ildm_algorithms.tbps.keys.segments import Member, Segments
    from ildm_algorithms.tbps.keys.spreading import Spreading
    from ildm_algorithms.tbps.publishers.surveys import Surveys

__all__ = ["OVERHEAD", "Outbox"]

OVERHEAD = 200
"""Bytes a waiting message is taken to need besides its topic and payload."""
FIND = 10.0
"""Seconds after a restart until messages go out even if no other node has been found."""
LOG_EVERY = 10.0
"""Seconds between two words in the log about topics without keys; all are counted."""


class Outbox:
    """Keeps this node in the segments of the topics it publishes to, and casts its messages there.

    A key is needed for short ways and to know of subscribers, not to reach them. A message without a key goes
    to all segments of its topic, from wherever this node is in the graph.
    """

    def __init__(
        self,
        api: NodeApi,
        graph: SkipGraph,
        spreading: Spreading,
        segments: Segments,
        surveys: Surveys,
        config: TbpsConfig,
        log: Log,
        first_number: int,
        unconfirmed: Callable[[Segment, int], None],
        holds: Callable[[str], bool],
        unreached: Callable[[Member], None],
        came_late: Callable[[PublisherRoute], None],
        count: Callable[..., None],
    ) -> None:
        self.api = api
        self._node_id = api.node_id
        self.spreading = spreading
        self.segments = segments
        self.config = config
        self.count = count
        self.log = log
        self.unconfirmed = unconfirmed
        """Hears of the number of a message that may not have reached all in a segment."""
        self.holds = holds
        """Whether a retained message entered at this node is the newest on a topic."""
        self.unreached = unreached
        self.came_late = came_late
        """Called with a route whose messages went out without its keys, which are in the graph now. Earlier
        questions for retained messages have not found those held here."""
        self.routes = PublisherRoutes(segments, surveys, config, api.now, self._opened, self._closed, count)
        self.waiting = 0
        self.waiting_bytes = 0
        self._number = first_number
        self._streams = StreamNumbers(config.order_streams)
        self._sweeping = False
        self._logged: float | None = None
        self._finding = False
        """After a restart nothing is sent until the others are found: first goes what was under way."""
        self._orphans: list[PublisherRoute] = []
        """Routes that have been closed with something in them."""
        self._newer = Announcer(api, graph, Newer, "retained_told", count)
        self._announced: OrderedDict[str, None] = OrderedDict()
        """Topics whose retained message from here all who may hold another know of."""

    def publish(self, message: Publish, turn: int) -> None:
        """Spread one message, or let it wait until the keys of its topic are in the graph."""
        route = self.open(message.topic)
        if message.retain:
            route.holds = True
        now = self.api.now()
        keep = bool(message.qos and self.config.qos)
        if not (keep or self._finding or not route.ready):
            self._send(route, message, turn, now)
            return
        carried = self._numbered(message, turn)
        payload = carried.encode()
        if not keep:
            self._spread(message, turn, now, carried, payload)
            return
        # before anything is sent, and before its client gets the acknowledgement
        self._keep(route, message, carried.number, payload)
        self.api.when_kept(partial(self._written, message, turn, now, carried, payload))

    def _written(self, message: Publish, turn: int, at: float, carried: Message, payload: bytes) -> None:
        self.log.written(carried.number)
        self._spread(message, turn, at, carried, payload)

    def _spread(self, message: Publish, turn: int, at: float, carried: Message, payload: bytes) -> None:
        route = self.open(message.topic)
        if message.retain:
            route.holds = True
        if self._finding or not route.ready:
            expiry = message.properties.get(Property.MESSAGE_EXPIRY_INTERVAL)
            expires_at = None if expiry is None else at + expiry
            size = len(message.topic) + len(message.payload) + OVERHEAD
            if self._wait(route, AwaitsKeys(message, turn, at, expires_at, size, carried)):
                return
            self.count("waiting_full")
            self._go_late(route)
        self._send(route, message, turn, at, carried, payload)

    def open(self, topic: str) -> PublisherRoute:
        """Be a publisher of a topic from now on, or go on being one."""
        route = self.routes.open(topic)
        self._take_in_orphans()
        return route

    def hold(self, topic: str) -> None:
        """A retained message that has entered here is to be found by new subscribers."""
        self.open(topic).holds = True

    def prepared(self, member: Member) -> None:
        """An own key of the segment is in the graph, and it is known how to send there: messages go."""
        if not member.inside:
            return  # the key has left meanwhile
        member.prepared = True
        waiters, member.waiters = member.waiters, set()
        for name in waiters:
            route = self.routes.named.get(name)
            if route is not None:
                route.missing.discard(member.segment.code)
                self._flush(route)
                if route.late and route.holds and not route.missing:
                    self.came_late(route)

    def repeat(self, message: Publish) -> None:
        """Cast a retained message once more, to all segments of its topic that are not suspended."""
        route = self.routes.find(message.topic)
        if route is not None and route.ready:
            self.count("retained_repeated")
            self._send(route, message, 0, self.api.now(), repeated=True)

    def goes_through(self, route: PublisherRoute, topic: str) -> bool:
        """Whether messages on a topic go through a route."""
        return self.routes.find(topic) is route

    def responsible(self, topic: str) -> bytes | None:
        """Code of the segment in which this node is to be found as publisher of a topic."""
        route = self.routes.topics.get(topic) or self.routes.find(topic)
        return None if route is None else route.segments[0].code

    def publishes(self, topic: str) -> bool:
        """Whether local clients do, or lately did, publish to a topic, with a key for it or through an
        aggregate."""
        return self.routes.find(topic) is not None

    def suspended(self, topic: str, segment: Segment) -> bool | None:
        """Whether messages on a topic are kept from one of its segments; None: nothing is known here."""
        member = self._ready_member(segment)
        if member is not None:
            return member.suspended
        route = self.routes.find(topic)
        if route is None or not route.covers(segment):
            return None
        return not route.aggregate.sends_to(segment.code) if route.aggregate is not None else None

    def facts(self) -> dict[str, Fact]:
        """What this node publishes and how, for people."""
        return {
            "topics with keys": len(self.routes.topics),
            "aggregates": len(self.routes.aggregates),
            "waiting messages": self.waiting,
        }

    def superseded(self, topic: str) -> None:
        """Another node holds the retained message of a topic now."""
        self._announced.pop(topic, None)

    def merged(self) -> None:
        """The graph has become one with another, where others may hold what is held here."""
        self._announced.clear()

    # sending ----------------------------------------------------------------------------------

    def _send(
        self,
        route: PublisherRoute,
        message: Publish,
        turn: int,
        at: float,
        carried: Message | None = None,
        payload: bytes = b"",
        repeated: bool = False,
    ) -> None:
        """To all segments that are not suspended. ``at``: when it was published; ``carried``, ``payload``:
        with its number, if it has one."""
        topic = message.topic
        qos = min(message.qos, self.config.qos)
        aggregate = route.aggregate
        segments = route.segments if aggregate is None else segments_of_topic(topic)
        telling = message.retain and topic not in self._announced
        now = self.api.now()
        asleep = 0
        for segment in segments:
            member = self.segments.get(segment)
            if member is None or (active := member.sends) is None:
                member, active = None, self._sends_to(route, segment, now)
            elif active:
                member.last_sent = now
                member.publisher.used = True
            else:
                member.skip(at)
            # the publishers of the very topic receive retained messages: they may hold older ones
            held = message.retain and segment.is_exact and (telling or aggregate is None)
            if not (active or held):
                asleep += 1
                continue
            if carried is None:
                carried = self._numbered(message, turn)
                payload = carried.encode()
            target = segment.subscribers if member is None else member.subscribers
            if held:
                target = segment.members if active else segment.publishers
            reliable = qos > 0 or repeated or (held and telling)
            if reliable:
                self._cast(route, segment, member, target, carried.number, payload, turn, at)
            else:
                self.spreading.send(member, target, payload, False, turn, None)
        if asleep:
            self.count("suspended_publishes", asleep)
        if asleep == len(segments) and carried is not None:
            self.log.done(carried.number)
        if telling:
            self._tell_holders(message)
        if aggregate is not None and aggregate.knows(segments[0].code):
            self.routes.sent(topic, route)
            self._take_in_orphans()

    def _ready_member(self, segment: Segment) -> Member | None:
        member = self.segments.get(segment)
        return member if member is not None and member.ready else None

    def _sends_to(self, route: PublisherRoute, segment: Segment, now: float) -> bool:
        """Whether a message goes into a segment in which this node has no key that is ready."""
        if route.aggregate is None or not route.covers(segment):
            return True  # without a key nothing is known
        if route.aggregate.knows(segment.code):
            route.sent_at.pop(segment.code, None)
            route.sent_at[segment.code] = now
            if len(route.sent_at) > self.config.max_interest:
                route.sent_at.popitem(last=False)
        return route.aggregate.wants(segment.code)

    def _keep(self, route: PublisherRoute, message: Publish, number: int, payload: bytes) -> None:
        """Keep a message for those it may not reach."""
        subscribed = not route.ready
        if not subscribed:
            segments = route.segments if route.aggregate is None else segments_of_topic(message.topic)
            since = self.api.now() - self.config.absence_period
            subscribed = any(self._subscribed_since(route, segment, since) for segment in segments)
        expiry = message.properties.get(Property.MESSAGE_EXPIRY_INTERVAL)
        self.log.add(number, message.topic, payload, expiry, subscribed)

    def _subscribed_since(self, route: PublisherRoute, segment: Segment, since: float) -> bool:
        """Whether a segment has, or has lately had, subscribers."""
        member = self.segments.get(segment)
        sends = None if member is None else member.sends
        if member is not None and sends is not None:
            return sends or (member.last_sent is not None and member.last_sent > since)
        if route.aggregate is None or not route.covers(segment):
            return True
        return route.aggregate.knows(segment.code) or route.sent_at.get(segment.code, since) > since

    def _cast(
        self,
        route: PublisherRoute,
        segment: Segment,
        member: Member | None,
        target: Range,
        number: int,
        payload: bytes,
        turn: int,
        at: float,
    ) -> None:
        """To all in a segment, reliably."""
        aggregate = route.aggregate
        moment = 0 if aggregate is None else aggregate.moment
        entry = self.log.get(number)
        if entry is not None:
            entry.casts += 1
            entry.reached = inf

        def done(result: CastResult) -> None:
            if entry is not None:
                entry.casts -= 1
                if result.complete and result.keys and not (entry.casts or entry.unconfirmed):
                    self.log.done(number)
            if not result.complete:
                self.count("casts_incomplete")
                if number in self.log:
                    self.unconfirmed(segment, number)
            elif result.keys or target != segment.subscribers:
                return
            elif member is not None:
                # perhaps there is one now that could not be seen yet
                member.skip(at)
                self.unreached(member)
            elif aggregate is not None:
                aggregate.unsubscribed(segment.code, moment)

        self.spreading.send(member, target, payload, True, turn, done)

    def _numbered(self, message: Publish, turn: int) -> Message:
        self._number += 1
        turn &= 0xFFFF
        stream = self._node_id, message.topic, turn
        before = self._streams.get(stream)
        behind = 0 if before is None else self._number - before
        self._streams.put(stream, self._number)
        return Message(self._number, behind if behind < 1 << 32 else 0, turn, self._frame(message))

    def _tell_holders(self, message: Publish) -> None:
        """Aggregates of other nodes may hold older retained messages of the topic; they hear of a newer one
        once, not of each that follows."""
        topic = message.topic
        self._announced[topic] = None
        if len(self._announced) > self.config.told_topics:
            self._announced.popitem(last=False)

        def done(complete: bool) -> None:
            if not complete:
                self._announced.pop(topic, None)

        ranges = [segment.publishers for segment in prefixes_above(topic)]
        self._newer.add(self._frame(message), ranges, done)

    def _frame(self, message: Publish) -> bytes:
        qos = min(message.qos, self.config.qos)
        properties = message.properties
        if Property.TOPIC_ALIAS in properties:
            properties = {k: v for k, v in properties.items() if k is not Property.TOPIC_ALIAS}
        packet_id = 1 if qos else None
        same = properties is message.properties and qos == message.qos and packet_id == message.packet_id
        if not same or message.dup:
            message = replace(message, qos=qos, dup=False, packet_id=packet_id, properties=properties)
        return message.encode(Version.V5)

    def _aged(self, waiting: AwaitsKeys) -> AwaitsKeys | None:
        """A message that has waited, with what is left of its expiry interval (MQTT-3.3.2-6)."""
        message = waiting.message
        if waiting.expires_at is None:
            return waiting
        left = waiting.expires_at - self.api.now()
        if left <= 0:
            self.count("expired")
            return None
        # seconds begun count whole, so that waiting for a moment does not let a message of 1 s expire
        seconds = int(left) + (left > int(left))
        message = replace(
            message, properties={**message.properties, Property.MESSAGE_EXPIRY_INTERVAL: seconds}
        )
        carried = waiting.carried._replace(frame=self._frame(message))
        return waiting._replace(message=message, carried=carried)

    # waiting ----------------------------------------------------------------------------------

    def resume(self) -> None:
        """Publish again what an earlier incarnation has logged.

        The node is publisher of those topics. What may have been under way goes first, as soon as the others
        are found.
        """
        self._finding = True
        self.api.call_later(FIND, self.found)
        for entry in self.log.newest_within(LOOKBACK, self.config.waiting_messages):
            carried, message = read_message(entry.payload)
            size = len(entry.topic) + len(message.payload) + OVERHEAD
            waiting = AwaitsKeys(message, carried.turn, entry.at, entry.expires_at, size, carried)
            if not self._wait(self.open(entry.topic), waiting):
                return

    def found(self) -> None:
        """This node is in the graph with others, or has looked for them for long enough."""
        if self._finding:
            self._finding = False
            for route in list(self.routes.named.values()):
                self._flush(route)

    def _wait(self, route: PublisherRoute, waiting: AwaitsKeys) -> bool:
        """Let a message wait, if there is room."""
        if (
            self.waiting >= self.config.waiting_messages
            or self.waiting_bytes + waiting.size > self.config.waiting_bytes
        ):
            return False
        self.waiting += 1
        self.waiting_bytes += waiting.size
        route.waiting.append(waiting)
        return True

    def check_sums(self) -> None:
        """Count all again that is counted as it changes. Raises: AssertionError, it was counted wrong."""
        routes = {*self.routes.named.values(), *self._orphans}
        waiting = [waiting.size for route in routes for waiting in route.waiting]
        found, counted = (len(waiting), sum(waiting)), (self.waiting, self.waiting_bytes)
        assert found == counted, f"{found} messages and bytes wait for keys and count {counted}"

    def _flush(self, route: PublisherRoute) -> None:
        while route.waiting and route.ready and not self._finding:
            waiting = route.waiting.popleft()
            self.waiting -= 1
            self.waiting_bytes -= waiting.size
            aged = self._aged(waiting)
            if aged is not None:
                self._send(route, aged.message, aged.turn, aged.at, aged.carried, aged.carried.encode())

    def _go_late(self, route: PublisherRoute) -> None:
        """The keys take too long: messages go without."""
        if self.routes.named.get(route.name) is not route:
            return
        if route.missing and not route.late:
            route.late = True
            self.count("outlets_late")
            if self._logged is None or self.api.now() - self._logged >= LOG_EVERY:
                self._logged = self.api.now()
                missing = len(route.missing)
                self.api.log("messages go out without a key", topic=route.name, missing=missing)
        self._flush(route)

    # the life of topics and aggregates ------------------------------------------------------------

    def _opened(self, route: PublisherRoute) -> None:
        if route.missing:
            self.api.call_later(self.config.key_wait, self._go_late, route)
        if not self._sweeping:
            self._sweeping = True
            self.api.call_later(self.config.publisher_idle, self._sweep)

    def _closed(self, route: PublisherRoute) -> None:
        if route.waiting or route.holds:
            self._orphans.append(route)

    def _take_in_orphans(self) -> None:
        """What waited or is held in a route that made room goes on through another."""
        while self._orphans:
            closed = self._orphans.pop()
            if closed.below is None and self.holds(closed.name):
                self.routes.open(closed.name).holds = True
            elif closed.below is not None and closed.holds:
                for route in self.routes.aggregates.values():
                    route.holds = route.holds or (
                        route.below is not None and closed.segments[0].code in route.below
                    )
            for waiting in closed.waiting:
                route = self.routes.open(waiting.message.topic)
                route.waiting.append(waiting)
                self._flush(route)

    def _sweep(self) -> None:
        """Leave the topics nobody has published to for too long."""
        now = self.api.now()
        idle = self.config.publisher_idle
        for route in list(self.routes.aggregates.values()):
            if route.holds:
                route.used = now
            elif route.used + idle <= now:
                self.count("aggregates_idle")
                self.routes.close(route)
        topics = self.routes.topics
        while topics:
            topic, route = next(iter(topics.items()))
            if route.used + idle > now:
                break
            if self.holds(topic):
                route.used = now
                topics.move_to_end(topic)
            else:
                self.count("topics_idle")
                route.holds = False
                self.routes.close(route)
        self._take_in_orphans()
        due = [route.used + idle for route in self.routes.aggregates.values()]
        due += [route.used + idle for route in list(topics.values())[:1]]
        self._sweeping = bool(due)
        if due:
            self.api.call_later(max(min(due) - now, 0.0), self._sweep)
