"""Work that comes in thousands, spread over time: local clients do not wait for the overlay."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ildm.api import NodeApi

__all__ = ["Pace"]

BURST = 16
"""Pieces of work done at once after a time without any."""
LOOKS = 500
"""A second, at which the next pieces are done: so many are enough for the rate."""
ENOUGH = 0.999
"""Of a token, for a timer may come a rounding too early."""
VOID = 256
"""Pieces that turn out to be nothing to do, at one look."""


class Pace:
    """Pieces of work from several lanes, which take turns; in a lane, the first first.

    With little to do each piece is done in the call that adds it.

    Args:
        rate: pieces begun in a second at most, after the first :data:`BURST`.
        at_once: how many may have begun and not :meth:`ended`; None: they end in the call that begins them.
        lanes: how many kinds of work there are.
    """

    def __init__(self, api: NodeApi, rate: float, at_once: int | None = None, lanes: int = 1) -> None:
        self._api = api
        self._rate = rate
        self._at_once = at_once
        self._piece = max(1, round(rate / LOOKS))
        self._lanes: list[deque[Callable[[], bool]]] = [deque() for _ in range(lanes)]
        self._next = 0
        self._begun = 0
        self._tokens = float(BURST)
        self._counted = api.now()
        self._busy = False
        self._timer = False

    def add(self, work: Callable[[], bool], lane: int = 0) -> None:
        """Do a piece of work in its turn; it returns whether there was anything to do."""
        self._lanes[lane].append(work)
        self._go_on(BURST)

    def ended(self) -> None:
        """One of the pieces that have begun has come to its end."""
        self._begun -= 1
        self._go_on(self._piece)

    @property
    def waiting(self) -> int:
        """Pieces that have not begun."""
        return sum(map(len, self._lanes))

    @property
    def _room(self) -> bool:
        return self._at_once is None or self._begun < self._at_once

    def _go_on(self, most: int) -> None:
        # Work that is done at once ends, and adds more, within this call.
        if self._busy or self._timer:
            return
        self._busy = True
        self._refill()
        done = 0
        for _ in range(VOID):
            work = self._take() if self._room and self._tokens >= ENOUGH and done < most else None
            if work is None:
                break
            self._begun += 1
            if work():
                done += 1
                self._tokens -= 1
            else:
                self._begun -= 1
        self._busy = False
        if self._room and self.waiting:
            self._timer = True
            self._api.call_later(max(0.0, self._piece - self._tokens) / self._rate, self._fire)

    def _fire(self) -> None:
        self._timer = False
        self._go_on(self._piece)

    def _refill(self) -> None:
        now = self._api.now()
        self._tokens = min(BURST, self._tokens + (now - self._counted) * self._rate)
        self._counted = now

    def _take(self) -> Callable[[], bool] | None:
        for _ in self._lanes:
            self._next = (self._next + 1) % len(self._lanes)
            if self._lanes[self._next]:
                return self._lanes[self._next].popleft()
        return None
