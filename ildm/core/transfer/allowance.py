"""How much an algorithm may hand over of itself: nobody is made to wait for that, it is refused instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ildm.core.transfer.queue import Queue

if TYPE_CHECKING:
    from ildm.core.driver import Driver
    from ildm.core.transfer.back_pressure import BackPressure, QueueLimits


class Allowance:
    """Of one sender; ``spooled``: unacknowledged messages of a neighbour count, as the spool keeps them."""

    __slots__ = (
        "_at_once",
        "_bytes_at_once",
        "_driver",
        "_limits",
        "_pressure",
        "_queue",
        "_refused",
        "_spooled",
        "_telling",
        "writable_again",
    )

    def __init__(
        self, driver: Driver, limits: QueueLimits, queue: Queue, pressure: BackPressure, spooled: bool
    ) -> None:
        self._driver = driver
        self._limits = limits
        self._queue = queue
        self._pressure = pressure
        self._spooled = spooled
        self.writable_again: Callable[[], None] | None = None
        """Called once there is room after something was refused."""
        self._refused = self._telling = False
        self._at_once = self._bytes_at_once = 0

    def admit(self, size: int) -> bool:
        """Whether an algorithm may have something of that size sent.

        Not if it would push out what waits; :attr:`writable_again` is then called later. What is admitted in
        one turn of the event loop is bounded in the same way: who sends on and on lets others have theirs.
        """
        queue, limits = self._queue, self._limits
        elsewhere = not self._spooled  # the neighbour counts what is unacknowledged
        messages = max(queue.messages - queue.unacknowledged_messages * elsewhere, self._at_once)
        waiting = max(queue.bytes - queue.unacknowledged_bytes * elsewhere, self._bytes_at_once)
        if messages and (messages >= limits.messages or waiting + size > limits.bytes):
            self._refused = True
            return False
        if not self._at_once:
            self._driver.call_soon(self._next_turn)
        self._at_once += 1
        self._bytes_at_once += size
        return True

    def refused(self) -> None:
        """Something was refused before it came to be this sender's."""
        self._refused = True
        self.tell_soon()

    def tell_soon(self) -> None:
        """Something has left the queue, or may: if anything was refused and there is room, it is told."""
        if self._refused and not self._telling and not self._at_once and not self._crowded():
            self._telling = True
            self._driver.call_soon(self._tell)  # not amidst what makes the room

    def _next_turn(self) -> None:
        self._at_once = self._bytes_at_once = 0
        self.tell_soon()

    def _tell(self) -> None:
        self._telling = False
        if not self._at_once and not self._crowded():
            self._refused = False
            if self.writable_again is not None:
                self.writable_again()

    def _crowded(self) -> bool:
        """There is no room for what an algorithm hands over."""
        if not self._spooled:
            return self._pressure.over(0.5)
        queue, limits = self._queue, self._limits
        return queue.messages > limits.messages // 2 or queue.bytes > limits.bytes // 2
