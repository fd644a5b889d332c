"""What a node does when its graph has become one with another: it tells all, asks, offers and repeats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ildm_algorithms.tbps.keys.encoding import ALL_NODES
from ildm_algorithms.tbps.merging import Damper, MergeTeller, MergeWatch
from ildm_algorithms.tbps.messages import Merged

if TYPE_CHECKING:
    from collections.abc import Callable

    from ildm.api import NodeApi
    from ildm_algorithms.exchange.log import Log
    from ildm_algorithms.overlay.graph import CastResult, SkipGraph
    from ildm_algorithms.tbps.config import TbpsConfig
    from ildm_algorithms.tbps.missed import Missing
    from ildm_algorithms.tbps.offers import Offers
    from ildm_algorithms.tbps.publishers.outbox import Outbox
    from ildm_algorithms.tbps.publishers.surveys import Surveys
    from ildm_algorithms.tbps.retained.queries import RetainedQueries
    from ildm_algorithms.tbps.retained.repeating import Repeating

__all__ = ["Merges"]

MERGES = 5
"""While graphs merge all the time, so often in an ``interest_period`` what that takes is done, at least."""
SETTLED = 4.0
"""Seconds after which a node that was taken for dead, and is not, has its place again."""


class Merges:
    """The merges of one node's graph; :attr:`watch` notices them."""

    def __init__(
        self,
        api: NodeApi,
        config: TbpsConfig,
        graph: SkipGraph,
        *,
        log: Log,
        offers: Offers,
        missing: Missing,
        surveys: Surveys,
        outbox: Outbox,
        retained: RetainedQueries,
        repeating: Repeating,
    ) -> None:
        self.api = api
        self.config = config
        self.graph = graph
        self.log = log
        self.offers = offers
        self.missing = missing
        self.surveys = surveys
        self.outbox = outbox
        self.retained = retained
        self.repeating = repeating
        self.watch = MergeWatch(api, missing.is_alone, self.merged)
        self._teller = MergeTeller(api, self._cast)
        self._damper = Damper(api, config.interest_period / MERGES, self._catch_up)
        self._passed_over: float | None = None
        """Since when casts from here may have passed over a node that was taken for dead."""

    @property
    def pending(self) -> bool:
        """Graphs are about to become one, or have, and what follows from that is still to be done."""
        return self.watch.merging or self._damper.asked

    def merged(self, alone: bool) -> None:
        """The graph has become one with another: ask there, and show what is held here. ``alone``: this
        node was a graph of its own before."""
        if not alone:
            self._tell_all()
            self._damper.ask()
            return
        for member in list(self.retained.segments.members.values()):
            if member.subscribed:
                self.retained.ask(member, everything=True)
        self.outbox.found()
        self._catch_up(alone=True)
        since = self.watch.take_passed_over_since()
        if since is not None:
            lately = self.api.now() - self.config.interest_period
            self._found_others(max(since, min(lately, self.missing.among_before)), lately)

    def announced(self, again: bool) -> None:
        """Another node announces a merge to all; ``again``: those whom it has not reached before."""
        if not again:
            self._teller.leave_it()
            self.watch.announced()
            self._damper.ask()
        elif self.watch.announced_again():
            self._damper.ask()
        else:
            self.missing.merged(alone=False)

    def passed_over(self, since: float) -> None:
        """A node lives that was taken for dead: see ``Hooks.passed_over``."""
        if self._passed_over is None:
            self._passed_over = since
            self.api.call_later(SETTLED, self._offer_to_passed_over)
        else:
            self._passed_over = min(since, self._passed_over)

    def _offer_to_passed_over(self) -> None:
        since, self._passed_over = self._passed_over, None
        if since is not None:
            self.offers.found_others(since - self.config.key_wait)

    def _found_others(self, since: float, lately: float) -> None:
        """This node was alone since then, in this incarnation or the one before."""
        # what waited for its keys until then was sent when there was nobody
        self.offers.found_others(since - self.config.key_wait)
        if since < lately and any(self.log.since(since)):
            # for so long the others may have been in parts, too, in which this node has not met all of them
            self._tell_all()

    def _tell_all(self) -> None:
        self.api.count("merges_told")
        self._teller.tell()

    def _cast(self, again: bool, done: Callable[[CastResult], None]) -> None:
        self.graph.cast(ALL_NODES, Merged(again).encode(), reliable=True, done=done)
        if again:
            self.missing.merged(alone=False)

    def _catch_up(self, alone: bool = False) -> None:
        """Others may have missed what was sent from here, and this node what they have sent."""
        self.surveys.merged()
        self.outbox.merged()
        self.missing.merged(alone)
        self.offers.merged()
        self.repeating.soon()
