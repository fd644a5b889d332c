"""How late the event loop is: a timer that looks at the clock."""

from __future__ import annotations

import asyncio
from bisect import bisect_left

from ildm.admin.exposition import Histogram
from ildm.admin.families import LAG_BUCKETS

INTERVAL = 0.25
"""Seconds between two looks."""


class LagWatch:
    """Observes the lag of a loop from :meth:`start` to :meth:`stop`, in seconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._counts = [0] * (len(LAG_BUCKETS) + 1)
        self._sum = 0.0
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._due = self._loop.time() + INTERVAL
        self._timer = self._loop.call_at(self._due, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self.observe(max(0.0, self._loop.time() - self._due))
        self.start()

    def observe(self, lag: float) -> None:
        self._counts[bisect_left(LAG_BUCKETS, lag)] += 1
        self._sum += lag

    @property
    def observed(self) -> Histogram:
        return Histogram(LAG_BUCKETS, tuple(self._counts), self._sum)
