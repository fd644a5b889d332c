"""The flexible table of one own key: what it has learned beside its neighbours, and what it drops first.

The neighbours of all levels are *sticky*: the lists of the graph keep them, and nothing here removes them.
What is learned fills the table up to its limit, and where it is full the worst goes. Of two tables the better
is (ATM-TBPS IV-A, Eq. 1, policies 2 to 5):

1. the one with more subscribers of the own topic;
2. else the one whose numbers of entries per level, the greatest first, come first in the order of lists: it
   has the same number for each level, as far as that goes;
3. else the one that has its most numerous level higher up: longer common prefixes;
4. else the one whose entries are nearer to the own key, counted in entries of the same level and side.

So one entry is the worst, and which are kept in the end does not depend on the order in which they come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ildm_algorithms.overlay.keys import Ref, common_digits

__all__ = ["Entries", "RoutingEntry"]


class RoutingEntry(NamedTuple):
    ref: Ref
    level: int
    """Digits that its vector shares with the own one."""
    subscriber: bool
    """Of what the own key publishes or subscribes to."""


class Entries:
    """The learned entries of one own key."""

    def __init__(self, own: Ref, subscribes: Callable[[bytes], bool], limit: int, base: int) -> None:
        """``subscribes``: whether a key subscribes to the own topic. ``limit``: of all entries, sticky ones
        among them; where those alone are more, nothing is learned."""
        self.own = own
        self.subscribes = subscribes
        self.limit = limit
        self.base = base
        self._learned: dict[bytes, RoutingEntry] = {}

    def __len__(self) -> int:
        return len(self._learned)

    def __contains__(self, key: object) -> bool:
        return key in self._learned

    def refs(self) -> list[Ref]:
        """What has been learned, some of which may have become neighbours since."""
        return [entry.ref for entry in self._learned.values()]

    def entries(self) -> list[RoutingEntry]:
        """The same, with level and whether each is a subscriber."""
        return list(self._learned.values())

    def room(self, sticky: Mapping[bytes, Ref]) -> int:
        """How many more subscribers the table could take: strangers would make room for them."""
        subscribers = sum(entry.subscriber for key, entry in self._learned.items() if key not in sticky)
        return max(0, self.limit - len(sticky) - subscribers)

    def size(self, sticky: Mapping[bytes, Ref]) -> int:
        """Entries, sticky ones among them."""
        return len(sticky) + sum(key not in sticky for key in self._learned)

    def learn(self, ref: Ref, sticky: Mapping[bytes, Ref]) -> list[Ref]:
        """Take an entry of another node; the entries that had to go, perhaps itself."""
        if ref.key == self.own.key:
            return []
        level = common_digits(self.own.vector, ref.vector, self.base)
        self._learned[ref.key] = RoutingEntry(ref, level, self.subscribes(ref.key))
        return self.trim(sticky)

    def trim(self, sticky: Mapping[bytes, Ref]) -> list[Ref]:
        """Drop what is too much, or has become a neighbour."""
        gone = [self._learned.pop(key).ref for key in list(self._learned) if key in sticky]
        while self._learned and len(sticky) + len(self._learned) > self.limit:
            victim = self._victim(sticky.values())
            del self._learned[victim.key]
            gone.append(victim)
        return gone

    def forget(self, key: bytes) -> None:
        self._learned.pop(key, None)

    def _victim(self, sticky: Iterable[Ref]) -> Ref:
        """The learned entry without which the table is best; the left one of two that are alike."""
        own = self.own
        entries = [(entry.ref.key, entry.level) for entry in self._learned.values()]
        entries += [(ref.key, common_digits(own.vector, ref.vector, self.base)) for ref in sticky]
        sizes = Counter(level for _, level in entries)
        strangers = [entry for entry in self._learned.values() if not entry.subscriber]
        candidates = strangers or list(self._learned.values())
        level = max({entry.level for entry in candidates}, key=lambda level: (sizes[level], -level))
        keys = [entry.ref.key for entry in candidates if entry.level == level]
        # The farthest of each side; between them who has more entries of its level on its way.
        first, last = min(keys), max(keys)
        before = sum(first < key < own.key for key, of in entries if of == level) if first < own.key else -1
        behind = sum(own.key < key < last for key, of in entries if of == level) if last > own.key else -1
        return self._learned[first if before >= behind else last].ref
