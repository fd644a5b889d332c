"""Ways past an unresponsive node, where no own key leads past it."""

from __future__ import annotations

from bisect import bisect_left

from ildm_algorithms.overlay.casts.history import without
from ildm_algorithms.overlay.casts.routing import Forward
from ildm_algorithms.overlay.context import Context
from ildm_algorithms.overlay.keys import Range, Ref
from ildm_algorithms.overlay.lists.tables import Status, Table

__all__ = ["Detours"]


class Detours:
    """What the tables of one node know of others besides the neighbours that routings see."""

    def __init__(self, context: Context, table: Table) -> None:
        self.context = context
        self.table = table

    def find(self, unresponsive: bytes, part: Range, named: bool) -> tuple[list[Forward], list[Range]]:
        """Ways into a part which no own key leads to but by the ``unresponsive`` one; and parts without any.

        ``named``: somebody on the way here has gone around the same one. What is for that key itself has no
        way while there is any: who does not know of it yet would wait for it once more.
        """
        its_own = Range(unresponsive, unresponsive + b"\0")
        found, left = [], [its_own] if unresponsive in part else []
        for piece in without([part], its_own):
            somebody = self._beyond(piece, behind=not named)
            if somebody is None:
                left.append(piece)
            else:
                found.append(Forward(somebody, piece))
        return (found, left) if found else ([], [part])

    def _beyond(self, part: Range, behind: bool) -> Ref | None:
        """A node in a part, as known across the ends of the ring; else the next ``behind`` it, if it may be.

        There may be ways into the part from the right. It is done once for the same unresponsive node,
        lest two nodes hand a part to and fro. A node in the part has less to hand on.
        """
        table, keys = self.table, self.table.keys()
        after = bisect_left(keys, part.high)
        known = [
            ref
            for key in {*keys[:1], *keys[max(after - 1, 0) : after + 1], *keys[-1:]}
            for link in table.nodes[key].links
            if link.status >= Status.IN
            for ref in (link.left, link.right, *link.lefts)
            if ref.peer.node_id != table.node_id and not self.context.is_unresponsive(ref.peer.node_id)
        ]
        inside = [ref for ref in known if ref.key in part]
        farther = [ref for ref in known if ref.key >= part.high] if behind else []
        return min(inside or farther, default=None, key=lambda ref: ref.key)
