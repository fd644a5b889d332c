"""Long looks through what a node has, a little at a time: local clients have their turn in between."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ildm.api import NodeApi

__all__ = ["Scans"]

STEPS = 4
"""Of all scans together in one call of the node; a step is to take about a millisecond."""
WAITING = 1_000
"""Scans that have not ended, at most."""


class Scans:
    """Does scans one after another. What is short is done in the call that adds it.

    Args:
        guard: calls what may fail because another node is in error.
    """

    def __init__(
        self, api: NodeApi, guard: Callable[[Callable[[], None]], None], count: Callable[[str], None]
    ) -> None:
        self._api = api
        self._guard = guard
        self._count = count
        self._scans: deque[Iterator[None]] = deque()
        self._left = STEPS
        self._timer = False

    def add(self, scan: Iterator[None]) -> None:
        """Go through with ``scan`` as far as it goes, a step each time that it is asked for the next item."""
        if len(self._scans) >= WAITING:
            self._count("scans_dropped")
            return
        self._scans.append(scan)
        if len(self._scans) == 1:
            self._go_on()

    def _go_on(self) -> None:
        while self._scans and self._left:
            self._left -= 1
            scan = self._scans[0]
            ended = [True]  # also if it fails
            self._guard(partial(_step, scan, ended))
            if ended[0]:
                self._scans.popleft()
        if not self._timer:
            self._timer = True
            self._api.call_later(0.0, self._next)

    def _next(self) -> None:
        self._timer = False
        self._left = STEPS
        if self._scans:
            self._go_on()


def _step(scan: Iterator[None], ended: list[bool]) -> None:
    for _ in scan:
        ended[0] = False
        return
