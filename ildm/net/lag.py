"""How late the event loop is: a timer that looks at the clock."""

from __future__ import annotations

import asyncio

from ildm.core.timing import Timing

INTERVAL = 0.25
"""Seconds between two looks."""


class LagWatch:
    """Observes the lag of a loop from :meth:`start` to :meth:`stop`, in seconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.observed = Timing()
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
        self.observed.observe(max(0.0, self._loop.time() - self._due))
        self.start()
