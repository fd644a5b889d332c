"""Carries the questions of `aggregates.py` to subscribers, and their answers back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ildm_algorithms.overlay.keys import Range, Ref
from ildm_algorithms.tbps.keys.encoding import Role, Segment, parse_key, segment_of_filter, topics_below
from ildm_algorithms.tbps.messages import Needed, Survey
from ildm_algorithms.tbps.publishers.aggregates import Aggregate, AggregateCommand, Command

if TYPE_CHECKING:
    from ildm.api import NodeApi, Peer
    from ildm_algorithms.overlay.graph import CastResult, SkipGraph
    from ildm_algorithms.tbps.keys.segments import Member, Segments

__all__ = ["Surveys", "first_of_segment", "pieces"]

ANSWER_TIME = (0.1, 2.0)
"""Bounds of the seconds for answers that are under way when a question has reached everybody: it is twice as
long as that took."""
ASK_AGAIN = 5.0
"""Seconds until the next question when one has not."""
PIECE_BYTES = 32_768
"""Of what is sent about many segments or filters in one message."""


def pieces(texts: Iterable[bytes]) -> Iterator[int]:
    """How many of the texts, one after another, go into each message."""
    count = size = 0
    for text in texts:
        if count and size + len(text) > PIECE_BYTES:
            yield count
            count = size = 0
        count += 1
        size += len(text) + 4
    if count:
        yield count


def first_of_segment(graph: SkipGraph, member: Member) -> bool:
    """Whether the own subscriber key has no other of the segment on its left."""
    levels = graph.neighbors(member.keys[Role.SUBSCRIBER])
    left = levels[0][0] if levels else None
    return left is None or left.key not in member.segment.subscribers


class Surveys:
    """All aggregates of this node, and its answers to those of others."""

    def __init__(
        self,
        api: NodeApi,
        graph: SkipGraph,
        segments: Segments,
        limit: int,
        ready: Callable[[Member], None],
        overlooked: Callable[[Segment], None],
        learned: Callable[[Sequence[bytes]], None],
        count: Callable[[str], None],
    ) -> None:
        self.api = api
        self.graph = graph
        self.segments = segments
        self.limit = limit
        self.ready = ready
        """Called when messages need not wait for an aggregate any more."""
        self.overlooked = overlooked
        """Called with a segment that has subscribers but got no messages."""
        self.count = count
        self.aggregates: dict[bytes, Aggregate] = {}
        """By the code of their segment."""
        self.learned = learned
        """Hears of segments with subscribers into which an own aggregate has not sent so far."""

    def open(self, segment: Segment) -> Aggregate:
        return self.aggregates.setdefault(segment.code, Aggregate(self.limit))

    def close(self, segment: Segment) -> None:
        self.aggregates.pop(segment.code, None)

    # events -----------------------------------------------------------------------------------

    def joined(self, member: Member) -> None:
        """The key of an aggregate is in the graph."""
        aggregate = self.aggregates.get(member.segment.code)
        if aggregate is not None:
            self._obey(member.segment, aggregate, aggregate.joined())

    def left(self, member: Member) -> None:
        """The key of an aggregate has left the graph."""
        aggregate = self.aggregates.get(member.segment.code)
        if aggregate is not None:
            aggregate.left()

    def tick(self) -> None:
        """To be called every status interval."""
        for code, aggregate in list(self.aggregates.items()):
            self._obey(Segment(code), aggregate, aggregate.ticked())

    def merged(self) -> None:
        """The graph has become one with another."""
        for code, aggregate in list(self.aggregates.items()):
            self._obey(Segment(code), aggregate, aggregate.merged())

    def surveyed(self, asker: Peer, keys: Sequence[bytes], survey: Survey) -> None:
        """An aggregate asks: the first subscriber of each segment answers."""
        asking = parse_key(survey.key).segment
        if asking is None or not asking.is_aggregate:
            return
        codes = []
        for key in keys:
            found = self.segments.find(key)
            if found is not None and found[1] is Role.SUBSCRIBER and first_of_segment(self.graph, found[0]):
                codes.append(found[0].segment.code)
        if not codes:
            return
        self.count("surveys_answered")
        if asker.node_id == self.api.node_id:
            self._subscribed(asking.code, codes)
            return
        if len(codes) > self.limit:
            codes = []
        target = Range(survey.key, survey.key + b"\0")
        entry = Ref(survey.key, asker, 0)
        at = 0
        for size in pieces(codes) if codes else (0,):
            answer = Needed([Segment(code) for code in codes[at : at + size]]).encode()
            at += size
            self.graph.cast(target, answer, reliable=True, entry=entry)

    def needed(self, keys: Iterable[bytes], segments: Iterable[Segment]) -> None:
        """Answers to an own aggregate."""
        codes = [segment.code for segment in segments]
        for key in keys:
            found = self.segments.find(key)
            if found is not None:
                code = found[0].segment.code
                aggregate = self.aggregates.get(code)
                silent = [c for c in codes if aggregate is not None and not aggregate.sends_to(c)]
                self._subscribed(code, codes)
                for unknown in silent:
                    self.overlooked(Segment(unknown))

    def announced(self, keys: Iterable[bytes], topic_filters: Iterable[str]) -> None:
        """New subscribers have spoken up to all who may publish to them."""
        own = [found[0].segment for key in keys if (found := self.segments.find(key)) is not None]
        own = [segment for segment in own if segment.is_aggregate]
        if not own:
            return
        codes = [segment_of_filter(topic_filter).code for topic_filter in topic_filters]
        for segment in own:
            below = topics_below(segment.levels)
            known = [code for code in codes if code in below]
            if known:
                self._subscribed(segment.code, known)

    def _subscribed(self, code: bytes, codes: Sequence[bytes]) -> None:
        aggregate = self.aggregates.get(code)
        if aggregate is None:
            return
        before = aggregate.everywhere
        if new := [code for code in codes if not aggregate.wants(code)]:
            self.learned(new)
        aggregate.subscribed(codes)
        if aggregate.everywhere and not before:
            self.count("interest_overflows")
            self.api.log(
                "an aggregate cannot keep all segments with subscribers and sends to all",
                prefix=Segment(code).text,
                limit=self.limit,
            )

    # commands ---------------------------------------------------------------------------------

    def _obey(self, segment: Segment, aggregate: Aggregate, command: Command | None) -> None:
        if command is None:
            return
        if command.order is AggregateCommand.ASK:
            self._ask(segment, aggregate)
        elif command.order is AggregateCommand.PROBE:
            for code in command.codes:
                self._probe(segment, aggregate, code)

    def _current(self, segment: Segment, aggregate: Aggregate) -> bool:
        return self.aggregates.get(segment.code) is aggregate

    def _ask(self, segment: Segment, aggregate: Aggregate) -> None:
        member = self.segments.get(segment)
        if member is None:
            return

        def asked(result: CastResult) -> None:
            if not self._current(segment, aggregate):
                return
            if not result.complete:
                self.count("surveys_incomplete")
            if aggregate.asked(result.complete) is not None:
                least, most = ANSWER_TIME
                wait = min(max(2 * (self.api.now() - began), least), most) if result.complete else ASK_AGAIN
                self.api.call_later(wait, self._waited, segment, aggregate)
            member = self.segments.get(segment)
            if member is not None:
                self.ready(member)

        began = self.api.now()
        self.count("surveys")
        survey = Survey(member.keys[Role.PUBLISHER]).encode()
        self.graph.cast(topics_below(segment.levels), survey, reliable=True, done=asked)

    def _waited(self, segment: Segment, aggregate: Aggregate) -> None:
        if self._current(segment, aggregate):
            self._obey(segment, aggregate, aggregate.waited())

    def _probe(self, segment: Segment, aggregate: Aggregate, code: bytes) -> None:
        moment = aggregate.moment

        def probed(result: CastResult) -> None:
            if result.complete and not result.keys:
                aggregate.unsubscribed(code, moment)

        self.count("interest_probes")
        self.graph.cast(Segment(code).subscribers, b"", reliable=True, deliver=False, done=probed)
