"""When keys look for entries, and what is answered (ATM-TBPS IV-D, IV-G, IV-H)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from ildm_algorithms.atm_tbps.messages import Explore, Forget, New, Note, Query, digest, knows
from ildm_algorithms.overlay.keys import EVERYTHING, VECTOR_BITS, Range, common_digits

if TYPE_CHECKING:
    from ildm_algorithms.atm_tbps.config import AtmTbpsConfig
    from ildm_algorithms.atm_tbps.entries import Entries
    from ildm_algorithms.atm_tbps.known import Known
    from ildm_algorithms.overlay.context import Context
    from ildm_algorithms.overlay.lists.tables import Table

__all__ = ["Exploring", "divided"]

_MOST = 4
"""How often the wait for the next exploration is doubled."""
_CHECKED = 4
"""Learned entries of a key that are looked after in one refresh."""
_LATE = 16
"""One answer in so many may be late."""
_SLOWEST = 1 / 16
"""Keys that explore in one round while answers stay late."""

Search = Callable[[Range, Note], None]


class _Due(NamedTuple):
    at: float
    number: int
    key: bytes
    subscribers: Range
    """Where subscribers of its topic are."""
    entries: Entries
    """Its table; a key that has left and come again has another."""
    refresh: bool
    doubled: int = 0
    found: int = -1
    """What the key had learned when it explored last; -1: it has not yet."""


class Exploring:
    """The explorations of one node: each key's in turn, a bounded number at a time."""

    def __init__(
        self, context: Context, table: Table, known: Known, config: AtmTbpsConfig, search: Search
    ) -> None:
        """``search`` casts a note alone."""
        self.context = context
        self.table = table
        self.known = known
        self.config = config
        self.search = search
        self._due: list[_Due] = []
        self._numbers = count()
        self._running = False
        self._pace = float(config.explorations)
        """Keys that explore in one round, on average."""
        self._turns = 0.0
        """Keys that may explore by now."""
        self._late = self._in_time = 0

    def joined(self, key: bytes, subscribers: Range, again: bool) -> None:
        """An own key with a table is in the graph: those around it are asked at once, its topic soon.

        ``again``: it was in it a moment ago and has its table back. It goes on as if it had found nothing
        new for long.
        """
        self._walk(key)
        entries = self.known.tables[key]
        first = _Due(0.0, 0, key, subscribers, entries, refresh=False)
        if not again:
            self._later(first, self.config.explore_after)
        elif self.config.explore_interval:
            found = first._replace(doubled=_MOST, found=len(entries))
            self._later(found, self.config.explore_interval * 2**_MOST)
        # Not all keys at once.
        refresh = self.config.refresh_interval * (0.5 + self.context.random.random())
        self._later(first._replace(refresh=True), refresh)
        if not self._running:
            self._running = True
            self.context.later(self.config.explore_after, self._round)

    def _later(self, due: _Due, delay: float) -> None:
        heappush(self._due, due._replace(at=self.context.env.now() + delay, number=next(self._numbers)))

    def _round(self) -> None:
        now = self.context.env.now()
        self._adapt()
        while self._turns >= 1:
            if not self._due or self._due[0].at > now:
                break
            due = heappop(self._due)
            self._turns -= 1
            if self.known.tables.get(due.key) is not due.entries:
                continue
            if due.refresh:
                self._walk(due.key)
                self._check(due.key)
                self._later(due, self.config.refresh_interval)
            else:
                self._explore(due)
        self._running = bool(self._due)
        if self._running:
            self.context.later(self.config.explore_after, self._round)

    def _adapt(self) -> None:
        """Fewer keys explore while answers are late: those who are asked have too much to do already."""
        context, most = self.context, float(self.config.explorations)
        late, in_time = context.late - self._late, context.in_time - self._in_time
        self._late, self._in_time = context.late, context.in_time
        if _LATE * late > in_time:
            self._pace = max(self._pace / 4, _SLOWEST)
            context.count("explorations_slowed")
        else:
            self._pace = min(2 * self._pace, most)
        self._turns = min(self._turns + self._pace, max(self._pace, 1.0))

    # looking for entries --------------------------------------------------------------------------

    def _walk(self, key: bytes) -> None:
        """REXP to the neighbours of level 0 on both sides."""
        self.known.tidy(key)
        levels = self.table.neighbors(key)
        own, known = self.table.own(key), digest(self.known.entries(key).values())
        for right, ref in enumerate(levels[0] if levels else ()):
            if ref is not None:
                self.context.send(ref.peer, Explore(own, own, ref.key, known, bool(right), VECTOR_BITS))

    def _check(self, key: bytes) -> None:
        """REXP to some learned entries, to be passed on by nobody: what is gone shall not fill the table."""
        entries = self.known.tables[key].refs()
        own, known = self.table.own(key), digest(entries)
        for ref in self.context.random.sample(entries, min(_CHECKED, len(entries))):
            self.context.send(ref.peer, Explore(own, own, ref.key, known, True, 0))

    def _explore(self, due: _Due) -> None:
        """EEXP: first for the own topic, then, while there is room, anywhere."""
        key, doubled = due.key, due.doubled
        if due.found < 0:
            note = self.known.note(key, due.subscribers)
            if note is not None:
                self.search(due.subscribers, note)
        else:
            self._explore_anywhere(key)
            doubled = doubled + 1 if len(due.entries) <= due.found else 0
        if self.config.explore_interval:
            wait = self.config.explore_interval * 2 ** min(doubled, _MOST)
            self._later(due._replace(doubled=doubled, found=len(due.entries)), wait)

    def _explore_anywhere(self, key: bytes) -> None:
        here = self.known.entries(key)
        room = self.config.entries - len(here)
        if room <= 0:
            return
        # From a known key on: who looks there finds keys behind it that only that one knows.
        target = Range(self.context.random.choice(sorted((*here, key))), EVERYTHING.high)
        own = self.table.own(key)
        known = digest(ref for ref in here.values() if ref.key in target)
        self.search(target, Note(own, own, known, room, leaving=False))

    # what others look for -------------------------------------------------------------------------

    def take(self, message: Query) -> None:
        """What another node has sent."""
        match message:
            case Explore():
                self._pass_on(message)
            case New(sender, to):
                self.known.learn(to, sender)
            case Forget(sender, key):
                self.known.forget(sender.node_id, key)

    def _pass_on(self, message: Explore) -> None:
        """Learn of those who ask, be known to them, and pass it on to the next of the level that counts."""
        key = message.at
        levels = self.table.neighbors(key)
        if not levels:
            self.context.count("explorations_astray")
            self.context.send(message.forwarder.peer, Forget(self.context.peer, key))
            return
        self.answer(key, message)
        level = common_digits(message.sender.vector, self.table.vector, self.table.base)
        beyond = levels[level][message.right] if level < len(levels) else None
        if beyond is not None and message.hops > 0:
            own = self.table.own(key)
            self.context.send(
                beyond.peer, message._replace(forwarder=own, at=beyond.key, hops=message.hops - 1)
            )

    def answer(self, key: bytes, query: Explore | Note) -> bool:
        """An own key has got a query: it learns who sent it and who passed it on. Whether it was new to the
        sender, and has said so."""
        self.known.learn(key, query.sender)
        self.known.learn(key, query.forwarder)
        asker = query.sender.peer
        if asker.node_id == self.context.node_id or knows(query.known, self.table.own(key)):
            return False
        self.context.send(asker, New(self.table.own(key), query.sender.key))
        return True


def divided(requested: int, copies: int, order: Sequence[int]) -> list[int]:
    """How many entries each of ``copies`` may bring: as many for each, the rest to the first in ``order``."""
    each, rest = divmod(requested, copies)
    shares = [each] * copies
    for at in order[:rest]:
        shares[at] += 1
    return shares
