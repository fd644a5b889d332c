"""The hooks of a topic-based algorithm: between the node, the graph and the parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from ildm.api import OverlayAlgorithm
from ildm.api import Role as SessionRole
from ildm.mqtt import FilterTable, IldmError, Publish, Version, decode
from ildm_algorithms.exchange.config import with_absence
from ildm_algorithms.exchange.kept import Kept
from ildm_algorithms.exchange.messages import Message
from ildm_algorithms.exchange.pacing import Pace
from ildm_algorithms.exchange.repeated import deleted, identity_of, inject_known, is_repeated, repeated
from ildm_algorithms.exchange.seen import Seen
from ildm_algorithms.overlay.graph import SkipGraph
from ildm_algorithms.tbps.config import TbpsConfig
from ildm_algorithms.tbps.describe import Tracer, describe
from ildm_algorithms.tbps.keys.encoding import ALL_NODES, Role, default_key, segment_of_filter
from ildm_algorithms.tbps.keys.segments import Segments
from ildm_algorithms.tbps.memory import begin_life
from ildm_algorithms.tbps.merging import Damper, MergeTeller, MergeWatch
from ildm_algorithms.tbps.messages import (
    Answer,
    Ask,
    Filters,
    Late,
    Merged,
    Missed,
    Needed,
    Newer,
    Offer,
    Offered,
    Query,
    Report,
    Signal,
    Statuses,
    Survey,
    Want,
    decode_payload,
)
from ildm_algorithms.tbps.missed import Missing
from ildm_algorithms.tbps.offers import Offers
from ildm_algorithms.tbps.order import Order, Stream
from ildm_algorithms.tbps.publishers.outbox import Outbox
from ildm_algorithms.tbps.publishers.surveys import Surveys
from ildm_algorithms.tbps.publishers.suspension import Suspension
from ildm_algorithms.tbps.retained.queries import Retained
from ildm_algorithms.tbps.retained.scans import Scans
from ildm_algorithms.tbps.telling import Telling
from ildm_algorithms.tbps.wishes import Wish, Wishes

if TYPE_CHECKING:
    from ildm.api import Fact, Link, MessageTrace, NodeApi, OverlayView, Peer, Session, Unreachable
    from ildm_algorithms.overlay.graph import Arrival, CastResult
    from ildm_algorithms.overlay.keys import Ref
    from ildm_algorithms.tbps.keys.segments import Member
    from ildm_algorithms.tbps.keys.spreading import Spreading
    from ildm_algorithms.tbps.publishers.outlets import Outlet

__all__ = ["TopicBased"]

CHANGES = 10_000
"""Changes a second to what local clients want that are looked at."""
SLACK = 60.0
"""Seconds for which a message may be on its way after its origin has forgotten it."""
MERGES = 5
"""While graphs merge all the time, so often in an ``interest_period`` what that takes is done, at least."""
REPEAT_SPREAD = 5.0
"""Seconds within which nodes begin to repeat what they hold after graphs have merged."""
SETTLED = 4.0
"""Seconds after which a node that was taken for dead, and is not, has its place again."""
REPEATS = 100
"""Retained messages repeated, or found again after a restart, at once."""
REPEAT_PAUSE = 0.05
"""Seconds until the next ones."""
FETCHED = 100
"""Filters of one SUBSCRIBE that wait for retained messages; a client with more does not."""
TRIALS = 10_000
"""Filters of all clients that do, or have not been granted, at most."""
TRIAL = 10.0
"""Seconds until one that is not granted is wanted no more."""
OWN_TOO = (b"Q", b"I", b"V")
"""Kinds of casts that mean something to the node that has sent them: :class:`Query`, `Filters`, `Survey`."""

Options_co = TypeVar("Options_co", bound=TbpsConfig, covariant=True)


class TopicBased(OverlayAlgorithm[Options_co], ABC):
    """The node has one key in the segment of each topic its clients subscribe or publish to.

    A publisher whose segment has no subscriber sends nothing. How its messages spread over the segment
    is what an algorithm adds: :meth:`make_spreading`, and :meth:`make_graph` if the graph is another.
    """

    def __init__(self, api: NodeApi, config: Options_co) -> None:
        super().__init__(api, with_absence(config, api.expiry))
        config = self.config
        self.counters: Counter[str] = Counter()
        self.interest: FilterTable[None] = FilterTable()
        """What local clients want."""
        self._wishes = Wishes(self.interest, config.wished_topics, self.count)
        self._introducers: set[Link] = set()
        self._trials: dict[str, object] = {}
        """Filters that a client is about to subscribe to."""
        kept = config.absence_period + config.overlay.cast_deadline + SLACK
        self._seen = Seen(api.now, kept, config.seen_bytes, self.count)
        self._order = Order(
            api, self._seen, config.order_wait, config.order_bytes, config.order_streams, self.count
        )
        self._changes = Pace(api, CHANGES)
        self._leaving = False
        self._repeating = False
        self._passed_over: float | None = None
        """Since when casts from here may have passed over a node that was taken for dead."""
        self._merges = MergeWatch(api, self._is_alone, self._merged)
        self._tells = MergeTeller(api, self._tell_merged)
        self._has_merged = Damper(api, config.interest_period / MERGES, self._catch_up)

    def make_graph(self) -> SkipGraph:
        """The overlay this node is part of; called once, when the node has started."""
        return SkipGraph(self.api, self, self.config.overlay)

    @abstractmethod
    def make_spreading(self) -> Spreading:
        """How messages spread; called once, when :attr:`graph` and :attr:`segments` are there."""

    def _is_alone(self) -> bool:
        """All keys that this node sees next to its own are its own."""
        return self.graph.alone

    def _merged(self, alone: bool) -> None:
        """The graph has become one with another: ask there, and show what is held here."""
        if alone:
            for member in list(self.segments.members.values()):
                if member.subscribed:
                    self.retained.ask(member, everything=True)
            self.outbox.found()
            self._catch_up(alone=True)
            since = self._merges.take_passed_over_since()
            if since is not None:
                lately = self.api.now() - self.config.interest_period
                self._found_others(max(since, min(lately, self.missing.among_before)), lately)
        else:
            self._tell_all()
            self._has_merged.ask()

    def _found_others(self, since: float, lately: float) -> None:
        """This node was alone since then, in this life or the one before."""
        # what waited for its keys until then was sent when there was nobody
        self.offers.found_others(since - self.config.key_wait)
        if since < lately and any(self.kept.since(since)):
            # for so long the others may have been in parts, too, in which this node has not met all of them
            self._tell_all()

    def _tell_all(self) -> None:
        self.count("merges_told")
        self._tells.tell()

    def _tell_merged(self, again: bool, done: Callable[[CastResult], None]) -> None:
        self.graph.cast(ALL_NODES, Merged(again).encode(), reliable=True, done=done)
        if again:
            self.missing.merged(alone=False)

    def _catch_up(self, alone: bool = False) -> None:
        """Others may have missed what was sent from here, and this node what they have sent."""
        self.surveys.merged()
        self.outbox.merged()
        self.missing.merged(alone)
        self.offers.merged()
        self._repeat_soon()

    def _repeat_soon(self) -> None:
        if not self._repeating:
            self._repeating = True
            # not all nodes at once
            self.api.call_later(REPEAT_SPREAD * self.api.random.random(), self._repeat_held)

    def _repeat_held(self) -> None:
        self._repeating = False
        self._some_held(iter(self.retained.held()), self._repeat)

    def _repeat_late(self, outlet: Outlet) -> None:
        held = (topic for topic in self.retained.held() if self.outbox.goes_through(outlet, topic))
        self._some_held(held, self._repeat)

    def _repeat(self, topic: str) -> None:
        message = self.retained.held_on(topic)
        if message is not None:
            self.outbox.repeat(repeated(message))

    def _some_held(self, topics: Iterator[str], action: Callable[[str], None]) -> None:
        """Do it for all of these topics, a few at a time: there may be very many."""
        some = list(islice(topics, REPEATS))
        for topic in some:
            action(topic)
        if some:
            self.api.call_later(REPEAT_PAUSE, self._some_held, topics, action)

    def _repeat_later(self) -> None:
        wait = self.config.retained_interval * (0.5 + self.api.random.random())
        self.api.call_later(wait, self._repeat_now)

    def _repeat_now(self) -> None:
        self._repeat_held()
        self._repeat_later()

    def count(self, name: str, by: int = 1) -> None:
        self.counters[name] += by
        self.api.count(name, by)

    def _make_parts(self) -> None:
        api, config = self.api, self.config
        self.graph = self.make_graph()
        self.segments = Segments(self.graph, api, config, self.count)
        self.kept = Kept(api, config.absence_period, config.kept_bytes, self.count)
        self.kept.restore()
        self.offers = Offers(api, self.graph, self.kept, config, self.count)
        self.surveys = Surveys(
            api,
            self.graph,
            self.segments,
            config.max_interest,
            self._surveyed,
            self.offers.overlooked,
            self.count,
        )
        self.suspension = Suspension(
            api, self.graph, self.segments, self.surveys, config.status_interval, self.count
        )
        self.retained = Retained(
            api,
            self.graph,
            self.segments,
            self.interest,
            Scans(api, self._guarded, self.count),
            config.retained_answers,
            config.query_rate,
            self.count,
        )
        self.suspension.resumed = self.offers.resumed
        self.surveys.learned = self.offers.learned
        self.missing = Missing(
            api,
            self.graph,
            self.segments,
            self._seen,
            config,
            self._is_alone,
            self._take_late,
            self.count,
        )
        self.missing.merging = self._is_merging
        self.retained.merging = self._is_merging
        self.spreading = self.make_spreading()
        self.outbox = Outbox(
            api,
            self.graph,
            self.spreading,
            self.segments,
            self.surveys,
            config,
            self.kept,
            begin_life(api, self.kept.newest, self.count),
            self.offers.unsure,
            self.retained.holds,
            self.suspension.unheard,
            self.count,
        )
        self.outbox.came_late = self._repeat_late
        self.telling = Telling(api, self.missing.known, self.count)
        self.retained.told = self.telling.end
        self.retained.responsible = self.outbox.responsible
        self.retained.unwritten = self.kept.is_unwritten

    def _is_merging(self) -> bool:
        return self._merges.merging or self._has_merged.asked

    def _surveyed(self, member: Member) -> None:
        self.outbox.prepared(member)

    # hooks of the node ------------------------------------------------------------------------

    def on_ildm_start(self) -> None:
        """Begin to join the graph; before, the node has neither an address nor a memory."""
        self._make_parts()
        self.graph.start(default_key(self.api.node_id))
        self.retained.start()
        self._some_held(iter(self.retained.held()), self.outbox.hold)
        if len(self.kept):
            self.outbox.resume()
            lately = self.api.now() - self.config.publisher_idle
            self._some_held(iter(self.kept.topics_since(lately)), self._publish_again)
        self.segments.enable()
        self.suspension.start()
        self.missing.start()
        if self.config.retained_interval:
            self._repeat_later()

    def _publish_again(self, topic: str) -> None:
        """A site that was away asks the publishers of a topic for what an earlier life has kept; for what is
        older than ``publisher_idle`` it asks all nodes."""
        self.outbox.open(topic)

    def on_interest_changed(self, source: Link | None, changes: Mapping[str, int | None]) -> None:
        """Subscribe to, or unsubscribe from, the segments the filters of local clients lead to."""
        if source is None:
            self._want(changes)

    def _want(self, changes: Mapping[str, int | None]) -> None:
        """The first changes at once, thousands in their turns, those of one filter in their order."""
        for topic_filter, qos in changes.items():
            if topic_filter.startswith("$"):
                continue  # what the standard reserves for the broker stays with it (4.7.2)
            # which of them have outlived a restart is told by when they come, not by when it is their turn
            wished = None if qos is None else self.missing.wished(topic_filter)
            fresh = not self.missing.restores
            self._changes.add(partial(self._change, topic_filter, qos, wished, fresh))

    def _change(
        self, topic_filter: str, qos: int | None, wished: tuple[float, float] | None, fresh: bool
    ) -> bool:
        segment = segment_of_filter(topic_filter)
        if qos is None:
            if self.interest.remove(topic_filter, None):
                self.telling.end(topic_filter)
                self.missing.unsubscribed(topic_filter)
                self.segments.unsubscribe(segment, topic_filter)
                self.retained.unwanted(topic_filter)
            return True
        if self.interest.add(topic_filter, None, qos):
            self.missing.subscribed(topic_filter, wished)
        known = self.segments.get(segment)
        if known is None or topic_filter not in known.filters:
            self.telling.begin(topic_filter, fresh)
        member = self.segments.subscribe(segment, topic_filter)
        if member.subscribed:
            self.retained.ask(member)
        return True

    def before_subscribe(self, topic_filters: Sequence[str], done: Callable[[], bool]) -> bool:
        """Become a subscriber on trial, and give the local broker what others have retained."""
        new = [name for name in topic_filters if name not in self.api.local_interest]
        if not new or len(new) > FETCHED or self.retained.behind or len(self._trials) > TRIALS:
            return True
        self._want(dict.fromkeys(new, 0))
        trial = object()
        self._trials.update(dict.fromkeys(new, trial))
        self.api.call_later(TRIAL, self._trial_over, new, trial)
        return self.when_known(new, done)

    def _trial_over(self, topic_filters: Sequence[str], trial: object) -> None:
        """The broker has granted them, or has refused them, or the client has gone before that."""
        ended = [name for name in topic_filters if self._trials.get(name) is trial]
        for name in ended:
            del self._trials[name]
        self._want({name: None for name in ended if name not in self.api.local_interest})

    def when_known(self, topic_filters: Sequence[str], done: Callable[[], bool]) -> bool:
        """Whether all publishers, wherever they are, know of these filters of local clients."""
        if not self._changes.waiting:
            return self.telling.wait(topic_filters, done)
        self._changes.add(partial(self._wait_known, topic_filters, done))
        return False

    def _wait_known(self, topic_filters: Sequence[str], done: Callable[[], bool]) -> bool:
        if self.telling.wait(topic_filters, done):
            done()
        return False

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
        """Join the overlay of a neighbour that the configuration names, and look now and then whether
        both are still in the same one: it heals what a partition of the network has torn apart."""
        if link.introducer and link not in self._introducers:
            self._introducers.add(link)
            self._probe(link)

    def on_link_down(self, link: Link) -> None:
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
        aggregate = self.surveys.aggregates.get(member.segment.code)
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
            self.missing.joined(member.filters, self._merges.merging)
        self.offers.resumed(member)
        self.segments.settled(member)

    def left(self, key: bytes) -> None:
        found = self.segments.find(key)
        if found is not None and found[0].segment.is_aggregate:
            self.surveys.left(found[0])
        self.segments.left(key)

    def merging(self, others: bool, since: float | None) -> None:
        self._merges.sign(others, since)

    def passed_over(self, since: float) -> None:
        if self._passed_over is None:
            self._passed_over = since
            self.api.call_later(SETTLED, self._offer_to_passed_over)
        else:
            self._passed_over = min(since, self._passed_over)

    def _offer_to_passed_over(self) -> None:
        since, self._passed_over = self._passed_over, None
        if since is not None:
            self.offers.found_others(since - self.config.key_wait)

    def _placed(self, key: bytes) -> None:
        levels = self.graph.neighbors(key)
        self._merges.neighbors_changed(*(levels[0] if levels else (None, None)))

    def neighbors_changed(self, key: bytes) -> None:
        self._placed(key)
        found = self.segments.find(key)
        if found is not None and found[1] is Role.PUBLISHER:
            self.suspension.neighbor_changed(found[0])

    def status_for(self, key: bytes, joining: Ref) -> bytes:
        if joining.peer.node_id != self.api.node_id:
            self._merges.other_entered()
        found = self.segments.find(key)
        if joining.key < key or found is None or found[1] is not Role.PUBLISHER:
            return b""
        return self.suspension.status_for(found[0], joining)

    def delivered(self, arrival: Arrival) -> None:
        """A cast has reached own keys; what this node has cast itself it knows."""
        if arrival.origin.node_id != self.api.node_id:
            self._guarded(self._take_cast, arrival)
        elif arrival.payload[:1] in OWN_TOO:
            self._guarded(self._take_own, arrival)

    def told(self, sender: Peer, payload: bytes) -> None:
        """Another node has sent something to this one alone."""
        self._guarded(self._take_tell, sender, payload)

    def _guarded(self, take: Callable[..., None], *args: object) -> None:
        """What another node sends in error is dropped and counted, and does no harm here."""
        try:
            take(*args)
        except IldmError as error:
            self.count("malformed")
            self.api.log("dropped what another node sent", error=str(error))

    def _take_own(self, arrival: Arrival) -> None:
        """A subscriber here is news for an aggregate here, and may answer it for all of its segment."""
        match decode_payload(arrival.payload):
            case Query(topic_filter):
                self.surveys.announced(arrival.keys, [topic_filter])
            case Filters(topic_filters):
                self.surveys.announced(arrival.keys, map(bytes.decode, topic_filters))
            case Survey() as survey:
                self.surveys.surveyed(arrival.origin, arrival.keys, survey)

    def _take_cast(self, arrival: Arrival) -> None:
        payload = decode_payload(arrival.payload)
        if isinstance(payload, Message):  # nearly always
            self._take_message(arrival.origin.node_id, payload)
            return
        match payload:
            case Signal() as signal:
                self.suspension.signalled(signal)
            case Query(topic_filter):
                self._queried(arrival, [topic_filter])
            case Filters(topic_filters):
                self._queried(arrival, [topic_filter.decode() for topic_filter in topic_filters])
            case Survey() as survey:
                self.surveys.surveyed(arrival.origin, arrival.keys, survey)
            case Needed(segments):
                self.surveys.needed(arrival.keys, segments)
            case Newer() as newer:
                for told in self.retained.newer(newer):
                    self.outbox.superseded(told.topic)
            case Merged(again):
                if again and not self._merges.told_again():
                    self.missing.merged(alone=False)
                elif again:
                    self._has_merged.ask()
                else:
                    self._tells.leave_it()
                    self._merges.told()
                    self._has_merged.ask()
            case Missed() as missed:
                self.offers.asked(arrival.origin, missed, arrival.age)
            case Offer() as offer:
                self.missing.offered(arrival.origin, offer)
            case other:
                raise IldmError(f"{type(other).__name__} is not for casting")

    def _queried(self, arrival: Arrival, topic_filters: list[str]) -> None:
        self.surveys.announced(arrival.keys, topic_filters)
        for topic_filter in topic_filters:
            segment = segment_of_filter(topic_filter)
            self.suspension.hinted(segment)
            self.retained.queried(arrival.origin, arrival.keys, topic_filter)
            member = self.segments.get(segment)
            if member is not None:
                self.offers.resumed(member)

    def _take_tell(self, sender: Peer, payload: bytes) -> None:
        match decode_payload(payload):
            case Signal() as signal:
                self.suspension.signalled(signal, sender)
            case Ask() as ask:
                self.suspension.asked(sender, ask)
            case Statuses() as statuses:
                self.suspension.answered(statuses)
            case Report() as report:
                self.suspension.reported(sender, report)
            case Query(topic_filter):
                self.retained.asked(sender, topic_filter)
            case Answer() as answer:
                self.retained.answered(answer)
            case Offer() as offer:
                self.missing.offered(sender, offer)
            case Offered(question, number):
                self.missing.offered_all(sender, question, number)
            case Want() as want:
                self.offers.wanted(sender, want)
            case Late() as late:
                self.missing.arrived(sender, late)
            case other:
                raise IldmError(f"{type(other).__name__} is for casting")

    def _take_late(self, origin: str, message: Message) -> None:
        """One that this node had missed: it comes behind later ones, so it waits for none."""
        self._take_message(origin, message._replace(behind=0), late=True)

    def _take_message(self, origin: str, carried: Message, late: bool = False) -> None:
        """Publish a message in the local broker if a local client wants it, once (several segments lead
        to one and the same node)."""
        if not self._seen.add(origin, carried.number):
            self.count("duplicates")
            return
        self.missing.memory.heard(origin, carried.number)
        plain = self._wishes.of(carried.frame)
        if plain is not None:
            self._take_plain(origin, carried, plain)
            return
        message = decode(carried.frame, Version.V5)
        if not isinstance(message, Publish) or not message.topic:
            raise IldmError("a message that is no PUBLISH with a topic")
        # It comes late, or is sent again after a restart. A repetition is for brokers that lost it, too.
        again = message.retain and is_repeated(message)
        if message.retain and not again and message in self.retained.fetched:
            self.count("late_fetched")
            self.outbox.superseded(message.topic)
            return
        if message.retain and self.retained.fetched.is_deleted(message):
            if again:
                return
            message = deleted(message)
        newest = message.retain and not (late and self.retained.is_old(message))
        if newest:
            self.outbox.superseded(message.topic)
            self.retained.superseded(message)
        wanted = self.interest.match(message.topic).get(None)
        if wanted is None:
            # the segment of a literal prefix is wider than the filters in it
            if not (newest and self.retained.replace(message)):
                self.count("unmatched")
            return
        self.count("injected")
        if message.retain:
            self.retained.follow_up(message, late or again)
        if again and not self.retained.is_old(message):
            self.retained.fetched.add(message)
        if wanted < message.qos and not message.retain:
            message = replace(message, qos=wanted, packet_id=message.packet_id if wanted else None)
        if again:
            deliver = partial(inject_known, self.api, message)
        elif message.retain and (identity := identity_of(message)):
            deliver = partial(self.api.inject, message, identity)
        else:
            deliver = partial(self.api.inject, message, (origin, carried.number) if message.qos else None)
        self._let_through(origin, message.topic, carried, deliver)

    def _take_plain(self, origin: str, carried: Message, wish: Wish) -> None:
        """The same for a message that can be passed on as it is."""
        if wish.qos is None:
            self.count("unmatched")
            return
        self.count("injected")
        deliver = partial(self.api.inject_frame, carried.frame)
        if carried.frame[0] & 6:
            deliver = partial(deliver, (origin, carried.number))
        self._let_through(origin, wish.topic, carried, deliver)

    def _let_through(self, origin: str, topic: str, carried: Message, deliver: Callable[[], bool]) -> None:
        stream = Stream(origin, topic, carried.turn)
        self._order.take(stream, carried.number, carried.behind, len(carried.frame), deliver)
