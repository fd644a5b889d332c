"""Many timers on one of the event loop's: nearly all are time-outs, and cancelled long before they are due.

A timer of the loop is an object of its own library, with a handle, a context and a call when it is closed; a
client that connects and leaves takes four. Here one is an entry in a heap.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ildm.api import Timer

RESOLUTION: Final = 0.001
"""Seconds that a timer may be early: clocks of event loops count in these, and round."""
CANCELLED: Final = 100
"""Cancelled timers that are kept until they are due, or more if they are less than half of all."""


class QueuedTimer:
    """Implements :class:`ildm.api.Timer`."""

    __slots__ = ("_queue", "arguments", "callback")

    def __init__(
        self, queue: TimerQueue, callback: Callable[..., object], arguments: tuple[Any, ...]
    ) -> None:
        self._queue = queue
        self.callback: Callable[..., object] | None = callback
        """None: it was called or cancelled."""
        self.arguments = arguments

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self.arguments = ()
            self._queue.cancelled()


class TimerQueue:
    """Calls back in the order in which the timers are due; of equals, in that in which they were set.

    A callback that raises harms no other timer: its error is for the event loop to tell.

    Args:
        now: monotonic time in seconds.
        wake: calls back after a delay in seconds, as an event loop does.
    """

    def __init__(self, now: Callable[[], float], wake: Callable[[float, Callable[[], None]], Timer]) -> None:
        self._now = now
        self._wake = wake
        self._heap: list[tuple[float, int, QueuedTimer]] = []
        self._number = 0
        self._cancelled = 0
        self._next = 0.0
        """When the loop's timer is due, if there is one."""
        self._timer: Timer | None = None

    def __len__(self) -> int:
        """How many are neither called nor cancelled."""
        return len(self._heap) - self._cancelled

    def call_later(self, delay: float, callback: Callable[..., object], *arguments: object) -> QueuedTimer:
        """Call back after ``delay`` seconds, never within this call."""
        timer = QueuedTimer(self, callback, arguments)
        due = self._now() + (delay if delay > 0.0 else 0.0)
        self._number += 1
        heappush(self._heap, (due, self._number, timer))
        if self._timer is None or due < self._next:
            self._plan()
        return timer

    def cancelled(self) -> None:
        """One of those that wait was cancelled."""
        self._cancelled += 1
        if self._cancelled > CANCELLED and 2 * self._cancelled > len(self._heap):
            self.sweep()

    def sweep(self) -> None:
        """Forget those that are cancelled."""
        self._heap = [entry for entry in self._heap if entry[2].callback is not None]
        heapify(self._heap)
        self._cancelled = 0

    def _plan(self) -> None:
        """Have the loop wake this queue when the first timer is due, if it would not before."""
        if not self._heap:
            return
        due = self._heap[0][0]
        if self._timer is not None:
            if self._next <= due:
                return
            self._timer.cancel()
        self._next = due
        self._timer = self._wake(max(due - self._now(), 0.0), self._woken)

    def _woken(self) -> None:
        self._next = 0.0  # nothing is planned before all that is due was called
        now = self._now() + RESOLUTION
        last = self._number  # what callbacks set has its turn after others have had theirs
        try:
            while self._heap and self._heap[0][0] <= now and self._heap[0][1] <= last:
                timer = heappop(self._heap)[2]
                callback, arguments = timer.callback, timer.arguments
                if callback is None:
                    self._cancelled -= 1
                    continue
                timer.callback = None
                timer.arguments = ()
                callback(*arguments)
        finally:
            self._timer = None
            self._plan()
