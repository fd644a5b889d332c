"""Stamps of retained messages: the clock they are made with, and how a message carries one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ildm.api import STAMP_PROPERTY, Stamp
from ildm.mqtt import Property, Publish

if TYPE_CHECKING:
    from ildm.core.driver import Driver

PLAUSIBLE = 1_577_836_800_000
"""2020-01-01 in milliseconds: a wall clock that shows less has not been set yet."""
HIGHEST = 253_402_300_799_000
"""9999-12-31: no stamp is later, whatever any clock says."""

LEEWAY = 60_000
"""Milliseconds beyond the latest that is believed which reactions to it may take."""


class HybridClock:
    """Milliseconds of Unix time, but later than every stamp seen: a reaction never loses to its cause.

    The clock goes on with time from the latest stamp seen. So the nodes share the time of the node that is
    furthest ahead, and the newest value wins everywhere although no clock is right. A node whose own clock
    is behind follows its neighbours.

    A stamp further in the future than ``skew`` seconds is not seen at all, because nobody could stamp after
    the highest one there is. Where the own clock has not been set yet, nothing can be said of others.
    """

    def __init__(self, driver: Driver, skew: float) -> None:
        self._driver = driver
        self._skew = int(skew * 1000)
        self.last = 0
        """The latest stamp made or seen."""
        self._lead = 0
        """Milliseconds from the driver's monotonic time to this clock; it never shrinks by itself."""
        self._lead_known = False

    @property
    def limit(self) -> int:
        """The latest stamp that is believed."""
        return self._latest(self._skew)

    def sees(self, stamp: Stamp) -> bool:
        """Take note of a stamp; False: it is not to be believed."""
        if stamp.time > self.limit:
            return False
        self.take(stamp.time)
        return True

    def take(self, time: int) -> None:
        """Go on from here, unless the clock is further already."""
        self.last = max(self.last, time)
        self._follow(time)

    def next(self) -> int:
        """The time of a new stamp."""
        self.last = max(self.last + 1, self.reading)
        return self.last

    @property
    def reading(self) -> int:
        """What the clock shows: so far below ``limit`` that nodes with other clocks believe it, too."""
        self._follow(self._wall())
        return min(self._monotonic() + self._lead, self._latest(self._skew * 9 // 10))

    @property
    def ahead(self) -> float:
        """Seconds that stamps made now are ahead of the own clock."""
        return max(self.last, self.reading) / 1000 - self._driver.wall()

    def turn_back(self) -> bool:
        """Forget what a wrong clock of this very node has made of it; whether there was need to."""
        if self.last <= self.limit + LEEWAY:
            return False
        self.last = 0
        self._lead_known = False
        return True

    def _follow(self, time: int) -> None:
        lead = time - self._monotonic()
        self._lead = max(self._lead, lead) if self._lead_known else lead
        self._lead_known = True

    def _latest(self, ahead: int) -> int:
        """So far ahead of the own clock."""
        now = self._wall()
        return HIGHEST if now < PLAUSIBLE else now + ahead

    def _monotonic(self) -> int:
        return int(self._driver.now() * 1000)

    def _wall(self) -> int:
        return min(int(self._driver.wall() * 1000), HIGHEST)


def stamped(message: Publish, stamp: Stamp, repeated: bool = False) -> Publish:
    """A copy of a message that carries its stamp over a link."""
    # a client may have set a property of this name: only the node's own counts
    users = [pair for pair in message.properties.get(Property.USER_PROPERTY, ()) if pair[0] != STAMP_PROPERTY]
    users.append((STAMP_PROPERTY, stamp.text(repeated)))
    return Publish(
        topic=message.topic,
        payload=message.payload,
        qos=message.qos,
        retain=True,
        packet_id=message.packet_id,
        properties={**message.properties, Property.USER_PROPERTY: users},
    )


def read_stamp(message: Publish) -> tuple[Stamp, bool] | None:
    """The stamp of a message, and whether this is a repetition."""
    users = message.properties.get(Property.USER_PROPERTY, ())
    found = next((value for key, value in users if key == STAMP_PROPERTY), None)
    stamp, repeated = (None, False) if found is None else Stamp.parse(found)
    return None if stamp is None else (stamp, repeated)


def take_stamp(message: Publish) -> tuple[Stamp, bool] | None:
    """Remove the stamp from a message; answers what :func:`read_stamp` does."""
    taken = read_stamp(message)
    users = message.properties.get(Property.USER_PROPERTY, ())
    rest = [pair for pair in users if pair[0] != STAMP_PROPERTY]
    if rest:
        message.properties[Property.USER_PROPERTY] = rest
    elif users:
        del message.properties[Property.USER_PROPERTY]
    return taken
