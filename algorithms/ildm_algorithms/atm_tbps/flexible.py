"""A Skip Graph whose nodes know more than their neighbours (ATM-TBPS IV)."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ildm_algorithms.atm_tbps.exploring import Exploring, divided
from ildm_algorithms.atm_tbps.known import Known
from ildm_algorithms.atm_tbps.messages import (
    FIRST_MESSAGES,
    FORMATS,
    Forget,
    Note,
    Query,
    read_note,
    write_note,
)
from ildm_algorithms.atm_tbps.spreading import FAR
from ildm_algorithms.overlay.casts.plans import Remembered
from ildm_algorithms.overlay.graph import SkipGraph
from ildm_algorithms.overlay.wire.codec import OverlayError
from ildm_algorithms.tbps.keys.encoding import KeyFormatError, Role, Segment, key_text, parse_key

if TYPE_CHECKING:
    from ildm.api import Fact
    from ildm_algorithms.atm_tbps.config import AtmTbpsConfig
    from ildm_algorithms.overlay.casts.routing import Forward
    from ildm_algorithms.overlay.graph import Env, Hooks
    from ildm_algorithms.overlay.keys import Range, Ref
    from ildm_algorithms.overlay.lists.tables import VirtualNode
    from ildm_algorithms.overlay.wire.messages import Cast

__all__ = ["FlexibleGraph"]

_HOME = 300
"""Bytes that what is known of a range takes besides its ends."""


class _Former(NamedTuple):
    until: float
    refs: list[Ref]


class FlexibleGraph(SkipGraph):
    """Keys of segments have tables of learned entries; default keys have their neighbours only."""

    def __init__(self, env: Env, hooks: Hooks, config: AtmTbpsConfig) -> None:
        super().__init__(
            env,
            hooks,
            config.overlay,
            routings=(FAR,),
            messages=[(format, self._take) for format in FORMATS],
            first_messages=FIRST_MESSAGES,
        )
        self._known = Known(self._context, self._table, config.entries)
        self._exploring = Exploring(self._context, self._table, self._known, config, self._search)
        self._pause = config.explore_after
        self._former: OrderedDict[bytes, _Former] = OrderedDict()
        """What own keys had learned that have left, the latest last: a client that comes and goes leads to
        the same key each time."""
        self._most_former = config.former_tables
        self._former_for = config.refresh_interval
        self._asked: dict[bytes, float] = {}
        """When messages from an own key last looked for entries on their way."""
        self._homes: Remembered[bytes] = Remembered(self._context, self._table)
        """The own key whose table messages to a range are to look for entries with; empty for none."""
        self._aggregates: dict[bytes, bytes] = {}
        """Code of an aggregate -> own key in it."""

    def _take(self, message: Query) -> None:
        self._exploring.take(message)

    # what is known ----------------------------------------------------------------------------------

    def learned(self, target: Range) -> Sequence[Ref]:
        return self._known.within(target)

    def facts(self, key: bytes) -> dict[str, int]:
        """Of the table of an own key: entries, and how many of them were learned. Empty without a table."""
        entries = self._known.tables.get(key)
        if entries is None:
            return {}
        return {"entries": entries.size(self._known.sticky(key)), "learned": len(entries)}

    @property
    def entries_learned(self) -> int:
        """In the tables of all own keys together."""
        return sum(map(len, self._known.tables.values()))

    def shown(self) -> Iterator[Mapping[str, Fact]]:
        """The learned entries, in the order of own keys, and for each what it is kept for.

        A subscriber of the own topic stays as long as there are not more of them than fit (policy 1 in
        :mod:`ildm_algorithms.atm_tbps.entries`). A stranger goes first, and sooner if many are of its level.
        """
        for own, entries in sorted(self._known.tables.items()):
            for ref, level, subscriber in sorted(entries.entries()):
                yield {
                    "table of": key_text(own),
                    "entry": key_text(ref.key),
                    "node": ref.peer.node_id,
                    "kept as": "subscriber" if subscriber else "stranger",
                    "level": level,
                }

    # keys that come and go --------------------------------------------------------------------------

    def _entered(self, node: VirtualNode, status: bytes) -> None:
        segment = _segment(node.key)
        if segment is not None:
            self._known.open(node.key, segment)
            again = self._restore(node.key)
            if segment.is_aggregate:
                self._aggregates[segment.code] = node.key
            self._table.outdate()
        super()._entered(node, status)
        if segment is not None and not segment.is_aggregate:
            self._exploring.joined(node.key, segment.subscribers, again)

    def _restore(self, key: bytes) -> bool:
        """Give a key the table it had a moment ago. Whether there was one."""
        former = self._former.pop(key, None)
        if former is None or former.until < self._context.env.now():
            return False
        for ref in former.refs:
            self._known.learn(key, ref)
        return True

    def _keep(self, key: bytes, refs: list[Ref]) -> None:
        """A key has left: it may come back soon."""
        if not refs or not self._most_former:
            return
        if len(self._former) >= self._most_former:
            self._context.count("former_tables_displaced")
            self._former.popitem(last=False)
        self._former[key] = _Former(self._context.env.now() + self._former_for, refs)

    def _departed(self, node: VirtualNode) -> None:
        self._keep(node.key, self._known.close(node.key))
        self._asked.pop(node.key, None)
        segment = _segment(node.key)
        if segment is not None:
            self._aggregates.pop(segment.code, None)
            self._table.outdate()
        super()._departed(node)

    def departing(self, key: bytes) -> None:
        """UNSUB: the publishers of the topic forget a subscriber that leaves; others when they notice."""
        segment = _segment(key)
        if segment is not None and key in segment.subscribers and key in self._known.tables:
            own = self._table.own(key)
            self._search(segment.publishers, Note(own, own, b"", 0, leaving=True))

    def _suspected(self, node_id: str) -> None:
        super()._suspected(node_id)
        self._known.forget_node(node_id)

    def strayed(self, message: Cast) -> None:
        """FORGET: whoever has sent a copy to a key that is not here shall not do so again."""
        if message.parent.node_id != self._context.node_id:
            self._context.send(message.parent, Forget(self._context.peer, message.at))

    # notes ------------------------------------------------------------------------------------------

    def exploration(self, target: Range) -> bytes:
        """The note of a message to the subscribers of a topic: it looks for those that are not known yet.

        b"" where the table of the key it goes out from has no room, or was looked for entries a moment ago.
        """
        key = self._homes.get(target)
        if key is None:
            key = self._home(target) or b""
            self._homes.put(target, key, _HOME + len(target.low) + len(target.high))
        now = self._context.env.now()
        if not key or now < self._asked.get(key, now):
            return b""
        self._asked[key] = now + self._pause
        note = self._known.note(key, target)
        return b"" if note is None else write_note(note)

    def _home(self, target: Range) -> bytes | None:
        """The own key of the segment whose subscribers a range is, else the nearest aggregate above."""
        segment = Segment(target.low[:-1])
        if segment.subscribers != target:
            return None  # retained messages go to publishers, too
        keys = self._table.keys()
        at = bisect_left(keys, target.low)
        if at < len(keys) and keys[at] in segment.members:
            return keys[at] if keys[at] in self._known.tables else None
        return next((self._aggregates[code] for code in _above(segment) if code in self._aggregates), None)

    def _search(self, target: Range, note: Note) -> None:
        self.cast(target, b"", routing=FAR, deliver=False, note=write_note(note))

    def notes(
        self, message: Cast, own: Sequence[bytes], forwards: Sequence[Forward]
    ) -> Sequence[bytes | None]:
        """Learn of who sent and passed on; be known to the sender; share what is still requested."""
        try:
            note = read_note(message.note)
        except OverlayError:
            self._context.count("malformed")
            return [None] * len(forwards)
        if message.depth and note.leaving:
            self._known.forget(note.sender.peer.node_id, note.sender.key)
        elif message.depth:
            for key in own:
                fresh = note.requested > 0 and self._exploring.answer(key, note)
                note = note._replace(requested=note.requested - fresh)
        if own:
            note = note._replace(forwarder=self._table.own(own[0]))
        if note.leaving:
            return [write_note(note)] * len(forwards)
        if not forwards or not note.requested:
            return [None] * len(forwards)
        # Drawn, for those that were always passed over would never be known.
        order = self._context.random.sample(range(len(forwards)), len(forwards))
        shares = divided(note.requested, len(forwards), order)
        return [write_note(note._replace(requested=share)) if share else None for share in shares]


def _segment(key: bytes) -> Segment | None:
    try:
        parsed = parse_key(key)
    except KeyFormatError:
        return None
    return parsed.segment if parsed.role is not Role.DEFAULT else None


def _above(segment: Segment) -> list[bytes]:
    """Codes of the aggregates that may publish into a segment, the nearest first."""
    if segment.is_aggregate:
        return []
    return [Segment.aggregate(segment.levels[:size]).code for size in range(len(segment.levels), -1, -1)]
