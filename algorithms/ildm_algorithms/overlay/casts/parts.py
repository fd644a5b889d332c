"""Parts of reliable casts: who is answerable for what until it is acknowledged.

A node keeps its part until the nodes it has handed parts on to have acknowledged, and then acknowledges to
the one above it. It sends again, more and more seldom while the other one is at it, and divides anew what a
node had that does not answer. Each part has one owner all the same. A copy of another division (``line``) may
meet a node whose keys were served already. The copy waits for that part to be done, and only what it did not
cover is served.
"""

from __future__ import annotations

from collections.abc import Callable

from ildm.api import Peer, Timer
from ildm_algorithms.overlay.casts.history import CastHistory, Done, PartId, Taken, Work, without
from ildm_algorithms.overlay.casts.trees import TREE_BYTES_PER_NODE, write_tree
from ildm_algorithms.overlay.context import Context
from ildm_algorithms.overlay.keys import Range
from ildm_algorithms.overlay.wire.messages import Cast, CastAck, CastBusy, Ping, Why

__all__ = ["CastParts", "Child", "Work"]

_ASKED = 3
"""How often the copy of a part that waits for others comes again before it is served here: parts could wait
for each other."""
_LEFT = 100
"""Units of ``Cast.left`` in a second."""


class Child:
    """A part handed on to another node, until it has acknowledged."""

    __slots__ = (
        "alive",
        "attempt",
        "begun",
        "message",
        "sends",
        "sent",
        "signs",
        "silent",
        "timer",
        "to",
        "work",
    )

    def __init__(self, work: Work, to: Peer, message: Cast, attempt: int) -> None:
        self.work = work
        self.to = to
        self.message = message
        self.attempt = attempt
        self.sends = 0
        self.begun = 0.0
        self.sent = 0.0
        self.alive = False
        """It has said that it is at it since the copy was last sent."""
        self.signs = 0
        """How often it has said so."""
        self.silent = 0
        """How often nothing was received from it in time."""
        self.timer: Timer | None = None

    @property
    def only_its_own(self) -> bool:
        """Nobody but the receiver can do it."""
        return (self.message.low, self.message.high) == (self.message.at, self.message.at + b"\0")


