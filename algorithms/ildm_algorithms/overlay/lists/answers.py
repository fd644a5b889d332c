"""What a key answers to those that want to be its right neighbour, or tell of its left one (DDLL)."""

from __future__ import annotations

from ildm_algorithms.overlay.context import Context
from ildm_algorithms.overlay.lists.ddll import Lists
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

__all__ = ["Answers"]


class Answers:
    """The answers of all keys and levels of one node."""

    def __init__(self, context: Context, table: Table, lists: Lists) -> None:
        self.context = context
        self.table = table
        self.lists = lists

    def on_set_r(self, message: SetR) -> None:
        node = self.table.nodes.get(message.to)
        link = node.link(message.level) if node is not None else None
        send = self.context.send
        if node is None or link is None or link.status is Status.OUT:
            send(message.origin, SetRNak(message.id, False, None))
            return
        sender = f"{message.origin.node_id} {message.id}"
        if link.reply is not None and link.reply[0] == sender:
            send(message.origin, link.reply[1])
            return
        if not self.table.same_list(message.new.vector, message.level):
            self.context.count("foreign_prefix")
            send(message.origin, SetRNak(message.id, False, None))
            return
        if link.status is not Status.IN:
            # One that leaves names its left neighbour to another that leaves, as it may be gone soon.
            hint = link.left if message.gone and link.status is Status.DEL else None
            busy = message.gone == b"" or link.status is Status.INS
            send(message.origin, SetRNak(message.id, busy, hint if hint != node.ref else None))
            return
        answer = self._delete(node, link, message) if message.gone else self._adopt(node, link, message)
        if isinstance(answer, SetRAck):
            link.reply = sender, answer
            self.lists.grow(node, message.level)
        send(message.origin, answer)

    def _delete(self, node: VirtualNode, link: Link, message: SetR) -> SetRAck | SetRNak:
        right = link.right
        if right.key == message.gone and message.new.key != message.gone:
            self.table.set_right(node, message.level, message.new, message.seq)
            lefts = self.table.lefts(node, message.level)
            self.context.send(
                message.new.peer,
                SetL(
                    message.level,
                    message.new.key,
                    node.ref,
                    message.seq,
                    message.gone,
                    lefts,
                    message.terms,
                ),
            )
        elif not between(node.key, message.gone, right.key):
            return SetRNak(message.id, True, right if right.key != message.gone else None)
        return SetRAck(message.id, None, NO_SEQ, (), b"")

    def _adopt(self, node: VirtualNode, link: Link, message: SetR) -> SetRAck | SetRNak:
        """Insertion or repair: the sender wants to be the right neighbour."""
        level, new, right = message.level, message.new, link.right
        if new.key == node.key:
            return SetRNak(message.id, False, None)
        if message.joining and message.origin.node_id != self.table.node_id and self.table.alone():
            # It is taken for its earlier incarnation. A graph is joined with keys that are in one.
            return SetRNak(message.id, False, None)
        lefts = self.table.lefts(node, level)
        status = self.context.hooks.status_for(node.key, new) if message.joining else b""
        if right.key == new.key:
            self.table.set_right(node, level, new, message.seq)
            return SetRAck(message.id, None, NO_SEQ, lefts, status)
        if right.key == node.key or between(node.key, new.key, right.key):
            rseq = link.rseq.next
            self.table.set_right(node, level, new, message.seq)
            change = SetL(level, right.key, new, rseq, b"", lefts, message.terms)
            self.context.send(right.peer, change)
            if level == 0 and right.key != node.key and self._was_passed_over(message):
                self.context.hooks.merging(False, node.placed_at)
            return SetRAck(message.id, right, rseq, lefts, status)
        if right.peer.node_id == self.table.node_id:
            dead = not self.table.present(right.key, level)
        else:
            dead = right.key == message.skip or self.context.avoid(right.peer.node_id)
        if not dead:
            return SetRNak(message.id, True, right)
        self.table.set_right(node, level, new, message.seq)
        if level == 0:
            self.context.events.closed(node.key, True)
        return SetRAck(message.id, None, NO_SEQ, lefts, status)

    def _was_passed_over(self, message: SetR) -> bool:
        """The sender's key is no new one: what this node has asked and cast ended short of it."""
        return not message.joining and message.origin.node_id != self.table.node_id

    def on_set_l(self, message: SetL) -> None:
        node = self.table.nodes.get(message.to)
        link = node.link(message.level) if node is not None else None
        if node is None or link is None or link.status is Status.OUT:
            return
        new, old, level = message.new, link.left, message.level
        if not self.table.same_list(new.vector, level):
            self.context.count("foreign_prefix")
            return
        if message.seq > link.lseq:
            self.table.set_left(node, level, new, message.seq)
            link.lefts = distinct((new, *message.lefts), self.table.node_id)
            if link.status is Status.IN:
                self.lists.grow(node, level)
            if (
                old.key != message.gone
                and nearer_left(node.key, old.key, new.key)
                and not self.context.avoid(old.peer.node_id)
            ):
                self.lists.repair(node, level, (old,))
        elif nearer_left(node.key, new.key, old.key):
            self.lists.repair(node, level, (new,))
