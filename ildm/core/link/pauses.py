"""Nodes that could not be reached, and how long each of them is left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ildm.core.backoff import Backoff

if TYPE_CHECKING:
    from random import Random

REMEMBERED = 1000
"""Nodes that are remembered at most. While none of so many can be forgotten, no other is dialed."""


class _Failed:
    __slots__ = ("backoff", "forget_at", "reason", "until")

    def __init__(self, backoff: Backoff) -> None:
        self.backoff = backoff
        self.until = 0.0
        self.forget_at = 0.0
        self.reason = ""


class Pauses:
    """Back-off for each node that cannot be reached, whatever its address. All times are in seconds.

    A node is as good as new, its next pause the shortest, when it has not failed for ``maximum`` seconds
    after its last pause. So many dials that fail begin at most: of one node one in each pause, of all nodes
    that are not remembered yet ``REMEMBERED`` in ``maximum``.

    Args:
        maximum: the longest pause: a node that has come back is found again within it.
    """

    def __init__(self, random: Random, minimum: float, maximum: float) -> None:
        self.random = random
        self.minimum = minimum
        self.maximum = max(minimum, maximum)
        self._failed: dict[str, _Failed] = {}
        """Whose last failure is the longest ago comes first."""
        self._full_until = 0.0

    def __len__(self) -> int:
        return len(self._failed)

    def left(self, node_id: str, now: float) -> float:
        """Time until a node may be dialed again."""
        failed = self._failed.get(node_id)
        return 0.0 if failed is None else max(0.0, failed.until - now)

    def has_room(self, node_id: str, now: float) -> bool:
        """Whether a node may be dialed at all: should it fail, it has to be remembered."""
        if len(self._failed) < REMEMBERED or node_id in self._failed:
            return True
        if now < self._full_until:
            return False
        self._failed = {known: failed for known, failed in self._failed.items() if failed.forget_at > now}
        if len(self._failed) < REMEMBERED:
            return True
        self._full_until = min(failed.forget_at for failed in self._failed.values())
        return False

    def failed(self, node_id: str, reason: str, now: float) -> bool:
        """A node could not be reached; answers whether that, or the reason for it, is news."""
        failed = self._failed.pop(node_id, None)
        if failed is None:
            failed = _Failed(Backoff(self.random, self.minimum, self.maximum))
            if len(self._failed) >= REMEMBERED:  # dials that were under way already
                del self._failed[next(iter(self._failed))]
        elif now >= failed.forget_at:
            failed.backoff.reset()
        self._failed[node_id] = failed
        failed.until = now + failed.backoff.next()
        failed.forget_at = failed.until + self.maximum
        news = failed.reason != reason
        failed.reason = reason
        return news

    def reached(self, node_id: str) -> None:
        """There is a link with a node; the next pause is a longer one only if that does not last."""
        failed = self._failed.get(node_id)
        if failed is not None:
            failed.until, failed.reason = 0.0, ""

    def link_lost(self, node_id: str, age: float, now: float) -> None:
        """A link broke, ``age`` seconds after it was made: a node that drops each link at once is as good as
        one that cannot be reached."""
        if age < self.maximum:
            self.failed(node_id, "", now)
        else:
            self._failed.pop(node_id, None)
