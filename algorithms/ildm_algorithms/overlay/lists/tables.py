"""The tables of one physical node: its keys, and for each the links of every level."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum

from ildm.api import Peer
from ildm_algorithms.overlay.keys import VECTOR_BITS, Range, Ref, prefix
from ildm_algorithms.overlay.wire.messages import NO_SEQ, Seq, SetRAck

__all__ = ["LEFTS", "Link", "Status", "Table", "VirtualNode", "between", "distinct", "nearer_left"]

LEFTS = 4
"""Nearest left neighbours remembered for repair, each of another physical node."""


class Status(IntEnum):
    """Status of a key in one list."""

    OUT = 0
    INS = 1
    IN = 2
    DEL = 3


def between(low: bytes, key: bytes, high: bytes) -> bool:
    """Whether one comes past ``key`` on the way right from ``low`` to ``high`` around the ring.

    Neither end counts; with equal ends it is the whole ring but for that key.
    """
    if low < high:
        return low < key < high
    return (key > low or key < high) and key not in (low, high)


def nearer_left(key: bytes, new: bytes, old: bytes) -> bool:
    """Whether ``new`` is nearer to ``key`` on its left side around the ring than ``old``."""
    return new != key and between(old, new, key)


def distinct(refs: Iterable[Ref], own: str, limit: int = LEFTS) -> tuple[Ref, ...]:
    """The first of each physical node but ``own``."""
    chosen: dict[str, Ref] = {}
    for ref in refs:
        node_id = ref.peer.node_id
        if node_id != own and node_id not in chosen:
            chosen[node_id] = ref
            if len(chosen) == limit:
                break
    return tuple(chosen.values())


class Link:
    """One key in the list of one level.

    The list is a ring: a key that is alone is its own neighbour on both sides. ``lseq`` equals
    ``rseq`` of the left neighbour while both agree about the link between them. Changed by the table alone.
    """

    __slots__ = ("at", "left", "lefts", "level", "lseq", "node", "reply", "right", "rseq", "status")

    def __init__(self, node: VirtualNode, level: int) -> None:
        self.node = node
        self.level = level
        self.at = -1
        """Place in :attr:`Table.foreign_links`, if it is there."""
        self.status = Status.INS
        self.left = node.ref
        self.right = node.ref
        self.lseq: Seq = NO_SEQ
        self.rseq: Seq = NO_SEQ
        self.lefts: tuple[Ref, ...] = ()
        """Nearest left neighbours on other nodes, nearest first; the foreign left neighbour among them."""
        self.reply: tuple[str, SetRAck] | None = None
        """Last SetR agreed to (sender, answer), for when it comes once more."""


class VirtualNode:
    """One key of the node."""

    __slots__ = ("again", "key", "leaving", "levels", "links", "placed_at", "ref", "shown")

    def __init__(self, ref: Ref) -> None:
        self.ref = ref
        self.key = ref.key
        self.links: list[Link] = []
        self.leaving = False
        self.again = False
        """To be inserted again as soon as it has left."""
        self.levels: list[tuple[Ref | None, Ref | None]] | None = None
        """What readers see, built on demand."""
        self.shown = 0
        """For how many visible levels."""
        self.placed_at = 0.0
        """When it got the left neighbour that it has at level 0."""

    def link(self, level: int) -> Link | None:
        return self.links[level] if level < len(self.links) else None

    def is_in(self, level: int) -> bool:
        return level < len(self.links) and self.links[level].status is Status.IN

    def serves(self, level: int) -> bool:
        """IN, or on its way out: neighbours still reach it."""
        return level < len(self.links) and self.links[level].status >= Status.IN


class Table:
    """All keys of the node; the :class:`ildm_algorithms.overlay.casts.routing.View` of its own.

    ``changed`` is called with a key when its neighbours at level 0 have changed as readers see them.
    """

    def __init__(
        self,
        peer: Peer,
        vector: int,
        base: int,
        changed: Callable[[bytes], None],
        learned: Callable[[Range], Sequence[Ref]],
    ) -> None:
        self.peer = peer
        self.node_id = peer.node_id
        self.vector = vector
        self.base = base
        self.changes = 0
        """Grows with all that may change what readers see: what they have worked out before is void."""
        self.height = 1
        """Levels that every own key takes part in."""
        self.nodes: dict[bytes, VirtualNode] = {}
        self.foreign_links: list[Link] = []
        """Of served keys, those with a neighbour on another node, in no order.

        The last link takes the place of one that is taken out. A loop from the end to the start, over several
        calls, too, passes over none that stays.
        """
        self._foreign: list[int] = []
        """How many of them there are at each level."""
        self._sorted: list[bytes] = []
        self._doubtful: set[bytes] = set()
        """Own keys at level 0 that may not agree with an own key beside them; all that do not are here."""
        self._visible: int | None = None
        self._changed = changed
        self.learned = learned
        """Keys of other nodes in a range that are known besides neighbours."""
        digits = 1
        while base ** (digits + 1) <= 1 << VECTOR_BITS:
            digits += 1
        self.max_level = digits

    # view ---------------------------------------------------------------------------------------

    def keys(self) -> Sequence[bytes]:
        return self._sorted

    def neighbors(self, key: bytes) -> list[tuple[Ref | None, Ref | None]]:
        """Neighbours of an own key for each level from 0, up to the first without a foreign one."""
        node = self.nodes.get(key)
        if node is None or not node.serves(0):
            return []
        visible = self.visible
        if node.levels is None or node.shown != visible:
            node.shown = visible
            node.levels = []
            for link in node.links[:visible]:
                if link.status < Status.IN:
                    break
                node.levels.append(self._line(key, link))
        return node.levels

    def entries(self, target: Range) -> Sequence[Ref]:
        return self.learned(target)

    @property
    def visible(self) -> int:
        """Levels up to the first in which no own key has a foreign neighbour, which counts, too."""
        if self._visible is None:
            level = 0
            while level < self.height and self._foreign_at(level):
                level += 1
            self._visible = min(level + 1, self.height)
        return self._visible

    def _foreign_at(self, level: int) -> int:
        return self._foreign[level] if level < len(self._foreign) else 0

    def _line(self, key: bytes, link: Link) -> tuple[Ref | None, Ref | None]:
        """Neighbours without those across the ends of the ring."""
        left, right = link.left, link.right
        return (
            left if left.key < key and self.reachable(left) else None,
            right if right.key > key and self.reachable(right) else None,
        )

    def reachable(self, ref: Ref) -> bool:
        """False for an own key that is gone: nobody can deliver to it."""
        return ref.peer.node_id != self.node_id or self.present(ref.key, 0)

    def present(self, key: bytes, level: int) -> bool:
        node = self.nodes.get(key)
        return node is not None and node.serves(level)

    def unknown(self, target: Range) -> Iterator[Range]:
        """Parts of ``target`` next to own keys whose neighbour there is not known for the moment.

        That is so where two own keys do not agree about the link between them at level 0. One has left, or
        has yet to hear that it is in, and messages of their own tell the keys around it. Or only one of them
        has found its place in a graph that this node joins.
        """
        for at in self._gaps(target):
            low = self._sorted[at - 1] + b"\0" if at > 0 else target.low
            high = self._sorted[at] if at < len(self._sorted) else target.high
            low, high = max(low, target.low), min(high, target.high)
            if low < high:
                yield Range(low, high)

    def _gaps(self, target: Range) -> list[int]:
        """Places among the own keys, in or next to ``target``, before which the neighbour is not known."""
        if not self._doubtful:
            return []
        keys = self._sorted
        first, last = bisect_left(keys, target.low), bisect_left(keys, target.high)
        gaps = set()
        for key in list(self._doubtful):
            left, right = self._agreed(key, right=False), self._agreed(key, right=True)
            if left and right:
                self._doubtful.discard(key)
                continue
            at = bisect_left(keys, key)
            if not left and first <= at <= last:
                gaps.add(at)
            if not right and first <= at + 1 <= last:
                gaps.add(at + 1)
        return sorted(gaps)

    def _agreed(self, key: bytes, right: bool) -> bool:
        """Whether the neighbour of an own key is another node's, or an own key that says the same.

        So it is of keys that are not in the list: nobody looks for a neighbour of theirs.
        """
        node = self.nodes.get(key)
        if node is None or not node.serves(0):
            return True
        link = node.links[0]
        ref = link.right if right else link.left
        if ref.peer.node_id != self.node_id:
            return True
        other = self.nodes.get(ref.key)
        if other is None or not other.serves(0):
            return False
        back = other.links[0].left if right else other.links[0].right
        return back.key == key

    # change -------------------------------------------------------------------------------------

    def outdate(self) -> None:
        """What :attr:`learned` answers has changed."""
        self.changes += 1

    def own(self, key: bytes) -> Ref:
        return Ref(key, self.peer, self.vector)

    def add(self, key: bytes) -> VirtualNode:
        node = self.nodes[key] = VirtualNode(self.own(key))
        return node

    def entered(self, node: VirtualNode) -> None:
        """The key is in the list of level 0."""
        self.changes += 1
        at = bisect_left(self._sorted, node.key)
        if self._sorted[at : at + 1] != [node.key]:
            self._sorted.insert(at, node.key)
        node.levels = None
        self._forget_around(at)

    def gone(self, node: VirtualNode) -> None:
        """The key is in no list any more."""
        self.changes += 1
        at = bisect_left(self._sorted, node.key)
        if self._sorted[at : at + 1] == [node.key]:
            del self._sorted[at]
        node.levels = None
        self._forget_around(at)

    def _forget_around(self, at: int) -> None:
        """Only the own keys next to one can have it as a neighbour."""
        for key in self._sorted[max(0, at - 1) : at + 2]:
            self.nodes[key].levels = None

    def grow(self, height: int) -> None:
        self.changes += 1
        self.height = height
        self._visible = None

    def set_status(self, link: Link, status: Status) -> None:
        """A key has entered or left the list of a level."""
        self.changes += 1
        link.status = status
        link.node.levels = None
        self._sort_in(link)
        if link.level == 0:
            self._doubt(link.node.ref, link.left, link.right)

    def set_left(self, node: VirtualNode, level: int, left: Ref, seq: Seq) -> None:
        link = node.links[level]
        link.lseq = seq
        if link.left != left:
            before = link.left
            link.left = left
            self._moved(link, before, left, before.key < node.key or left.key < node.key)

    def set_right(self, node: VirtualNode, level: int, right: Ref, seq: Seq) -> None:
        link = node.links[level]
        link.rseq = seq
        if link.right != right:
            before = link.right
            link.right = right
            self._moved(link, before, right, before.key > node.key or right.key > node.key)

    def _moved(self, link: Link, before: Ref, after: Ref, visible: bool) -> None:
        self.changes += 1
        node = link.node
        node.levels = None
        self._sort_in(link)
        if link.level == 0:
            self._doubt(node.ref, before, after)
            if visible and link.status is Status.IN:
                self._changed(node.key)

    def _sort_in(self, link: Link) -> None:
        """Keep :attr:`foreign_links`, and what is visible, in step with one of them."""
        foreign = link.status >= Status.IN and self.foreign(link)
        if foreign is (link.at >= 0):
            return
        links, counts, level = self.foreign_links, self._foreign, link.level
        if foreign:
            link.at = len(links)
            links.append(link)
            counts.extend([0] * (level + 1 - len(counts)))
            counts[level] += 1
        else:
            links[link.at] = last = links[-1]
            last.at = link.at
            link.at = -1
            links.pop()
            counts[level] -= 1
        if counts[level] == foreign:  # the first has come, or the last has gone
            self._visible = None

    def _doubt(self, *refs: Ref) -> None:
        self._doubtful.update(ref.key for ref in refs if ref.peer.node_id == self.node_id)

    # search -------------------------------------------------------------------------------------

    def foreign(self, link: Link) -> bool:
        return link.left.peer.node_id != self.node_id or link.right.peer.node_id != self.node_id

    def beside(self, link: Link) -> Peer:
        """The other node at one of :attr:`foreign_links`; the left one of two."""
        peer = link.left.peer
        return peer if peer.node_id != self.node_id else link.right.peer

    def same_list(self, vector: int, level: int) -> bool:
        """Whether a node with that vector belongs to this node's list of ``level``."""
        return prefix(vector, level, self.base) == prefix(self.vector, level, self.base)

    def alone(self) -> bool:
        """Whether no other node is known in the list of level 0."""
        return not self._foreign_at(0)

    def closest(
        self, key: bytes, strict: bool, avoid: Callable[[str], bool], gone: Sequence[bytes] = ()
    ) -> Ref | None:
        """The known key nearest to ``key`` on its left around the ring; ``key`` itself unless ``strict``.

        ``avoid``: nodes, ``gone``: keys not to be named. Own keys share one vector, so that only the
        own keys on both sides can know a nearer one.
        """
        own = self._sorted
        if not own:
            return None
        at = (bisect_left if strict else bisect_right)(own, key)
        before = self.nodes[own[at - 1]]
        best = before.ref
        if not strict and best.key == key:
            return best
        after = self.nodes[own[at % len(own)]]
        known = [link.right for link in before.links if link.status >= Status.IN]
        known += [link.left for link in after.links if link.status >= Status.IN]
        for ref in known:
            hit = ref.key == key
            if (hit and strict) or ref.key in gone:
                continue
            nearer = hit or between(best.key, ref.key, key)
            if nearer and self.reachable(ref) and not avoid(ref.peer.node_id):
                best = ref
                if hit:
                    break
        return best

    def foreign_now(self) -> Iterator[Link]:
        """:attr:`foreign_links`, which may change meanwhile; some may come twice."""
        at = len(self.foreign_links)
        while at := min(at, len(self.foreign_links)):
            at -= 1
            yield self.foreign_links[at]

    def lefts(self, node: VirtualNode, level: int) -> tuple[Ref, ...]:
        """What the right neighbour of ``node`` receives about the nodes on its left."""
        return (node.ref, *node.links[level].lefts)[:LEFTS]
