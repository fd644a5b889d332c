"""The thread that writes to the disk, so that the event loop never waits for it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class Writer:
    """Carries out one job after the other in a thread of its own.

    The thread does not keep the process alive: a disk that hangs must not.
    """

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], Any]) -> Future[Any]:
        """Do it in the thread; what it answers or raises is the future's."""
        future: Future[Any] = Future()
        self._jobs.put((job, future))
        return future

    def stop(self, seconds: float) -> bool:
        """Let the thread end after its jobs; whether it has within the time."""
        self._jobs.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, future = item
            try:
                result = job()
            except BaseException as error:  # the future's business, whatever it is
                future.set_exception(error)
            else:
                future.set_result(result)
