"""What the parts of a graph tell: its application, and parts that are made after them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ildm.api import Peer
    from ildm_algorithms.overlay.casts.casting import Arrival
    from ildm_algorithms.overlay.keys import Ref
    from ildm_algorithms.overlay.lists.tables import VirtualNode

__all__ = ["Events", "Hooks"]


class Hooks(Protocol):
    """What a Skip Graph calls in its application. Calls from within a hook into the graph are fine."""

    def delivered(self, arrival: Arrival) -> None:
        """A cast has reached own keys; for one cast each key is named once."""

    def received(self, sender: Peer, payload: bytes) -> None:
        """A message from :meth:`SkipGraph.tell` of another node (or of this one)."""

    def neighbors_changed(self, key: bytes) -> None:
        """The neighbours of an own key at level 0, seen as a line, have changed."""

    def merging(self, others: bool, since: float | None) -> None:
        """A sign that this graph is becoming one with another; there may be many in a row. ``others``: with
        keys of other nodes; else only keys of this one were apart. ``since``: casts of this node may have
        passed over keys of others since then; None: no more than casts of others.

        Own keys stay in it meanwhile, and a node may be in the other part without a sign here.
        """

    def passed_over(self, since: float) -> None:
        """A node lives that was taken for dead, and past which links of own keys were repaired. Casts of this
        node may have passed over its keys since that time, and will for a moment yet."""

    def status_for(self, key: bytes, joining: Ref) -> bytes:
        """What the answer is to tell ``joining``, which is to enter right of the own ``key``; around the ring
        that may be the greatest one."""

    def joined(self, key: bytes, left: Ref | None, status: bytes) -> None:
        """An own key is in the graph; ``status`` is its left neighbour's, b"" if it has none."""

    def left(self, key: bytes) -> None:
        """An own key is in the graph no more."""


class Events(Protocol):
    """What parts of one node tell each other where the one that hears it is made later."""

    def suspected(self, node_id: str) -> None:
        """A node has become suspected."""

    def unresponsive(self, node_id: str) -> None:
        """A node has become unresponsive."""

    def entered(self, node: VirtualNode, status: bytes) -> None:
        """An own key is in the list of level 0; ``status`` is what its left neighbour has sent."""

    def departed(self, node: VirtualNode) -> None:
        """An own key is in no list any more."""

    def leave(self, node: VirtualNode) -> None:
        """A key that was to leave before it had entered is to be taken out."""

    def repaired(self, node: VirtualNode, level: int) -> None:
        """A key that was in a list has moved to another left neighbour by itself."""

    def placed(self, key: bytes) -> None:
        """:meth:`Lists.holds` may be false for an own key now."""

    def closed(self, key: bytes, right: bool) -> None:
        """The neighbour of a key at level 0, on its right or left, is lost, and a farther one is now."""

    def astray(self, peer: Peer) -> None:
        """A node seems to be in another graph."""

    def control(self, payload: bytes) -> None:
        """A cast that is the overlay's own has reached this node."""
