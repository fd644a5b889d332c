"""Range casts: one query to every key of a range (thesis 2.2.5, 4.1).

How a query is divided is the matter of `routing.py`; here own keys get it, each once,
and the parts of others are sent. An unreliable cast leaves nothing behind but its number; what is kept of a
reliable one is in :mod:`ildm_algorithms.overlay.casts.parts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ildm.api import Peer
from ildm_algorithms.overlay.casts.detours import Detours
from ildm_algorithms.overlay.casts.history import CastId, Work, without
from ildm_algorithms.overlay.casts.parts import CastParts
from ildm_algorithms.overlay.casts.plans import CastPlan, CastPlans, part_of
from ildm_algorithms.overlay.casts.routing import Forward, Routing
from ildm_algorithms.overlay.casts.trees import read_tree
from ildm_algorithms.overlay.context import Context
from ildm_algorithms.overlay.keys import Range, Ref
from ildm_algorithms.overlay.lists.tables import Table
from ildm_algorithms.overlay.wire.messages import Cast, CastAck, CastBusy, OverlayError, Why

if TYPE_CHECKING:
    from ildm_algorithms.overlay.lists.finder import Finder

__all__ = ["Arrival", "CastResult", "Caster"]

_TRIES = 3
"""How often a part of an unreliable cast waits for a neighbour to be known."""
_CLOSED = 1.5
"""Ping intervals until whoever stood in a gap that was closed has noticed that, too."""
_GAPS = 256
"""Gaps remembered at most."""
_HELD = 400
"""Bytes a copy that waits needs besides its payload."""
_UNRESPONSIVE = 8
"""Unresponsive nodes that a copy names."""
_STRAYS = 4
"""Nodes without the key they were chosen for that a copy goes through at most."""
_ENTERING = 128
"""Steps of a copy to a range; in a graph of a million nodes some 20 lead anywhere."""


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
    age: float = 0.0
    """Of a reliable one: seconds for which nodes have had it; the time on the wire is not among them."""


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
    why: str = ""
    """Why it is not complete: ``deadline``, ``full`` (as many under plan as there may be) or ``no plan``."""


class _View:
    """The tables without the nodes to be avoided."""

    def __init__(self, table: Table, avoid: Callable[[str], bool]) -> None:
        self.keys = table.keys
        self._table = table
        self._avoid = avoid

    def neighbors(self, key: bytes) -> Sequence[tuple[Ref | None, Ref | None]]:
        return [(self._known(left), self._known(right)) for left, right in self._table.neighbors(key)]

    def entries(self, target: Range) -> Sequence[Ref]:
        return [ref for ref in self._table.entries(target) if self._known(ref) is not None]

    def _known(self, ref: Ref | None) -> Ref | None:
        return None if ref is None or self._avoid(ref.peer.node_id) else ref


Notes = Callable[[Cast, Sequence[bytes], Sequence[Forward]], Sequence[bytes | None]]
"""Divides the note of a cast among its copies: message, own keys it has reached for the first time, copies.

