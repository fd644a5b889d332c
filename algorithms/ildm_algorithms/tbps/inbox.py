"""Messages of other nodes on their way into the local broker: each once, in order, if a client wants it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ildm.mqtt import IldmError, Publish, Version, decode
from ildm_algorithms.exchange.repeated import deleted, identity_of, inject_known, is_repeated
from ildm_algorithms.exchange.streams import StreamId, Streams
from ildm_algorithms.tbps.topic_interest import TopicInterest, TopicInterests

if TYPE_CHECKING:
    from collections.abc import Callable

    from ildm.api import NodeApi
    from ildm.mqtt import FilterTable
    from ildm_algorithms.exchange.messages import Message
    from ildm_algorithms.exchange.receipts import Receipts
    from ildm_algorithms.tbps.config import TbpsConfig
    from ildm_algorithms.tbps.presence import Presence
    from ildm_algorithms.tbps.publishers.outbox import Outbox
    from ildm_algorithms.tbps.retained.queries import RetainedQueries

__all__ = ["Inbox"]


class Inbox:
    """Takes the messages of all origins."""

    def __init__(
        self,
        api: NodeApi,
        config: TbpsConfig,
        filters: FilterTable[None],
        receipts: Receipts,
        presence: Presence,
        retained: RetainedQueries,
        outbox: Outbox,
    ) -> None:
        """``filters``: those of local clients."""
        self.api = api
        self.filters = filters
        self.receipts = receipts
        self.presence = presence
        self.retained = retained
        self.outbox = outbox
        self._interests = TopicInterests(filters, config.wished_topics, api.count)
        self._streams = Streams(
            api, receipts, config.order_wait, config.order_bytes, config.order_streams, api.count
        )

    def take_late(self, origin: str, message: Message) -> None:
        """Take a message that this node had missed: it comes behind later ones, so it waits for none."""
        self.take(origin, message._replace(behind=0), late=True)

    def take(self, origin: str, carried: Message, late: bool = False) -> None:
        """Give the local broker a message, if a local client wants it, once: several segments lead to one
        node."""
        if not self.receipts.add(origin, carried.number):
            self.api.count("duplicates")
            return
        self.presence.received(origin, carried.number)
        plain = self._interests.of(carried.frame)
        if plain is not None:
            self._take_plain(origin, carried, plain)
            return
        message = decode(carried.frame, Version.V5)
        if not isinstance(message, Publish) or not message.topic:
            raise IldmError("a message that is no PUBLISH with a topic")
        if message.retain:
            self._take_retained(origin, carried, message, late)
        else:
            self._take_other(origin, carried, message)

    def _take_plain(self, origin: str, carried: Message, found: TopicInterest) -> None:
        """A message that can be passed on as it is."""
        if found.qos is None:
            self.api.count("unmatched")
            return
        self.api.count("injected")
        deliver = partial(self.api.inject_frame, carried.frame)
        if carried.frame[0] & 6:
            deliver = partial(deliver, (origin, carried.number))
        self._let_through(origin, found.topic, carried, deliver)

    def _take_other(self, origin: str, carried: Message, message: Publish) -> None:
        most = self.filters.match(message.topic).get(None)
        if most is None:
            # the segment of a literal prefix is wider than the filters in it
            self.api.count("unmatched")
            return
        self.api.count("injected")
        if most < message.qos:
            message = replace(message, qos=most, packet_id=message.packet_id if most else None)
        identity = (origin, carried.number) if message.qos else None
        self._let_through(origin, message.topic, carried, partial(self.api.inject, message, identity))

    def _take_retained(self, origin: str, carried: Message, message: Publish, late: bool) -> None:
        # A repetition comes late, or after a restart. It is for brokers that lost the message, too.
        again = is_repeated(message)
        fetched = self.retained.fetched
        if not again and message in fetched:
            self.api.count("late_fetched")
            self.outbox.superseded(message.topic)
            return
        if fetched.is_deleted(message):
            if not again:
                self._take_other(origin, carried, deleted(message))
            return
        newest = not (late and self.retained.is_old(message))
        if newest:
            self.outbox.superseded(message.topic)
            self.retained.superseded(message)
        if not self.filters.match(message.topic):
            if not (newest and self.retained.replace(message)):
                self.api.count("unmatched")
            return
        self.api.count("injected")
        self.retained.follow_up(message, late or again)
        if again and not self.retained.is_old(message):
            fetched.add(message)
        if again:
            deliver = partial(inject_known, self.api, message)
        else:
            identity = identity_of(message) or ((origin, carried.number) if message.qos else None)
            deliver = partial(self.api.inject, message, identity)
        self._let_through(origin, message.topic, carried, deliver)

    def _let_through(self, origin: str, topic: str, carried: Message, deliver: Callable[[], bool]) -> None:
        stream = StreamId(origin, topic, carried.turn)
        self._streams.take(stream, carried.number, carried.behind, len(carried.frame), deliver)
