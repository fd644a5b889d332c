"""How a query is divided where a node knows any keys: at the farthest first (ATM-TBPS IV-C).

SFB divides a range at the neighbours, from the highest level down, which is from the farthest to the nearest.
Learned entries may be of any level at any distance. So here all that are known in the range count alike. Each
gets the part from its own key to the next one farther away. So every known key of the range is one hop away.
However right or wrong the choice of entries is, each key is reached once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from ildm_algorithms.overlay.casts.routing import Forward, Levels, Routing, Step
from ildm_algorithms.overlay.keys import Range
from ildm_algorithms.tbps.describe import bounded
from ildm_algorithms.tbps.keys.spreading import Direct

if TYPE_CHECKING:
    from ildm.api import Fact
    from ildm_algorithms.atm_tbps.flexible import FlexibleGraph
    from ildm_algorithms.overlay.casts.routing import View
    from ildm_algorithms.overlay.graph import CastResult
    from ildm_algorithms.overlay.keys import Ref
    from ildm_algorithms.tbps.describe import Tables
    from ildm_algorithms.tbps.keys.encoding import Role
    from ildm_algorithms.tbps.keys.segments import Member

__all__ = ["FAR", "Farthest"]


def _split(view: View, target: Range, visited: frozenset[bytes] = frozenset()) -> Step:
    keys = view.keys()
    first, last = bisect_left(keys, target.low), bisect_left(keys, target.high)
    own = list(keys[first:last])
    entries = view.entries(target)
    # None: the ends of the range. Own keys around it know neighbours in it, too.
    inner: list[bytes | None] = [None, *own, None]
    chains = []
    for at in range(len(own) + 1):
        here, there = inner[at], inner[at + 1]
        low = target.low if here is None else here + b"\0"
        high = target.high if there is None else there
        left = first + at - 1
        before: Levels = view.neighbors(keys[left]) if left >= 0 else ()
        behind: Levels = view.neighbors(keys[left + 1]) if left + 1 < len(keys) else ()
        rights = [right for _, right in before if right is not None]
        lefts = [ref for ref, _ in behind if ref is not None]
        found = {ref.key: ref for ref in (*entries, *rights, *lefts) if low <= ref.key < high}
        refs = [found[key] for key in sorted(found)]
        if here is not None and (there is None or rights):
            chains.append(_rightward(refs, low, high))
        else:
            chains.append(_leftward(refs, low, high))
    forwards = [part for parts in zip_longest(*chains) for part in parts if part is not None]
    if not own and not forwards and not target.empty:
        step = _towards(view, keys, first, target)
        forwards = [] if step is None else [Forward(step, target)]
    return Step(own, forwards)


def _towards(view: View, keys: Sequence[bytes], after: int, target: Range) -> Ref | None:
    """The known key nearest to a range in which none is known, of the keys left of it if there are own ones.

    ``keys[after:]`` are the own keys beyond it. None: a neighbour of level 0 is beyond, too, so it is empty.
    """
    low, high = target
    if after:
        start = keys[after - 1]
        rights = [right for _, right in view.neighbors(start)]
        if rights and rights[0] is not None and rights[0].key >= high:
            return None
        found = [*view.entries(Range(start, low)), *(right for right in rights if right is not None)]
        best = max((ref for ref in found if start < ref.key < low), key=_key, default=None)
        if best is not None:
            return best
    if after == len(keys):
        return None
    start = keys[after]
    lefts = [left for left, _ in view.neighbors(start)]
    if lefts and lefts[0] is not None and lefts[0].key < low:
        return None
    found = [*view.entries(Range(high, start)), *(left for left in lefts if left is not None)]
    return min((ref for ref in found if high <= ref.key < start), key=_key, default=None)


def _key(ref: Ref) -> bytes:
    return ref.key


def _rightward(refs: Sequence[Ref], low: bytes, high: bytes) -> list[Forward]:
    """From the left of all of them: each gets what is from its key on, the nearest what is before it, too."""
    parts = []
    for ref in reversed(refs):
        parts.append(Forward(ref, Range(ref.key if ref is not refs[0] else low, high)))
        high = ref.key
    return parts


def _leftward(refs: Sequence[Ref], low: bytes, high: bytes) -> list[Forward]:
    """From the right of all of them: each gets what is up to its key, the nearest what is behind it, too."""
    parts = []
    for ref in refs:
        end = ref.key + b"\0" if ref is not refs[-1] else high
        parts.append(Forward(ref, Range(low, end)))
        low = end
    return parts


FAR = Routing("far", 64, _split)


class Farthest(Direct):
    """Messages spread at the farthest first, and now and then look for subscribers on their way."""

    graph: FlexibleGraph

    def __init__(self, graph: FlexibleGraph) -> None:
        super().__init__(graph, FAR)

    def send(
        self,
        member: Member | None,
        target: Range,
        payload: bytes,
        reliable: bool,
        turn: int,
        done: Callable[[CastResult], None] | None,
    ) -> None:
        note = self.graph.exploration(target)
        self.graph.cast(
            target, payload, routing=self.routing, reliable=reliable, done=done, turn=turn, note=note
        )

    def facts(self, member: Member, role: Role) -> Mapping[str, Fact]:
        """Entries of the key's table, and how many of them were learned."""
        return self.graph.facts(member.keys[role])

    def tables(self) -> Tables:
        """What the tables of all own keys have learned, table by table."""
        return {"learned entries": bounded(self.graph.shown(), self.graph.entries_learned)}
