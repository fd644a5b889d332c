"""Work that plugins do not want the node to wait for, in threads."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

THREADS = 4
"""Of each plugin, so that one whose work hangs holds up nobody else's."""

_Job = tuple[Callable[[], Any], Callable[[Any], None]]


class Workers:
    """A few threads, made when they are needed. They do not keep the process alive.

    Args:
        call_threadsafe: runs a callback in the event loop's thread, called from another.
    """

    def __init__(self, call_threadsafe: Callable[..., object], name: str) -> None:
        self._call_threadsafe = call_threadsafe
        self._name = name
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Callable[[Any], None]] | None] = (
            queue.SimpleQueue()
        )
        self._threads = 0
        self._under_way = 0

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Carry out ``work``, then call ``done`` in the event loop with its result, or what it raised."""
        self._under_way += 1
        self._jobs.put((work, done))
        if self._threads < min(self._under_way, THREADS):
            self._threads += 1
            threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def stop(self) -> None:
        """The threads end after what waits; nobody waits for them."""
        for _ in range(self._threads):
            self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, done = job
            try:
                result = work()
            except BaseException as error:  # whatever it is, it belongs to who asked for it
                result = error
            try:
                self._call_threadsafe(self._done, done, result)
            except RuntimeError:
                return  # the event loop has ended
            del job, work, done, result  # held no longer than needed

    def _done(self, done: Callable[[Any], None], result: Any) -> None:
        self._under_way -= 1
        done(result)
