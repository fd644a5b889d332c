"""Retained messages without flooding: new subscribers ask who holds them.

A node at which a retained message or a deletion has entered holds it. It stays publisher of the topic as long
as the message is the newest it knows. The publishers and subscribers of the topic get each newer one. A node
that gets a new filter asks a neighbour that subscribes to the same. If there is none, it casts a query over
all keys that can hold matching topics. The answers come directly; the stamps which the messages carry tell
which is the newest.

A broker must not keep what its node no longer follows. When nobody here wants the topic any more, a message
that entered elsewhere is deleted, in the local broker alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ildm.api import Stamp
from ildm.mqtt import FilterTable, IldmError, Publish, Version, covers, decode, topic_matches
from ildm_algorithms.exchange.fetched import Fetched
from ildm_algorithms.exchange.pacing import Pace
from ildm_algorithms.exchange.repeated import inject_known, repeated
from ildm_algorithms.tbps.keys.encoding import (
    Role,
    Segment,
    parse_key,
    publisher_ranges,
    segment_of_filter,
)
from ildm_algorithms.tbps.keys.segments import Progress
from ildm_algorithms.tbps.messages import Answer, Filters, Newer, Query
from ildm_algorithms.tbps.publishers.announcing import Announcer
from ildm_algorithms.tbps.publishers.surveys import first_of_segment
from ildm_algorithms.tbps.retained.clearing import Clearing
from ildm_algorithms.tbps.retained.following import Following

if TYPE_CHECKING:
    from ildm.api import NodeApi, Peer
    from ildm_algorithms.overlay.graph import CastResult, SkipGraph
    from ildm_algorithms.tbps.keys.segments import Member, Segments
    from ildm_algorithms.tbps.retained.scans import Scans

ANSWER_BYTES = 32_768
"""Bytes of retained messages in one answer; a larger message makes one of its own."""
ATTEMPTS = 3
"""How often a query is cast until it has reached everybody."""
RETRY = 2.0
"""Seconds until the next attempt."""
LOOKS = 500
"""Topics looked at in one step of a scan that do not match."""
MATCHES = 50
"""Topics in one that do."""
MESSAGES = 20
"""Messages in one."""
VOLUNTEERS = 8
"""How many of the nodes that only have a copy answer a query, on average, besides the first."""


class RetainedQueries:
    """Queries for retained messages, answers to them, and what the local broker must forget."""

    def __init__(
        self,
        api: NodeApi,
        graph: SkipGraph,
        segments: Segments,
        interest: FilterTable[None],
        scans: Scans,
        max_answers: int,
        rate: float,
        responsible: Callable[[str], bytes | None],
        announced: Callable[[str, bool, float], None],
        unwritten: Callable[[str], bool],
        merging: Callable[[], bool],
        count: Callable[[str], None],
    ) -> None:
        self.api = api
        self.graph = graph
        self.segments = segments
        self.interest = interest
        self.scans = scans
        self.max_answers = max_answers
        self._held: dict[str, None] = {}
        """Topics whose newest message has entered here; of those the node itself remembers."""
        self.fetched = Fetched()
        self._following = Following(api.now)
        self._pace = Pace(api, rate)
        self._question = 0
        self._questions: dict[str, int] = {}
        """The latest of each local filter: one whose filter has gone and come back tells nothing."""
        self.count = count
        self.responsible = responsible
        """Code of the segment in which this node is found as publisher of a topic."""
        self.announced = announced
        """Hears that all publishers know of a filter and how long that took, or that nobody goes on telling
        them."""
        self.unwritten = unwritten
        """Whether what has entered on a topic is not on disk yet, so that no node receives it."""
        self.merging = merging
        """There may be holders that could not be asked so far: they were in another graph."""
        self.clearing = Clearing(api, self.clear)
        self._filters = Announcer(api, graph, Filters, "filters_told", count)

    def start(self) -> None:
        """Remember what has entered here in an earlier run."""
        held = sorted((stamp, topic) for topic, stamp in self.api.retained_topics() if self._own(stamp))
        self._held = {topic: None for _, topic in held}

    @property
    def behind(self) -> bool:
        """More filters are to be asked for than there is time for."""
        return self._pace.waiting > 0

    def entered(self, topic: str) -> None:
        """A retained message, or a deletion, enters at this node."""
        self._held[topic] = None

    def superseded(self, message: Publish) -> None:
        """One has come that has entered elsewhere; a newer one is held there from now on."""
        stamp, known = Stamp.of(message), self.known(message.topic)
        held = None if known is None else Stamp.of(known)
        if held is None or (stamp is not None and stamp > held):
            self._held.pop(message.topic, None)

    def held(self) -> list[str]:
        """Topics of the retained messages (and deletions) that have entered at this node."""
        return list(self._held)

    def held_on(self, topic: str) -> Publish | None:
        """The newest retained message (or deletion) of a topic, if it has entered at this node and is on
        disk."""
        message = self.known(topic)
        if message is None or not self._entered_here(message):
            self._held.pop(topic, None)
            return None
        return None if self.unwritten(topic) else message

    def known(self, topic: str) -> Publish | None:
        """The newest retained message (or deletion) of a topic this node remembers."""
        found = self.api.retained(topic)
        return found[-1] if found else None

    def holds(self, topic: str) -> bool:
        """Whether the newest on a topic has entered at this node."""
        message = self.known(topic)
        return message is not None and self._entered_here(message)

    def is_old(self, message: Publish) -> bool:
        """Whether a newer retained message (or deletion) of the topic, or this very one, is known."""
        known = self.known(message.topic)
        stamps = None if known is None else Stamp.of(known), Stamp.of(message)
        return stamps[0] is not None and stamps[1] is not None and stamps[0] >= stamps[1]

    def _entered_here(self, message: Publish) -> bool:
        stamp = Stamp.of(message)
        return stamp is not None and self._own(stamp)

    def _own(self, stamp: Stamp) -> bool:
        return stamp.node == self.api.node_id

    def _scan(self, topic_filter: str, scan: Iterator[None]) -> None:
        """Look for what a filter matches: at once if that is one topic."""
        if _has_wildcard(topic_filter):
            self.scans.add(scan)
        else:
            for _ in scan:
                pass

    def _matching(self, topic_filter: str) -> Iterator[tuple[str, Stamp] | None]:
        """Topics that match, with their stamps; None at the end of each step of a scan."""
        if not _has_wildcard(topic_filter):
            message = self.known(topic_filter)
            stamp = None if message is None else Stamp.of(message)
            if stamp is not None:
                yield topic_filter, stamp
            return
        work = 0
        for found in self.api.retained_topics():
            work += 1
            if topic_matches(topic_filter, found[0]):
                yield found
                work += LOOKS // MATCHES
            if work >= LOOKS:
                yield None
                work = 0

    # a new subscriber -------------------------------------------------------------------------

    def ask(self, member: Member, everything: bool = False) -> None:
        """The subscriber key is in the graph: ask for what the filters that lead here want.

        A neighbour that subscribes to the same has it all, and is asked first. Otherwise the thousandth
        subscriber of a topic would bother the 999 others. With ``everything`` those are asked again who were
        in another graph so far; what the neighbour knows of them is uncertain then.
        """
        fresh, member.fresh = member.fresh, []
        for topic_filter in list(member.filters) if everything else fresh:
            if topic_filter in member.filters:
                self._pace.add(partial(self._ask, topic_filter, everything))

    def _ask(self, topic_filter: str, everything: bool) -> bool:
        member = self._member(topic_filter)
        if member is None or not (everything or member.filters[topic_filter] is Progress.NONE):
            return False
        member.filters[topic_filter] = Progress.ASKED
        self._question += 1
        question = self._questions[topic_filter] = self._question
        neighbor = None if everything else self._neighbor(member)
        if neighbor is None:
            self._query(topic_filter, question)
        else:
            if first_of_segment(self.graph, member):
                self._announce(topic_filter, _no_matter)
            self.graph.tell(neighbor, Query(topic_filter).encode())
            self.api.call_later(RETRY, self._unanswered, topic_filter, question)
        return True

    def _neighbor(self, member: Member) -> Peer | None:
        levels = self.graph.neighbors(member.keys[Role.SUBSCRIBER])
        for ref in levels[0] if levels else ():
            if ref is not None and ref.key in member.segment.subscribers:
                return ref.peer
        return None

    def _member(self, topic_filter: str) -> Member | None:
        """This node in the segment of a filter, if a local client subscribes to the filter."""
        member = self.segments.get(segment_of_filter(topic_filter))
        return member if member is not None and topic_filter in member.filters else None

    def _unanswered(self, topic_filter: str, question: int) -> None:
        member = self._asker(topic_filter, question)
        if member is not None and member.filters[topic_filter] is Progress.ASKED:
            self._query(topic_filter, question)

    def _asker(self, topic_filter: str, question: int) -> Member | None:
        """As :meth:`_member`, if this is still the question of the filter."""
        return self._member(topic_filter) if self._questions.get(topic_filter) == question else None

    def _query(self, topic_filter: str, question: int, attempts: int = ATTEMPTS) -> None:
        results: list[bool] = []
        began = self.api.now()

        def part(complete: bool) -> None:
            results.append(complete)
            if len(results) < 2 or self._asker(topic_filter, question) is None:
                return
            if all(results):
                self.announced(topic_filter, True, self.api.now() - began)
                # the answers come on ways of their own
                self.api.call_later(RETRY, self._done, topic_filter, question)
                return
            self.count("queries_incomplete")
            if attempts > 1:
                self.api.call_later(RETRY, self._query, topic_filter, question, attempts - 1)
            else:
                self.announced(topic_filter, False, 0.0)

        def done(result: CastResult) -> None:
            part(result.complete)

        self.count("queries")
        payload = Query(topic_filter).encode()
        self.graph.cast(publisher_ranges(topic_filter)[0], payload, reliable=True, done=done)
        self._announce(topic_filter, part)

    def _announce(self, topic_filter: str, done: Callable[[bool], None]) -> None:
        """Ask the aggregates of shorter prefixes, too, and tell them that there is a subscriber."""
        self._filters.add(topic_filter.encode(), publisher_ranges(topic_filter)[1:], done)

    def _done(self, topic_filter: str, question: int) -> None:
        member = self._asker(topic_filter, question)
        if member is not None:
            member.filters[topic_filter] = Progress.DONE

    def asked(self, asker: Peer, topic_filter: str) -> None:
        """A new subscriber, a neighbour of an own key, wants all this node has."""
        member = self.segments.get(segment_of_filter(topic_filter))
        complete = (
            not self.merging()
            and member is not None
            and any(
                progress is Progress.DONE and covers(known, topic_filter)
                for known, progress in member.filters.items()
            )
        )
        if complete:
            self._following.answered(asker, topic_filter)
            self._scan(topic_filter, self._answer(asker, topic_filter, True, lambda topic, stamp: True))
        else:
            self.count("answers")
            self.graph.tell(asker, Answer(topic_filter, False, []).encode())

    def queried(self, asker: Peer, keys: Sequence[bytes], topic_filter: str) -> None:
        """Answer what is held of the topics of own keys that a query has reached."""
        # keys may be cut, so the topics are looked up among them and not read from them
        own = {segment.code: key for key in keys if (segment := parse_key(key).segment) is not None}

        def requested(topic: str, stamp: Stamp) -> bool:
            key = own.get(Segment.exact(topic).code)
            if self._own(stamp):
                return key is not None or self.responsible(topic) in own
            return key is not None and self._volunteers(key, asker)

        self._scan(topic_filter, self._answer(asker, topic_filter, None, requested))

    def _answer(
        self, asker: Peer, topic_filter: str, complete: bool | None, requested: Callable[[str, Stamp], bool]
    ) -> Iterator[None]:
        """Find what is requested of a filter, the newest if it is too much, and send it, the oldest first."""
        newest: list[tuple[Stamp, str]] = []
        yield from self._newest(topic_filter, requested, newest)
        if not newest and complete is None:
            return
        batch: list[bytes] = []
        size = sent = 0
        while newest:
            message = self.known(heapq.heappop(newest)[1])
            if message is None:
                continue  # it has expired meanwhile
            sent += 1
            if sent % MESSAGES == 0:
                yield
            frame = replace(message, packet_id=1 if message.qos else None).encode(Version.V5)
            if batch and size + len(frame) > ANSWER_BYTES:
                self.graph.tell(asker, Answer(topic_filter, None, batch).encode())
                batch, size = [], 0
            batch.append(frame)
            size += len(frame)
        self.count("answers")
        self.graph.tell(asker, Answer(topic_filter, complete, batch).encode())

    def _newest(
        self, topic_filter: str, requested: Callable[[str, Stamp], bool], newest: list[tuple[Stamp, str]]
    ) -> Iterator[None]:
        """Gather in a heap what is requested of a filter, ``max_answers`` at most."""
        cut = False
        for found in self._matching(topic_filter):
            if found is None:
                yield
            elif requested(*found) and not (self._own(found[1]) and self.unwritten(found[0])):
                heapq.heappush(newest, (found[1], found[0]))
                if len(newest) > self.max_answers:
                    cut = True
                    heapq.heappop(newest)
        if cut:
            self.count("answers_cut")

    def _volunteers(self, key: bytes, asker: Peer) -> bool:
        """Whether a node with a mere copy answers: the one where the message entered may be gone.

        The first of the segment always does, the others at random. Their number is estimated from the highest
        level at which a neighbour belongs to the segment, too.
        """
        segment = parse_key(key).segment
        assert segment is not None
        members = segment.members
        levels = self.graph.neighbors(key)
        inside = [
            any(ref is not None and ref.key in members and ref.peer != asker for ref in pair)
            for pair in levels
        ]
        left = levels[0][0] if levels else None
        if left is None or left.key not in members or left.peer == asker:
            return True
        estimate = 1 << sum(inside)
        return bool(self.api.random.random() * estimate < VOLUNTEERS)

    def answered(self, answer: Answer) -> None:
        """Retained messages a query has brought: those that are news go to the local broker."""
        taking = self._take_answer(answer)
        if len(answer.frames) > MESSAGES:
            self.scans.add(taking)
        else:
            for _ in taking:
                pass

    def _take_answer(self, answer: Answer) -> Iterator[None]:
        if answer.complete is not None:
            self._neighbor_answered(answer.topic_filter, answer.complete)
        for number, frame in enumerate(answer.frames, 1):
            if number % MESSAGES == 0:
                yield
            message = decode(frame, Version.V5)
            if not isinstance(message, Publish) or not message.topic:
                raise IldmError("an answer that is no retained message")
            self._take_retained(message)

    def _neighbor_answered(self, topic_filter: str, complete: bool) -> None:
        """A subscriber with the same interest has answered; if that is not all, the publishers are asked."""
        member = self._member(topic_filter)
        if member is None:
            return
        if complete:
            member.filters[topic_filter] = Progress.DONE
            self.announced(topic_filter, True, 0.0)
        elif member.filters[topic_filter] is Progress.ASKED:
            self._query(topic_filter, self._questions[topic_filter])

    def _take_retained(self, message: Publish) -> None:
        """Give the local broker a message of an answer, if clients subscribe to it and it is news."""
        stamp = Stamp.of(message)
        if stamp is None or not self.interest.match(message.topic):
            return
        known = self.known(message.topic)
        known_stamp = None if known is None else Stamp.of(known)
        if (known_stamp is not None and known_stamp >= stamp) or self.fetched.is_deleted(message):
            return
        self.follow_up(message, True)
        # nobody here needs a deletion, if there was nothing
        if message.payload or (known is not None and known.payload):
            self.count("retained_fetched")
            self.fetched.add(message)
            inject_known(self.api, message)
        elif known is None:
            self.fetched.add_deletion(message)

    def follow_up(self, message: Publish, late: bool) -> None:
        """One has come that may be news for the nodes, too, that received what was known here; ``late``:
        others have had it before."""
        askers = self._following.of(message.topic, late)
        if not askers or self.is_old(message):
            return
        frame = replace(repeated(message), packet_id=1 if message.qos else None).encode(Version.V5)
        answer = Answer(message.topic, None, [frame]).encode()
        for asker in askers:
            self.count("answers_followed")
            self.graph.tell(asker, answer)

    def newer(self, newer: Newer) -> list[Publish]:
        """Another node holds these messages; only brokers of subscribers keep older ones. Returns them."""
        messages = []
        for frame in newer.frames:
            message = decode(frame, Version.V5)
            if not isinstance(message, Publish) or not message.topic:
                raise IldmError("what is newer is no retained message")
            messages.append(message)
            self.superseded(message)
            if not self.interest.match(message.topic):
                self.replace(message)
        return messages

    def replace(self, message: Publish) -> bool:
        """Let a retained message nobody here wants take the place of an older one, which then goes."""
        if not self.follows(message.topic):
            return False
        self.api.inject(message)
        self.clearing.replaced(message.topic)
        return True

    # what the broker must forget --------------------------------------------------------------

    def follows(self, topic: str) -> bool:
        """Whether newer messages of a topic concern this node. The local broker has a retained message on it,
        or a deletion that has entered here is to be replaced."""
        message = self.known(topic)
        return message is not None and (bool(message.payload) or self._entered_here(message))

    def unsubscribed(self, topic_filter: str) -> None:
        """A filter has no local subscriber any more."""
        self._questions.pop(topic_filter, None)
        self.clearing.unsubscribed(topic_filter)

    def clear(self, topic_filter: str) -> None:
        """Delete in the local broker what entered elsewhere and nobody here subscribes to."""
        self._scan(topic_filter, self._clear(topic_filter))

    def _clear(self, topic_filter: str) -> Iterator[None]:
        looked = 0
        for found in self._matching(topic_filter):
            if found is None:
                yield
                continue
            topic, stamp = found
            if self._own(stamp) or self.interest.match(topic):
                continue
            looked += 1
            if looked % MESSAGES == 0:
                yield
            message = self.known(topic)
            if message is not None and message.payload:
                self.count("retained_cleared")
                # without a stamp: for this broker alone, and the node forgets the message, too
                self.api.inject(Publish(topic=topic, retain=True))


def _has_wildcard(topic_filter: str) -> bool:
    return "+" in topic_filter or "#" in topic_filter


def _no_matter(complete: bool) -> None:
    """Aggregates ask by themselves now and then."""
