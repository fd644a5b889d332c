"""Classes of messages on a link: which go first, and which may be let go while they wait.

The first class with a filter that matches decides, by the local name of the topic. What no class matches has
the priority that the algorithm gives it, and waits for as long as it must.

A message carries its class in its *rank*, an integer beside its QoS: the number of the class above, the
priority in the lowest four bits. The rank of a message without a class is its priority. Routes hold ranks, so
a topic is looked up once for each route that is remembered, and messages of different classes never share a
batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from ildm.core.counters import Counters
from ildm.core.frames import RETAIN
from ildm.mqtt import topic_matches

if TYPE_CHECKING:
    from ildm.core.transfer.queue import Entry

MOST = 16
"""Classes of a link."""
LOWEST_PRIORITY = -8
HIGHEST_PRIORITY = 7
BEHIND = LOWEST_PRIORITY - 1
"""In place of a priority: of what waited when a link came up, and goes after what is newer."""
AFTER_LIVE = 16
"""Added on disk to the priority of messages whose class has ``backlog: after_live``."""
REMEMBERED = 4096
"""Topics of a link whose class is remembered."""
REMEMBERED_TOPIC = 512
"""Bytes of such a topic."""


def priority_of(rank: int) -> int:
    """The priority in a rank."""
    return ((rank + 8) & 15) - 8


class ClassTerms(Protocol):
    """As configured; see :class:`ildm.config.LinkClass`."""

    @property
    def topics(self) -> Sequence[str]: ...
    @property
    def priority(self) -> int | None: ...
    @property
    def deadline(self) -> float | None: ...
    @property
    def expire(self) -> float | None: ...
    @property
    def expire_acknowledged(self) -> bool: ...
    @property
    def conflate(self) -> Literal["last"] | None: ...
    @property
    def conflate_acknowledged(self) -> bool: ...
    @property
    def backlog(self) -> Literal["in_order", "after_live"]: ...


class LinkClass:
    """One class of one link, and what became of its messages."""

    __slots__ = (
        "after_live",
        "conflate",
        "conflate_acknowledged",
        "conflated",
        "deadline",
        "expire",
        "expire_acknowledged",
        "expired",
        "late",
        "number",
        "priority",
        "terms",
    )

    def __init__(self, terms: ClassTerms, number: int) -> None:
        self.terms = terms
        self.number = number
        self.priority: int | None = terms.priority
        self.deadline: float | None = terms.deadline
        self.expire: float | None = terms.expire
        self.expire_acknowledged: bool = terms.expire_acknowledged
        self.conflate: bool = terms.conflate is not None
        self.conflate_acknowledged: bool = terms.conflate_acknowledged
        self.after_live: bool = terms.backlog == "after_live"
        self.late = 0
        """Messages that were sent after their deadline."""
        self.expired = 0
        """Messages that were let go, as they had waited for too long."""
        self.conflated = 0
        """Messages whose place newer ones of their topics have taken."""

    def lets_go(self, qos: int, age: float) -> bool:
        """Whether a message that has waited for so long is worth nothing any more."""
        return self.expire is not None and age > self.expire and (not qos or self.expire_acknowledged)


class LinkClasses:
    """Those of one link, in their order.

    Args:
        former: the classes that these follow. What waits with a rank of theirs keeps its priority alone.
        counters: those of the node.
    """

    __slots__ = (
        "_counters",
        "_first",
        "_ranks",
        "after_live",
        "backlog",
        "conflating",
        "rows",
        "skip",
        "tell",
        "terms",
    )

    def __init__(
        self,
        terms: Sequence[ClassTerms],
        former: LinkClasses | None = None,
        counters: Counters | None = None,
    ) -> None:
        self.terms = terms
        self.backlog = 0.3
        """Part of the bytes that is for what goes after newer messages, while those wait, too."""
        self._first: int = 1 if former is None else former._first + len(former.rows)
        self.rows: list[LinkClass] = [
            LinkClass(each, self._first + place) for place, each in enumerate(terms)
        ]
        self._ranks: dict[bytes, LinkClass | None] = {}
        self._counters = Counters() if counters is None else counters
        self.skip: Callable[[Entry, int], None] = _nobody_asks
        """Told of the first messages of an entry, which are let go."""
        self.tell: Callable[[Callable[[bytes], None]], None] = _nothing_to_tell
        """Tells the neighbour of those, by what writes to it."""
        self.conflating: bool = any(row.conflate for row in self.rows)
        self.after_live: bool = any(row.after_live for row in self.rows)

    def rank(self, topic: bytes, priority: int) -> int:
        """The rank of messages on a topic; ``priority`` is theirs if their class has none."""
        found = self.find(topic)
        if found is None:
            return priority
        return found.number * 16 + (priority if found.priority is None else found.priority)

    def rank_of(self, entry: Entry) -> int:
        """The rank here of messages that have one of elsewhere, and keep its priority."""
        numbers = {0 if row is None else row.number for row in map(self.find, entry.topics())}
        return (numbers.pop() if len(numbers) == 1 else 0) * 16 + priority_of(entry.priority)

    def find(self, topic: bytes) -> LinkClass | None:
        """The class of a topic."""
        try:
            return self._ranks[topic]
        except KeyError:
            name = topic.decode(errors="replace")
            found = next((row for row in self.rows if _matches(row.terms.topics, name)), None)
            if len(topic) <= REMEMBERED_TOPIC:
                if len(self._ranks) >= REMEMBERED:
                    self._ranks.clear()
                    self._counters["link_classes_flushes"] += 1
                self._ranks[topic] = found
            return found

    def of(self, rank: int) -> LinkClass | None:
        """The class of a rank; None: it has none, or one of former classes."""
        place = (rank + 8 >> 4) - self._first
        return self.rows[place] if 0 <= place < len(self.rows) else None

    def goes_back(self, entry: Entry) -> bool:
        """Whether what waited when the link came up goes after what is newer."""
        row = self.of(entry.priority)
        return row is not None and row.after_live

    def count_behind(self, count: int) -> None:
        """So many messages go after newer ones."""
        self._counters["link_set_back"] += count

    def on_disk(self, rank: int) -> int:
        """What stands for a rank on disk, where the numbers of classes mean nothing."""
        row = self.of(rank)
        return priority_of(rank) + (AFTER_LIVE if row is not None and row.after_live else 0)

    def lets_go(self, entry: Entry, now: float) -> bool:
        """Whether what waits is worth nothing any more; it is counted then."""
        row = self.of(entry.priority)
        if row is None or not row.lets_go(entry.qos, now - entry.since):
            return False
        row.expired += entry.count
        self.skip(entry, entry.count)
        return True

    def conflates(self, entry: Entry) -> bool:
        """Whether of messages like these only the newest of each topic waits."""
        if not self.conflating:
            return False
        row = self.of(entry.priority)
        if row is None or not row.conflate:
            return False
        return row.conflate_acknowledged or not entry.qos or entry.whole.frames[0] & RETAIN != 0

    def conflated(self, entry: Entry, count: int) -> None:
        """The first messages of an entry wait no longer, as there are newer ones."""
        self.skip(entry, count)
        entry.whole.settle(entry.receipt, entry.first, count)
        self._counters["link_conflated"] += count
        row = self.of(entry.priority)
        if row is not None:
            row.conflated += count

    def not_conflated(self, count: int) -> None:
        """Messages wait on disk, and there was no room to remember which of their topics is the newest."""
        self._counters["link_not_conflated"] += count

    def count_late(self, entry: Entry, count: int, now: float) -> int:
        """So many messages of an entry have left; answers how many of them after their deadline."""
        row = self.of(entry.priority)
        if row is None or row.deadline is None or now - entry.since <= row.deadline:
            return 0
        row.late += count
        return count


def rank_at(classes: LinkClasses | None, entry: Entry) -> int:
    """The rank of messages that waited elsewhere, on a link with these classes."""
    return priority_of(entry.priority) if classes is None else classes.rank_of(entry)


def _nobody_asks(entry: Entry, count: int) -> None:
    """There is no neighbour to be told."""


def _nothing_to_tell(write: Callable[[bytes], None]) -> None:
    """Nothing was noted."""


def _matches(filters: Sequence[str], name: str) -> bool:
    return any(topic_matches(each, name) for each in filters)
