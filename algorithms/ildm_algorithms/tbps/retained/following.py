"""Retained messages that follow an answer which was to be all there was.

A node that answers a new subscriber may lack a message that is on its way to the node. Such a message may
still have to be offered, because links were repaired past the node while it was away. The subscriber asks
nobody else, so it gets that one there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ildm.mqtt import FilterTable

if TYPE_CHECKING:
    from ildm.api import Peer

__all__ = ["Following"]

FOLLOWED = 600.0
"""Seconds after an answer for which others may follow that come late."""
UNDER_WAY = 30.0
"""The same for those that come by themselves: they may have been under way since before."""
MOST = 1000
"""Answers followed at a time. After further ones the oldest is not."""
LONGEST = 1000
"""Characters of a filter whose answer is followed."""


class Following:
    """Who was answered, about what.

    Args:
        now: monotonic time in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._at: dict[tuple[str, Peer], float] = {}
        self._table: FilterTable[Peer] = FilterTable()

    def answered(self, asker: Peer, topic_filter: str) -> None:
        """It has received that what it has got is all that matches."""
        if len(topic_filter) > LONGEST:
            return
        self._at.pop((topic_filter, asker), None)
        self._at[topic_filter, asker] = self._now()
        self._table.add(topic_filter, asker)
        if len(self._at) > MOST:
            self._forget(next(iter(self._at)))

    def of(self, topic: str, late: bool) -> list[Peer]:
        """Those to whom a message on a topic is to follow; ``late``: it was asked for, or is repeated."""
        since = self._now() - (FOLLOWED if late else UNDER_WAY)
        while self._at and next(iter(self._at.values())) < self._now() - FOLLOWED:
            self._forget(next(iter(self._at)))
        if not self._at or next(reversed(self._at.values())) < since:
            return []
        return [
            asker
            for asker in self._table.match(topic)
            if any(self._at[topic_filter, asker] >= since for topic_filter in self._table.filters(asker))
        ]

    def _forget(self, oldest: tuple[str, Peer]) -> None:
        del self._at[oldest]
        self._table.remove(*oldest)
