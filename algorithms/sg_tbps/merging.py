"""Notices that this node's graph has become one with another.

The keys stay in the graph meanwhile, so that no hook tells of it; but what this node has asked and told
so far has not reached the other half.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

    from ildm.api import NodeApi, Peer, Timer

__all__ = ["QUIET", "MergeWatch", "WatchedApi"]

QUIET = 2.0
"""Seconds without a sign of merging after which it is over."""


class WatchedApi:
    """What the graph needs of the node; ``merging`` is called when it counts that it merges."""

    def __init__(self, api: NodeApi, merging: Callable[[], None]) -> None:
        self._api = api
        self._merging = merging
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
            self._merging()


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
