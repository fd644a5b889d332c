"""Range casts: one query to every key of a range (thesis 2.2.5, 4.1).

How a query is divided is :mod:`algorithms.overlay.routing`'s matter; this is who remembers what. An
unreliable cast leaves nothing behind but its number. With a reliable one every node keeps its part
until the nodes it has handed parts on to have acknowledged, and then acknowledges to the one above it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct, error
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from algorithms.overlay.context import Context
from algorithms.overlay.keys import Range, Ref
from algorithms.overlay.messages import Cast, CastAck, CastBusy, OverlayError, Ping
from algorithms.overlay.routing import Forward, Routing, split
from algorithms.overlay.tables import Table
from ildm.api import Peer, Timer

if TYPE_CHECKING:
    from algorithms.overlay.finder import Finder

__all__ = ["Arrival", "CastResult", "Caster"]

ROUTINGS: tuple[Routing, ...] = get_args(Routing)

_COUNTS = Struct(">HHHH")
"""Of a node in the tree of a trace: length of its id, depth, keys, children."""
_TREE_BYTES_PER_NODE = 64
_TRIES = 3
"""How often a part of an unreliable cast waits for a neighbour to be known."""
_STRAYS = 4
"""Nodes without the key they were chosen for that a copy goes through at most."""


class Arrival(NamedTuple):
    """A cast has reached own keys."""

    id: tuple[str, int]
    """Node id of the origin, and the number of the cast there."""
    origin: Peer
    keys: list[bytes]
    """Own keys in the range, ascending; those that had it before are not among them."""
    payload: bytes
    depth: int
    """Hops from the origin."""


class CastResult(NamedTuple):
    """What came of a reliable cast or a trace."""

    complete: bool
    """Every part of the range has been acknowledged by nodes that knew their neighbours; README.md tells
    of the keys that may be passed over."""
    nodes: int
    """Nodes with keys in the range; one that was reached twice counts twice."""
    keys: int
    hops: int
    """Messages sent from node to node, those sent again among them; acknowledgements are not."""
    depth: int
    tree: Any
    """Of a trace: {"node", "keys" (bytes), "depth", "children": [...]}; else None."""


class _View:
    """The tables without the nodes to be avoided."""

    def __init__(self, table: Table, avoid: Callable[[str], bool]) -> None:
        self.keys = table.keys
        self._table = table
        self._avoid = avoid

    def neighbors(self, key: bytes) -> Sequence[tuple[Ref | None, Ref | None]]:
        return [(self._known(left), self._known(right)) for left, right in self._table.neighbors(key)]

    def _known(self, ref: Ref | None) -> Ref | None:
        return None if ref is None or self._avoid(ref.peer.node_id) else ref


class _Work:
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


class _Child:
    """A part handed on to another node, until it has acknowledged."""

    __slots__ = ("attempt", "message", "silent", "timer", "to", "work")

    def __init__(self, work: _Work, to: Peer, message: Cast, attempt: int) -> None:
        self.work = work
        self.to = to
        self.message = message
        self.attempt = attempt
        self.silent = 0
        self.timer: Timer | None = None


class Caster:
    """The casts of one node and its part in those of others."""

    def __init__(self, context: Context, table: Table, finder: Finder) -> None:
        self.context = context
        self.table = table
        self.finder = finder
        self.delivered: Callable[[Arrival], None] = lambda arrival: None
        self.control: Callable[[bytes], None] = lambda payload: None
        """Gets the payload of a cast that is the overlay's own."""
        self.holds: Callable[[bytes], bool] = lambda key: False
        """Whether casts to an own key must wait, as it does not know its neighbours yet."""
        self._held: dict[bytes, list[Cast]] = {}
        self._seen: dict[tuple[str, int], tuple[bytes, ...]] = {}
        self._works: dict[tuple[str, int], _Work] = {}
        self._answers: dict[tuple[str, int], CastAck] = {}
        self._children: dict[int, _Child] = {}
        self._view = _View(table, context.avoid)
        self._waiting = 0
        """Parts of unreliable casts that wait."""

    @property
    def busy(self) -> bool:
        """Reliable casts, own ones or parts of others', are under way."""
        return bool(self._works)

    def cast(
        self,
        target: Range,
        payload: bytes,
        routing: Routing,
        *,
        reliable: bool,
        trace: bool,
        deliver: bool,
        turn: int,
        done: Callable[[CastResult], None] | None,
        control: bool = False,
    ) -> None:
        """See :meth:`algorithms.overlay.graph.SkipGraph.cast`."""
        context = self.context
        message = Cast(
            context.number(),
            context.peer,
            context.peer,
            0,
            target.low,
            target.high,
            ROUTINGS.index(routing),
            reliable or trace,
            trace,
            deliver and not trace,
            control,
            0,
            b"",
            0,
            turn & 0xFFFF,
            (),
            payload,
        )
        if not message.reliable:
            self._spread(message, None)
            return

        def acknowledged(ack: CastAck) -> None:
            if done is not None:
                tree = _read_tree(ack.tree) if ack.tree else None
                done(CastResult(ack.complete, ack.nodes, ack.keys, ack.hops, ack.depth, tree))

        if len(self._works) >= context.config.pending_casts:
            context.count("pending_casts_full")
            context.later(0.0, acknowledged, CastAck(0, False, 0, 0, 0, 0, b""))
            return
        self._begin((context.node_id, message.number), message, acknowledged)

    # messages -----------------------------------------------------------------------------------

    def on_cast(self, message: Cast) -> None:
        if message.routing >= len(ROUTINGS):
            raise OverlayError(f"routing {message.routing} of a cast is unknown")
        if message.at and self.holds(message.at):
            self._hold(message)
            return
        if message.at and not self.table.present(message.at, 0):
            # Tables that point to a key which has left can lead back and forth.
            message = message._replace(strays=min(message.strays + 1, _STRAYS))
            if message.strays == _STRAYS:
                self.context.count("casts_astray")
                if message.reliable:
                    self.context.send(message.parent, CastBusy(message.request, True))
                return
        if not message.reliable:
            self._spread(message, None)
            return
        key = message.parent.node_id, message.request
        answer = self._answers.get(key)
        if answer is not None:
            self.context.send(message.parent, answer)
        elif key in self._works:
            self.context.send(message.parent, CastBusy(message.request, False))
        elif len(self._works) >= self.context.config.pending_casts:
            # Without an answer, the sender tries again later.
            self.context.count("pending_casts_full")
        else:
            self._begin(key, message, lambda ack: self._answer(key, message.parent, ack))

    def _hold(self, message: Cast) -> None:
        """A left neighbour that has agreed to a new key may send casts which overtake its answer."""
        if sum(map(len, self._held.values())) >= self.context.config.pending_casts:
            self.context.count("held_casts_full")
        else:
            self._held.setdefault(message.at, []).append(message)

    def release(self, key: bytes) -> None:
        """Go on with the casts that waited for an own key."""
        if self._held and not self.holds(key):
            for message in self._held.pop(key, ()):
                self.on_cast(message)

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
        if ack.tree and sum(map(len, work.trees)) < self.context.config.trace_nodes * _TREE_BYTES_PER_NODE:
            work.trees.append(ack.tree)
        work.complete = work.complete and ack.complete
        work.children -= 1
        self._finish_if_done(work)

    def on_busy(self, message: CastBusy) -> None:
        child = self._children.get(message.request)
        if child is None:
            return
        if message.missed:
            self._give_elsewhere(message.request, child)
        else:
            child.silent = 0

    def suspected(self, node_id: str) -> None:
        """Hand the parts of a suspected node on to others."""
        for number, child in list(self._children.items()):
            if child.to.node_id == node_id and number in self._children:
                self._give_elsewhere(number, child)

    # spreading ------------------------------------------------------------------------------------

    def _spread(self, message: Cast, work: _Work | None, attempt: int = 0) -> None:
        """Deliver to own keys and hand on the rest. ``attempt``: 0, or a part given out before is divided."""
        context, table = self.context, self.table
        target = Range(message.low, message.high)
        if not table.keys():
            self._pass_on(message, work, attempt)
            return
        routing = ROUTINGS[message.routing]
        own, forwards = split(table, target, routing, frozenset(message.extra))
        if own and attempt == 0:
            first = self._deliver(message, own)
            if routing.startswith("broadcast") and not first:
                return
            if work is not None:
                work.own = own
                work.ack = work.ack._replace(nodes=1, keys=len(own))
        unknown = [
            gap
            for gap in table.unknown(target)
            if not any(gap.low < part.high and part.low < gap.high for _, part, _ in forwards)
        ]
        if not forwards and not unknown:
            return
        if message.depth >= context.config.max_depth:
            context.count("hops_exceeded")
            if work is not None:
                work.complete = False
            return
        copy = message._replace(parent=context.peer, depth=message.depth + 1)
        for forward in forwards:
            self._forward(forward, routing, copy, work, attempt)
        for gap in unknown:
            self._try_later(copy._replace(low=gap.low, high=gap.high, at=b""), work, attempt)

    def _forward(
        self, forward: Forward, routing: Routing, copy: Cast, work: _Work | None, attempt: int
    ) -> None:
        """Send one copy; the part of a node to be avoided goes to others, and waits where none is known."""
        if not self.context.avoid(forward.to.peer.node_id):
            self._hand_on(_part(copy, forward), forward.to.peer, work, attempt)
            return
        # Seen from outside the part, for the own keys have been served.
        others = [
            other
            for other in split(self._view, forward.target, routing, frozenset(copy.extra)).forwards
            if other.to.key in forward.target
        ]
        for other in others:
            self._hand_on(_part(copy, other), other.to.peer, work, attempt)
        if others:
            return
        self.context.count("cast_parts_delayed" if work is not None else "cast_parts_lost")
        if work is not None:
            number, child = self._new_child(_part(copy, forward), forward.to.peer, work, attempt)
            self._give_elsewhere(number, child)

    def _try_later(self, part: Cast, work: _Work | None, attempt: int) -> None:
        """Wait until an own key has heard of its place; only then it is known who comes next to it."""
        context = self.context
        if work is not None:
            context.count("cast_parts_delayed")
            self._give_elsewhere(*self._new_child(part, context.peer, work, attempt))
        elif attempt >= _TRIES or self._waiting >= context.config.pending_casts:
            context.count("cast_parts_lost")
        else:
            context.count("cast_parts_delayed")
            self._waiting += 1
            context.later(context.back_off(attempt), self._try_again, part, attempt + 1)

    def _try_again(self, part: Cast, attempt: int) -> None:
        self._waiting -= 1
        self._spread(part._replace(depth=part.depth - 1), None, attempt)

    def _pass_on(self, message: Cast, work: _Work | None, attempt: int) -> None:
        """A node whose keys have left knows its former neighbours."""
        peer = self.finder.successor()
        if peer is None or message.depth >= self.context.config.max_depth:
            self.context.count("nowhere_to_go")
            if work is not None:
                work.complete = False
            return
        copy = message._replace(parent=self.context.peer, depth=message.depth + 1, at=b"")
        self._hand_on(copy, peer, work, attempt)

    def _hand_on(self, copy: Cast, to: Peer, work: _Work | None, attempt: int) -> None:
        if work is None:
            self.context.send(to, copy, copy.turn)
        else:
            self._send_child(*self._new_child(copy, to, work, attempt))

    def _new_child(self, copy: Cast, to: Peer, work: _Work, attempt: int) -> tuple[int, _Child]:
        number = self.context.number()
        child = self._children[number] = _Child(work, to, copy._replace(request=number), attempt)
        work.children += 1
        return number, child

    def _send_child(self, number: int, child: _Child) -> None:
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
                self._give_elsewhere(number, child)
        else:
            if not child.silent:
                # It is asked whether it lives, which is known sooner than whether its whole part is done.
                self.context.request(child.to, lambda ping: Ping(ping, self.context.peer, ()), _no_matter)
            child.silent += 1
            self._send_child(number, child)

    def _lost(self, number: int, child: _Child) -> None:
        self.context.cancel(child.timer)
        del self._children[number]
        self.context.count("cast_parts_lost")
        child.work.complete = False
        child.work.children -= 1
        self._finish_if_done(child.work)

    def _give_elsewhere(self, number: int, child: _Child) -> None:
        """Divide the part anew after a back-off, in which the lists are repaired."""
        self.context.cancel(child.timer)
        child.timer = self.context.later(
            self.context.back_off(child.attempt), self._divide_again, number, child
        )

    def _divide_again(self, number: int, child: _Child) -> None:
        if self._children.get(number) is not child:
            return
        if self.context.env.now() >= child.work.deadline:
            self._lost(number, child)
            return
        del self._children[number]
        work = child.work
        self._spread(child.message._replace(depth=child.message.depth - 1), work, child.attempt + 1)
        work.children -= 1
        self._finish_if_done(work)

    def _deliver(self, message: Cast, own: list[bytes]) -> bool:
        """Give own keys the message that have not had it; whether there was one."""
        number = message.origin.node_id, message.number
        before = self._seen.get(number)
        if before is None:
            keys = own
            if len(self._seen) >= self.context.config.seen:
                del self._seen[next(iter(self._seen))]
            self._seen[number] = tuple(own)
        else:
            keys = [key for key in own if key not in before]
            if not keys:
                self.context.count("repeated_copies")
                return False
            self._seen[number] = (*before, *keys)
        if message.control:
            self.control(message.payload)
        elif message.deliver:
            arrival = Arrival(number, message.origin, keys, message.payload, message.depth)
            self.delivered(arrival)
        return True

    # acknowledging ----------------------------------------------------------------------------------

    def _begin(self, key: tuple[str, int], message: Cast, done: Callable[[CastAck], None]) -> None:
        def finished(ack: CastAck) -> None:
            del self._works[key]
            done(ack)

        work = self._works[key] = _Work(
            message, finished, self.context.env.now() + self.context.config.cast_deadline
        )
        # Held open until all parts are given out: an own part may be done at once.
        work.children += 1
        self._spread(message, work)
        work.children -= 1
        self._finish_if_done(work)

    def _finish_if_done(self, work: _Work) -> None:
        if work.children:
            return
        tree = _write_tree(self.context.node_id, work) if work.message.trace else b""
        work.done(work.ack._replace(complete=work.complete, hops=work.ack.hops + work.hops, tree=tree))


