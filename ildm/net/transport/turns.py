"""How long one connection may keep the event loop, and who goes on when.

A small packet may cost a thousand times as much as a byte of a large one, so bytes alone bound nothing. What
the last read of a connection has cost says how many bytes the next one takes. A connection that has more
than that, again and again, is read in a queue of all such, for a part of each turn of the loop. Others are
read as they come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ildm.core.counters import Counters

READ: Final = 256 * 1024
"""Bytes read of a connection at once, at most."""
LEAST: Final = 512
"""Bytes read at once, at least, and at first: nobody knows yet what they cost."""
SHARES: Final = tuple(LEAST << doubled for doubled in range((READ // LEAST).bit_length()))
"""Bytes of a read, one of these."""
PART: Final = 250e-6
"""Seconds that a read is to cost at most."""
FEW: Final = 4
"""As long as no more wait, a read may cost more: messages go in larger groups then, which is cheaper."""
PART_OF_FEW: Final = 1.5e-3
BURST: Final = 800e-6
"""Seconds that the reads of a connection may cost until there is nothing left to read: more, and it waits."""
MUCH: Final = 5e-3
"""The same for a single read. It lasts longer than most pauses that the system makes."""
TURN: Final = 250e-6
"""Seconds for all that wait, in one turn of the loop. If those read as they come take as long, costly ones
among them wait, too."""
LIGHT: Final = 100e-6
"""Seconds of a connection's last read, up to which a full turn does not let it wait."""


class Turns:
    """Calls, one after the other, for a bounded time in each turn of the loop.

    Args:
        call_soon: the loop's.
        counters: the node's.
        clock: seconds.
    """

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], Any],
        counters: Counters,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.counters = counters
        self.clock = clock
        self._call_soon = call_soon
        self._waiting: deque[Callable[[], None]] = deque()
        self._asked = False

    @property
    def busy(self) -> bool:
        """Somebody waits."""
        return bool(self._waiting)

    @property
    def part(self) -> float:
        """Seconds that a read is to cost at most, with so many waiting as there are."""
        return PART_OF_FEW if len(self._waiting) <= FEW else PART

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call once, after all that wait. Who asks waits for one call at a time, which bounds the queue."""
        self.counters["turns_waited"] += 1
        self._waiting.append(go_on)
        self._ask()

    def _ask(self) -> None:
        if not self._asked:
            self._asked = True
            self._call_soon(self._turn)

    def _turn(self) -> None:
        waiting = self._waiting
        end = self.clock() + TURN
        try:
            for _ in range(len(waiting)):  # who asks again comes in a later turn
                waiting.popleft()()
                if self.clock() >= end:
                    break
        finally:
            self._asked = False
            if waiting:
                self._ask()


def pace_of(client: Any) -> Pace | None:
    """Of the connection of a session."""
    return None if client is None else getattr(client.transport, "pace", None)


class Pace:
    """What the reads of one connection may cost."""

    __slots__ = ("burst", "last", "share", "waits")

    def __init__(self) -> None:
        self.share = LEAST
        """Bytes of the next read."""
        self.waits = False
        """The next read is to wait for those of others."""
        self.burst = 0.0
        """Seconds, since there was nothing left to read."""
        self.last = 0.0
        """Seconds of the last read."""

    def nothing_left(self) -> None:
        """All that has come was read."""
        self.burst = 0.0
        self.waits = False

    def read(self, count: int, cost: float, part: float = PART) -> None:
        """``count`` bytes were read and have cost so many seconds, ``part`` at most as was meant."""
        share = self.share
        if count < share:
            self.nothing_left()
            self.waits = cost > MUCH
        else:
            self.burst += cost
            self.waits = self.burst > BURST
        if cost > part:
            while self.share > LEAST and self.share > count * part / cost:
                self.share //= 2
        elif count == share and cost < part / 2:
            self.share = min(READ, 2 * share)
