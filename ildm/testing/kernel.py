"""The event loop of the simulator: what happens next, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from random import Random
from typing import Any

COMPACT_ABOVE = 4096
"""Cancelled timers are swept out of the heap when there are more than these and they outnumber the rest."""


class Timer:
    """A callback to come. Implements :class:`ildm.api.Timer`."""

    __slots__ = ("args", "callback", "kernel")

    def __init__(self, kernel: Kernel, callback: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.kernel = kernel
        self.callback: Callable[..., None] | None = callback
        self.args = args

    def cancel(self) -> None:
        """Harmless when the callback was called already."""
        if self.callback is not None:
            self.callback = None
            self.args = ()
            self.kernel._cancelled()


class Kernel:
    """Executes callbacks in the order of their virtual times; those of equal times as they were scheduled.

    Two runs with the same seed and the same schedule are the same, event by event.
    """

    __slots__ = ("_dead", "_heap", "_sequence", "current", "events", "now", "random")

    def __init__(self, seed: int | str = 0) -> None:
        self.now = 0.0
        """Virtual time in seconds."""
        self.random = Random(seed)
        self.events = 0
        """Callbacks executed so far."""
        self.current: Callable[..., None] | None = None
        """The callback that is executed, or was executed last."""
        self._heap: list[tuple[float, int, Callable[..., None] | None, Any]] = []
        self._sequence = 0
        self._dead = 0

    def __len__(self) -> int:
        """Number of callbacks to come."""
        return len(self._heap) - self._dead

    def schedule(self, delay: float, callback: Callable[..., None], *args: Any) -> Timer:
        """Call ``callback(*args)`` after ``delay`` virtual seconds, unless the timer is cancelled.

        Raises:
            ValueError: the delay is negative or no number.
        """
        timer = Timer(self, callback, args)
        self.enter(delay, timer)
        return timer

    def enter(self, delay: float, timer: Timer) -> None:
        """The same for a timer that is made already."""
        if not delay >= 0:
            raise ValueError(f"a delay of {delay} s")
        self._sequence = sequence = self._sequence + 1
        heappush(self._heap, (self.now + delay, sequence, None, timer))

    def post(self, delay: float, callback: Callable[..., None], *args: Any) -> None:
        """Like :meth:`schedule`, for what is never cancelled, and cheaper."""
        if not delay >= 0:
            raise ValueError(f"a delay of {delay} s")
        self._sequence = sequence = self._sequence + 1
        heappush(self._heap, (self.now + delay, sequence, callback, args))

    def post_at(self, when: float, callback: Callable[..., None], *args: Any) -> None:
        """Like :meth:`post`, at a virtual time that has not passed."""
        if not when >= self.now:
            raise ValueError(f"time {when} has passed, it is {self.now}")
        self._sequence = sequence = self._sequence + 1
        heappush(self._heap, (when, sequence, callback, args))

    def run(self, until: float | None = None, max_events: int | None = None) -> None:
        """Execute what is due, until nothing is left, ``until`` has come or ``max_events`` were executed.

        What is due at ``until`` itself is executed. Time then stands at ``until``, unless
        ``max_events`` came first. An exception of a callback ends the run and is passed on.
        """
        limit = float("inf") if until is None else until
        left = self._execute(limit, -1 if max_events is None else max_events)
        if until is not None and left and until > self.now:
            self.now = until

    def drain(self, until: float) -> bool:
        """Execute what is due up to ``until``; True if nothing is left then.

        Other than with :meth:`run`, time stands where the last callback was executed.
        """
        self._execute(until, -1)
        return not len(self)

    def _execute(self, limit: float, left: int) -> int:
        """Answers what remains of ``left`` events; a negative number has no end."""
        heap = self._heap
        executed = 0
        try:
            while heap and left:
                if heap[0][0] > limit:
                    break
                when, _, callback, args = heappop(heap)
                if callback is None:
                    timer = args
                    callback = timer.callback
                    if callback is None:
                        self._dead -= 1
                        continue
                    args = timer.args
                    timer.callback = None
                    timer.args = ()
                self.now = when
                self.current = callback
                executed += 1
                left -= 1
                callback(*args)
        finally:
            self.events += executed
        return left

    def _cancelled(self) -> None:
        self._dead += 1
        heap = self._heap
        if self._dead > COMPACT_ABOVE and self._dead * 2 > len(heap):
            # in place, as run() holds on to the list
            heap[:] = [entry for entry in heap if entry[2] is not None or entry[3].callback is not None]
            heapify(heap)
            self._dead = 0
