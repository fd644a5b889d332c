"""How keys leave the lists (DDLL): in agreement with their left neighbours, from the highest level down."""

from __future__ import annotations

from ildm_algorithms.overlay.context import Context
from ildm_algorithms.overlay.keys import Ref
from ildm_algorithms.overlay.lists.ddll import Lists
from ildm_algorithms.overlay.lists.finder import Finder
from ildm_algorithms.overlay.lists.tables import Link, Status, Table, VirtualNode, nearer_left
from ildm_algorithms.overlay.wire.messages import SetR, SetRAck, SetRNak

__all__ = ["Leaving"]


class Leaving:
    """The keys of one node that are on their way out."""

    def __init__(self, context: Context, table: Table, finder: Finder, lists: Lists) -> None:
        self.context = context
        self.table = table
        self.finder = finder
        self.lists = lists
        self._instead: dict[bytes, tuple[Ref, Ref]] = {}
        """Own key -> its left neighbour at the highest level, and who is asked in its place."""

    def remove(self, node: VirtualNode) -> None:
        """Leave all lists, from the highest down; a list that is being entered is entered first."""
        node.leaving = True
        top = len(node.links) - 1
        for level in range(top + 1):
            attach = self.lists.attaching.get((node.key, level))
            if attach is None:
                continue
            if attach.link.status is not Status.INS:
                self.lists.finish(attach)
            elif not attach.waiting:
                self.lists.abandon(attach)
                return
            else:
                return
        self.leave(node)
        self.context.events.placed(node.key)

    def leave(self, node: VirtualNode, attempt: int = 0, deadline: float | None = None) -> None:
        """Ask the left neighbour of the highest level, and go on with the next one."""
        context = self.context
        if deadline is None:
            deadline = context.env.now() + context.config.leave_timeout
        late = False
        while node.links:
            level = len(node.links) - 1
            link = node.links[level]
            late = context.env.now() >= deadline
            alone = node.key in (link.left.key, link.right.key)
            if not (alone or late):
                self.table.set_status(link, Status.DEL)
                self._ask_out(node, level, link, attempt, deadline)
                return
            if late:
                context.count("left_alone")
            self._drop(node)
        if self.table.nodes.get(node.key) is node:
            self.table.gone(node)
            del self.table.nodes[node.key]
            context.events.departed(node)
            if late and not self.table.alone():
                # it did not know its left neighbour, and what came by way of it has passed over others
                context.hooks.merging(True, None)

    def _drop(self, node: VirtualNode) -> None:
        link = node.links.pop()
        self._instead.pop(node.key, None)
        self.table.set_status(link, Status.OUT)
        if not node.links:
            self.finder.parted((link.left, link.right, *link.lefts))

    def _ask_out(self, node: VirtualNode, level: int, link: Link, attempt: int, deadline: float) -> None:
        left, right, seq = self._to_ask(node, link), link.right, link.rseq.next

        def answered(answer: object) -> None:
            if not node.links or node.links[-1] is not link:
                return
            if isinstance(answer, SetRAck):
                self._drop(node)
                self.leave(node, 0, deadline)
                return
            # The left neighbour is leaving, too, or is not the left neighbour any more.
            self.table.set_status(link, Status.IN)
            if isinstance(answer, SetRNak) and (answer.present or answer.hint is not None):
                hint = answer.hint
            else:
                absent = left.key if isinstance(answer, SetRNak) else b""
                hint = self._next_left(link, absent)
                if hint is None and absent and level:
                    # it is in this list no more, as after a restart: nobody there leads to this key
                    self._drop(node)
                    self.leave(node, 0, deadline)
                    return
            self._move_left(node, level, link, left, hint)
            self.context.later(self.context.back_off(attempt) / 2, self.leave, node, attempt + 1, deadline)

        context = self.context
        context.request(
            left.peer,
            lambda number: SetR(
                number, context.peer, level, left.key, right, seq, b"", node.key, False, context.terms
            ),
            answered,
        )

    def _next_left(self, link: Link, absent: bytes) -> Ref | None:
        near = (ref for ref in link.lefts if ref.key != absent and not self.context.avoid(ref.peer.node_id))
        return next(near, None)

    def _move_left(self, node: VirtualNode, level: int, link: Link, asked: Ref, hint: Ref | None) -> None:
        """A key that leaves does not repair its link: it asks the key that was named instead.

        If the named key is farther left, casts still use the former neighbour, which may only be out of
        reach. There may be keys between the two, and what is thought to be empty counts as reached.
        """
        if hint is None or hint.key == node.key or self._to_ask(node, link) != asked:
            return
        if nearer_left(node.key, hint.key, link.left.key):
            self.table.set_left(node, level, hint, link.lseq)
        else:
            self._instead[node.key] = link.left, hint

    def _to_ask(self, node: VirtualNode, link: Link) -> Ref:
        """The left neighbour, or who was named instead of it."""
        left, hint = self._instead.get(node.key, (None, link.left))
        return hint if left == link.left else link.left