A copy without a note (None) of a cast that is not delivered to anybody is not sent.
"""


class Caster:
    """The casts of one node and its part in those of others."""

    def __init__(
        self,
        context: Context,
        table: Table,
        finder: Finder,
        routings: Iterable[Routing],
        *,
        holds: Callable[[bytes], bool],
        notes: Notes,
        strayed: Callable[[Cast], None],
    ) -> None:
        """``holds``: whether casts to an own key must wait, as it does not know its neighbours yet.
        ``strayed`` is called when a copy has come to a key that is not here."""
        self.context = context
        self.table = table
        self.finder = finder
        self.parts = CastParts(context, self._spread)
        self._detours = Detours(context, table)
        self.delivered = context.hooks.delivered
        self.holds = holds
        self.notes = notes
        self.strayed = strayed
        self._routings: dict[int, Routing] = {}
        for routing in routings:
            if not 0 <= routing.code <= 0xFF or routing.code in self._routings:
                raise OverlayError(f"routing {routing} cannot have the code {routing.code}")
            self._routings[routing.code] = routing
        self._held: dict[bytes, list[Cast]] = {}
        self._gaps: dict[tuple[bytes, bool], float] = {}
        """Own keys, and whether on their right, next to which a gap was closed; until when that may be
        wrong."""
        self._held_bytes = 0
        self._strange_until = 0.0
        self._seen: dict[CastId, tuple[bytes, ...]] = {}
        """Own keys that unreliable casts have reached."""
        self._view = _View(table, context.is_unresponsive)
        self.plans = CastPlans(context, table, self._routings, self._reach, holds)

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
        entry: Ref | None = None,
        note: bytes = b"",
    ) -> None:
        """See :meth:`ildm_algorithms.overlay.graph.SkipGraph.cast`."""
        context = self.context
        if self._routings.get(routing.code) is not routing:
            raise OverlayError(f"the graph was not made with the routing {routing}")
        message = Cast(
            number=context.number(),
            origin=context.peer,
            parent=context.peer,
            request=0,
            low=target.low,
            high=target.high,
            routing=routing.code,
            reliable=reliable or trace,
            trace=trace,
            deliver=deliver and not trace,
            control=control,
            left=round(context.config.cast_deadline * 100) if reliable or trace else 0,
            turn=turn & 0xFFFF,
            note=note,
            payload=payload,
        )
        spread = self._spread if entry is None else partial(self._enter, entry)
        if not message.reliable:
            spread(message, None, 0)
            return

        def acknowledged(ack: CastAck) -> None:
            if done is not None:
                tree = read_tree(ack.tree) if ack.tree else None
                why = Why(ack.why).name.lower().replace("_", " ") if ack.why else ""
                done(CastResult(not ack.why, ack.nodes, ack.keys, ack.hops, ack.depth, tree, why))

        part = context.node_id, message.number
        if not self.parts.begin(part, message, acknowledged, divides=not routing.floods, spread=spread):
            context.later(0.0, acknowledged, CastAck(0, Why.FULL, 0, 0, 0, 0, b""))

    # messages -----------------------------------------------------------------------------------

    def on_cast(self, message: Cast) -> None:
        routing = self._routings.get(message.routing)
        if routing is None:
            raise OverlayError(f"routing {message.routing} of a cast is unknown")
        if message.at and self.holds(message.at):
            self._hold(message)
            return
        if message.at and not self.table.present(message.at, 0):
            self.strayed(message)
            # Tables that point to a key which has left can lead back and forth.
            message = message._replace(strays=min(message.strays + 1, _STRAYS))
            if message.strays == _STRAYS:
                self.context.count("casts_astray")
                if message.reliable:
                    self.context.send(message.parent, CastBusy(message.request, True, False))
                return
        if not message.reliable:
            self._spread(message, None)
            return
        if message.parent.node_id != self.context.node_id and self._is_strange():
            self.context.count("casts_astray")
            self.context.send(message.parent, CastBusy(message.request, True, False))
            return
        self.parts.on_cast(message, divides=not routing.floods)

    def _is_strange(self) -> bool:
        """Whether parts of others are meant for an earlier incarnation of this node. The node has its keys,
        but is not in their graph, or was not a moment ago. So it cannot hand on what they think."""
        now = self.context.env.now()
        if self.table.alone():
            self._strange_until = now + self.context.config.ping_interval
        return now < self._strange_until

    def _hold(self, message: Cast) -> None:
        """A left neighbour that has agreed to a new key may send casts which overtake its answer."""
        if self._keep(message):
            self._held.setdefault(message.at, []).append(message)
        else:
            self.context.count("held_casts_full")

    def release(self, key: bytes) -> None:
        """Go on with the casts that waited for an own key."""
        if self._held and not self.holds(key):
            for message in self._held.pop(key, ()):
                self._let_go(message)
                self.on_cast(message)

    # spreading ------------------------------------------------------------------------------------

    def _spread(self, message: Cast, work: Work | None, attempt: int = 0) -> None:
        """Deliver to own keys and hand on the rest. ``attempt``: 0, or a part given out before is divided."""
        context, table = self.context, self.table
        target = Range(message.low, message.high)
        if not table.keys():
            self._pass_on(message, work, attempt)
            return
        routing = self._routings[message.routing]
        if message.extra:
            own, forwards = routing.split(table, target, frozenset(message.extra))
        else:
            own, forwards = self.plans.split(routing, target)
        fresh: Sequence[bytes] = ()
        if own and attempt == 0:
            first = self._deliver(message, own)
            if routing.floods and not first:
                return
            if first:
                fresh = own
            if work is not None:
                work.reached(own)
        unknown = self._unknown(target, own, forwards, work)
        notes: Sequence[bytes | None] = [b""] * len(forwards)
        if message.note:
            notes = self.notes(message, fresh, forwards)
            if not message.deliver:
                # It is sent for its note alone, and only to where that is divided to.
                kept = [(f, n) for f, n in zip(forwards, notes, strict=True) if n and not self._avoids(f)]
                forwards, notes, unknown = [f for f, _ in kept], [n for _, n in kept], []
        if not forwards and not unknown:
            return
        # A part that no own key is in is on its way to where the division begins: with a neighbour missing
        # two nodes could hand it to and fro.
        if message.depth >= (context.config.max_depth if own else min(_ENTERING, context.config.max_depth)):
            context.count("hops_exceeded")
            if work is not None:
                work.failed(Why.NO_WAY)
            return
        copy = message._replace(parent=context.peer, depth=message.depth + 1, note=b"")
        for forward, note in zip(forwards, notes, strict=True):
            self._forward(forward, routing, copy._replace(note=note) if note else copy, work, attempt)
        for gap in unknown:
            self._try_later(copy._replace(low=gap.low, high=gap.high, at=b""), work, attempt)

    def _unknown(
        self, target: Range, own: Sequence[bytes], forwards: Sequence[Forward], work: Work | None
    ) -> list[Range]:
        """Parts of ``target`` that wait, as it is not known for the moment who is next to own keys there."""
        unknown = [gap for gap in self.table.unknown(target) if not _meets(gap, forwards)]
        if work is None or not self._gaps:
            return unknown
        closed = [gap for gap in self._closed(target) if gap not in unknown]
        if not own:
            # On its way it is handed on or waits, not both: while two nodes hand it to and fro, each of
            # the copies that wait would become as many again.
            closed = [gap for gap in closed if not _meets(gap, forwards)]
        if self.parts.crowded:
            self.context.count("gaps_unchecked", len(closed))
            return unknown
        return unknown + closed

    def closed(self, key: bytes, right: bool) -> None:
        """The neighbour of an own key is lost, and a farther one is now.

        Keys between that had nobody but the lost one beside them may live, and come back when they notice.
        """
        if len(self._gaps) >= _GAPS:
            del self._gaps[next(iter(self._gaps))]
            self.context.count("gaps_full")
        context = self.context
        self._gaps[key, right] = context.env.now() + _CLOSED * context.config.ping_interval
        self.parts.others_known()

    def _closed(self, target: Range) -> Iterator[Range]:
        """Parts of ``target`` that have been closed a short time ago, as they are now."""
        now = self.context.env.now()
        self._gaps = {at: until for at, until in self._gaps.items() if until > now}
        for key, right in self._gaps:
            levels = self.table.neighbors(key)
            if not levels:
                continue
            ref = levels[0][right]
            if right:
                low, high = key + b"\0", target.high if ref is None else ref.key
            else:
                low, high = target.low if ref is None else ref.key + b"\0", key
            low, high = max(low, target.low), min(high, target.high)
            if low < high:
                yield Range(low, high)

    def _enter(self, entry: Ref, message: Cast, work: Work | None, attempt: int) -> None:
        """Begin at a node the caller has named: it divides the range, and own keys are reached from there."""
        if entry.peer.node_id == self.context.node_id or self.context.is_unresponsive(entry.peer.node_id):
            self._spread(message, work, attempt)
            return
        copy = message._replace(parent=self.context.peer, depth=1, at=entry.key)
        # If that fails the whole range is divided here, for the first time: own keys have not been served.
        self._hand_on(copy, entry.peer, work, attempt - 1)

    def _avoids(self, forward: Forward) -> bool:
        return self.context.avoid(forward.to.peer.node_id)

    def _forward(
        self, forward: Forward, routing: Routing, copy: Cast, work: Work | None, attempt: int
    ) -> None:
        """Send one copy; what others can do is not asked of a node that does not answer.

        The part of a suspected one waits where nobody else is known for it.
        """
        context, to, target = self.context, forward.to, forward.target
        avoid = self._avoids(forward)
        if not avoid and (routing.floods or not context.is_unresponsive(to.peer.node_id)):
            self._hand_on(part_of(copy, forward), to.peer, work, attempt)
            return
        mine = Range(to.key, to.key + b"\0") if to.key in target and not avoid else None
        named = to.peer.node_id in copy.unresponsive
        if not named:
            # They would find out for themselves, one after the other.
            copy = copy._replace(unresponsive=(*copy.unresponsive, to.peer.node_id)[-_UNRESPONSIVE:])
        rest = [target] if mine is None else without([target], mine)
        for part in rest:
            # Seen from outside the part, for the own keys have been served.
            others = [
                other
                for other in routing.split(self._view, part, frozenset(copy.extra)).forwards
                # What lies beyond the farthest neighbour, one on the way there may know; always on the way
                # from the left, as two nodes could hand a part to and fro.
                if other.to.key < part.high
            ]
            left: list[Range] = []
            if not others:
                others, left = ([], [part]) if routing.floods else self._detours.find(to.key, part, named)
            for other in others:
                self._hand_on(part_of(copy, other), other.to.peer, work, attempt)
                copy = copy._replace(note=b"")
            for low, high in left:
                if not avoid:
                    mine = (
                        Range(low, high) if mine is None else Range(min(mine.low, low), max(mine.high, high))
                    )
                    continue
                context.count("cast_parts_delayed" if work is not None else "cast_parts_lost")
                if work is not None:
                    waits = part_of(copy, forward._replace(target=Range(low, high)))
                    self.parts.give_elsewhere(*self.parts.new_child(waits, to.peer, work, attempt))
        if mine is not None:
            self._hand_on(part_of(copy, forward._replace(target=mine)), to.peer, work, attempt)

    def _try_later(self, part: Cast, work: Work | None, attempt: int) -> None:
        """Wait until an own key has received its place; only then it is known who comes next to it."""
        context = self.context
        if work is not None:
            context.count("cast_parts_delayed")
            self.parts.give_elsewhere(*self.parts.new_child(part, context.peer, work, attempt))
        elif attempt >= _TRIES or not self._keep(part):
            context.count("cast_parts_lost")
        else:
            context.count("cast_parts_delayed")
            context.later(context.back_off(attempt), self._try_again, part, attempt + 1)

    def _try_again(self, part: Cast, attempt: int) -> None:
        self._let_go(part)
        self._spread(part._replace(depth=part.depth - 1), None, attempt)

    def _keep(self, message: Cast) -> bool:
        """Whether there is room for a copy that waits; then it counts."""
        size = _HELD + len(message.payload)
        if self._held_bytes + size > self.context.config.held_bytes:
            return False
        self._held_bytes += size
        return True

    def _let_go(self, message: Cast) -> None:
        self._held_bytes -= _HELD + len(message.payload)

    def _pass_on(self, message: Cast, work: Work | None, attempt: int) -> None:
        """A node whose keys have left knows its former neighbours."""
        peer = self.finder.successor()
        if peer is None or message.depth >= self.context.config.max_depth:
            self.context.count("nowhere_to_go")
            if work is not None:
                work.failed(Why.NO_WAY)
            return
        copy = message._replace(parent=self.context.peer, depth=message.depth + 1, at=b"")
        self._hand_on(copy, peer, work, attempt)

    def _hand_on(self, copy: Cast, to: Peer, work: Work | None, attempt: int) -> None:
        if work is None:
            self.context.send(to, copy, copy.turn)
        else:
            self.parts.send_child(*self.parts.new_child(copy, to, work, attempt))

    def _deliver(self, message: Cast, own: list[bytes]) -> bool:
        """Give own keys the message that have not had it; whether there was one."""
        number = message.origin.node_id, message.number
        taken = self.parts.history.get(number) if message.reliable else None
        keys = self._new(number, own) if taken is None else self.parts.history.reached(taken, own)
        if not keys:
            self.context.count("repeated_copies")
            return False
        if message.control:
            self.context.events.control(message.payload)
        elif message.deliver:
            config = self.context.config
            age = max(0.0, config.cast_deadline - message.left / 100) if message.reliable else 0.0
            arrival = Arrival(number, message.origin, keys, message.payload, message.depth, age)
            self.delivered(arrival)
        return True

    def _reach(self, number: CastId, plan: CastPlan, tail: bytes) -> None:
        """Give own keys an unreliable cast; ``tail``: its payload, with the length before it."""
        keys = self._new(number, plan.own)
        if keys:
            self.delivered(Arrival(number, plan.origin, keys, tail[4:], plan.depth))
        else:
            self.context.count("repeated_copies")

    def _new(self, number: CastId, own: list[bytes]) -> list[bytes]:
        """Own keys that an unreliable cast has not reached before."""
        before = self._seen.get(number)
        if before is None:
            if len(self._seen) >= self.context.config.seen:
                del self._seen[next(iter(self._seen))]
            self._seen[number] = tuple(own)
            return list(own)
        keys = [key for key in own if key not in before]
        self._seen[number] = (*before, *keys)
        return keys


def _meets(gap: Range, forwards: Sequence[Forward]) -> bool:
    """Whether some of it is handed on."""
    return any(gap.low < part.high and part.low < gap.high for _, part, _ in forwards)
