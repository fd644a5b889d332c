"""A simulated link, as one of its ends sees it, and what has been sent over it and has not departed.

A node with a ``LinkModel.sending`` time sends one message after the other. When each departs and arrives is
worked out when it is sent; one of a higher priority changes that for those it overtakes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ildm.api import Peer, Session
from ildm.core.plugin.arguments import new_filters, old_filters
from ildm.mqtt import Publish
from ildm.testing.kernel import Timer
from ildm.testing.values import Cause, SimSession

if TYPE_CHECKING:
    from ildm.testing.node import SimNode


class Carried(NamedTuple):
    """A message between nodes, for ``receive(far link, *args)`` to take."""

    turn: int
    size: int
    priority: int
    cause: Cause | None
    kind: str
    receive: Callable[..., None]
    args: tuple[Any, ...]


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


class SimLink:
    """One direction of sight onto a neighbour. Implements :class:`ildm.api.Link`."""

    __slots__ = (
        "announced",
        "back",
        "delay",
        "dialed",
        "held",
        "here",
        "interest",
        "introducer",
        "last_arrival",
        "last_used",
        "node_id",
        "outbox",
        "paused",
        "peer",
        "ready_at",
        "refused",
        "session",
        "stall_timer",
        "stalled",
        "under_way",
        "up",
        "wire",
    )

    def __init__(self, here: SimNode, peer: Peer, dialed: bool, introducer: bool, sessions: int) -> None:
        self.here = here
        self.node_id = peer.node_id
        self.peer = peer
        self.delay = here.network.model.delay_between(here.node_id, peer.node_id)
        self.dialed = dialed
        self.introducer = introducer
        self.wire = (1, 1)
        """What the neighbour's algorithm reads; a test may set it."""
        self.up = False
        self.interest: dict[str, int] = {}
        self.announced: dict[str, int] = {}
        self.back: SimLink | None = None
        self.ready_at = 0.0
        self.last_used = 0.0
        self.session: SimSession | None = None
        """What filters are told; made when one looks."""
        self.last_arrival = [0.0] * sessions
        self.under_way = 0
        self.paused = False
        """The neighbour could not be reached; it is dialed again later."""
        self.refused = False
        """Something was, and :meth:`ildm.api.Algorithm.on_writable` is due."""
        self.outbox: Outbox | None = None
        """What has not departed; made when first needed."""
        self.held: list[Carried] | None = None
        """What waits for a neighbour that is not reached yet."""
        self.stalled: list[Carried] | None = None
        """What would have arrived if anything passed the link."""
        self.stall_timer: Timer | None = None

    def __repr__(self) -> str:
        return f"<link {self.here.node_id} -> {self.node_id}>"

    @property
    def sessions(self) -> Sequence[Session]:
        """None: the simulator has links, but no TCP connections."""
        return ()

    @property
    def queued(self) -> int:
        """Messages that have not departed, or would have arrived but for a fault."""
        parcels = () if self.outbox is None else self.outbox.waiting(self.here.kernel.now)
        return len(parcels) + len(self.held or ()) + len(self.stalled or ())

    @property
    def queued_bytes(self) -> int:
        return sum(carried.size for carried in self._waiting)

    @property
    def _waiting(self) -> list[Carried]:
        parcels = () if self.outbox is None else self.outbox.waiting(self.here.kernel.now)
        return [*(self.held or ()), *(parcel.carried for parcel in parcels), *(self.stalled or ())]

    def writable(self) -> None:
        """There is room again after something was refused."""
        if self.here.alive and self.up:
            self.here.algorithm.on_writable(self)

    def inter_subscribe(self, filters: Mapping[str, int]) -> None:
        changed = new_filters(filters, self.announced)
        if changed:
            self.announced.update(changed)
            self._tell("subscribe", sum(len(f.encode()) + 3 for f in changed) + 5, dict(changed))

    def inter_unsubscribe(self, filters: Iterable[str]) -> None:
        gone = old_filters(filters, self.announced)
        for topic_filter in gone:
            del self.announced[topic_filter]
        if gone:
            self._tell("unsubscribe", sum(len(f.encode()) + 2 for f in gone) + 5, dict.fromkeys(gone))

    def _tell(self, kind: str, size: int, changes: dict[str, int | None] | dict[str, int]) -> None:
        # on the first session whatever the turn, as the live node does
        self.here.network.carry(self, 0, kind, size, hear, changes)


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


def hear(link: SimLink, changes: Mapping[str, int | None]) -> None:
    for topic_filter, qos in changes.items():
        if qos is None:
            link.interest.pop(topic_filter, None)
        else:
            link.interest[topic_filter] = qos
    link.here.algorithm.on_interest_changed(link, changes)


def message_arrived(link: SimLink, message: Publish, turn: int) -> None:
    link.here.arrived(link, message, turn)


def data_arrived(link: SimLink, data: bytes, turn: int) -> None:
    overlay = link.here.overlay
    assert overlay is not None
    overlay.on_message(link.peer, data, turn)
