"""Addresses from which clients were refused for who they are, too often: nobody comes from there for a while.

Whoever guesses passwords is stopped before that costs a handshake of TLS, or the broker anything.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ildm.config import LimitsConfig

REMEMBERED = 65_536
"""Addresses that are counted or blocked at a time; then the one that began longest ago is forgotten."""


class _Failures:
    """Of one address, from its first one on, or since it is blocked."""

    __slots__ = ("blocked", "number", "since")

    def __init__(self, since: float) -> None:
        self.number = 0
        self.since = since
        self.blocked = False


class AuthFailures:
    """Counts for ``limits.auth_block`` seconds; at ``limits.auth_failures`` it blocks for as many.

    Args:
        now: monotonic time in seconds.
    """

    def __init__(self, limits: LimitsConfig, now: Callable[[], float]) -> None:
        self._limits = limits
        self._now = now
        self._failures: OrderedDict[str, _Failures] = OrderedDict()  # by ``since``

    def count(self, key: str) -> bool:
        """One more from there: whether that has blocked it."""
        self._expire()
        if not self._limits.auth_failures:
            return False
        found = self._failures.get(key)
        if found is None:
            found = self._failures[key] = _Failures(self._now())
            if len(self._failures) > REMEMBERED:
                self._failures.popitem(last=False)
        found.number += 1
        if found.blocked or found.number < self._limits.auth_failures:
            return False
        found.blocked = True
        found.since = self._now()
        self._failures.move_to_end(key)
        return True

    def blocks(self, key: str) -> bool:
        """Whether nobody is taken from there now."""
        self._expire()
        found = self._failures.get(key)
        return found is not None and found.blocked

    def blocked(self) -> Iterator[tuple[str, float]]:
        """Who is blocked now, and for how many seconds more."""
        self._expire()
        now = self._now()
        for key, found in self._failures.items():
            if found.blocked:
                yield key, found.since + self._limits.auth_block - now

    def lift(self, key: str) -> bool:
        """Begin anew with an address; whether it was blocked."""
        blocked = self.blocks(key)
        if blocked:
            del self._failures[key]
        return blocked

    def _expire(self) -> None:
        before = self._now() - self._limits.auth_block
        while self._failures:
            key, found = next(iter(self._failures.items()))
            if found.since > before:
                return
            del self._failures[key]
