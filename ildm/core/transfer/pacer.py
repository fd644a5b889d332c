"""Keeps what one wire writes within the budget of its link."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ildm.api import Timer
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver, Transport
    from ildm.core.transfer.batch import Batch
    from ildm.core.transfer.budget import Budget
    from ildm.core.transfer.disk_gate import Gated

LEAST_WAIT: Final = 0.001
"""Seconds until the budget is asked again."""


class Pacer:
    """Of one wire. Messages wait in the queue while it is :attr:`paced`; all else is written at once."""

    __slots__ = (
        "_counters",
        "_driver",
        "_full",
        "_held",
        "_hold",
        "_joined",
        "_made",
        "_timer",
        "_wire",
        "asked",
        "budget",
        "paced",
    )

    def __init__(self, driver: Driver, counters: Counters, wire: Gated, budget: Budget) -> None:
        self._driver = driver
        self._counters = counters
        self._wire = wire
        self.budget = budget
        self.paced = False
        """Messages wait for tokens, or for a flush."""
        self.asked = False
        """The flush at the end of this turn is asked for."""
        self._joined = 0
        """Bytes that wait for the flush."""
        self._full = False
        """More messages would have gone than fitted."""
        self._timer: Timer | None = None
        self._hold: Callable[[bool], None] | None = None
        self._held = False
        self._made: Callable[[], int] | None = None

    # the connection ---------------------------------------------------------------------------

    def bind(self, hold: Callable[[bool], None], made: Callable[[], int] | None, spent: int) -> None:
        """There is a connection.

        Args:
            hold: has it read no more, or read again.
            made: bytes that it has made of all that was written, if it compresses.
            spent: bytes that were written before.
        """
        self._hold, self._made = hold, made
        self.budget.take(self._driver.now(), spent)
        self._ask()

    def forget(self) -> None:
        """The connection is gone, or another one."""
        self._hold = self._made = None
        self._held = self.paced = self.asked = self._full = False
        self._joined = 0
        self._end_timer()

    def end(self) -> None:
        """There is no budget any more."""
        self._release()
        self.forget()

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # writing ----------------------------------------------------------------------------------

    def fitting(self, batch: Batch, first: int, count: int) -> int:
        """How many of ``count`` messages of a batch one flush may still have, from the place ``first`` on.

        At least one.
        """
        room = max(0, self.budget.share - self._joined)
        fits = max(1, min(count, batch.fitting(room, first)))
        if fits < count:
            self._full = True
            if not self.asked:  # also if what fits is dropped
                self.asked = True
                self._driver.call_soon(self._wire.flush)
        return fits

    def add(self, size: int) -> bool:
        """So many bytes wait for the flush; answers whether no message is to be added to them."""
        self._joined += size
        if self._joined < self.budget.share and not self._full:
            return False
        self.paced = True
        self._wire.stall()
        return True

    def begin_flush(self) -> None:
        self.asked = False
        self._joined = 0

    def write(self, transport: Transport, data: bytes) -> None:
        made = self._made
        before = 0 if made is None else made()
        transport.write(data)
        self.budget.take(self._driver.now(), len(data) if made is None else made() - before)
        self._ask()

    def flushed(self, withheld: bool) -> None:
        """``withheld``: the disk gate keeps something back, and writes it later."""
        self.paced |= self._full
        self._full = False
        if self.paced and self._timer is None and not withheld:
            self._ask()

    def _ask(self) -> None:
        """Let messages wait as long as there are no tokens."""
        wait = self.budget.wait(self._driver.now())
        if wait or self.paced:
            self.paced = True
            self._wire.stall()
            if self._timer is None:
                self._timer = self._driver.call_later(max(LEAST_WAIT, wait), self.look)

    def look(self) -> None:
        """Let messages go if there are tokens: time has passed, or the budget is another one."""
        self._end_timer()
        self._release()
        if self.budget.wait(self._driver.now()):
            self._ask()  # paced as before: there may be tokens by now, and a timer is needed all the same
        else:
            self.paced = False
            self._wire.go_on()

    # what does not wait -----------------------------------------------------------------------

    def overdrawn(self, unread: int) -> None:
        """So many bytes were written that do not wait, since messages do."""
        if self.paced and not self._held and self._hold is not None and unread > self.budget.most_debt:
            self._held = True
            self._counters["link_budget_overdrawn"] += 1
            self._hold(True)

    def _release(self) -> None:
        if self._held:
            self._held = False
            if self._hold is not None:
                self._hold(False)

    def waits(self, size: int) -> None:
        """Messages of so many bytes have come that cannot be written yet."""
        if self.paced:
            self.budget.waited += size
            self._counters["link_budget_waited_bytes"] += size