def _no_matter(answer: object) -> None:
    """Who gives none is suspected, and that is all there is to it."""


def _part(copy: Cast, forward: Forward) -> Cast:
    low, high = forward.target
    return copy._replace(low=low, high=high, at=forward.to.key, extra=forward.extra)


def _write_tree(node_id: str, work: _Work) -> bytes:
    name = node_id.encode()
    counts = _COUNTS.pack(len(name), work.message.depth, min(len(work.own), 0xFFFF), len(work.trees))
    keys = [len(key).to_bytes(2, "big") + key for key in work.own[:0xFFFF]]
    return b"".join((counts, name, *keys, *work.trees))


def _read_tree(data: bytes) -> dict[str, Any]:
    """The tree that :func:`_write_tree` wrote, node before children; raises OverlayError."""
    root: dict[str, Any] = {"children": []}
    above: list[tuple[dict[str, Any], int]] = [(root, 1)]
    at = 0
    try:
        while above:
            parent, missing = above.pop()
            if not missing:
                continue
            above.append((parent, missing - 1))
            length, depth, count, children = _COUNTS.unpack_from(data, at)
            at += _COUNTS.size
            name = data[at : at + length].decode()
            at += length
            keys = []
            for _ in range(count):
                start, at = at + 2, at + 2 + int.from_bytes(data[at : at + 2], "big")
                keys.append(data[start:at])
            node: dict[str, Any] = {"node": name, "keys": keys, "depth": depth, "children": []}
            parent["children"].append(node)
            above.append((node, children))
    except (error, UnicodeDecodeError) as cause:
        raise OverlayError("the tree of a trace is malformed") from cause
    result: dict[str, Any] = root["children"][0]
    return result
