"""When interest is known everywhere: a SUBACK may wait for it, so that nothing published after it is missed.

A node tells its neighbours what its clients want, they theirs, and each says back when all behind it have
been told. In a tree that ends at the leaves. Every wait is bounded in time (``link.subscribe_wait``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ildm.core.link.control import TOLD, send_control

if TYPE_CHECKING:
    from ildm.core.link.link import NeighborLink
    from ildm.core.link.parts import LinkParts


class Wait:
    """Somebody waits until a number of neighbours have been told."""

    __slots__ = ("callback", "deadline", "left")

    def __init__(self, callback: Callable[[], None], left: int, deadline: float) -> None:
        self.callback: Callable[[], None] | None = callback
        self.left = left
        self.deadline = deadline

    def one_less(self) -> None:
        self.left -= 1
        if self.left <= 0:
            self.finish()

    def finish(self) -> None:
        callback, self.callback = self.callback, None
        if callback is not None:
            callback()


class Telling:
    """Who waits for which neighbours.

    Args:
        links: those that cooperate; kept, not copied.
    """

    def __init__(self, parts: LinkParts, links: Sequence[NeighborLink]) -> None:
        self.driver = parts.driver
        self.counters = parts.counters
        self.wait = parts.config.subscribe_wait
        self.links = links
        self._waits: deque[Wait] = deque()
        self._of_link: dict[NeighborLink, deque[tuple[int, Wait]]] = {}
        self._timer: Any = None

    def when_advertised(self, callback: Callable[[], None], source: NeighborLink | None = None) -> bool:
        """Whether all cooperating, connected neighbours know what has been announced up to now.

        If not, ``callback`` is called once: when they do, have gone, or after ``link.subscribe_wait``.

        Args:
            source: a neighbour that need not know.
        """
        behind = [link for link in self.links if link is not source and link.announcer.behind]
        if not behind or not self.wait:
            return True
        wait = Wait(callback, len(behind), self.driver.now() + self.wait)
        for link in behind:
            self._of_link.setdefault(link, deque()).append((link.announcer.version, wait))
        self._waits.append(wait)
        if self._timer is None:
            self._timer = self.driver.call_later(self.wait, self._late)
        return False

    def progressed(self, link: NeighborLink) -> None:
        """A neighbour has been told more, or cannot be told any more."""
        waits = self._of_link.get(link)
        while waits and (waits[0][0] <= link.announcer.advertised or not link.announcer.speaking):
            waits.popleft()[1].one_less()
        if not waits:
            self._of_link.pop(link, None)

    def _late(self) -> None:
        """Give up waits whose time is over; all last equally long, so the oldest come first."""
        self._timer = None
        now = self.driver.now()
        while self._waits and (self._waits[0].callback is None or self._waits[0].deadline <= now):
            wait = self._waits.popleft()
            if wait.callback is not None:
                self.counters["interest_told_late"] += 1
                wait.finish()
        for link, waits in list(self._of_link.items()):
            while waits and waits[0][1].callback is None:
                waits.popleft()
            if not waits:
                del self._of_link[link]
        if self._waits:
            self._timer = self.driver.call_later(self._waits[0].deadline - now, self._late)

    # a neighbour's own interest -------------------------------------------------------------------

    def answer(self, link: NeighborLink) -> None:
        """Say to a neighbour, now or later, that what it has announced is known behind this node, too."""
        if not link.answering:
            link.answering = True
            self._answer(link, link.token, link.received_interest.packets)

    def _answer(self, link: NeighborLink, token: str, packets: int) -> None:
        if self.when_advertised(lambda: self._answered(link, token, packets), link):
            self._answered(link, token, packets)

    def _answered(self, link: NeighborLink, token: str, packets: int) -> None:
        if link.token != token or not link.in_cooperation:
            return
        send_control(link, TOLD, b"%d" % packets)
        if link.received_interest.packets > packets:  # more has come meanwhile
            self._answer(link, token, link.received_interest.packets)
        else:
            link.answering = False
