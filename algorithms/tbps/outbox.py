"""Messages of local clients on their way out: topics this node publishes, waiting, sending."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from algorithms.tbps.keys import segments_of_topic
from algorithms.tbps.messages import Message
from algorithms.tbps.order import Streams
from ildm.mqtt import Property, Publish, Version

if TYPE_CHECKING:
    from algorithms.overlay.graph import CastResult
    from algorithms.overlay.keys import Range
    from algorithms.tbps.config import TbpsConfig
    from algorithms.tbps.kept import Kept
    from algorithms.tbps.keys import Segment
    from algorithms.tbps.segments import Member, Segments
    from algorithms.tbps.spreading import Spreading
    from ildm.api import NodeApi

__all__ = ["OVERHEAD", "Outbox"]

OVERHEAD = 200
"""Bytes a waiting message is taken to need besides its topic and payload."""


class _Waiting(NamedTuple):
    message: Publish
    turn: int
    expires_at: float | None
    size: int


class _Topic:
    """A topic local clients publish to."""

    __slots__ = ("members", "missing", "used", "waiting")

    def __init__(self, now: float) -> None:
        self.members: list[Member] = []
        """The exact segment first, then the wildcard ones."""
        self.missing: set[bytes] = set()
        """Codes of segments with no key of this node in the graph yet."""
        self.waiting: deque[_Waiting] = deque()
        self.used = now


class Outbox:
    """Keeps this node in the segments of the topics it publishes to, and casts its messages there."""

    def __init__(
        self,
        api: NodeApi,
        spreading: Spreading,
        segments: Segments,
        config: TbpsConfig,
        kept: Kept,
        unsure: Callable[[Segment, int], None],
        holds: Callable[[str], bool],
        unheard: Callable[[Member], None],
        count: Callable[[str], None],
    ) -> None:
        self.api = api
        self.spreading = spreading
        self.segments = segments
        self.config = config
        self.count = count
        self.kept = kept
        self.unsure = unsure
        """Hears of the number of a message that may not have reached all in a segment."""
        self.holds = holds
        """Whether a retained message entered at this node is the newest on a topic."""
        self.unheard = unheard
        self.topics: OrderedDict[str, _Topic] = OrderedDict()
        """The least recently used first."""
        self.waiting = 0
        self.waiting_bytes = 0
        self._number = api.random.getrandbits(62)  # differs from those of an earlier life of the node
        self._streams = Streams(config.order_streams)
        self._sweeping = False

    def publish(self, message: Publish, turn: int) -> None:
        """Spread one message, or let it wait until the keys of its topic are in the graph."""
        topic = self.open(message.topic)
        expiry = message.properties.get(Property.MESSAGE_EXPIRY_INTERVAL)
        if not topic.missing:
            self._send(topic, message, turn)
            return
        size = len(message.topic) + len(message.payload) + OVERHEAD
        if (
            self.waiting >= self.config.waiting_messages
            or self.waiting_bytes + size > self.config.waiting_bytes
        ):
            self.count("waiting_dropped")
            return
        self.waiting += 1
        self.waiting_bytes += size
        expires_at = None if expiry is None else self.api.now() + expiry
        topic.waiting.append(_Waiting(message, turn, expires_at, size))

    def open(self, name: str) -> _Topic:
        """Be a publisher of a topic from now on, or go on being one."""
        topic = self.topics.get(name)
        if topic is not None:
            topic.used = self.api.now()
            self.topics.move_to_end(name)
            return topic
        if len(self.topics) >= self.config.max_topics:
            self.count("topics_displaced")
            self._close(next(iter(self.topics)))
        topic = self.topics[name] = _Topic(self.api.now())
        for segment in segments_of_topic(name):
            member = self.segments.advertise(segment, name)
            topic.members.append(member)
            if not member.ready:
                topic.missing.add(segment.code)
                member.waiters.add(name)
        if not self._sweeping:
            self._sweeping = True
            self.api.call_later(self.config.publisher_idle, self._sweep)
        return topic

    def prepared(self, member: Member) -> None:
        """An own key of the segment is in the graph, and it is known how to send there: messages go."""
        if not member.inside:
            return  # the key has left meanwhile
        member.prepared = True
        waiters, member.waiters = member.waiters, set()
        for name in waiters:
            topic = self.topics.get(name)
            if topic is None:
                continue
            topic.missing.discard(member.segment.code)
            while topic.waiting and not topic.missing:
                waiting = topic.waiting.popleft()
                self._forget(waiting)
                message = self._aged(waiting)
                if message is not None:
                    self._send(topic, message, waiting.turn)

    def repeat(self, message: Publish) -> None:
        """Cast a retained message once more, to all segments of its topic that are not suspended."""
        topic = self.topics.get(message.topic)
        if topic is not None and not topic.missing:
            self.count("retained_repeated")
            self._send(topic, message, 0, repeated=True)

    # sending ----------------------------------------------------------------------------------

    def _send(self, topic: _Topic, message: Publish, turn: int, repeated: bool = False) -> None:
        now = self.api.now()
        qos = min(message.qos, self.config.qos)
        carried: Message | None = None
        payload = b""
        if qos and not repeated:
            carried = self._numbered(message, turn)
            payload = carried.encode()
            self._keep(topic, message, carried.number, payload)
        for at, member in enumerate(topic.members):
            # the publishers of the very topic are told of retained messages: they may hold older ones
            held = message.retain and at == 0
            if member.active:
                member.heard = now
            elif member.skipped is None:
                member.skipped = now
            if not (member.active or held):
                self.count("suspended_publishes")
                continue
            if carried is None:
                carried = self._numbered(message, turn)
                payload = carried.encode()
            member.publisher.used = True
            segment = member.segment
            target = segment.subscribers
            if held:
                target = segment.members if member.active else segment.publishers
            self._cast(member, target, carried.number, payload, qos > 0 or repeated, turn)

    def _keep(self, topic: _Topic, message: Publish, number: int, payload: bytes) -> None:
        """Keep a message for those it may not reach."""
        since = self.api.now() - self.config.interest_period
        heard = any(m.active or (m.heard is not None and m.heard > since) for m in topic.members)
        expiry = message.properties.get(Property.MESSAGE_EXPIRY_INTERVAL)
        self.kept.add(number, message.topic, payload, expiry, heard)

    def _cast(
        self, member: Member, target: Range, number: int, payload: bytes, reliable: bool, turn: int
    ) -> None:
        def done(result: CastResult) -> None:
            if not result.complete:
                self.count("casts_incomplete")
                if number in self.kept:
                    self.unsure(member.segment, number)
            elif not result.keys and target == member.segment.subscribers:
                # perhaps there is one now that could not be seen yet
                member.skipped = began if member.skipped is None else min(began, member.skipped)
                self.unheard(member)

        began = self.api.now()
        self.spreading.send(member, target, payload, reliable, turn, done if reliable else None)

    def _numbered(self, message: Publish, turn: int) -> Message:
        self._number += 1
        turn &= 0xFFFF
        stream = self.api.node_id, message.topic, turn
        before = self._streams.get(stream)
        behind = 0 if before is None else self._number - before
        self._streams.put(stream, self._number)
        return Message(self._number, behind if behind < 1 << 32 else 0, turn, self._frame(message))

    def _frame(self, message: Publish) -> bytes:
        qos = min(message.qos, self.config.qos)
        properties = message.properties
        if Property.TOPIC_ALIAS in properties:
            properties = {k: v for k, v in properties.items() if k is not Property.TOPIC_ALIAS}
        copy = replace(message, qos=qos, dup=False, packet_id=1 if qos else None, properties=properties)
        return copy.encode(Version.V5)

    def _aged(self, waiting: _Waiting) -> Publish | None:
        """A message that has waited, with what is left of its expiry interval (MQTT-3.3.2-6)."""
        message = waiting.message
        if waiting.expires_at is None:
            return message
        left = waiting.expires_at - self.api.now()
        if left <= 0:
            self.count("expired")
            return None
        # seconds begun count whole, so that waiting for a moment does not let a message of 1 s expire
        seconds = int(left) + (left > int(left))
        return replace(message, properties={**message.properties, Property.MESSAGE_EXPIRY_INTERVAL: seconds})

    # the end of topics ------------------------------------------------------------------------

    def _forget(self, waiting: _Waiting) -> None:
        self.waiting -= 1
        self.waiting_bytes -= waiting.size

    def _close(self, name: str) -> None:
        topic = self.topics.pop(name)
        for waiting in topic.waiting:
            self._forget(waiting)
            self.count("waiting_dropped")
        for member in topic.members:
            self.segments.withdraw(member.segment, name)

    def _sweep(self) -> None:
        """Leave the topics nobody has published to for too long."""
        now = self.api.now()
        idle = self.config.publisher_idle
        while self.topics:
            name, topic = next(iter(self.topics.items()))
            due = topic.used + idle
            if due > now:
                self.api.call_later(due - now, self._sweep)
                return
            if self.holds(name):
                topic.used = now
                self.topics.move_to_end(name)
            else:
                self.count("topics_idle")
                self._close(name)
        self._sweeping = False
