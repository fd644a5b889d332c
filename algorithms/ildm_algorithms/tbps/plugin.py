"""The hooks of a topic-based algorithm: between the node, the graph and the parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ildm.api import OverlayAlgorithm
from ildm.api import Role as SessionRole
from ildm.mqtt import FilterTable, Publish
from ildm_algorithms.exchange.config import with_absence
from ildm_algorithms.exchange.log import Log
from ildm_algorithms.exchange.receipts import Receipts
from ildm_algorithms.overlay.graph import SkipGraph
from ildm_algorithms.tbps.config import TbpsConfig
from ildm_algorithms.tbps.describe import Tracer, describe
from ildm_algorithms.tbps.dispatch import Dispatch, Guard
from ildm_algorithms.tbps.forgotten import Forgotten
from ildm_algorithms.tbps.inbox import Inbox
from ildm_algorithms.tbps.interest import Interest
from ildm_algorithms.tbps.keys.encoding import Role, default_key
from ildm_algorithms.tbps.keys.segments import Segments
from ildm_algorithms.tbps.merges import Merges
from ildm_algorithms.tbps.missed import Missing
from ildm_algorithms.tbps.offers import Offers
from ildm_algorithms.tbps.presence import Presence, begin_incarnation
from ildm_algorithms.tbps.publishers.outbox import Outbox
from ildm_algorithms.tbps.publishers.surveys import Surveys
from ildm_algorithms.tbps.publishers.suspension import Suspension
from ildm_algorithms.tbps.retained.queries import RetainedQueries
from ildm_algorithms.tbps.retained.repeating import Repeating, in_portions
from ildm_algorithms.tbps.retained.scans import Scans

if TYPE_CHECKING:
    from ildm.api import Fact, Link, MessageTrace, NodeApi, OverlayView, Peer, Session, Unreachable
    from ildm_algorithms.overlay.graph import Arrival
    from ildm_algorithms.overlay.keys import Ref
    from ildm_algorithms.tbps.keys.segments import Member
    from ildm_algorithms.tbps.keys.spreading import Spreading
    from ildm_algorithms.tbps.publishers.routes import PublisherRoute

__all__ = ["TopicBased"]

SLACK = 60.0
"""Seconds for which a message may be on its way after its origin has forgotten it."""

Options_co = TypeVar("Options_co", bound=TbpsConfig, covariant=True)


class TopicBased(OverlayAlgorithm[Options_co], ABC):
    """The node has one key in the segment of each topic its clients subscribe or publish to.

    A publisher whose segment has no subscriber sends nothing. How its messages spread over the segment
    is what an algorithm adds: :meth:`make_spreading`, and :meth:`make_graph` if the graph is another.
    """

    def __init__(self, api: NodeApi, config: Options_co) -> None:
        super().__init__(api, with_absence(config, api.expiry))
        self._introducers: set[Link] = set()
        self._leaving = False

    def make_graph(self) -> SkipGraph:
        """The overlay this node is part of; called once, when the node has started."""
        return SkipGraph(self.api, self, self.config.overlay)

    @abstractmethod
    def make_spreading(self) -> Spreading:
        """How messages spread; called once, when :attr:`graph` and :attr:`segments` are there."""

    def _make_parts(self) -> None:
        """Each part gets what it calls, and :class:`_Events` where that is made later."""
        api, config, count = self.api, self.config, self.api.count
        events = _Events(self)
        filters: FilterTable[None] = FilterTable()
        guard = Guard(api)
        self.graph = graph = self.make_graph()
        self.segments = segments = Segments(graph, api, config, count)
        self.log = log = Log(api, config.absence_period, config.kept_bytes, count)
        log.restore()
        log.reaches_all = events.reaches_all
        self.forgotten = forgotten = Forgotten(api, graph, config.overlay.patience, count)
        offers = Offers(api, graph, log, config, count)
        offers.there_until = forgotten.there_until
        surveys = Surveys(
            api,
            graph,
            segments,
            config.max_interest,
            events.prepared,
            offers.overlooked,
            offers.learned,
            count,
        )
        self.suspension = suspension = Suspension(
            api, graph, segments, surveys, config.status_interval, offers.resumed, count
        )
        self.retained = retained = RetainedQueries(
            api,
            graph,
            segments,
            filters,
            Scans(api, guard, count),
            config.retained_answers,
            config.query_rate,
            events.responsible,
            events.announced,
            log.is_unwritten,
            events.merging,
            count,
        )
        self.spreading = self.make_spreading()
        self.outbox = Outbox(
            api,
            graph,
            self.spreading,
            segments,
            surveys,
            config,
            log,
            begin_incarnation(api, log.newest, count),
            offers.unconfirmed,
            retained.holds,
            suspension.unreached,
            events.came_late,
            count,
        )
        self._make_receiver(filters, guard, offers, events)

    def _make_receiver(
        self, filters: FilterTable[None], guard: Guard, offers: Offers, events: _Events
    ) -> None:
        """Make what takes messages, and sees to it that none is missing."""
        api, config, count = self.api, self.config, self.api.count
        presence = Presence(api, config, count)
        period = config.absence_period + config.overlay.cast_deadline + SLACK
        receipts = Receipts(api.now, period, config.seen_bytes, count)
        inbox = Inbox(api, config, filters, receipts, presence, self.retained, self.outbox)
        self.missing = missing = Missing(
            api,
            self.graph,
            self.segments,
            receipts,
            presence,
            self.forgotten,
            config,
            events.is_alone,
            events.merging,
            inbox.take_late,
            count,
        )
        self.interest = Interest(api, filters, self.segments, self.retained, missing)
        self.merges = Merges(
            api,
            config,
            self.graph,
            log=self.outbox.log,
            offers=offers,
            missing=missing,
            surveys=self.suspension.surveys,
            outbox=self.outbox,
            retained=self.retained,
            repeating=Repeating(api, config.retained_interval, self.retained, self.outbox),
        )
        self.dispatch = Dispatch(
            api.node_id,
            guard,
            inbox=inbox,
            outbox=self.outbox,
            suspension=self.suspension,
            retained=self.retained,
            missing=missing,
            offers=offers,
            merges=self.merges,
            forgotten=self.forgotten,
        )

    # hooks of the node ------------------------------------------------------------------------

    def on_ildm_start(self) -> None:
        """Begin to join the graph; before, the node has neither an address nor a memory."""
        self._make_parts()
        self.graph.start(default_key(self.api.node_id))
        self.retained.start()
        in_portions(self.api, iter(self.retained.held()), self.outbox.hold)
        if len(self.outbox.log):
            # A site that was away asks the publishers of a topic for what an earlier incarnation has logged.
            # For what is older than ``publisher_idle`` it asks all nodes.
            lately = self.api.now() - self.config.publisher_idle
            self.outbox.resume()
            in_portions(self.api, iter(self.outbox.log.topics_since(lately)), self._publish_again)
        self.segments.enable()
        self.suspension.start()
        self.missing.start()
        self.merges.repeating.start()

    def _publish_again(self, topic: str) -> None:
        self.outbox.open(topic)

    def on_interest_changed(self, source: Link | None, changes: Mapping[str, int | None]) -> None:
        """Subscribe to, or unsubscribe from, the segments the filters of local clients lead to."""
        if source is None:
            self.interest.changed(changes)

    def before_subscribe(self, topic_filters: Sequence[str], done: Callable[[], bool]) -> bool:
        """Become a subscriber on trial, and give the local broker what others have retained."""
        return self.interest.before_subscribe(topic_filters, done)

    def when_known(self, topic_filters: Sequence[str], done: Callable[[], bool]) -> bool:
        """Whether all publishers, wherever they are, know of these filters of local clients."""
        return self.interest.when_known(topic_filters, done)

    def on_publish(self, message: Publish, turn: int) -> None:
        """Spread a local client's message, or its will."""
        if message.retain:
            self.retained.entered(message.topic)
        self.outbox.publish(message, turn)

    def on_message(self, sender: Peer, data: bytes, turn: int) -> None:
        self.graph.receive(sender.node_id, data)

    def on_unreachable(self, node_id: str, reason: Unreachable) -> None:
        self.graph.unreachable(node_id)

    def on_session_established(self, session: Session) -> None:
        if session.role is SessionRole.INJECTION:
            self.retained.clearing.session(established=True)

    def on_session_closed(self, session: Session) -> None:
        if session.role is SessionRole.INJECTION:
            self.retained.clearing.session(established=False)

    def on_link_up(self, link: Link) -> None:
        """Join the overlay of a neighbour that the configuration names. Look now and then whether both are
        still in one, because a partition of the network may have torn the overlay apart."""
        self.forgotten.link_up(link)
        if link.introducer and link not in self._introducers:
            self._introducers.add(link)
            self._probe(link)

    def on_link_down(self, link: Link) -> None:
        self.forgotten.link_down(link)
        self._introducers.discard(link)

    def _probe(self, link: Link) -> None:
        if link in self._introducers:
            self.graph.join(link.peer)
            wait = self.config.probe_interval * (0.5 + self.api.random.random())
            self.api.call_later(wait, self._probe, link)

    def on_ildm_stop(self) -> None:
        """Leave the graph, so that nobody has to repair it."""
        self._introducers.clear()
        self._leaving = True
        self.missing.stop()
        self.segments.disable()
        self.graph.stop(self._left_graph)

    def _left_graph(self) -> None:
        self._leaving = False
        self.missing.left()
        self.api.log("left the overlay")

    def is_leaving(self) -> bool:
        return self._leaving

    def overlay(self) -> OverlayView:
        return describe(
            self.api.node_id,
            self.graph,
            self.segments,
            self._key_facts,
            self.outbox.facts(),
            self.spreading.tables(),
        )

    def _key_facts(self, member: Member, role: Role) -> Mapping[str, Fact]:
        aggregate = self.suspension.surveys.aggregates.get(member.segment.code)
        return {**({} if aggregate is None else aggregate.facts()), **self.spreading.facts(member, role)}

    def trace(self, topic: str, done: Callable[[MessageTrace], None]) -> None:
        outbox = self.outbox
        Tracer(self.api.node_id, outbox.publishes, outbox.suspended, self.spreading).trace(topic, done)

    # hooks of the graph -----------------------------------------------------------------------

    def joined(self, key: bytes, left: Ref | None, status: bytes) -> None:
        """An own key is in the graph."""
        self._placed(key)
        found = self.segments.joined(key)
        if found is None:
            return
        member, role = found
        if role is Role.PUBLISHER:
            self.suspension.joined(member, left, status)
        if not member.segment.is_aggregate:
            self.spreading.prepare(member, partial(self.outbox.prepared, member))
        if role is Role.SUBSCRIBER:
            self.retained.ask(member)
            self.missing.joined(member.filters, self.merges.watch.merging)
        self.suspension.resumed(member)
        self.segments.settled(member)

    def left(self, key: bytes) -> None:
        found = self.segments.find(key)
        if found is not None and found[0].segment.is_aggregate:
            self.suspension.surveys.left(found[0])
        self.segments.left(key)

    def merging(self, others: bool, since: float | None) -> None:
        self.merges.watch.sign(others, since)

    def passed_over(self, since: float) -> None:
        self.merges.passed_over(since)

    def _placed(self, key: bytes) -> None:
        levels = self.graph.neighbors(key)
        self.merges.watch.neighbors_changed(*(levels[0] if levels else (None, None)))

    def neighbors_changed(self, key: bytes) -> None:
        self._placed(key)
        found = self.segments.find(key)
        if found is not None and found[1] is Role.PUBLISHER:
            self.suspension.neighbor_changed(found[0])

    def status_for(self, key: bytes, joining: Ref) -> bytes:
        if joining.peer.node_id != self.api.node_id:
            self.merges.watch.other_entered()
        found = self.segments.find(key)
        if joining.key < key or found is None or found[1] is not Role.PUBLISHER:
            return b""
        return self.suspension.status_for(found[0], joining)

    def delivered(self, arrival: Arrival) -> None:
        self.dispatch.delivered(arrival)

    def received(self, sender: Peer, payload: bytes) -> None:
        self.dispatch.received(sender, payload)


class _Events:
    """Leads what a part tells or asks to the parts that are made after it."""

    __slots__ = ("_plugin",)

    def __init__(self, plugin: TopicBased[Any]) -> None:
        self._plugin = plugin

    def prepared(self, member: Member) -> None:
        self._plugin.outbox.prepared(member)

    def responsible(self, topic: str) -> bytes | None:
        return self._plugin.outbox.responsible(topic)

    def came_late(self, route: PublisherRoute) -> None:
        self._plugin.merges.repeating.late(route)

    def announced(self, topic_filter: str, known: bool, took: float) -> None:
        self._plugin.interest.advertising.end(topic_filter, known, took)

    def is_alone(self) -> bool:
        return self._plugin.graph.alone

    def reaches_all(self) -> bool:
        """A graph that is about to be one with another, or has just begun, is not that of all."""
        plugin = self._plugin
        return not (plugin.graph.alone or plugin.merges.pending or plugin.missing.is_new)

    def merging(self) -> bool:
        return self._plugin.merges.pending
