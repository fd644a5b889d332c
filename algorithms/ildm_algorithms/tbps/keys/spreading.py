"""How a message gets from its publisher to the keys of a segment: what topic-based algorithms differ in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ildm.api import Fact
    from ildm_algorithms.overlay.casts.routing import Routing
    from ildm_algorithms.overlay.graph import CastResult, SkipGraph
    from ildm_algorithms.overlay.keys import Range
    from ildm_algorithms.tbps.describe import Tables
    from ildm_algorithms.tbps.keys.encoding import Role, Segment
    from ildm_algorithms.tbps.keys.segments import Member

__all__ = ["Direct", "Spreading"]


class Spreading(Protocol):
    """Spreads the messages of one node. Signals between publishers, and queries, are not its affair."""

    def prepare(self, member: Member, done: Callable[[], None]) -> None:
        """An own key of the segment has joined: find out what :meth:`send` needs, then call ``done``.

        Messages into the segment wait for the first ``done``. Called again when the node becomes
        subscriber instead of publisher, or the reverse; messages do not wait for that.
        """

    def send(
        self,
        member: Member | None,
        target: Range,
        payload: bytes,
        reliable: bool,
        turn: int,
        done: Callable[[CastResult], None] | None,
    ) -> None:
        """Send a message to all keys in ``target``, which are of the segment.

        ``member`` is None where this node has no key in it: one that no key can be had for, or that an
        aggregate publishes to.
        ``done`` gets the result of a ``reliable`` one; it is None for others. What is sent with one ``turn``
        stays in order.
        """

    def trace(self, segment: Segment, done: Callable[[CastResult], None]) -> None:
        """Find the tree of a message to the subscribers of a segment; nothing is delivered."""

    def facts(self, member: Member, role: Role) -> Mapping[str, Fact]:
        """What ``ildm overlay`` shows of how messages spread from this node's key of that role."""

    def tables(self) -> Tables:
        """The same of all keys together: short tables (:func:`ildm_algorithms.tbps.describe.bounded`)."""


class Direct:
    """From an own key straight over the graph (thesis 4.1), by one of its ways to divide a range."""

    def __init__(self, graph: SkipGraph, routing: Routing) -> None:
        self.graph = graph
        self.routing = routing

    def prepare(self, member: Member, done: Callable[[], None]) -> None:
        """The tables of the graph are all that is needed."""
        done()

    def send(
        self,
        member: Member | None,
        target: Range,
        payload: bytes,
        reliable: bool,
        turn: int,
        done: Callable[[CastResult], None] | None,
    ) -> None:
        self.graph.cast(target, payload, routing=self.routing, reliable=reliable, done=done, turn=turn)

    def trace(self, segment: Segment, done: Callable[[CastResult], None]) -> None:
        self.graph.cast(segment.subscribers, b"", routing=self.routing, trace=True, done=done)

    def facts(self, member: Member, role: Role) -> Mapping[str, Fact]:
        """The graph shows it all."""
        return {}

    def tables(self) -> Tables:
        return {}
