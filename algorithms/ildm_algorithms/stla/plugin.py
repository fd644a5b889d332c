"""Messages begin at a subscriber in the publisher's cluster, or in the closest that has one (STLA IV)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from pydantic import Field

from ildm_algorithms.overlay.casts.routing import SFB
from ildm_algorithms.stla.start import Start, StartCommand, StartState, nearest
from ildm_algorithms.tbps import TbpsConfig, TopicBased
from ildm_algorithms.tbps.config import Place
from ildm_algorithms.tbps.describe import bounded
from ildm_algorithms.tbps.keys.encoding import Role, Segment, key_text

if TYPE_CHECKING:
    from ildm.api import Fact, NodeApi
    from ildm_algorithms.overlay.graph import CastResult, SkipGraph
    from ildm_algorithms.overlay.keys import Range, Ref
    from ildm_algorithms.tbps.describe import Tables
    from ildm_algorithms.tbps.keys.segments import Member
    from ildm_algorithms.tbps.publishers.publisher import Epoch

__all__ = ["FromStart", "Stla", "StlaConfig"]


class StlaConfig(TbpsConfig):
    """Options of the algorithm ``stla``; times in seconds."""

    locality: tuple[Place, ...] = Field(min_length=1)
    """Where this node is (the FQCI without the world): clusters from the largest to the smallest, such as
    region, site. Nodes of a cluster write it alike."""
    start_refresh: float = Field(default=15.0, gt=0)
    """For how long, on average, a start node is used before it is looked whether there is a closer one."""
    max_starts: int = Field(default=10_000, ge=1)
    """Start nodes a node remembers, one for each segment it publishes to; the least recently used goes."""


class FromStart:
    """Sends each message to the start node of its segment, which spreads it by SFB."""

    def __init__(
        self, api: NodeApi, graph: SkipGraph, config: StlaConfig, count: Callable[[str], None]
    ) -> None:
        self.api = api
        self.graph = graph
        self.config = config
        self.count = count
        self.starts: OrderedDict[bytes, Start] = OrderedDict()
        """By the code of the segment; the least recently used first."""
        self._waiting: dict[bytes, list[Callable[[], None]]] = {}
        """By segment: whom to tell that the first search is over."""

    def prepare(self, member: Member, done: Callable[[], None]) -> None:
        """A new publisher's messages wait for the first search, unless nobody listens."""
        code = member.segment.code
        if member.subscribed:
            self.starts.pop(code, None)  # it begins at its own key
        if member.subscribed or member.suspended:
            done()
            return
        self._waiting.setdefault(code, []).append(done)
        if self._used(member.segment, member.publisher.epoch).state is not StartState.SEARCHING:
            self._release(code)

    def send(
        self,
        member: Member | None,
        target: Range,
        payload: bytes,
        reliable: bool,
        turn: int,
        done: Callable[[CastResult], None] | None,
    ) -> None:
        start = self._start(member, target)
        entry = None if start is None else start.ref
        if start is not None and entry is not None and done is not None:
            done = partial(self._done, start, entry, done)
        self.graph.cast(target, payload, routing=SFB, reliable=reliable, done=done, turn=turn, entry=entry)

    def trace(self, segment: Segment, done: Callable[[CastResult], None]) -> None:
        """As a message goes now, or would if this node published to the segment."""

        def found(pred: Ref | None, succ: Ref | None, hops: int) -> None:
            cast(nearest(segment, self.config.locality, (pred, succ)))

        def cast(entry: Ref | None) -> None:
            self.graph.cast(segment.subscribers, b"", routing=SFB, trace=True, done=done, entry=entry)

        start = self.starts.get(segment.code)
        if start is not None and start.ref is not None:
            cast(start.ref)
        else:
            self.graph.lookup(segment.subscriber_key(self.api.node_id, self.config.locality), found)

    def facts(self, member: Member, role: Role) -> Mapping[str, Fact]:
        """The key of the start node, at a publisher's."""
        if role is not Role.PUBLISHER:
            return {}
        start = self.starts.get(member.segment.code)
        return {"start": None if start is None or start.ref is None else key_text(start.ref.key)}

    def tables(self) -> Tables:
        """Start nodes by segment, those used last first."""
        rows = (self._row(code, start) for code, start in reversed(self.starts.items()))
        return {"start nodes": bounded(rows, len(self.starts))}

    def _row(self, code: bytes, start: Start) -> Mapping[str, Fact]:
        ref = start.ref
        return {
            "segment": Segment(code).text,
            "start": None if ref is None else key_text(ref.key),
            "node": None if ref is None else ref.peer.node_id,
            "state": str(start.state),
        }

    # start nodes --------------------------------------------------------------------------------

    def _start(self, member: Member | None, target: Range) -> Start | None:
        """What is known of where a message is to begin; None: at an own key."""
        segment = Segment(target.low[:-1]) if member is None else member.segment
        if target == segment.publishers or (member is not None and member.subscribed):
            return None
        return self._used(segment, None if member is None else member.publisher.epoch)

    def _used(self, segment: Segment, epoch: Epoch | None) -> Start:
        """What is known of the start node when a message is about to go there; a search may begin."""
        start = self.starts.get(segment.code)
        if start is None:
            start = self.starts[segment.code] = Start()
            if len(self.starts) > self.config.max_starts:
                self.starts.popitem(last=False)
                self.count("starts_displaced")
        self.starts.move_to_end(segment.code)
        if start.ref is not None and self.graph.avoids(start.ref.peer.node_id):
            self._lost(start, start.ref)
        if start.use(self.api.now(), epoch) is StartCommand.SEARCH:
            self._search(segment, start)
        return start

    def _search(self, segment: Segment, start: Start) -> None:
        self.count("start_searches")

        def found(pred: Ref | None, succ: Ref | None, hops: int) -> None:
            now = self.api.now()
            if pred is None and succ is None:
                self.count("start_searches_failed")
                start.failed(now)
            else:
                keep = self.config.start_refresh * (0.5 + self.api.random.random())
                start.found(nearest(segment, self.config.locality, (pred, succ)), now, keep)
            self._release(segment.code)

        self.graph.lookup(segment.subscriber_key(self.api.node_id, self.config.locality), found)

    def _release(self, code: bytes) -> None:
        for done in self._waiting.pop(code, ()):
            done()

    def _done(self, start: Start, entry: Ref, done: Callable[[CastResult], None], result: CastResult) -> None:
        if not result.complete:
            self._lost(start, entry)
        done(result)

    def _lost(self, start: Start, ref: Ref) -> None:
        self.count("starts_lost")
        start.lost(ref, self.api.now())


class Stla(TopicBased[StlaConfig]):
    """Each message goes to the subscribers of its topic, and through each cluster once on each path."""

    def make_spreading(self) -> FromStart:
        return FromStart(self.api, self.graph, self.config, self.api.count)