class CastParts:
    """The parts of one node, its own casts among them."""

    def __init__(self, context: Context, spread: Callable[[Cast, Work, int], None]) -> None:
        """``spread`` serves own keys and hands on the rest. Its number: how often the part was divided
        before."""
        self.context = context
        self.history = CastHistory(context)
        self.spread = spread
        self._done: dict[PartId, Callable[[CastAck], None]] = {}
        """Of the works under way."""
        self._children: dict[int, Child] = {}

    @property
    def busy(self) -> bool:
        """Reliable casts, own ones or parts of others', are under way."""
        return bool(self._done)

    @property
    def crowded(self) -> bool:
        """A quarter as many are under way as there may be: none waits that need not."""
        return 4 * len(self._done) >= self.context.config.pending_casts

    @property
    def open(self) -> int:
        """Parts handed on that have not been acknowledged."""
        return len(self._children)

    def begin(
        self,
        part: PartId,
        message: Cast,
        done: Callable[[CastAck], None],
        *,
        divides: bool = True,
        spread: Callable[[Cast, Work, int], None] | None = None,
    ) -> bool:
        """Serve a part; ``done`` when all of it has been acknowledged, or given up. False: not now.

        ``divides``: the copies of the cast have parts, not all the whole range. ``spread``: another way to
        begin than :attr:`spread`.
        """
        deadline = self.context.env.now() + message.left / _LEFT
        if len(self._done) >= self.context.config.pending_casts:
            self.context.count("pending_casts_full")
            return False
        taken = self.history.take(message, deadline)
        if taken is None:
            self.context.count("cast_bytes_full")
            return False
        self._done[part] = done
        work = Work(part, message, deadline)
        # Held open until all parts are given out: an own part may be done at once.
        work.children += 1
        rest = self._rest(work, taken) if divides else [work.target]
        self.history.begun(taken, work)
        for low, high in rest:
            whole = low == message.low and high == message.high
            part_of_it = message if whole else message._replace(low=low, high=high)
            (spread or self.spread)(part_of_it, work, 0)
            if message.note:
                message = message._replace(note=b"")
        work.children -= 1
        self._finish_if_done(work)
        return True

    def _rest(self, work: Work, taken: Taken) -> list[Range]:
        """What of a part is not being served here already; with the rest it is waited until it is done."""
        target = work.target
        rest = [target]
        for other in taken.parts.values():
            if isinstance(other, Done):
                if other.ack.why:
                    continue
            elif other.message.line == work.message.line or not any(
                key in target for key in other.own if key in other.target
            ):
                # It may have come from there: of what lies above, no own key is in what is handed on.
                continue
            left = without(rest, other.target)
            if left == rest:
                continue
            rest = left
            self.context.count("cast_parts_met")
            if isinstance(other, Done):
                work.add(other.ack)
            else:
                work.children += 1
                work.attached.append(other)
                other.waiting.append(work)
        return rest

    # messages -----------------------------------------------------------------------------------

    def on_cast(self, message: Cast, divides: bool) -> None:
        """A part that another node hands on, for the first time or again."""
        part = message.parent.node_id, message.request
        taken = self.history.get((message.origin.node_id, message.number))
        known = None if taken is None else taken.parts.get(part)
        if isinstance(known, Done):
            self.context.send(message.parent, known.ack)
        elif known is not None:
            self.context.send(message.parent, CastBusy(message.request, False, False))
            known.asked += 1
            if known.asked == _ASKED:
                self._serve_attached(known)
        elif not self.begin(
            part, message, lambda ack: self.context.send(message.parent, ack), divides=divides
        ):
            self.context.send(message.parent, CastBusy(message.request, False, True))

    def _serve_attached(self, work: Work) -> None:
        """What it waits for may wait for it."""
        attached, work.attached = work.attached, []
        for other in attached:
            self.context.count("cast_parts_untied")
            other.waiting.remove(work)
            low, high = max(work.target.low, other.target.low), min(work.target.high, other.target.high)
            self.spread(work.message._replace(low=low, high=high), work, 1)
            work.children -= 1
        self._finish_if_done(work)

    def on_ack(self, ack: CastAck) -> None:
        child = self._children.pop(ack.request, None)
        if child is None:
            return
        self.context.cancel(child.timer)
        if not child.silent and (child.sends == 1 or child.alive):
            self.context.peers.measured_part(child.to.node_id, self.context.env.now() - child.begun)
        work = child.work
        work.add(ack)
        if ack.tree and sum(map(len, work.trees)) < self.context.config.trace_nodes * TREE_BYTES_PER_NODE:
            work.trees.append(ack.tree)
        work.children -= 1
        self._finish_if_done(work)

    def on_busy(self, message: CastBusy) -> None:
        child = self._children.get(message.request)
        if child is None:
            return
        if message.missed:
            self.give_elsewhere(message.request, child)
        else:
            child.alive = True
            child.signs += 1
            child.silent = 0

    def suspected(self, node_id: str) -> None:
        """Hand the parts of a suspected node on to others."""
        for number, child in list(self._children.items()):
            if child.to.node_id == node_id and number in self._children:
                self.give_elsewhere(number, child, 0)

    def unresponsive(self, node_id: str) -> None:
        """Let others do what a node that does not answer would do besides its own keys."""
        self._reroute(
            lambda child: bool(child.sends) and not child.only_its_own and child.to.node_id == node_id
        )

    def others_known(self) -> None:
        """The node after a lost one is known now: others do what unresponsive nodes have been left with."""
        self._reroute(lambda child: self.context.is_unresponsive(child.to.node_id))

    def _reroute(self, chosen: Callable[[Child], bool]) -> None:
        for number, child in list(self._children.items()):
            if number in self._children and chosen(child):
                self.context.count("cast_parts_rerouted")
                self.context.cancel(child.timer)
                self._divide_again(number, child)

    # handing on ---------------------------------------------------------------------------------

    def new_child(self, copy: Cast, to: Peer, work: Work, attempt: int) -> tuple[int, Child]:
        number = self.context.number()
        child = self._children[number] = Child(work, to, copy._replace(request=number), attempt)
        work.children += 1
        return number, child

    def send_child(self, number: int, child: Child) -> None:
        context = self.context
        now = context.env.now()
        left = max(0.0, child.work.deadline - now)
        # The longer it takes, or the more often it was tried, the less often; one that is at it is let alone.
        times = 2 ** min(child.sends + child.signs + max(child.attempt, 0), 6)
        wait = min(context.peers.part_timeout(child.to.node_id) * times, context.config.timeout_max, left)
        if not child.sends:
            child.begun = now
            if child.to.node_id in child.message.unresponsive:
                # It has not answered another node for two time-outs: here one is enough, that of a ping.
                self._ask(child)
                # not half of what is left, and half of that, without end
                wait = max(wait / 2, min(context.config.timeout_min, left))
        child.sends += 1
        child.sent = now
        child.alive = False
        hundredths = min(round(left * _LEFT), 0xFFFF)
        if hundredths != child.message.left:
            child.message = child.message._replace(left=hundredths)
        child.timer = context.later(wait, self._no_ack, number)
        child.work.hops += 1
        context.send(child.to, child.message, child.message.turn)

    def _no_ack(self, number: int) -> None:
        child = self._children.get(number)
        if child is None:
            return
        context = self.context
        node_id = child.to.node_id
        if context.env.now() >= child.work.deadline:
            self._lost(number, child)
            return
        if not child.alive and context.peers.last_received(node_id) <= child.sent:
            if not child.silent:
                self._ask(child)
            else:
                child.silent += 1
                # The first time all that it has goes elsewhere; later others may have become known.
                context.mark_unresponsive(node_id)
                if number in self._children and not child.only_its_own:
                    self._divide_again(number, child)
                if number not in self._children:
                    return
        self.send_child(number, child)

    def _ask(self, child: Child) -> None:
        """Whether it lives is known sooner than whether its whole part is done."""
        child.silent = 1
        self.context.request(child.to, lambda ping: Ping(ping, self.context.peer, ()), _no_matter)

    def _lost(self, number: int, child: Child) -> None:
        self.context.cancel(child.timer)
        del self._children[number]
        self.context.count("cast_parts_lost")
        child.work.failed(Why.DEADLINE)
        child.work.children -= 1
        self._finish_if_done(child.work)

    def give_elsewhere(self, number: int, child: Child, attempt: int | None = None) -> None:
        """Divide the part anew after a back-off, in which the lists are repaired."""
        self.context.cancel(child.timer)
        context = self.context
        if attempt is None:
            # To look whether somebody is known by now costs nobody anything.
            attempt = child.attempt if child.sends else min(child.attempt, 1)
        wait = context.back_off(attempt)
        left = max(0.0, child.work.deadline - context.env.now())
        child.timer = context.later(min(wait, left), self._divide_again, number, child)

    def _divide_again(self, number: int, child: Child) -> None:
        if self._children.get(number) is not child:
            return
        if self.context.env.now() >= child.work.deadline:
            self._lost(number, child)
            return
        del self._children[number]
        work, message = child.work, child.message
        line = self.context.number() if child.sends else message.line
        self.spread(message._replace(depth=message.depth - 1, line=line), work, child.attempt + 1)
        work.children -= 1
        self._finish_if_done(work)

    def _finish_if_done(self, work: Work) -> None:
        done = None if work.children else self._done.pop(work.part, None)
        if done is None:
            return
        tree = b""
        if work.message.trace:
            tree = write_tree(self.context.node_id, work.message.depth, work.own, work.trees)
        ack = work.ack._replace(why=work.why, hops=work.ack.hops + work.hops, tree=tree)
        taken = self.history.get(work.id)
        if taken is not None:
            self.history.done(taken, work, ack)
        waiting, work.waiting = work.waiting, []
        done(ack)
        for other in waiting:
            other.attached.remove(work)
            other.add(ack._replace(hops=0))
            other.children -= 1
            self._finish_if_done(other)


def _no_matter(answer: object) -> None:
    """Who gives none is suspected, and that is all there is to it."""
