"""The tables of one physical node: its keys, and for each the links of every level."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum

from algorithms.overlay.keys import VECTOR_BITS, Range, Ref, prefix
from algorithms.overlay.messages import NO_SEQ, Seq, SetRAck
from ildm.api import Peer

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
    ``rseq`` of the left neighbour while both agree about the link between them.
    """

    __slots__ = ("left", "lefts", "lseq", "reply", "right", "rseq", "status")

    def __init__(self, own: Ref) -> None:
        self.status = Status.OUT
        self.left = own
        self.right = own
        self.lseq: Seq = NO_SEQ
        self.rseq: Seq = NO_SEQ
        self.lefts: tuple[Ref, ...] = ()
        """Nearest left neighbours on other nodes, nearest first; the foreign left neighbour among them."""
        self.reply: tuple[str, SetRAck] | None = None
        """Last SetR agreed to (sender, answer), for when it comes once more."""


class VirtualNode:
    """One key of the node."""

    __slots__ = ("again", "key", "leaving", "levels", "links", "ref")

    def __init__(self, ref: Ref) -> None:
        self.ref = ref
        self.key = ref.key
        self.links: list[Link] = []
        self.leaving = False
        self.again = False
        """To be inserted again as soon as it has left."""
        self.levels: list[tuple[Ref | None, Ref | None]] | None = None
        """What readers see, built on demand."""

    def link(self, level: int) -> Link | None:
        return self.links[level] if level < len(self.links) else None

    def is_in(self, level: int) -> bool:
        return level < len(self.links) and self.links[level].status is Status.IN

    def serves(self, level: int) -> bool:
        """IN, or on its way out: neighbours still reach it."""
        return level < len(self.links) and self.links[level].status >= Status.IN


