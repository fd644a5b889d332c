"""A node that has lost its state comes back to a broker that has kept its sessions.

The node does not know which messages it has had, nor since when it was away. Its neighbours know until when
its earlier life was there, so it asks them (LOST, HEARD). Then it asks all publishers for messages that were
not acknowledged by all at that time (MISSED with its age). A publisher's node that was a neighbour itself
takes its own time, which no delay falsifies.

The neighbours keep the time until the node has fetched what it lacks. So it may lose its state once more.
"""

from __future__ import annotations

from collections import OrderedDict
from math import inf
from typing import TYPE_CHECKING

from ildm_algorithms.exchange.messages import milliseconds
from ildm_algorithms.tbps.messages import Heard, Lost

if TYPE_CHECKING:
    from collections.abc import Callable

    from ildm.api import Link, NodeApi, Peer
    from ildm_algorithms.overlay.graph import SkipGraph

__all__ = ["ON_THE_WAY", "Forgotten"]

HELD = 60.0
"""Seconds for which neighbours keep the time after a node has asked, if it does not say that it has all."""
ON_THE_WAY = 5.0
"""Seconds a question may take to reach everybody, besides those for which nodes keep it. What it asks for is
identified by age, and the times it tells may be later than they were by so much."""
MOST = 10_000
"""Nodes of which the time is kept."""


class Forgotten:
    """Both sides of it.

    Args:
        patience: seconds of silence before any node takes another one for dead.
    """

    def __init__(self, api: NodeApi, graph: SkipGraph, patience: float, count: Callable[..., None]) -> None:
        self._api = api
        self._graph = graph
        self._patience = patience
        self._count = count
        self.began = -inf
        """When this life began, if nothing is left of an earlier one and clients have older sessions."""
        self.news: Callable[[], None] = lambda: None
        """Told that messages may be missing since an earlier time than was known."""
        self._heard: float | None = None
        """Until when others knew an earlier life to be there."""
        self._asked: dict[str, tuple[Peer, float]] = {}
        """Nodes that were asked, and when."""
        self._seen: OrderedDict[str, float] = OrderedDict()
        """Nodes whose links are down, and until when they were surely there."""
        self._held: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """The same of nodes that have lost their state, and until when that is kept."""

    # of this node -----------------------------------------------------------------------------

    def begin(self) -> None:
        """Clients have sessions that are older than all that this node knows."""
        self.began = self._api.now()
        self._count("forgotten")

    @property
    def age(self) -> int | None:
        """Milliseconds since an earlier life was there, as MISSED has it; None: nothing is forgotten."""
        if self.began == -inf:
            return None
        last = self.began if self._heard is None else self._heard
        return milliseconds(self._api.now() - last)

    def on_heard(self, sender: Peer, heard: Heard) -> None:
        """A neighbour knows until when an earlier life of this node was there."""
        _, asked = self._asked.get(sender.node_id, (sender, inf))
        at = asked - heard.age / 1000  # no later than it was
        if at >= self.began:
            return  # it was this life
        first, self._heard = self._heard is None, max(at, self._heard or at)
        if first:
            self.news()

    def recovered(self) -> None:
        """What was forgotten has come."""
        for peer, _ in self._asked.values():
            self._graph.tell(peer, Lost(over=True).encode())
        self._asked.clear()

    # of others --------------------------------------------------------------------------------

    def link_up(self, link: Link) -> None:
        if self.began != -inf:
            self._asked[link.node_id] = link.peer, self._api.now()
            self._graph.tell(link.peer, Lost().encode())

    def link_down(self, link: Link) -> None:
        """The link of a node has gone, perhaps with the node. As long as the node was not silent for long, no
        cast has passed over it: until then it has what all have acknowledged."""
        last = self._graph.last_received(link.node_id)
        if last is not None:
            self._seen.pop(link.node_id, None)
            self._seen[link.node_id] = min(self._api.now(), last + self._patience)
            self._bound(self._seen)

    def on_lost(self, sender: Peer, lost: Lost) -> None:
        """A neighbour has lost its state, or has all again."""
        if lost.over:
            self._held.pop(sender.node_id, None)
            return
        last = self.hold(sender.node_id)
        if last is not None:
            self._graph.tell(sender, Heard(milliseconds(self._api.now() - last)).encode())

    def hold(self, node_id: str) -> float | None:
        """Keep the time of a node that has lost its state; answers it, if it is known."""
        now = self._api.now()
        last, until = self._held.pop(node_id, (0.0, -inf))
        if until < now:
            if node_id not in self._seen:
                return None
            last = self._seen[node_id]
        self._held[node_id] = last, now + HELD
        self._bound(self._held)
        return last

    def there_until(self, node_id: str, told: float) -> float:
        """Until when the earlier life of a node that asks was surely there; ``told``: as it says."""
        known = self._held.get(node_id)
        return max(told - ON_THE_WAY, -inf if known is None else known[0])

    def _bound(self, kept: OrderedDict[str, float] | OrderedDict[str, tuple[float, float]]) -> None:
        if len(kept) > MOST:
            kept.popitem(last=False)
            self._count("forgetful_full")
