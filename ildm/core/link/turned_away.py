"""Dialers that this node has refused lately, for its own administrator.

The dialer has an entry for each neighbour it dials, with the reason. The acceptor knows nobody it has not
accepted, so its list would be empty, although the mistake may be in its own configuration.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver

MOST = 64
"""Entries. Without room the oldest of the host with most of them goes: one stranger displaces no others."""
LASTS = 86_400.0
"""Seconds after its last attempt until a dialer is forgotten."""
TEXT = 300
"""Characters of a reason; it may quote what a stranger says."""


class TurnedAwayDialer:
    """One host's attempts that ended for one reason, under one name."""

    __slots__ = ("count", "host", "kind", "last", "node_id", "reason", "since")

    def __init__(self, host: str, node_id: str, kind: str, now: float) -> None:
        self.host = host
        self.node_id = node_id
        """What it has called itself, which it may not have proven; empty: nothing."""
        self.kind = kind
        """That of the refusal."""
        self.reason = ""
        self.since = self.last = now
        """Unix time of its first and its last attempt."""
        self.count = 0


class TurnedAway:
    """Of one node."""

    def __init__(self, driver: Driver, counters: Counters) -> None:
        self._driver = driver
        self._counters = counters
        self._found: dict[tuple[str, str, str], TurnedAwayDialer] = {}
        """The one that has tried last stands last."""

    def note(self, host: str, node_id: str, kind: str, reason: str) -> None:
        """A connection was refused."""
        now = self._driver.wall()
        key = host, node_id, kind
        dialer = self._found.pop(key, None) or TurnedAwayDialer(host, node_id, kind, now)
        self._found[key] = dialer
        dialer.reason = reason if len(reason) <= TEXT else f"{reason[:TEXT]}..."
        dialer.last = now
        dialer.count += 1
        if len(self._found) > MOST:
            ((crowded, _),) = Counter(each.host for each in self._found.values()).most_common(1)
            del self._found[next(key for key in self._found if key[0] == crowded)]
            self._counters["link_refusals_forgotten"] += 1

    def accepted(self, host: str, node_id: str) -> None:
        """That node has a link now, or did not need one."""
        for key in [key for key in self._found if key[:2] == (host, node_id)]:
            del self._found[key]

    def lately(self) -> list[TurnedAwayDialer]:
        """The one that has tried last first."""
        before = self._driver.wall() - LASTS
        for key in [key for key, dialer in self._found.items() if dialer.last < before]:
            del self._found[key]
        return [*reversed(self._found.values())]
