"""Notices that this node's graph has become one with another.

The keys stay in the graph meanwhile, so that no hook tells of it; but what this node has asked and told
so far has not reached the other half. Not only a join makes one graph of two: where nodes remember each
other, the checks of the graph may be faster. Their signs are that a node is no more alone, and that a key
has moved by itself to a nearer left neighbour (after a crash it moves to a farther one, and when another
key enters between, that one does it all).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

    from algorithms.overlay.keys import Ref
    from ildm.api import NodeApi, Peer, Timer

__all__ = ["QUIET", "MergeWatch", "WatchedApi"]

QUIET = 2.0
"""Seconds without a sign of merging after which it is over."""


class WatchedApi:
    """What the graph needs of the node; ``watch`` is told of what it counts that may be merging."""

    def __init__(self, api: NodeApi, watch: MergeWatch) -> None:
        self._api = api
        self._watch = watch
        self.now = api.now
        self.call_later = api.call_later
        self.send = api.send
        self.log = api.log

    @property
    def node_id(self) -> str:
        return self._api.node_id

    @property
    def peer(self) -> Peer:
        return self._api.peer

    @property
    def random(self) -> Random:
        return self._api.random

    def count(self, name: str, by: int = 1) -> None:
        self._api.count(name, by)
        if name == "merges":
            self._watch.sign()
        elif name == "repairs":
            self._watch.repaired()


class MergeWatch:
    """Waits until merging is over, then calls ``merged(alone)``; ``alone``: this node was a graph of its
    own before."""

    def __init__(self, api: NodeApi, is_alone: Callable[[], bool], merged: Callable[[bool], None]) -> None:
        self._api = api
        self._is_alone = is_alone
        self._merged = merged
        self._alone = False
        self._last = 0.0
        self._timer: Timer | None = None
        self._lefts: dict[bytes, bytes | None] = {}
        """Left neighbour of each own key at level 0."""
        self._was_alone = True
        self._nearer = False
        """A left neighbour has become a nearer one in this turn."""

    def moved(self, key: bytes, left: Ref | None, right: Ref | None) -> None:
        """An own key has entered, or its neighbours at level 0 are others now."""
        foreign = any(ref is not None and ref.peer.node_id != self._api.node_id for ref in (left, right))
        if foreign and self._was_alone:
            self._was_alone = False
            self._alone = True
            self.sign()
        elif not foreign and not self._was_alone:
            self._was_alone = self._is_alone()
        after = None if left is None else left.key
        if after is not None and key in self._lefts:
            before = self._lefts[key]
            if (before is None or before < after) and not self._nearer:
                self._nearer = True
                # a repair is counted right after it has moved the key, in the same turn
                self._api.call_later(0.0, self._turn_over)
        self._lefts[key] = after

    def gone(self, key: bytes) -> None:
        """An own key has left."""
        self._lefts.pop(key, None)

    def repaired(self) -> None:
        """The graph has repaired a link of an own key."""
        if self._nearer:
            self._nearer = False
            self.sign()

    def _turn_over(self) -> None:
        self._nearer = False

    def sign(self) -> None:
        """The graph is about to merge, or goes on."""
        self._alone = self._alone or self._is_alone()
        self._last = self._api.now()
        if self._timer is None:
            self._timer = self._api.call_later(QUIET, self._look)

    def _look(self) -> None:
        left = self._last + QUIET - self._api.now()
        if left > 0:
            self._timer = self._api.call_later(left, self._look)
            return
        self._timer = None
        alone, self._alone = self._alone, False
        self._merged(alone)