class Table:
    """All keys of the node; the :class:`algorithms.overlay.routing.View` of its own.

    ``changed`` is called with a key when its neighbours at level 0 have changed as readers see them.
    """

    def __init__(self, peer: Peer, vector: int, base: int, changed: Callable[[bytes], None]) -> None:
        self.peer = peer
        self.node_id = peer.node_id
        self.vector = vector
        self.base = base
        self.height = 1
        """Levels that every own key takes part in."""
        self.nodes: dict[bytes, VirtualNode] = {}
        self._sorted: list[bytes] = []
        self._visible: int | None = None
        self._shown = 1
        self._changed = changed
        self.learned: Callable[[bytes], Sequence[Ref]] = lambda key: ()
        """Keys of other nodes that an own key knows besides its neighbours."""
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
        if node.levels is None:
            node.levels = []
            for link in node.links[:visible]:
                if link.status < Status.IN:
                    break
                node.levels.append(self._line(key, link))
        return node.levels

    def entries(self, key: bytes) -> Sequence[Ref]:
        return self.learned(key)

    @property
    def visible(self) -> int:
        """Levels up to the first in which no own key has a foreign neighbour, which counts, too."""
        if self._visible is None:
            level = 0
            while level < self.height and self._foreign_at(level):
                level += 1
            self._show(min(level + 1, self.height))
        return self._visible or 1

    def _show(self, levels: int) -> None:
        if levels != self._shown:
            self._shown = levels
            for node in self.nodes.values():
                node.levels = None
        self._visible = levels

    def _foreign_at(self, level: int) -> bool:
        return any(
            level < len(node.links)
            and node.links[level].status >= Status.IN
            and self.foreign(node.links[level])
            for node in self.nodes.values()
        )

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

        That is so where two own keys do not agree about the link between them at level 0: one has left,
        or has yet to hear that it is in, and the keys around it are told by messages of their own; or
        only one of them has found its place in a graph that this node joins.
        """
        keys = self._sorted
        first, last = bisect_left(keys, target.low), bisect_left(keys, target.high)
        for at in range(first, last + 1):
            low, high = target
            unknown = False
            if at > 0:
                low = max(low, keys[at - 1] + b"\0")
                unknown = not self._agreed(keys[at - 1], right=True)
            if at < len(keys):
                high = min(high, keys[at])
                unknown = unknown or not self._agreed(keys[at], right=False)
            if unknown and low < high:
                yield Range(low, high)

    def _agreed(self, key: bytes, right: bool) -> bool:
        """Whether the neighbour of an own key is another node's, or an own key that says the same."""
        link = self.nodes[key].links[0]
        ref = link.right if right else link.left
        if ref.peer.node_id != self.node_id:
            return True
        other = self.nodes.get(ref.key)
        if other is None or not other.serves(0):
            return False
        back = other.links[0].left if right else other.links[0].right
        return back.key == key

    # change -------------------------------------------------------------------------------------

    def own(self, key: bytes) -> Ref:
        return Ref(key, self.peer, self.vector)

    def add(self, key: bytes) -> VirtualNode:
        node = self.nodes[key] = VirtualNode(self.own(key))
        return node

    def entered(self, node: VirtualNode) -> None:
        """The key is in the list of level 0."""
        at = bisect_left(self._sorted, node.key)
        if self._sorted[at : at + 1] != [node.key]:
            self._sorted.insert(at, node.key)
        node.levels = None
        self._forget_around(at)

    def gone(self, node: VirtualNode) -> None:
        """The key is in no list any more."""
        at = bisect_left(self._sorted, node.key)
        if self._sorted[at : at + 1] == [node.key]:
            del self._sorted[at]
        node.levels = None
        self._forget_around(at)

    def _forget_around(self, at: int) -> None:
        """Only the own keys next to one can have it as a neighbour."""
        self._visible = None
        for key in self._sorted[max(0, at - 1) : at + 2]:
            self.nodes[key].levels = None

    def grow(self, height: int) -> None:
        self.height = height
        self._visible = None

    def show_again(self, node: VirtualNode) -> None:
        """A key has entered or left the list of a higher level."""
        node.levels = None
        self._visible = None

    def set_left(self, node: VirtualNode, level: int, left: Ref, seq: Seq) -> None:
        link = node.links[level]
        link.lseq = seq
        if link.left != left:
            before = link.left
            link.left = left
            self._moved(node, level, before.key < node.key or left.key < node.key)

    def set_right(self, node: VirtualNode, level: int, right: Ref, seq: Seq) -> None:
        link = node.links[level]
        link.rseq = seq
        if link.right != right:
            before = link.right
            link.right = right
            self._moved(node, level, before.key > node.key or right.key > node.key)

    def _moved(self, node: VirtualNode, level: int, visible: bool) -> None:
        node.levels = None
        self._visible = None
        if level == 0 and visible and node.links[0].status is Status.IN:
            self._changed(node.key)

    # search -------------------------------------------------------------------------------------

    def foreign(self, link: Link) -> bool:
        return link.left.peer.node_id != self.node_id or link.right.peer.node_id != self.node_id

    def same_list(self, vector: int, level: int) -> bool:
        """Whether a node with that vector belongs to this node's list of ``level``."""
        return prefix(vector, level, self.base) == prefix(self.vector, level, self.base)

    def alone(self) -> bool:
        """Whether no other node is known in the list of level 0."""
        return not any(node.links and self.foreign(node.links[0]) for node in self.nodes.values())

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

    def neighbor_refs(self) -> Iterator[Ref]:
        """Every neighbour on another node, as often as it is one."""
        for node in self.nodes.values():
            for link in node.links:
                if link.status is not Status.OUT:
                    for ref in (link.left, link.right):
                        if ref.peer.node_id != self.node_id:
                            yield ref

    def lefts(self, node: VirtualNode, level: int) -> tuple[Ref, ...]:
        """What the right neighbour of ``node`` is told of the nodes on its left."""
        return (node.ref, *node.links[level].lefts)[:LEFTS]
