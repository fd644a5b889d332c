"""The sorted lists of all levels: insertion and repair (DDLL; see README.md for the tables).

Every list is a ring in which each key is answerable for the link to its left neighbour. Insertion, repair and
the merging of rings are one procedure, :class:`Attach`. It asks a key on the left to take this one as its
right neighbour, and goes on to the nearer key that is named until one agrees. A key that is in a list moves
to a nearer left neighbour only, unless the one it has is lost. So moves of several keys at once cannot undo
each other.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from typing import Any

from ildm_algorithms.overlay.context import Context
from ildm_algorithms.overlay.keys import Ref
from ildm_algorithms.overlay.lists.finder import Finder
from ildm_algorithms.overlay.lists.tables import (
    Link,
    Status,
    Table,
    VirtualNode,
    between,
    distinct,
    nearer_left,
)
from ildm_algorithms.overlay.wire.messages import NO_SEQ, SetL, SetR, SetRAck, SetRNak

__all__ = ["Attach", "Lists"]

_STEPS = 64
"""Keys asked before an attach starts over with a search."""
_SEARCHES = 4
"""Searches without an answer, after which the first key of a node is a ring of its own."""
_TURNS = 4
"""Own keys that go on in one call when they have waited for another."""
_MISLED = 3.0
"""Seconds after which a key that was passed over has kept others from what they looked for, too. Where keys
enter beside each other this is put right sooner."""


class Attach:
    """One key on its way to a (nearer) left neighbour in the list of one level."""

    __slots__ = (
        "asking",
        "attempt",
        "broken",
        "candidates",
        "done",
        "hinted",
        "level",
        "link",
        "node",
        "skip",
        "steps",
        "tried",
        "waiting",
    )

    def __init__(self, node: VirtualNode, level: int, link: Link, broken: bool) -> None:
        self.node = node
        self.level = level
        self.link = link
        self.broken = broken
        """The left neighbour is lost: a farther one will do."""
        self.candidates: dict[bytes, Ref] = {}
        self.tried: set[bytes] = set()
        self.hinted: set[bytes] = set()
        """Candidates that are the right neighbour of another one."""
        self.skip: dict[bytes, bytes] = {}
        """Key -> its right neighbour, to be passed over as dead."""
        self.steps = 0
        self.attempt = 0
        self.waiting = False
        """A SetR or a search is out, or it is waiting for another try."""
        self.asking = False
        """A SetR is out: its receiver may have agreed already, and others may know."""
        self.done = False


class Lists:
    """The list protocol of all keys and levels of one node."""

    def __init__(self, context: Context, table: Table, finder: Finder) -> None:
        self.context = context
        self.table = table
        self.finder = finder
        self.attaching: dict[tuple[bytes, int], Attach] = {}
        self.events = context.events
        self._entering: list[bytes] = []
        """Keys on their way into the list of level 0, ascending."""
        self._behind: dict[bytes, list[Attach]] = {}
        """Entering key -> those that go on when it has entered: it is to be their left neighbour."""
        self._turns: list[tuple[Callable[[Any], None], Any]] = []
        """Calls for other own keys, which may be many, a few at a time."""

    # insertion and repair ------------------------------------------------------------------------

    def found(self, node: VirtualNode) -> None:
        """Make the key a ring of its own."""
        link = Link(node, 0)
        node.links.append(link)
        self._in(node, len(node.links) - 1, link, b"")

    def insert(self, node: VirtualNode, level: int, candidates: Iterable[Ref] = ()) -> None:
        """Enter the list of ``level``, the next one for the key."""
        link = Link(node, level)
        node.links.append(link)
        if level == 0:
            insort(self._entering, node.key)
        self._attach(node, level, link, candidates, broken=True)

    def repair(self, node: VirtualNode, level: int, candidates: Iterable[Ref], broken: bool = False) -> None:
        """Look for a nearer left neighbour, or for any where the present one is lost (``broken``)."""
        if level < len(node.links) and (link := node.links[level]).status is Status.IN:
            self._attach(node, level, link, candidates, broken)

    def _attach(
        self, node: VirtualNode, level: int, link: Link, candidates: Iterable[Ref], broken: bool
    ) -> None:
        attach = self.attaching.get((node.key, level))
        if attach is None:
            attach = self.attaching[node.key, level] = Attach(node, level, link, broken)
        attach.broken |= broken
        for ref in candidates:
            attach.candidates[ref.key] = ref
        if not attach.waiting:
            self._step(attach)

    def _step(self, attach: Attach) -> None:
        if attach.done:
            return
        node, link = attach.node, attach.link
        if node.leaving:
            self.abandon(attach)
            return
        attach.steps += 1
        if attach.steps > _STEPS:
            self._retry(attach)
            return
        best: Ref | None = None
        for ref in attach.candidates.values():
            if (
                ref.key not in attach.tried
                and not self.context.avoid(ref.peer.node_id)
                and (best is None or nearer_left(node.key, ref.key, best.key))
                and ref.key != node.key
            ):
                best = ref
        if not attach.broken and (best is None or not nearer_left(node.key, best.key, link.left.key)):
            self.finish(attach)
            return
        attach.waiting = True
        if best is None:
            self._search(attach)
            return
        attach.asking = True
        seq = link.lseq.gnext
        chosen = best
        self.context.request(
            chosen.peer,
            lambda number: SetR(
                number,
                self.context.peer,
                attach.level,
                chosen.key,
                node.ref,
                seq,
                attach.skip.get(chosen.key, b""),
                b"",
                attach.level == 0 and link.status is Status.INS,
                self.context.terms,
            ),
            lambda answer: self._answered(attach, chosen, seq, answer),
        )

    def holds(self, key: bytes) -> bool:
        """Whether others may think that the key has its place at level 0, before it knows itself."""
        attach = self.attaching.get((key, 0))
        return attach is not None and attach.asking

    def _answered(self, attach: Attach, asked: Ref, seq: tuple[int, int], answer: object) -> None:
        attach.waiting = attach.asking = False
        if not attach.done:
            self._go_on(attach, asked, seq, answer)
        if attach.level == 0:
            self.events.placed(attach.node.key)

    def _go_on(self, attach: Attach, asked: Ref, seq: tuple[int, int], answer: object) -> None:
        match answer:
            case SetRAck():
                self._accepted(attach, asked, answer, seq)
                return
            case SetRNak(present=True, hint=None):
                # It is entering or leaving the list itself.
                if asked.key in attach.hinted:
                    # Once, because the key that has named it may be gone, and both would wait for each other.
                    attach.hinted.discard(asked.key)
                    self._wait(attach)
                    return
                # Keys that wait for each other would wait forever; the search knows who goes first.
                attach.tried.add(asked.key)
            case SetRNak(present=True, hint=Ref() as hint):
                if hint.key in attach.tried or self.context.avoid(hint.peer.node_id):
                    if attach.skip.get(asked.key) == hint.key:
                        attach.tried.add(asked.key)
                    attach.skip[asked.key] = hint.key
                elif between(asked.key, hint.key, attach.node.key):
                    attach.candidates[hint.key] = hint
                    attach.hinted.add(hint.key)
                else:
                    attach.tried.add(asked.key)
            case _:
                attach.tried.add(asked.key)
        self._step(attach)

    def _accepted(self, attach: Attach, left: Ref, ack: SetRAck, sent: tuple[int, int]) -> None:
        node, link, level = attach.node, attach.link, attach.level
        before, now = link.left, self.context.env.now()
        placed_at = node.placed_at
        if level == 0:
            node.placed_at = self._gap_since(link, left, ack.right, now)
        self.finish(attach)
        seq = type(link.lseq)(*sent)
        if seq > link.lseq:
            self.table.set_left(node, level, left, seq)
            link.lefts = distinct((left, *ack.lefts), self.table.node_id)
        self._take_right(node, level, link, ack)
        if link.status is Status.INS:
            self._in(node, level, link, ack.status)
        else:
            self.grow(node, level)
            self.context.count("repairs")
            if level == 0 and attach.broken and nearer_left(node.key, before.key, left.key):
                self.events.closed(node.key, False)
                if before.peer.node_id != self.context.node_id:
                    self.context.pass_over(before.peer.node_id)
            passed_over = level == 0 and ack.right is not None
            if level == 0 and nearer_left(node.key, left.key, before.key):
                # After a crash it would be a farther one; who enters between does it all without a repair.
                self._seems_merging(node, before, left, passed_over, placed_at)
            elif passed_over:
                self.context.hooks.merging(False, None)
            if (
                link.left == left
                and nearer_left(node.key, before.key, left.key)
                and not attach.broken
                and not self.context.avoid(before.peer.node_id)
            ):
                # A nearer one has been put between in the meantime.
                self.repair(node, level, (before,))
            self.events.repaired(node, level)

    def _gap_since(self, link: Link, left: Ref, right: Ref | None, now: float) -> float:
        """Since when this node thinks that nothing is between ``left`` and a key that is put behind it. A key
        between own keys is where nothing was before."""
        behind = self.table.nodes.get(right.key) if right is not None else None
        if behind is None or link.status is not Status.INS or left.peer.node_id != self.context.node_id:
            return now
        return behind.placed_at

    def _seems_merging(
        self, node: VirtualNode, before: Ref, left: Ref, passed_over: bool, placed_at: float
    ) -> None:
        """A key has got a nearer left neighbour: of another ring, or of this one, and the SetL was lost.

        Own keys may have been a ring of their own for longer than the first of them. ``passed_over``: the
        right neighbour of ``left`` was a key farther right. ``placed_at``: when the key had got ``before``.
        """
        misled = self.context.env.now() - placed_at > _MISLED
        own = before.peer.node_id == self.context.node_id

        def answered(known: bool) -> None:
            if not known:
                self.context.hooks.merging(True, None)
            elif passed_over or own:
                # a cast from here has ended at the own key before, and passed over those of others behind it
                self.context.hooks.merging(passed_over and misled, placed_at if own else None)

        if before.key == node.key:
            answered(True)  # it was a ring of one: there is nobody to ask
        else:
            self.finder.know_of(left.key, before, answered)

    def _take_right(self, node: VirtualNode, level: int, link: Link, ack: SetRAck) -> None:
        """The nearer one of both right neighbours stays; a hint goes to the other one."""
        new, old = ack.right, link.right
        if new is None:
            return
        if new.key == old.key:
            self.table.set_right(node, level, new, ack.rseq)
        elif old.key == node.key or between(node.key, new.key, old.key):
            self.table.set_right(node, level, new, ack.rseq)
            if old.key != node.key:
                self._hint(level, old, new)
        elif new.key != node.key:
            self._hint(level, new, old)
            self._bridge(level, old, new)

    def _bridge(self, level: int, own: Ref, far: Ref) -> None:
        """``own`` has been put before ``far``: while that one asks, own keys up to it lead there already.

        Casts that come in by the first of several keys that join at once would end at the last of them.
        """
        node = self.table.nodes.get(own.key)
        while node is not None and (link := node.link(level)) is not None and link.status is Status.IN:
            right = link.right
            if right.key != node.key and between(node.key, right.key, far.key):
                node = self.table.nodes.get(right.key)
                continue
            if right.key != far.key:
                self.table.set_right(node, level, far, link.rseq)
            return

    def _hint(self, level: int, to: Ref, nearer: Ref) -> None:
        self.context.send(to.peer, SetL(level, to.key, nearer, NO_SEQ, b"", (), self.context.terms))

    def _in(self, node: VirtualNode, level: int, link: Link, status: bytes) -> None:
        self.table.set_status(link, Status.IN)
        if level == 0:
            self.table.entered(node)
            self.events.entered(node, status)
        if node.leaving:
            self.events.leave(node)
            return
        self.grow(node, level)
        if level:
            self._followed(node, level)

    def grow(self, node: VirtualNode, level: int) -> None:
        """All own keys enter the next level as soon as one has a foreign neighbour at the last."""
        table = self.table
        if level == table.height - 1 and level < table.max_level and table.foreign(node.links[level]):
            table.grow(level + 2)
            self._in_turn(self.rise, [other for other in table.nodes.values() if other is not node])
        self.rise(node)

    def rise(self, node: VirtualNode) -> None:
        """Enter the next level, if there is one, and the own key that will be on the left is in it."""
        level = len(node.links)
        if level < self.table.height and not node.leaving and level and node.is_in(level - 1):
            left = node.links[level - 1].left
            before = self.table.nodes.get(left.key)
            # The least key waits for none, so that no ring of own keys waits.
            if before is not None and left.key < node.key and not before.leaving and not before.is_in(level):
                return
            near = left.key != node.key and self.table.same_list(left.vector, level)
            self.insert(node, level, (left,) if near else ())

    def _followed(self, node: VirtualNode, level: int) -> None:
        """The own key on the right may have waited."""
        follower = self.table.nodes.get(node.links[level - 1].right.key)
        if follower is not None and len(follower.links) == level:
            self._in_turn(self.rise, (follower,))

    def _in_turn(self, call: Callable[[Any], None], each: Iterable[Any]) -> None:
        idle = not self._turns
        self._turns.extend((call, one) for one in each)
        if idle and self._turns:
            self.context.later(0.0, self._next_turns)

    def _next_turns(self) -> None:
        now = self._turns[:_TURNS]
        for call, one in now:
            call(one)
        del self._turns[: len(now)]
        if self._turns:
            self.context.later(0.0, self._next_turns)

    def finish(self, attach: Attach) -> None:
        attach.done = True
        key = attach.node.key
        self.attaching.pop((key, attach.level), None)
        if attach.level == 0 and attach.link.status is Status.INS:
            del self._entering[bisect_left(self._entering, key)]
            self._in_turn(self._go_behind, self._behind.pop(key, ()))

    def _waits(self, attach: Attach, pred: Ref) -> bool:
        """Wait if an own key enters the same gap before this one: then no other node has to be asked."""
        key = attach.node.key
        at = bisect_left(self._entering, key) - 1
        if attach.link.status is not Status.INS or at < 0:
            return False
        before = self._entering[at]
        if not between(pred.key, before, key):
            return False
        attach.waiting = True
        self._behind.setdefault(before, []).append(attach)
        return True

    def _go_behind(self, attach: Attach) -> None:
        attach.waiting = False
        if attach.done:
            return
        if attach.node.leaving:
            self.abandon(attach)
        else:
            attach.waiting = True
            self._search(attach)

    def abandon(self, attach: Attach) -> None:
        """The key is to leave before it has entered."""
        self.finish(attach)
        if attach.link.status is Status.INS:
            attach.node.links.pop()
            self.events.leave(attach.node)

    def _wait(self, attach: Attach) -> None:
        attach.waiting = True
        self.context.later(self.context.back_off(attach.attempt), self._again, attach)
        attach.attempt += 1

    def _again(self, attach: Attach) -> None:
        attach.waiting = False
        self._step(attach)

    def _retry(self, attach: Attach) -> None:
        """Forget what was tried and begin with a search."""
        attach.steps = 0
        attach.tried.clear()
        attach.hinted.clear()
        attach.skip.clear()
        attach.candidates.clear()
        self._wait(attach)

    # search for a left neighbour --------------------------------------------------------------------

    def _search(self, attach: Attach) -> None:
        if attach.level == 0:
            entry = self.finder.contact() if attach.attempt % 2 else None
            self.finder.lookup(
                attach.node.key,
                strict=True,
                entry=entry,
                done=lambda pred, succ, hops, alone: self._looked_up(attach, pred, succ, alone),
            )
        else:
            self.finder.walk(
                attach.node,
                attach.level,
                lambda found, pending, broken: self._walked(attach, found, pending, broken),
            )

    def _looked_up(self, attach: Attach, pred: Ref | None, succ: Ref | None, alone: bool) -> None:
        attach.waiting = False
        if attach.done:
            return
        if not self.table.keys() and (
            alone or (pred is None and (attach.attempt >= _SEARCHES or self.finder.contact() is None))
        ):
            # A node that is alone takes no key that joins. There may be nobody to ask: no search suspects a
            # node, so contacts that are gone stay known, and joins need a key. Rings become one later.
            self._single(attach)
            return
        if alone and not self.table.alone():
            # It is not in this graph, or not yet: beside it the key would be out of what is cast here.
            pred = None
        key = attach.node.key
        if pred is not None and pred.key != key and pred.key not in attach.tried:
            if succ is not None and self.context.avoid(succ.peer.node_id):
                attach.skip[pred.key] = succ.key
            attach.candidates[pred.key] = pred
            if not self._waits(attach, pred):
                self._step(attach)
        elif (
            pred is not None
            and pred.key == key
            and (attach.attempt >= 3 or self.finder.contact() is None)
            and attach.link.status is Status.IN
        ):
            self._single(attach)
        else:
            self._retry(attach)

    def _walked(self, attach: Attach, found: Ref | None, pending: bool, broken: bool) -> None:
        attach.waiting = False
        if attach.done:
            return
        if found is not None and found.key not in attach.tried:
            attach.candidates[found.key] = found
            self._step(attach)
        elif found is None and not pending and not broken:
            self._single(attach)
        else:
            self._retry(attach)

    def _single(self, attach: Attach) -> None:
        """Nobody else is in the list."""
        node, link, level = attach.node, attach.link, attach.level
        if node.leaving:
            self.abandon(attach)
            return
        self.finish(attach)
        seq = link.lseq.gnext
        self.table.set_left(node, level, node.ref, seq)
        self.table.set_right(node, level, node.ref, seq)
        link.lefts = ()
        if link.status is Status.INS:
            self._in(node, level, link, b"")
            # Another key may have found itself alone at the same time.
            self.context.later(self.context.back_off(1), self.events.repaired, node, level - 1)
