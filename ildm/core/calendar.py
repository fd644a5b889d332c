"""The time of a node for what outlives it: ends and ages of what it keeps.

A machine without a battery for its clock starts with the time at which it was switched off, or in 1970.
Its clock jumps when it hears of the time. Such a jump must not throw away what is kept. So the machine's
clock is asked once, at the start; then time passes as monotonic time does. What the clock has jumped
meanwhile is remembered for the next incarnation.

How long a node was away only the machine's clock knows. There are two readings, for when that is wrong:

======== ================================== ==========================================================
reading  an absence counts                  used for
======== ================================== ==========================================================
date     as the machine's clock says        ends that others have set: message expiry, will delay, bans
cautious likewise, but a day at most        what must not be lost: spool, sessions, retained deletions
======== ================================== ==========================================================

Both are close to Unix time as long as no clock is set, and are never shown to others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ildm.core.tables import CALENDAR

if TYPE_CHECKING:
    from ildm.core.driver import Driver, Store

AWAY = 86_400.0
"""Seconds of an absence that count where nothing must be lost."""
TICK = 60.0
"""Seconds after which it is looked whether the machine's clock has jumped."""
SAVED = 600.0
"""Seconds after which the time is saved."""
JUMP = 1.0
"""Seconds that count as a jump."""


class Calendar:
    """The two readings of one node, in seconds.

    Args:
        store: has what earlier incarnations have left; None: there were none.
    """

    def __init__(self, driver: Driver, store: Store | None = None) -> None:
        self.driver = driver
        self.store = store
        saved: dict[object, float] = {}
        for (of,), (seconds,) in store.load(CALENDAR) if store is not None else ():
            if isinstance(seconds, float):
                saved[of] = seconds
        now, date = driver.now(), driver.wall()
        last = saved.get("date")
        if last is not None:
            date = max(last, date - saved.get("jumps", 0.0))
        cautious = date
        if last is not None and "cautious" in saved:
            cautious = saved["cautious"] + min(date - last, AWAY)
        self._date = date - now
        self.lead = cautious - now
        """From the driver's monotonic time to the cautious reading; it does not change within an
        incarnation."""
        self._jumps = 0.0
        self._saved_at = 0.0
        self._timer: Any = None

    def start(self) -> None:
        self._save()
        self._timer = self.driver.call_later(TICK, self._tick)

    def stop(self) -> None:
        """Remember for the next incarnation until when this one was."""
        if self._timer is not None:
            self._timer.cancel()
            self._save()

    def date(self) -> float:
        return self.driver.now() + self._date

    def cautious(self) -> float:
        return self.driver.now() + self.lead

    def shown(self, date: float) -> float:
        """What the machine's clock shows now for a date."""
        return date - self.date() + self.driver.wall()

    def _tick(self) -> None:
        self._timer = self.driver.call_later(TICK, self._tick)
        late = self.driver.now() - self._saved_at >= SAVED
        if late or abs(self.driver.wall() - self.date() - self._jumps) > JUMP:
            self._save()

    def _save(self) -> None:
        self._saved_at = self.driver.now()
        self._jumps = self.driver.wall() - self.date()
        if self.store is not None:
            rows = {"date": self.date(), "cautious": self.cautious(), "jumps": self._jumps}
            for of, seconds in rows.items():
                self.store.put(CALENDAR, (of,), (seconds,))
