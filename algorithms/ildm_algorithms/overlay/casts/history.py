"""What a node remembers of reliable casts, so that a copy sent again, or another way, does nothing twice.

A cast is remembered from its first copy until its origin has given it up and its last copy must have come.
At the bound new casts are refused; none that may still be sent again is forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from ildm_algorithms.overlay.context import Context
from ildm_algorithms.overlay.keys import Range
from ildm_algorithms.overlay.wire.messages import Cast, CastAck, Why

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["CastHistory", "CastId", "Done", "PartId", "Taken", "Work", "without"]

CastId = tuple[str, int]
"""Node id of the origin, and the number of the cast there."""
PartId = tuple[str, int]
"""Node id of the one that has handed a part on, and the number of the copy there."""

AT_ONCE = 100
"""Casts that are forgotten when a new one is taken."""
_MOST = 0x7FFF_FFFF
"""That are said to have been reached: what another node tells may be wrong, and sums have to fit."""
_CAST = 500
"""Bytes a cast needs besides what is counted."""
_PART = 350
_KEY = 60


class Done(NamedTuple):
    """A part that has been acknowledged."""

    target: Range
    ack: CastAck


class Work:
    """A part of a reliable cast that this node is answerable for."""

    __slots__ = (
        "ack",
        "asked",
        "attached",
        "children",
        "deadline",
        "hops",
        "message",
        "own",
        "part",
        "trees",
        "waiting",
        "why",
    )

    def __init__(self, part: PartId, message: Cast, deadline: float) -> None:
        self.part = part
        self.message = message
        self.deadline = deadline
        self.children = 0
        """Parts handed on, and parts of others waited for."""
        self.why = Why.COMPLETE
        self.hops = 0
        self.ack = CastAck(message.request, 0, 0, 0, 0, message.depth, b"")
        self.own: list[bytes] = []
        """Own keys it has reached."""
        self.trees: list[bytes] = []
        self.attached: list[Work] = []
        """Works of the same cast that serve parts of this one."""
        self.waiting: list[Work] = []
        """Works that are attached to this one."""
        self.asked = 0
        """How often its copy has come again."""

    @property
    def target(self) -> Range:
        return Range(self.message.low, self.message.high)

    @property
    def id(self) -> CastId:
        return self.message.origin.node_id, self.message.number

    def failed(self, why: Why) -> None:
        """Some of it was not reached; the first reason stays."""
        self.why = self.why or why

    def add(self, ack: CastAck) -> None:
        """Count what others have reached."""
        request, why, nodes, keys, hops, depth, tree = self.ack
        self.ack = CastAck(
            request,
            why,
            min(nodes + ack.nodes, _MOST),
            min(keys + ack.keys, _MOST),
            min(hops + ack.hops, _MOST),
            max(depth, ack.depth),
            tree,
        )
        if ack.why:
            self.failed(Why.of(ack.why))

    def reached(self, own: Sequence[bytes]) -> None:
        """Count own keys."""
        self.own += own
        request, why, nodes, keys, hops, depth, tree = self.ack
        self.ack = CastAck(request, why, nodes + 1, keys + len(own), hops, depth, tree)


class Taken:
    """One cast at this node."""

    __slots__ = ("bytes", "keys", "open", "parts", "until")

    def __init__(self, until: float) -> None:
        self.keys: tuple[bytes, ...] = ()
        """Own keys that have had it."""
        self.parts: dict[PartId, Work | Done] = {}
        self.until = until
        self.open = 0
        """Parts that are not done."""
        self.bytes = 0


class CastHistory:
    """The reliable casts of one node, those of others among them."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.bytes = 0
        self._casts: OrderedDict[CastId, Taken] = OrderedDict()

    def __len__(self) -> int:
        return len(self._casts)

    def get(self, cast: CastId) -> Taken | None:
        return self._casts.get(cast)

    def take(self, message: Cast, deadline: float) -> Taken | None:
        """What is known of a cast, from now on at the latest; None: there is no room for a new one."""
        cast = message.origin.node_id, message.number
        taken = self._casts.get(cast)
        if taken is None:
            config = self.context.config
            size = _CAST + len(message.payload)
            self._forget_old(config.cast_bytes - size)
            if self.bytes + size > config.cast_bytes:
                return None
            # What waits in a connection that stalls may be half as late again.
            taken = self._casts[cast] = Taken(deadline + config.cast_deadline / 2)
            self._add(taken, _CAST)
        return taken

    def _forget_old(self, most_bytes: int) -> None:
        """All of one origin come in about the order in which they end. Some at a time, unless there is no
        room: after a burst they are as many as that had."""
        now = self.context.env.now()
        left = AT_ONCE
        while self._casts and (oldest := next(iter(self._casts.values()))).until <= now:
            if left <= 0 and self.bytes <= most_bytes:
                return
            left -= 1
            self.bytes -= oldest.bytes
            self._casts.popitem(last=False)

    def check_sums(self) -> None:
        """Count all again that is counted as it changes. Raises: AssertionError, it was counted wrong."""
        size = sum(taken.bytes for taken in self._casts.values())
        assert size == self.bytes, f"casts of {size} bytes count {self.bytes}"
        for taken in self._casts.values():
            under_way = sum(isinstance(part, Work) for part in taken.parts.values())
            assert under_way == taken.open, (
                f"{under_way} parts of a cast are under way and count {taken.open}"
            )

    def _add(self, taken: Taken, size: int) -> None:
        taken.bytes += size
        self.bytes += size

    def begun(self, taken: Taken, work: Work) -> None:
        taken.parts[work.part] = work
        message = work.message
        self._add(taken, _PART + len(message.low) + len(message.high))
        if not taken.open:
            self._add(taken, len(message.payload))
        taken.open += 1

    def done(self, taken: Taken, work: Work, ack: CastAck) -> None:
        """Nothing but the answer is kept of a part that is done."""
        taken.parts[work.part] = Done(work.target, ack)
        taken.open -= 1
        self._add(taken, len(ack.tree) - (0 if taken.open else len(work.message.payload)))

    def reached(self, taken: Taken, keys: Iterable[bytes]) -> list[bytes]:
        """Those of the own ``keys`` that have not had the cast yet; now they have."""
        new = [key for key in keys if key not in taken.keys]
        taken.keys = (*taken.keys, *new)
        self._add(taken, sum(len(key) + _KEY for key in new))
        return new


def without(ranges: list[Range], taken: Range) -> list[Range]:
    """What is left of ``ranges``, ascending, without another one."""
    left = []
    for low, high in ranges:
        if taken.high <= low or high <= taken.low:
            left.append(Range(low, high))
            continue
        if low < taken.low:
            left.append(Range(low, taken.low))
        if taken.high < high:
            left.append(Range(taken.high, high))
    return left
