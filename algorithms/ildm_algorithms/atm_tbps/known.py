"""All that the keys of one node have learned, and where it lies in the order of keys."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import NamedTuple

from ildm_algorithms.atm_tbps.entries import Entries
from ildm_algorithms.atm_tbps.messages import Note, digest
from ildm_algorithms.overlay.context import Context
from ildm_algorithms.overlay.keys import Range, Ref
from ildm_algorithms.overlay.lists.tables import Table
from ildm_algorithms.tbps.keys.encoding import KeyFormatError, Role, Segment, parse_key

__all__ = ["Known"]


class _Place(NamedTuple):
    ref: Ref
    holders: set[bytes]
    """Own keys whose tables have it."""
    wanting: set[bytes]
    """Those of them to which it is a subscriber of their topic."""


class Known:
    """The flexible tables of one node."""

    def __init__(self, context: Context, table: Table, limit: int) -> None:
        self.context = context
        self.table = table
        self.limit = limit
        self.tables: dict[bytes, Entries] = {}
        self._places: dict[bytes, _Place] = {}
        self._subscribers: list[bytes] = []
        """Keys of learned subscribers, ascending."""
        self._of_node: dict[str, set[bytes]] = {}

    def open(self, key: bytes, segment: Segment) -> Entries:
        """A table for an own key of a segment."""
        subscribes = segment.subscribers.__contains__
        if segment.is_aggregate:
            # It publishes topics below a prefix: whoever has got one of its messages can get the next.
            start = segment.code[:-1]

            def subscribes(key: object) -> bool:
                return isinstance(key, bytes) and key.startswith(start) and _subscribes(key)

        entries = self.tables[key] = Entries(self.table.own(key), subscribes, self.limit, self.table.base)
        return entries

    def close(self, key: bytes) -> list[Ref]:
        """The own key is in the graph no more; what it had learned."""
        entries = self.tables.pop(key, None)
        if entries is None:
            return []
        refs = entries.refs()
        for ref in refs:
            self._release(key, ref.key)
        return refs

    # one table --------------------------------------------------------------------------------------

    def sticky(self, key: bytes) -> dict[bytes, Ref]:
        """Neighbours of an own key on other nodes, of all levels."""
        own = self.context.node_id
        return {
            ref.key: ref
            for pair in self.table.neighbors(key)
            for ref in pair
            if ref is not None and ref.peer.node_id != own
        }

    def entries(self, key: bytes) -> dict[bytes, Ref]:
        """The whole table of an own key."""
        return {**{ref.key: ref for ref in self.tables[key].refs()}, **self.sticky(key)}

    def room(self, key: bytes) -> int:
        """How many subscribers the table of an own key could still take."""
        return self.tables[key].room(self.sticky(key))

    def tidy(self, key: bytes) -> None:
        """The neighbours may be others, and more, than when the own key has learned something last."""
        for ref in self.tables[key].trim(self.sticky(key)):
            self._release(key, ref.key)

    def note(self, key: bytes, within: Range) -> Note | None:
        """To look for subscribers in a range; None where there is no room for any."""
        self.tidy(key)
        room = self.room(key)
        if not room:
            return None
        own = self.table.own(key)
        known = digest(ref for ref in self.entries(key).values() if ref.key in within)
        return Note(own, own, known, room, leaving=False)

    # learning and forgetting ------------------------------------------------------------------------

    def learn(self, key: bytes, ref: Ref) -> None:
        """An own key has learned of another node's."""
        entries = self.tables.get(key)
        node_id = ref.peer.node_id
        if entries is None or node_id == self.context.node_id or self.context.avoid(node_id):
            return
        if ref.key in self.table.nodes:
            return  # nobody else can have an own key
        place = self._places.get(ref.key)
        if place is not None and place.ref == ref and key in place.holders:
            return
        sticky = self.sticky(key)
        if ref.key in sticky:
            return
        if place is None or place.ref != ref:
            # Of a node that has started anew, perhaps elsewhere, what was known is wrong.
            if place is not None:
                self._drop(ref.key)
            place = self._places[ref.key] = _Place(ref, set(), set())
            self._of_node.setdefault(node_id, set()).add(ref.key)
        place.holders.add(key)
        if entries.subscribes(ref.key):
            if not place.wanting:
                insort(self._subscribers, ref.key)
                self.table.outdate()
            place.wanting.add(key)
        gone = entries.learn(ref, sticky)
        for other in gone:
            self._release(key, other.key)
        if ref not in gone:
            self.context.count("entries_learned")
        if gone:
            self.context.count("entries_displaced", len(gone))

    def forget(self, node_id: str, key: bytes) -> None:
        """A node says that a key of its is gone."""
        if key in self._of_node.get(node_id, ()):
            self.context.count("entries_forgotten")
            self._drop(key)

    def forget_node(self, node_id: str) -> None:
        """A node cannot be reached."""
        for key in list(self._of_node.get(node_id, ())):
            self.context.count("entries_forgotten")
            self._drop(key)

    def _drop(self, key: bytes) -> None:
        for holder in list(self._places[key].holders):
            self.tables[holder].forget(key)
            self._release(holder, key)

    def _release(self, holder: bytes, key: bytes) -> None:
        place = self._places[key]
        place.holders.discard(holder)
        if holder in place.wanting:
            place.wanting.discard(holder)
            if not place.wanting:
                del self._subscribers[bisect_left(self._subscribers, key)]
                self.table.outdate()
        if place.holders:
            return
        del self._places[key]
        of_node = self._of_node[place.ref.peer.node_id]
        of_node.discard(key)
        if not of_node:
            del self._of_node[place.ref.peer.node_id]

    # all tables -------------------------------------------------------------------------------------

    def within(self, target: Range) -> Sequence[Ref]:
        """Learned subscribers of own topics in a range, ascending.

        Strangers are none, for else the tables of a node's many keys made a message take more copies than
        one table has entries.
        """
        first, last = bisect_left(self._subscribers, target.low), bisect_left(self._subscribers, target.high)
        return [self._places[key].ref for key in self._subscribers[first:last]]


def _subscribes(key: bytes) -> bool:
    try:
        return parse_key(key).role is Role.SUBSCRIBER
    except KeyFormatError:
        return False  # of a node with other ideas of keys
