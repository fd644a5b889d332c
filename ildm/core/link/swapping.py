"""One link of the tree for another, as their delays have changed, while all links are up.

The tree falls into two sides between which the old link was and the new one is. The ends of the old link let
it go at once. Each end of the new one joins it as soon as the end of the old one on its own side has done
that: no message goes over both then. That end says so in a *word*, which goes to the end of the new link as
messages do and behind all that were sent before. So messages pause for about a round trip of the cycle.

================ ================================= ===============================================
a node that is   has taken up the weights          hears the word
================ ================================= ===============================================
end of the old   says the word                     \\-
link
end of the new   joins if the word has come or     joins if it has taken up the weights; else that
link             is its own; else waits for it     counts later, for :data:`VALID` settling times
between them     \\-                               passes it on, unless something waits there that
                                                   the word would go past
any              where the graph changes meanwhile, several links change, or no word comes: the link
                 joins after ``link.settle``, as after any change
================ ================================= ===============================================

A word is ``[to, old link, new link, hops]`` in JSON, each link by its nodes in order; the feature ``swap``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Set
from typing import TYPE_CHECKING, NamedTuple

from ildm.core.link.control import SWAP, send_control
from ildm.core.link.state import LinkState
from ildm.core.link.topology import MAX_NODE_ID, MAX_NUMBER, reached
from ildm.mqtt import MalformedPacket

if TYPE_CHECKING:
    from ildm.core.driver import Driver
    from ildm.core.link.link import NeighborLink

FEATURE = "swap"
LARGEST = 1024
"""Bytes of a word."""
VALID = 4
"""So many settling times a word counts that has come before this node has taken up the weights: it is the
least time after which its sender may take the old link again."""

Edge = tuple[str, str]


class Swap(NamedTuple):
    old: Edge
    new: Edge


class Swaps:
    """What one node knows of a swap.

    Args:
        hop: the link in the cooperation that leads to a node now, if there is one.
        join: the word has come: this node's link with a neighbour may join.
        hops: so many links may a path have.
        valid: seconds that a word counts which has come too early.
    """

    def __init__(
        self,
        driver: Driver,
        node_id: str,
        hop: Callable[[str], NeighborLink | None],
        join: Callable[[str], None],
        hops: int,
        valid: float,
    ) -> None:
        self.driver = driver
        self.node_id = node_id
        self.hop = hop
        self.join = join
        self.hops = hops
        self.valid = valid
        self.waits: Swap | None = None
        """This node is an end of the new link, and the word has not come."""
        self._early: tuple[Swap, float] | None = None
        """A word that has come too early, and when."""

    def begin(self, before: Set[Edge], after: Set[Edge], has_left: Callable[[str], bool]) -> None:
        """The forest is another one.

        Args:
            has_left: whether this node's link with a neighbour carries nothing any more.
        """
        self.waits = None
        early, self._early = self._early, None
        swap = swap_of(before, after)
        if swap is None:
            return
        old, new = swap
        side = reached(before & after, self.node_id)
        near = new[0] if new[0] in side else new[1]
        said = self.node_id in old and has_left(_other(old, self.node_id))
        if self.node_id in new:
            came = early is not None and early[0] == swap and self.driver.now() - early[1] < self.valid
            if said or came:
                self.join(_other(new, self.node_id))
            else:
                self.waits = swap
        elif said:
            self._send(near, swap, self.hops, None)

    def end(self) -> bool:
        """The graph has changed, or the word has not come in time; whether it was waited for."""
        waited, self.waits = self.waits is not None, None
        return waited

    def came(self, source: NeighborLink, payload: bytes) -> None:
        """A word of a neighbour's, perhaps for others. Raises: MalformedPacket."""
        to, swap, hops = _decoded(payload)
        if source.state is not LinkState.ACTIVE:
            return
        if to != self.node_id:
            if hops:
                self._send(to, swap, hops - 1, source)
        elif self.waits == swap:
            self.waits = None
            self.join(_other(swap.new, self.node_id))
        elif self.node_id in swap.new:
            self._early = swap, self.driver.now()

    def _send(self, to: str, swap: Swap, hops: int, source: NeighborLink | None) -> None:
        link = self.hop(to)
        if link is None or link is source or FEATURE not in link.features:
            return
        if len(link.senders) == 1 and not link.queued and not link.senders[0].wire.stalled:
            send_control(link, SWAP, json.dumps([to, swap.old, swap.new, hops]).encode())


def swap_of(before: Set[Edge], after: Set[Edge]) -> Swap | None:
    """What makes one forest of another, if it is one link for one."""
    old, new = before - after, after - before
    return Swap(*old, *new) if len(old) == len(new) == 1 else None


def _other(edge: Edge, node: str) -> str:
    return edge[1] if edge[0] == node else edge[0]


def _decoded(payload: bytes) -> tuple[str, Swap, int]:
    try:
        if len(payload) > LARGEST:
            raise ValueError(f"{len(payload)} bytes")
        to, old, new, hops = json.loads(payload)
        if not (isinstance(old, list) and isinstance(new, list) and len(old) == len(new) == 2):
            raise TypeError("no links")
        names = all(isinstance(name, str) and 0 < len(name) <= MAX_NODE_ID for name in (to, *old, *new))
        if not (names and type(hops) is int and 0 <= hops < MAX_NUMBER):
            raise TypeError("wrong types")
    except (ValueError, TypeError, RecursionError) as error:
        raise MalformedPacket(f"malformed word about a swap: {error}", clause="MQTT-4.13") from None
    return to, Swap((old[0], old[1]), (new[0], new[1])), hops
