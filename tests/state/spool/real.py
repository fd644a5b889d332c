"""A spool on the real disk, beside an event loop that tests turn by hand."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import queue
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ildm.state.spool import FileSpool, OsDisk
from tests.state.spool.lives import Settings


class Loop:
    """What is called from other threads, and timers."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._timers: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = itertools.count()

    def call_threadsafe(self, callback: Callable[[], None]) -> None:
        self._calls.put(callback)

    def call_later(self, delay: float, callback: Callable[..., None], *args: Any) -> None:
        heapq.heappush(self._timers, (time.monotonic() + delay, next(self._order), callback, args))

    def run_until(self, condition: Callable[[], bool]) -> None:
        """Turn until it holds; the test's own timeout is the limit."""
        while not condition():
            with contextlib.suppress(queue.Empty):
                self._calls.get(timeout=0.01)()
            while self._timers and self._timers[0][0] <= time.monotonic():
                _, _, callback, args = heapq.heappop(self._timers)
                callback(*args)


def open_real(directory: Path, settings: Settings | None = None, loop: Loop | None = None) -> FileSpool:
    loop = loop or Loop()
    return FileSpool(
        OsDisk(directory, loop.call_threadsafe),
        settings or Settings(),
        wall=time.time,
        call_later=loop.call_later,
        log=lambda level, event, **fields: None,
        expiry=1e9,
    )
