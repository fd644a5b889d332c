"""When the local broker is to forget retained messages that nobody here wants any more.

The broker does not forget while it is away, or still has something to get. The deletion would wait behind
what came before it. A client that has subscribed again by then would see both, and get all once more when it
has been fetched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ildm.api import NodeApi

__all__ = ["Clearing"]

DELAY = 1.0
"""Seconds until the broker forgets: a client that only changes its subscription, or comes back together with
the broker, must not see it."""
WAITING = 10_000
"""Filters that wait for the broker; further ones do not wait."""


class Clearing:
    """Waits until the broker keeps up.

    Args:
        clear: lets it forget what a filter matches, as far as nobody here subscribes to that.
    """

    def __init__(self, api: NodeApi, clear: Callable[[str], None]) -> None:
        self._api = api
        self._clear = clear
        self._sessions = 0
        self._away = False
        self._waiting: dict[str, None] = {}
        self._timer = False

    def session(self, established: bool) -> None:
        """The node has one more, or one less, session over which it injects."""
        self._sessions += 1 if established else -1
        self._away = self._sessions <= 0
        if established and self._waiting:
            self._look_later()

    def unsubscribed(self, topic_filter: str) -> None:
        """A filter has no local subscriber any more."""
        self._api.call_later(DELAY, self._when_it_keeps_up, topic_filter)

    def replaced(self, topic: str) -> None:
        """What nobody here subscribes to has taken the place of something older, neither subscribed to."""
        if self._away:
            self._wait(topic)
        else:
            self._clear(topic)

    @property
    def _keeps_up(self) -> bool:
        injections = self._api.injections
        return not self._away and injections.taken >= injections.given

    def _when_it_keeps_up(self, topic_filter: str) -> None:
        if self._keeps_up:
            self._clear(topic_filter)
        else:
            self._wait(topic_filter)

    def _wait(self, topic_filter: str) -> None:
        if len(self._waiting) >= WAITING:
            self._clear(topic_filter)
            return
        self._waiting[topic_filter] = None
        if not self._away:
            self._look_later()

    def _look_later(self) -> None:
        if not self._timer:
            self._timer = True
            self._api.call_later(DELAY, self._look)

    def _look(self) -> None:
        self._timer = False
        if self._away or not self._waiting:
            return
        if not self._keeps_up:
            self._look_later()
            return
        waiting, self._waiting = self._waiting, {}
        for topic_filter in waiting:
            self._clear(topic_filter)
