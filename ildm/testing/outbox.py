"""What simulated nodes have sent and what has not departed: it waits for its turn, or for the link.

A node with a ``LinkModel.sending`` time sends one message after the other. When each departs and arrives is
worked out when it is sent; one of a higher priority changes that for those it overtakes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ildm.testing.link import Carried, SimLink


class Parcel:
    """A message that has not departed yet."""

    __slots__ = ("before", "begins", "carried", "delays", "departure", "link", "version")

    def __init__(self, link: SimLink, carried: Carried) -> None:
        self.link = link
        self.carried = carried
        self.begins = 0.0
        """When the node begins to send it."""
        self.departure = 0.0
        self.delays: list[float] = []
        """On the way, of each copy that will arrive."""
        self.before = 0.0
        """When what was sent before it over the same session arrives."""
        self.version = 0
        """Counted up when it arrives at another time than was said before."""


class Outbox:
    """Parcels of one link in the order of their departure."""

    __slots__ = ("_parcels",)

    def __init__(self) -> None:
        self._parcels: deque[Parcel] = deque()

    def add(self, parcel: Parcel, now: float) -> None:
        self.waiting(now)
        self._parcels.append(parcel)

    def waiting(self, now: float) -> deque[Parcel]:
        """Those that have not departed."""
        parcels = self._parcels
        while parcels and parcels[0].departure <= now:
            parcels.popleft()
        return parcels

    def drop_lowest(self, priority: int, now: float) -> Parcel | None:
        """Take out the oldest of the lowest priority, if that is below ``priority``."""
        movable = [parcel for parcel in self.waiting(now) if parcel.begins > now]
        lowest = min(movable, key=lambda parcel: parcel.carried.priority, default=None)
        if lowest is None or lowest.carried.priority >= priority:
            return None
        self._parcels.remove(lowest)
        lowest.version += 1
        return lowest

    def sort(self) -> None:
        self._parcels = deque(sorted(self._parcels, key=lambda parcel: parcel.departure))


def by_priority(links: Iterable[SimLink], now: float, sending: float) -> tuple[list[Parcel], float]:
    """Let what waits in the links of one node depart by priority, and of one priority as it would have.

    Answers the parcels that now depart at another time, in order, and when the last of all does. When each
    arrives is left to the caller; ``last_arrival`` is that of what has not moved.
    """
    boxes = [link.outbox for link in links if link.outbox is not None]
    waiting = [parcel for box in boxes for parcel in box.waiting(now)]
    free = max([now, *(parcel.departure for parcel in waiting if parcel.begins <= now)])
    movable = sorted((parcel for parcel in waiting if parcel.begins > now), key=lambda parcel: parcel.begins)
    ordered = sorted(movable, key=lambda parcel: -parcel.carried.priority)
    same = 0
    while same < len(ordered) and movable[same] is ordered[same]:
        free = ordered[same].departure
        same += 1
    for parcel in reversed(movable[same:]):
        parcel.link.last_arrival[parcel.carried.turn % len(parcel.link.last_arrival)] = parcel.before
    for parcel in ordered[same:]:
        parcel.begins = max(free, parcel.link.ready_at)
        parcel.departure = free = parcel.begins + sending
        parcel.version += 1
    for box in boxes:
        box.sort()
    return ordered[same:], free
