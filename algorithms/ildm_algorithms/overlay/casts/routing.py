"""Where a range query and a lookup go next (thesis 2.2.5, 4.1.1, 4.1.2).

Pure functions over the tables of one physical node. Five ways to spread a query over a range; a graph can
be given more (:class:`Routing`):

==================== ============================================================================
sfb                  Split-Forward Broadcasting: the range is divided at the neighbours' keys
mrf                  Multi-Range Forwarding: the range is divided at the own keys
sequential           along the list of level 0
broadcast            to every neighbour in the range
broadcast_memory     the same, but the copies tell which keys need none any more
==================== ============================================================================

The first three reach every key of the range exactly once while the tables are right. The targets of the
forwards and the own keys divide the target. The broadcasts reach keys repeatedly; whoever runs them must stop
at a node which has the query already.

A physical node may hold several keys in the range. Its keys divide the range into gaps. The nodes in a gap
are reached from the own key on its left, from the one on its right, or from both. Forwards of one step to one
physical node can share a message.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from ildm_algorithms.overlay.keys import Range

if TYPE_CHECKING:
    from ildm_algorithms.overlay.keys import Ref

__all__ = [
    "BROADCAST",
    "BROADCAST_MEMORY",
    "MRF",
    "ROUTINGS",
    "SEQUENTIAL",
    "SFB",
    "Forward",
    "Levels",
    "Routing",
    "Split",
    "Step",
    "View",
    "dividing",
    "next_hop",
]

Levels = Sequence[tuple["Ref | None", "Ref | None"]]
"""Left and right neighbour of one key, for each level from 0. None: there is none, or none is known."""


class View(Protocol):
    """The tables of one physical node, seen as lines: no neighbour across the ends of a ring."""

    def keys(self) -> Sequence[bytes]:
        """Own keys that are in the graph, ascending. Each own key shown as a neighbour is among them."""

    def neighbors(self, key: bytes) -> Levels:
        """Neighbours of an own key; other own keys count as neighbours. Nodes to be avoided are left out."""

    def entries(self, target: Range) -> Sequence[Ref]:
        """What is known in a range besides neighbours: keys of other nodes, of any level, in no order."""


class Forward(NamedTuple):
    """One copy of a query to send."""

    to: Ref
    target: Range
    """The part of the target the receiver answers for."""
    extra: tuple[bytes, ...] = ()
    """Keys that need no copy any more, ascending (``visited`` at the receiver); broadcast_memory only."""


class Step(NamedTuple):
    """What a node does with a query."""

    own: list[bytes]
    """Own keys in the target, ascending: the query is delivered to them."""
    forwards: list[Forward]
    """Copies to send. With sfb those of the highest level of each side come first."""


class Split(Protocol):
    """Divides a range query among the own keys and the neighbours."""

    def __call__(self, view: View, target: Range, visited: frozenset[bytes] = frozenset()) -> Step:
        """What is to be done with the part ``target``; ``visited``: what came as :attr:`Forward.extra`."""


@dataclass(frozen=True, slots=True)
class Routing:
    """A way to spread a query over a range."""

    name: str
    code: int
    """What stands for it in messages, 0 to 255; the same at all nodes of a graph."""
    split: Split
    floods: bool = False
    """Keys are reached repeatedly: a node that has the query already does nothing more with it."""

    def __str__(self) -> str:
        return self.name


Divide = Callable[["View", list[bytes], "Range", frozenset[bytes]], list[Forward]]
"""View, own keys in the target, target, visited -> copies to send."""


def dividing(divide: Divide) -> Split:
    """A way to divide a range in which there are own keys, made one that also enters ranges.

    A node without a key in the target hands on the whole target, to a node in it or nearer to it than the own
    key on that side. No forward then means that no key is in the target. Queries come to rest as long as
    receivers hold the keys they were chosen for, whatever else the tables lack. If keys leave meanwhile, the
    caller has to bound the hops.
    """

    def split(view: View, target: Range, visited: frozenset[bytes] = frozenset()) -> Step:
        keys = view.keys()
        first = bisect_left(keys, target.low)
        last = bisect_left(keys, target.high)
        if first >= last:
            entry = None if target.empty else _entry(view, keys, first, target)
            return Step([], [] if entry is None else [Forward(entry, target)])
        own = list(keys[first:last])
        return Step(own, divide(view, own, target, visited))

    return split


def next_hop(view: View, key: bytes) -> Ref | None:
    """Next node on the way to the predecessor of ``key``: the last key of the graph that is not greater.

    The greatest known key that is not greater than ``key``; where none is known, the least known key,
    if it is less than all own ones. None: an own key is the predecessor, or all own keys are greater
    and nothing is known on their left, so that ``key`` precedes the whole line.
    """
    keys = view.keys()
    after = bisect_right(keys, key)
    best: Ref | None = None
    nearest = b""
    if after:
        nearest = keys[after - 1]
        for _, right in view.neighbors(nearest):
            if right is not None and nearest < right.key <= key:
                best, nearest = right, right.key
    if after < len(keys):
        ahead = keys[after]
        passed: Ref | None = None
        for left, _ in view.neighbors(ahead):
            if left is None:
                continue
            if left.key <= key:
                if left.key > nearest or (best is None and after == 0):
                    best, nearest = left, left.key
            elif left.key < ahead:
                passed, ahead = left, left.key
        if best is None and after == 0:
            return passed
    return best


class _Delegate(NamedTuple):
    to: Ref
    level: int


def _entry(view: View, keys: Sequence[bytes], after: int, target: Range) -> Ref | None:
    """The node to hand a query to from outside its target; ``keys[after:]`` lie beyond the target.

    A neighbour in the target that is farthest from the own key, else the one nearest to the target
    which is not beyond it. Own keys share one vector, hence the nearest own key of a side knows all
    that the others of this side know of the target.
    """
    low, high = target
    inside: Ref | None = None
    inside_level = -1
    outside: Ref | None = None
    if after:
        start = at = keys[after - 1]
        for level, (_, right) in enumerate(view.neighbors(start)):
            if right is None or right.key < at or right.key == start:
                continue
            at = right.key
            if at >= high:
                if level == 0:
                    return None
                break
            if at >= low:
                inside, inside_level = right, level
            else:
                outside = right
    if after < len(keys):
        start = at = keys[after]
        step: Ref | None = None
        for level, (left, _) in enumerate(view.neighbors(start)):
            if left is None or left.key > at or left.key == start:
                continue
            at = left.key
            if at < low:
                if level == 0:
                    return None
                break
            if at >= high:
                step = left
            elif level > inside_level:
                inside, inside_level = left, level
        # From the left wherever possible: two nodes with keys on both sides, each of which took what is
        # nearer to itself, could hand a query to and fro.
        if outside is None:
            outside = step
    return outside if inside is None else inside


def _rightward(levels: Levels, low: bytes, high: bytes) -> list[_Delegate]:
    """Right neighbours after ``low`` and before ``high``, highest level first, each once."""
    found = []
    for level in range(len(levels) - 1, -1, -1):
        right = levels[level][1]
        if right is not None and low < right.key < high:
            found.append(_Delegate(right, level))
            high = right.key
    return found


def _leftward(levels: Levels, low: bytes, high: bytes) -> list[_Delegate]:
    """Left neighbours from ``low`` on and before ``high``, highest level first, each once."""
    found = []
    for level in range(len(levels) - 1, -1, -1):
        left = levels[level][0]
        if left is not None and low <= left.key < high:
            found.append(_Delegate(left, level))
            low = left.key + b"\0"
    return found


def _split_forward(view: View, own: list[bytes], target: Range) -> list[Forward]:
    """SFB: every delegate gets the part from its key to the next delegate farther from the own key."""
    levels = view.neighbors(own[0])
    chains = [_left_parts(_leftward(levels, target.low, own[0]), target.low)]
    for i in range(1, len(own)):
        here, there = own[i - 1], own[i]
        before, levels = levels, view.neighbors(there)
        if before and (right := before[0][1]) is not None and right.key == there:
            continue
        from_left = _rightward(before, here, there)
        if not from_left:
            chains.append(_left_parts(_leftward(levels, here + b"\0", there), here + b"\0"))
            continue
        top = from_left[0]
        from_right = _leftward(levels, top.to.key + b"\0", there)
        if not from_right:
            chains.append(_right_parts(from_left, there))
            continue
        # Both sides reach into the gap; the part between the two topmost goes to the higher one.
        other = from_right[0]
        if other.to.peer.node_id == top.to.peer.node_id:
            border = other.to.key + b"\0"
            chains.append(_right_parts(from_left, border))
            chains.append(_left_parts(from_right[1:], border))
        else:
            border = other.to.key if top.level >= other.level else top.to.key + b"\0"
            chains.append(_right_parts(from_left, border))
            chains.append(_left_parts(from_right, border))
    chains.append(_right_parts(_rightward(levels, own[-1], target.high), target.high))
    return [part for parts in zip_longest(*chains) for part in parts if part is not None]


def _left_parts(delegates: Iterable[_Delegate], low: bytes) -> list[Forward]:
    parts = []
    for delegate in delegates:
        end = delegate.to.key + b"\0"
        parts.append(Forward(delegate.to, Range(low, end)))
        low = end
    return parts


def _right_parts(delegates: Iterable[_Delegate], high: bytes) -> list[Forward]:
    parts = []
    for delegate in delegates:
        parts.append(Forward(delegate.to, Range(delegate.to.key, high)))
        high = delegate.to.key
    return parts


def _one_per_gap(view: View, own: list[bytes], target: Range, top: int | None = None) -> list[Forward]:
    """MRF: the neighbour of the highest level in each gap gets the gap; ``top`` limits the levels."""
    forwards = []
    low = target.low
    before: Levels = ()
    here: bytes | None = None
    for there in (*own, None):
        levels = view.neighbors(there)[:top] if there is not None else ()
        high = target.high if there is None else there
        delegate = None
        if here is not None:
            delegate = _topmost(before, 1, low, high)
        if there is not None:
            other = _topmost(levels, 0, low, high)
            if delegate is None or (other is not None and other.level > delegate.level):
                delegate = other
        if delegate is not None:
            forwards.append(Forward(delegate.to, Range(low, high)))
        if there is not None:
            here, before, low = there, levels, there + b"\0"
    return forwards


def _topmost(levels: Levels, side: Literal[0, 1], low: bytes, high: bytes) -> _Delegate | None:
    """The neighbour of the highest level on a side (0 left, 1 right) that is in [low, high)."""
    for level in range(len(levels) - 1, -1, -1):
        ref = levels[level][side]
        if ref is not None and low <= ref.key < high:
            return _Delegate(ref, level)
    return None


def _broadcast(
    view: View, own: list[bytes], target: Range, visited: frozenset[bytes] | None
) -> list[Forward]:
    """One copy to each physical node that is a neighbour in the target; ``visited`` None: no memory."""
    low, high = target
    mine = set(own)
    around: dict[bytes, Ref] = {}
    for key in own:
        for pair in view.neighbors(key):
            for ref in pair:
                if ref is not None and low <= ref.key < high and ref.key not in mine:
                    around[ref.key] = ref
    if visited is None:
        return [Forward(ref, target) for ref in {ref.peer.node_id: ref for ref in around.values()}.values()]
    served = {ref.peer.node_id for ref in around.values() if ref.key in visited}
    chosen = {ref.peer.node_id: ref for ref in around.values() if ref.peer.node_id not in served}
    extra = tuple(sorted(visited.union(own, around)))
    return [Forward(ref, target, extra) for ref in chosen.values()]


SFB = Routing("sfb", 0, dividing(lambda view, own, target, visited: _split_forward(view, own, target)))
MRF = Routing("mrf", 1, dividing(lambda view, own, target, visited: _one_per_gap(view, own, target)))
SEQUENTIAL = Routing(
    "sequential", 2, dividing(lambda view, own, target, visited: _one_per_gap(view, own, target, top=1))
)
BROADCAST = Routing(
    "broadcast",
    3,
    dividing(lambda view, own, target, visited: _broadcast(view, own, target, None)),
    floods=True,
)
BROADCAST_MEMORY = Routing("broadcast_memory", 4, dividing(_broadcast), floods=True)

ROUTINGS: Mapping[str, Routing] = {
    routing.name: routing for routing in (SFB, MRF, SEQUENTIAL, BROADCAST, BROADCAST_MEMORY)
}
"""Those above by name; every graph has them."""
