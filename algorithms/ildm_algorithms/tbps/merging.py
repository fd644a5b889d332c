"""Notices that this node's graph has become one with another, and how often something is done about it.

The keys stay in the graph meanwhile; but what this node has asked and announced so far has not reached the
other half. The graph tells of signs of merging where this node does something about it. A node that was alone
may just find that it has neighbours now.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ildm.api import NodeApi, Timer
    from ildm_algorithms.overlay.graph import CastResult
    from ildm_algorithms.overlay.keys import Ref

__all__ = ["AGAIN", "QUIET", "Damper", "MergeTeller", "MergeWatch"]

QUIET = 2.0
"""Seconds without a sign of merging after which it is over."""
TURNS = 3.0
"""Seconds within which those who have seen one tell all others, unless somebody has done so before them."""

AGAIN = 10.0
"""Seconds until a merge is announced once more. Pieces that the checks of the graph have yet to find are in
it by then, as a rule."""
TIMES = 4
"""How often it is announced once more, at most."""


class MergeTeller:
    """Tells all nodes that graphs have become one, and again until that reaches no more of them than before.

    While graphs become one even a complete cast may pass keys over, also the one by which a node asks what
    it has missed. A whole piece may come in that way, of which only the first key sees that anything has
    changed.
    """

    def __init__(self, api: NodeApi, cast: Callable[[bool, Callable[[CastResult], None]], None]) -> None:
        """``cast``: to all nodes; its first argument is whether it is for those not reached before."""
        self._api = api
        self._cast = cast
        self._announcement = 0
        self._timer: Timer | None = None

    def tell(self) -> None:
        self.leave_it()
        self._tell(0, self._announcement, 0)

    def leave_it(self) -> None:
        """Another node tells all, and will again."""
        self._announcement += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tell(self, times: int, announcement: int, before: int) -> None:
        self._timer = None

        def done(result: CastResult) -> None:
            more = not times or not result.complete or result.nodes > before
            if announcement == self._announcement and more and times < TIMES:
                self._timer = self._api.call_later(AGAIN, self._tell, times + 1, announcement, result.nodes)

        self._cast(times > 0, done)


class MergeWatch:
    """Waits until merging is over, then calls ``merged(alone)``; ``alone``: this node was a graph of its
    own before. Called with both if keys of other nodes were in that graph by then."""

    def __init__(self, api: NodeApi, is_alone: Callable[[], bool], merged: Callable[[bool], None]) -> None:
        self._api = api
        self._is_alone = is_alone
        self._merged = merged
        self._was_alone = True
        self._passed_over_since: float | None = -inf
        """Since when this node was a graph of its own, last, or its casts have passed over others; None: that
        has been asked for."""
        self._alone_before = False
        self._others = False
        self._others_entered = False
        self._last = 0.0
        self._announced_at = 0.0
        self._knows_until = 0.0
        self._turn: float | None = None
        self._timer: Timer | None = None

    @property
    def merging(self) -> bool:
        """It is not over yet."""
        return self._timer is not None

    def neighbors_changed(self, left: Ref | None, right: Ref | None) -> None:
        """An own key has entered, or its neighbours at level 0 are others now."""
        foreign = any(ref is not None and ref.peer.node_id != self._api.node_id for ref in (left, right))
        if foreign and self._was_alone:
            self._was_alone = False
            self._alone_before = True
            self.sign()
        elif not foreign and not self._was_alone:
            self._was_alone = self._is_alone()
            if self._was_alone and self._passed_over_since is None:
                self._passed_over_since = self._api.now()

    def take_passed_over_since(self) -> float | None:
        """Since when what this node has sent did not reach all others, before the merging that is over now.
        The node was alone, or has passed over some. None: it has, or this has been asked."""
        since, self._passed_over_since = self._passed_over_since, None
        return since

    def other_entered(self) -> None:
        """A key of another node is about to enter right of an own one. While this node is a graph of its own,
        that key belongs into another one. What is remembered of an earlier incarnation has led it here, and
        the others miss what it leads into this graph."""
        self._others_entered = self._others_entered or self._is_alone()

    def sign(self, others: bool = True, since: float | None = None) -> None:
        """The graph is about to merge, or goes on; ``others``: other nodes than this one may have missed
        something, too. ``since``: what this node has sent, since then."""
        if since is not None:
            known = self._passed_over_since
            self._passed_over_since = since if known is None else min(known, since)
        self._alone_before = self._alone_before or self._is_alone()
        self._others = self._others or others
        self._last = self._api.now()
        if self._timer is None:
            self._turn = None
            self._timer = self._api.call_later(QUIET, self._look)

    def announced(self) -> None:
        """Another node has announced to all that graphs have merged."""
        self._announced_at = self._api.now()
        self._knows_until = self._announced_at + AGAIN * (TIMES + 1)

    def announced_again(self) -> bool:
        """The announcement for nodes that have not received it before. Answers whether this node has not."""
        news = self._api.now() >= self._knows_until
        if news:
            self.announced()
        return news

    def _look(self) -> None:
        alone = self._alone_before or not self._others
        if not alone and self._turn is None:
            self._turn = TURNS * self._api.random.random()
        wait = QUIET if alone or self._turn is None else QUIET + self._turn
        left = self._last + wait - self._api.now()
        if left > 0:
            self._timer = self._api.call_later(left, self._look)
            return
        self._timer = None
        tell, self._others_entered = self._others_entered, False
        self._alone_before = self._others = False
        # The announcer had waited, too: half of that later there was nothing left to announce.
        unannounced = self._announced_at < self._last + QUIET / 2
        if alone:
            self._merged(True)
        if unannounced and (tell or not alone):
            self._merged(False)


class Damper:
    """Calls ``action`` as soon as it is asked for; while that goes on, after ever longer pauses.

    ``longest``: of them, in seconds; the first one is a sixth of that, as is the next one after a quiet time
    of twice the last one.
    """

    def __init__(self, api: NodeApi, longest: float, action: Callable[[], None]) -> None:
        self._api = api
        self._first = longest / 6
        self._longest = longest
        self._action = action
        self._pause = 0.0
        self._last = 0.0
        self._timer: Timer | None = None

    @property
    def asked(self) -> bool:
        """It is still to be done."""
        return self._timer is not None

    def ask(self) -> None:
        """Let it be done; one call follows, however often this was asked for before."""
        if self._timer is not None:
            return
        passed = self._api.now() - self._last
        if passed > 2 * self._pause:
            self._pause = 0.0
        self._timer = self._api.call_later(max(0.0, self._pause - passed), self._act)

    def _act(self) -> None:
        self._timer = None
        self._last = self._api.now()
        self._pause = min(max(self._first, 2 * self._pause), self._longest)
        self._action()
