"""Parts of reliable casts: who is answerable for what until it is acknowledged.

A node keeps its part until the nodes it has handed parts on to have acknowledged, and then acknowledges to
the one above it. It sends again, and divides anew what a node that is gone had.
"""

from __future__ import annotations

from collections.abc import Callable

from algorithms.overlay.context import Context
from algorithms.overlay.messages import Cast, CastAck, CastBusy, Ping
from algorithms.overlay.trees import TREE_BYTES_PER_NODE, write_tree
from ildm.api import Peer, Timer

__all__ = ["Child", "Parts", "Work"]


class Work:
    """A part of a reliable cast that this node is answerable for."""

    __slots__ = ("ack", "children", "complete", "deadline", "done", "hops", "message", "own", "trees")

    def __init__(self, message: Cast, done: Callable[[CastAck], None], deadline: float) -> None:
        self.message = message
        self.done = done
        self.deadline = deadline
        self.children = 0
        self.complete = True
        self.hops = 0
        self.ack = CastAck(message.request, True, 0, 0, 0, message.depth, b"")
        self.own: list[bytes] = []
        self.trees: list[bytes] = []


class Child:
    """A part handed on to another node, until it has acknowledged."""

    __slots__ = ("attempt", "message", "silent", "timer", "to", "work")

    def __init__(self, work: Work, to: Peer, message: Cast, attempt: int) -> None:
        self.work = work
        self.to = to
        self.message = message
        self.attempt = attempt
        self.silent = 0
        self.timer: Timer | None = None


class Parts:
    """The parts of one node, its own casts among them."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.spread: Callable[[Cast, Work, int], None] = lambda message, work, attempt: None
        """Serves own keys and hands on the rest. The number: how often the part was divided before."""
        self._works: dict[tuple[str, int], Work] = {}
        self._answers: dict[tuple[str, int], CastAck] = {}
        self._children: dict[int, Child] = {}

    @property
    def busy(self) -> bool:
        """Reliable casts, own ones or parts of others', are under way."""
        return bool(self._works)

    @property
    def full(self) -> bool:
        """As many are under way as may be."""
        return len(self._works) >= self.context.config.pending_casts

    def begin(
        self,
        key: tuple[str, int],
        message: Cast,
        done: Callable[[CastAck], None],
        spread: Callable[[Cast, Work, int], None] | None = None,
    ) -> None:
        """Serve a part; ``done`` when all of it has been acknowledged, or given up.

        ``spread``: another way to begin than :attr:`spread`.
        """

        def finished(ack: CastAck) -> None:
            del self._works[key]
            done(ack)

        work = self._works[key] = Work(
            message, finished, self.context.env.now() + self.context.config.cast_deadline
        )
        # Held open until all parts are given out: an own part may be done at once.
        work.children += 1
        (spread or self.spread)(message, work, 0)
        work.children -= 1
        self._finish_if_done(work)

    # messages -----------------------------------------------------------------------------------

    def on_cast(self, message: Cast) -> None:
        """A part that another node hands on, for the first time or again."""
        key = message.parent.node_id, message.request
        answer = self._answers.get(key)
        if answer is not None:
            self.context.send(message.parent, answer)
        elif key in self._works:
            self.context.send(message.parent, CastBusy(message.request, False))
        elif self.full:
            # Without an answer, the sender tries again later.
            self.context.count("pending_casts_full")
        else:
            self.begin(key, message, lambda ack: self._answer(key, message.parent, ack))

    def _answer(self, key: tuple[str, int], parent: Peer, ack: CastAck) -> None:
        self._answers[key] = ack
        if len(self._answers) > self.context.config.pending_casts:
            del self._answers[next(iter(self._answers))]
        self.context.send(parent, ack)

    def on_ack(self, ack: CastAck) -> None:
        child = self._children.pop(ack.request, None)
        if child is None:
            return
        self.context.cancel(child.timer)
        work = child.work
        mine = work.ack
        work.ack = mine._replace(
            nodes=mine.nodes + ack.nodes,
            keys=mine.keys + ack.keys,
            hops=mine.hops + ack.hops,
            depth=max(mine.depth, ack.depth),
        )
        if ack.tree and sum(map(len, work.trees)) < self.context.config.trace_nodes * TREE_BYTES_PER_NODE:
            work.trees.append(ack.tree)
        work.complete = work.complete and ack.complete
        work.children -= 1
        self._finish_if_done(work)

    def on_busy(self, message: CastBusy) -> None:
        child = self._children.get(message.request)
        if child is None:
            return
        if message.missed:
            self.give_elsewhere(message.request, child)
        else:
            child.silent = 0

    def suspected(self, node_id: str) -> None:
        """Hand the parts of a suspected node on to others."""
        for number, child in list(self._children.items()):
            if child.to.node_id == node_id and number in self._children:
                self.give_elsewhere(number, child)

    # handing on ---------------------------------------------------------------------------------

    def new_child(self, copy: Cast, to: Peer, work: Work, attempt: int) -> tuple[int, Child]:
        number = self.context.number()
        child = self._children[number] = Child(work, to, copy._replace(request=number), attempt)
        work.children += 1
        return number, child

    def send_child(self, number: int, child: Child) -> None:
        context = self.context
        wait = context.config.ack_timeout * (1 + min(child.silent, 2))
        child.timer = context.later(wait, self._no_ack, number)
        child.work.hops += 1
        context.send(child.to, child.message, child.message.turn)

    def _no_ack(self, number: int) -> None:
        child = self._children.get(number)
        if child is None:
            return
        if self.context.env.now() >= child.work.deadline:
            self._lost(number, child)
        elif child.silent >= 2:
            # Repairs what leads to the node, this cast among the rest.
            self.context.suspect(child.to.node_id)
            if number in self._children:
                self.give_elsewhere(number, child)
        else:
            if not child.silent:
                # It is asked whether it lives, which is known sooner than whether its whole part is done.
                self.context.request(child.to, lambda ping: Ping(ping, self.context.peer, ()), _no_matter)
            child.silent += 1
            self.send_child(number, child)

    def _lost(self, number: int, child: Child) -> None:
        self.context.cancel(child.timer)
        del self._children[number]
        self.context.count("cast_parts_lost")
        child.work.complete = False
        child.work.children -= 1
        self._finish_if_done(child.work)

    def give_elsewhere(self, number: int, child: Child) -> None:
        """Divide the part anew after a back-off, in which the lists are repaired."""
        self.context.cancel(child.timer)
        child.timer = self.context.later(
            self.context.back_off(child.attempt), self._divide_again, number, child
        )

    def _divide_again(self, number: int, child: Child) -> None:
        if self._children.get(number) is not child:
            return
        if self.context.env.now() >= child.work.deadline:
            self._lost(number, child)
            return
        del self._children[number]
        work = child.work
        self.spread(child.message._replace(depth=child.message.depth - 1), work, child.attempt + 1)
        work.children -= 1
        self._finish_if_done(work)

    def _finish_if_done(self, work: Work) -> None:
        if work.children:
            return
        tree = b""
        if work.message.trace:
            tree = write_tree(self.context.node_id, work.message.depth, work.own, work.trees)
        work.done(work.ack._replace(complete=work.complete, hops=work.ack.hops + work.hops, tree=tree))


def _no_matter(answer: object) -> None:
    """Who gives none is suspected, and that is all there is to it."""
