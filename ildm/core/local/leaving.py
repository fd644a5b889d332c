"""What sessions that have ended wanted: withdrawn some at a time, as one client may have wanted very much."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ildm.core.driver import Driver
    from ildm.core.local.record import ClientRecord

PART = 500
"""Filters that are withdrawn before others have their turn, some milliseconds."""


class Leaving:
    """Until a filter is withdrawn, the session that has ended holds it as any session does.

    So it does not matter whether its client is back meanwhile: what both want stays wanted.

    Args:
        withdraw: carries it out for some filters of what :meth:`add` has taken.
    """

    def __init__(self, driver: Driver, withdraw: Callable[[ClientRecord, list[str]], None]) -> None:
        self.driver = driver
        self._withdraw = withdraw
        self._waiting: deque[tuple[ClientRecord, list[str]]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __iter__(self) -> Iterator[ClientRecord]:
        return (left for left, _ in self._waiting)

    def add(self, record: ClientRecord) -> None:
        """Take a record's filters away from it."""
        if not record.filters:
            return
        left = record.take_filters()
        # From the end: a filter that covers others is shorter, nearly always. It goes after them, else
        # they would be announced in its place.
        self._waiting.append((left, sorted(left.filters, key=len)))
        if len(self._waiting) == 1:
            self._turn()

    def withdraw_some(self) -> None:
        left, filters = self._waiting[0]
        part = filters[-PART:]
        del filters[-PART:]
        if not filters:
            self._waiting.popleft()
        self._withdraw(left, part)

    def _turn(self) -> None:
        if self._waiting:
            self.withdraw_some()
        if self._waiting:
            self.driver.call_soon(self._turn)
