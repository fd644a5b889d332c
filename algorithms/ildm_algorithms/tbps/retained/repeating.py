"""Repetitions of the retained messages that have entered at a node, for those who have missed them."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from ildm_algorithms.exchange.repeated import repeated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ildm.api import NodeApi
    from ildm_algorithms.tbps.publishers.outbox import Outbox
    from ildm_algorithms.tbps.publishers.routes import PublisherRoute
    from ildm_algorithms.tbps.retained.queries import RetainedQueries

__all__ = ["PAUSE", "PORTION", "SPREAD", "Repeating", "in_portions"]

SPREAD = 5.0
"""Seconds within which nodes begin to repeat what they hold after graphs have merged."""
PORTION = 100
"""Topics at once."""
PAUSE = 0.05
"""Seconds until the next ones."""


def in_portions(api: NodeApi, topics: Iterator[str], action: Callable[[str], None]) -> None:
    """Do it for all of these topics, a few at a time: there may be very many."""
    some = list(islice(topics, PORTION))
    for topic in some:
        action(topic)
    if some:
        api.call_later(PAUSE, in_portions, api, topics, action)


class Repeating:
    """When a node repeats what it holds: now and then, after merges, and where keys came late.

    Args:
        interval: seconds between two rounds on average; 0: there are none.
    """

    def __init__(self, api: NodeApi, interval: float, retained: RetainedQueries, outbox: Outbox) -> None:
        self.api = api
        self.interval = interval
        self.retained = retained
        self.outbox = outbox
        self._due = False

    def start(self) -> None:
        if self.interval:
            self._later()

    def soon(self) -> None:
        """The graph has become one with another."""
        if not self._due:
            self._due = True
            # not all nodes at once
            self.api.call_later(SPREAD * self.api.random.random(), self.now)

    def late(self, route: PublisherRoute) -> None:
        """The keys of a route are in the graph whose messages went out without."""
        held = (topic for topic in self.retained.held() if self.outbox.goes_through(route, topic))
        in_portions(self.api, held, self._repeat)

    def now(self) -> None:
        """Repeat all that is held, some at a time."""
        self._due = False
        in_portions(self.api, iter(self.retained.held()), self._repeat)

    def _repeat(self, topic: str) -> None:
        message = self.retained.held_on(topic)
        if message is not None:
            self.outbox.repeat(repeated(message))

    def _later(self) -> None:
        self.api.call_later(self.interval * (0.5 + self.api.random.random()), self._round)

    def _round(self) -> None:
        self.now()
        self._later()
