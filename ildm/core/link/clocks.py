"""Whether the clocks of a node and its neighbours agree.

A hello tells what the clock of its node shows. A node whose clock is set while a link is open says so with
``clock``; only neighbours that have told their own time get it. Nothing else depends on the difference: the
stamps of retained messages do without right clocks (:mod:`ildm.core.transfer.stamps`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ildm.core.link.control import CLOCK, send_control
from ildm.core.link.hello import LATEST
from ildm.mqtt import MalformedPacket

if TYPE_CHECKING:
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver
    from ildm.core.link.link import NeighborLink

TOLERATED = 60.0
"""Seconds that two clocks may be apart before that is told."""
STEP = 1.0
"""Seconds by which a clock has to leave monotonic time to count as set."""


class NeighborClock:
    """A neighbour's clock, as long as there is a connection."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._offset: float | None = None
        """The neighbour's clock less monotonic time here; None: not told."""
        self.told = 0.0
        """This node's clock less monotonic time, as the neighbour was told it last."""
        self.apart = False
        """It was logged that the clocks of both are apart."""

    def connected(self) -> None:
        """The hellos have told this node's clock."""
        self._offset, self.told = None, self.driver.wall() - self.driver.now()

    def lost(self) -> None:
        """Nothing is heard of it any more."""
        self._offset = None

    def shows(self, time: int) -> None:
        """The neighbour has told it, in milliseconds of Unix time."""
        self._offset = time / 1000 - self.driver.now()

    @property
    def skew(self) -> float | None:
        """Seconds that it is ahead, to about a round trip; None: not known."""
        return None if self._offset is None else self._offset + self.driver.now() - self.driver.wall()


class Apart(NamedTuple):
    """A clock that differs from the node's."""

    node_id: str
    skew: float
    """Seconds it is ahead."""


class Verdict(NamedTuple):
    """What the known clocks tell together."""

    behind: float | None
    """Seconds by which the own clock is behind those of the majority; None: it is not known to be wrong."""
    known: int
    """Clocks, with the node's own."""
    apart: list[Apart]


class Clocks:
    """Compares the clock of a node with those of its neighbours."""

    def __init__(self, driver: Driver, counters: Counters) -> None:
        self.driver = driver
        self.counters = counters
        self._offset = self._own_offset()

    def heard(self, link: NeighborLink, payload: bytes) -> None:
        """A neighbour's clock was set."""
        if not payload.isdigit() or len(payload) > len(str(LATEST)) or int(payload) > LATEST:
            raise MalformedPacket("malformed message about a clock", clause="MQTT-4.13")
        link.clock.shows(int(payload))
        self.look(link)

    def tick(self, links: Collection[NeighborLink]) -> None:
        """Once per keep alive: tell neighbours that the own clock was set, and people what differs now."""
        offset = self._own_offset()
        step = offset - self._offset
        if abs(step) > STEP:
            self._offset = offset
            self.counters["clock_steps"] += 1
            self.driver.log("info", "the clock was set while the node runs", seconds_forward=round(step))
        for link in links:
            if link.clock.skew is not None and abs(offset - link.clock.told) > STEP:
                link.clock.told = offset
                send_control(link, CLOCK, b"%d" % milliseconds(self.driver.wall()))
            self.look(link)

    def look(self, link: NeighborLink) -> None:
        """Log when two clocks come apart, or agree again."""
        skew = link.clock.skew
        apart = skew is not None and abs(skew) > TOLERATED
        if apart == link.clock.apart or skew is None:
            return
        link.clock.apart = apart
        if apart:
            event = "the clocks of this node and a neighbour are apart"
            self.driver.log("warning", event, neighbor=link.node_id, seconds_ahead=round(skew))
        else:
            self.driver.log("info", "the clock of a neighbour agrees again", neighbor=link.node_id)

    def _own_offset(self) -> float:
        return self.driver.wall() - self.driver.now()


def milliseconds(wall: float) -> int:
    """A wall clock as a hello tells it."""
    return min(max(1, int(wall * 1000)), LATEST)


def verdict(links: Collection[NeighborLink]) -> Verdict:
    """Which clocks differ, and whether a majority says that the node's own is wrong."""
    known = {link.node_id: skew for link in links if (skew := link.clock.skew) is not None}
    skews = sorted([0.0, *known.values()])
    middle = skews[len(skews) // 2]
    agree = sum(abs(skew - middle) <= TOLERATED for skew in skews)
    wrong = abs(middle) > TOLERATED and 2 * agree > len(skews)
    apart = [Apart(node, skew) for node, skew in known.items() if abs(skew) > TOLERATED]
    return Verdict(middle if wrong else None, len(skews), apart)


def concerns(links: Collection[NeighborLink], limit: float) -> Iterator[str]:
    """The same for people, a line each; ``limit``: ``limits.clock_skew``."""
    found = verdict(links)
    if found.behind is not None:
        way = "behind" if found.behind > 0 else "ahead"
        yield f"this node's clock is {_long(found.behind)} {way}, as most of {found.known} known clocks tell"
    agree = found.known - len(found.apart)
    for node, skew in found.apart:
        way = "ahead of" if skew > 0 else "behind"
        line = f"the clock of {node} is {_long(skew)} {way} this node's"
        if found.behind is None and 2 * agree <= found.known:
            line += "; which of them is wrong is not known"
        if skew > limit:
            line += "; its newer retained messages are refused here"
        elif -skew > limit:
            line += "; it refuses newer retained messages of this node if it has the same limits.clock_skew"
        yield line


def _long(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if abs(seconds) >= 2 * size:
            return f"{abs(seconds) / size:.0f} {unit}"
    return f"{abs(seconds):.0f} s"
