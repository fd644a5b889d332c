"""Plans of unreliable casts: what a node does with copies that differ only in their number and payload.

Messages of one publisher on one topic take the same way while the tables of the nodes stay the same. So the
division of the range is worked out once, with the copies to be sent as bytes. Further copies are known by the
bytes between their number and their payload. What is not plain (a note, unresponsive nodes, neighbours that
are not known, keys that are not here) is left to the
:class:`~ildm_algorithms.overlay.casts.casting.Caster`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from struct import Struct
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from ildm_algorithms.overlay.keys import Range, Ref
from ildm_algorithms.overlay.wire.messages import FORMATS, Cast

if TYPE_CHECKING:
    from ildm.api import Peer
    from ildm_algorithms.overlay.casts.history import CastId
    from ildm_algorithms.overlay.casts.routing import Forward, Routing, Step
    from ildm_algorithms.overlay.context import Context
    from ildm_algorithms.overlay.lists.tables import Table

__all__ = ["BODY", "CAST", "CastPlan", "CastPlans", "part_of", "plain_body"]

BODY = 9
"""Where in a :class:`Cast` the bytes between its number and its payload begin."""
_PLAN = 700
"""Bytes a plan needs besides those of its copies."""
_COPY = 200
"""The same for each of them."""
CAST = bytes(format.code for format in FORMATS if format.kind is Cast)
"""What a cast begins with."""
_number = Struct(">Q").pack
_length = Struct(">I").pack


class CastPlan(NamedTuple):
    """What a node does with each of many casts, or copies of casts, that are alike."""

    origin: Peer
    at: bytes
    """The key for which this node was chosen; empty at the origin."""
    own: list[bytes]
    """Own keys it reaches."""
    depth: int
    turn: int
    copies: list[tuple[Peer, bytes]]
    """To whom, and what comes between number and payload."""
    size: int


def plain_body(data: bytes) -> int:
    """Where the body of an unreliable cast ends that is written like :class:`Cast`; 0 for others.

    0 also where it has a note, names unresponsive nodes, has what :attr:`Forward.extra` tells, or is cut off.
    """
    try:
        at = BODY
        at += 2 + (data[at] << 8 | data[at + 1])  # origin
        at += 10 + (data[at] << 8 | data[at + 1])  # parent, request
        at += 2 + (data[at] << 8 | data[at + 1])  # low
        at += 2 + (data[at] << 8 | data[at + 1])  # high
        if data[at + 1] or data[at + 4]:  # reliable, control
            return 0
        at += 7
        at += 15 + (data[at] << 8 | data[at + 1])  # at, strays, line, left, turn
        end = at + 6
        return 0 if any(data[at:end]) or not data[end - 1 : end] else end  # unresponsive, extra, note
    except IndexError:
        return 0


def part_of(copy: Cast, forward: Forward) -> Cast:
    """The copy of a cast that goes to one of those that a node hands it on to."""
    low, high = forward.target
    return copy._replace(low=low, high=high, at=forward.to.key, extra=forward.extra)


Value = TypeVar("Value")


class Remembered(Generic[Value]):
    """What was worked out from the tables: void with each change of them; at the bound the oldest goes."""

    def __init__(self, context: Context, table: Table) -> None:
        self.context = context
        self.table = table
        self.values: dict[Hashable, tuple[Value, int]] = {}
        self.bytes = 0
        self._changes = table.changes

    def get(self, sought: Hashable) -> Value | None:
        if self._changes != self.table.changes:
            self._changes = self.table.changes
            self.values.clear()
            self.bytes = 0
        found = self.values.get(sought)
        return None if found is None else found[0]

    def check_sums(self) -> None:
        """Count all again that is counted as it changes. Raises: AssertionError, it was counted wrong."""
        size = sum(size for _, size in self.values.values())
        assert size == self.bytes, f"values of {size} bytes count {self.bytes}"

    def put(self, sought: Hashable, value: Value, size: int) -> None:
        """Remember what :meth:`get` did not know, unless it is larger than all there is room for."""
        most = self.context.config.way_bytes // 3  # of a node there are up to three of these
        while self.values and self.bytes + size > most:
            self.context.count("ways_displaced")
            self.bytes -= self.values.pop(next(iter(self.values)))[1]
        if size <= most:
            self.values[sought] = value, size
            self.bytes += size


class CastPlans:
    """The plans of one node."""

    def __init__(
        self,
        context: Context,
        table: Table,
        routings: Mapping[int, Routing],
        reach: Callable[[CastId, CastPlan, bytes], None],
        holds: Callable[[bytes], bool],
    ) -> None:
        """``reach`` gives own keys a cast; the bytes are its payload with the length before it. ``holds``:
        whether casts to an own key must wait."""
        self.context = context
        self.table = table
        self.routings = routings
        self.reach = reach
        self.holds = holds
        self._plans: Remembered[CastPlan] = Remembered(context, table)
        self._steps: Remembered[Step] = Remembered(context, table)

    def split(self, routing: Routing, target: Range) -> Step:
        """How a range is divided, as the tables are; not to be changed."""
        sought = routing.code, target
        step = self._steps.get(sought)
        if step is None:
            step = routing.split(self.table, target)
            known = len(target.low) + len(target.high) + sum(map(len, step.own))
            self._steps.put(sought, step, _PLAN + known + _COPY * len(step.forwards))
        return step

    def begin(self, target: Range, payload: bytes, routing: Routing, turn: int, entry: Ref | None) -> bool:
        """Cast to a range; False: nothing was done, as it is not plain."""
        if self.routings.get(routing.code) is not routing:
            return False
        turn &= 0xFFFF
        sought = target, routing.code, turn, entry
        plan = self._plans.get(sought)
        if plan is None:
            peer = self.context.peer
            message = Cast(0, peer, peer, 0, target.low, target.high, routing.code, turn=turn)
            plan = self._learn(sought, message, entry)
        if plan is None or self._is_odd(plan):
            return False
        head = CAST + _number(self.context.number())
        self.context.run(self._follow, plan, head, _length(len(payload)) + payload)
        return True

    def relay(self, data: bytes) -> bool:
        """Take a copy that has come; False: nothing was done, as it is not plain, or no message at all."""
        end = plain_body(data)
        if not end or int.from_bytes(data[end : end + 4]) != len(data) - end - 4:
            return False
        body = data[BODY:end]
        plan = self._plans.get(body)
        if plan is None:
            message = self.context.codec.decode(data)
            plan = self._learn(body, message, None)
        if plan is None or self._is_odd(plan):
            return False
        self.context.run(self._follow, plan, data[:BODY], data[end:])
        return True

    def _is_odd(self, plan: CastPlan) -> bool:
        """Whether the moment is one at which it is not to be followed."""
        if plan.at and self.holds(plan.at):
            return True
        context = self.context
        return context.troubled and any(context.is_unresponsive(peer.node_id) for peer, _ in plan.copies)

    def _follow(self, plan: CastPlan, head: bytes, tail: bytes) -> None:
        """``head``: code and number; ``tail``: the payload, with its length before it."""
        context = self.context
        if plan.own:
            self.reach((plan.origin.node_id, int.from_bytes(head[1:])), plan, tail)
        for to, body in plan.copies:
            context.post(to, b"".join((head, body, tail)), plan.turn)

    # working it out -----------------------------------------------------------------------------

    def _learn(self, sought: Hashable, message: Cast, entry: Ref | None) -> CastPlan | None:
        plan = self._work_out(message, entry)
        if plan is not None:
            self._plans.put(sought, plan, plan.size)
        return plan

    def _work_out(self, message: Cast, entry: Ref | None) -> CastPlan | None:
        """None: it is not plain, for the time being."""
        context, table = self.context, self.table
        target = Range(message.low, message.high)
        routing = self.routings.get(message.routing)
        if routing is None or routing.floods or message.trace or not (message.deliver and table.keys()):
            return None
        if message.at and not table.present(message.at, 0):
            return None
        copy = message._replace(parent=context.peer, depth=message.depth + 1, number=0, payload=b"")
        own: list[bytes] = []
        if entry is not None and entry.peer.node_id != context.node_id:
            parts = [(entry.peer, copy._replace(at=entry.key))]
        else:
            own, forwards = self.split(routing, target)
            if next(iter(table.unknown(target)), None) is not None:
                return None
            if forwards and message.depth >= context.config.max_depth:
                return None
            parts = [(forward.to.peer, part_of(copy, forward)) for forward in forwards]
        if any(peer.node_id == context.node_id for peer, _ in parts):
            return None
        copies = [(peer, context.codec.encode(part)[BODY:-4]) for peer, part in parts]
        known = len(copy.low) + len(copy.high) + len(message.at) + sum(map(len, own))
        size = _PLAN + known + sum(_COPY + len(body) for _, body in copies)
        return CastPlan(message.origin, message.at, own, message.depth, message.turn, copies, size)
