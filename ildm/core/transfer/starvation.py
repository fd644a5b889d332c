"""A priority that others keep from its turn for a minute goes first for a few bytes a second.

Priorities of a link are strict: while higher ones fill it, lower ones would wait for ever. Where a link has
classes, a priority that has waited for :data:`PATIENCE` while the link was up gets one quantum a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ildm.core.transfer.classes import BEHIND

if TYPE_CHECKING:
    from ildm.core.counters import Counters
    from ildm.core.transfer.queue import Queue

PATIENCE: Final = 60.0
"""Seconds."""
INTERVAL: Final = 1.0
"""Seconds from one quantum of a priority to the next."""
QUANTUM: Final = 1500
"""Bytes."""


class Starvation:
    """Of one sender. All times are monotonic."""

    __slots__ = ("_counters", "_due")

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._due: dict[int, float] = {}
        """Priority -> when it is due for a quantum, of those that wait behind others."""

    def begin(self) -> None:
        """There is another connection: nothing has been kept waiting on it yet."""
        self._due.clear()

    def look(self, queue: Queue, now: float) -> None:
        """Let a priority go first that is due."""
        waiting = queue.waiting()
        behind = [each for each in waiting[1:] if each != BEHIND]  # that has its share
        for priority in [each for each in self._due if each not in behind]:
            del self._due[priority]
        for priority in behind:
            due = self._due.setdefault(priority, now + PATIENCE)
            if due <= now:
                self._due[priority] = now + INTERVAL
                self._counters["link_starved"] += 1
                queue.favour(priority, QUANTUM)
                return
