"""Notices that this node's graph has become one with another.

The keys stay in the graph meanwhile; but what this node has asked and told so far has not reached the other
half. The graph tells of signs of merging where this node does something about it; a node that was alone may
just find that it has neighbours now.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from algorithms.overlay.keys import Ref
    from ildm.api import NodeApi, Timer

__all__ = ["QUIET", "MergeWatch"]

QUIET = 2.0
"""Seconds without a sign of merging after which it is over."""


class MergeWatch:
    """Waits until merging is over, then calls ``merged(alone)``; ``alone``: this node was a graph of its
    own before."""

    def __init__(self, api: NodeApi, is_alone: Callable[[], bool], merged: Callable[[bool], None]) -> None:
        self._api = api
        self._is_alone = is_alone
        self._merged = merged
        self._was_alone = True
        self._alone_before = False
        self._last = 0.0
        self._timer: Timer | None = None

    def neighbors_changed(self, left: Ref | None, right: Ref | None) -> None:
        """An own key has entered, or its neighbours at level 0 are others now."""
        foreign = any(ref is not None and ref.peer.node_id != self._api.node_id for ref in (left, right))
        if foreign and self._was_alone:
            self._was_alone = False
            self._alone_before = True
            self.sign()
        elif not foreign and not self._was_alone:
            self._was_alone = self._is_alone()

    def sign(self) -> None:
        """The graph is about to merge, or goes on."""
        self._alone_before = self._alone_before or self._is_alone()
        self._last = self._api.now()
        if self._timer is None:
            self._timer = self._api.call_later(QUIET, self._look)

    def _look(self) -> None:
        left = self._last + QUIET - self._api.now()
        if left > 0:
            self._timer = self._api.call_later(left, self._look)
            return
        self._timer = None
        alone, self._alone_before = self._alone_before, False
        self._merged(alone)
