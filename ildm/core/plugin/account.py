"""What a node keeps and counts for one plugin, each within its bound.

The same for the live node and for what stands in for it in tests and in the simulator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ildm.api import PluginError
from ildm.core.counters import Tally
from ildm.core.plugin.arguments import check_name, checked_gauge

if TYPE_CHECKING:
    from ildm.config import LimitsConfig

MOST = (1 << 63) - 1
OTHER = "other"
"""Where what is counted goes when there is no room for its name."""
FAILURES = (Exception, SystemExit)
"""What a plugin may raise without ending the node."""


class Account:
    """Counters, gauges and refusals of one plugin.

    Attributes:
        refused: what there was no room for, by bound: ``timers``, ``sessions``, ``offloads``, ``names``,
            ``log``, ``state``.
    """

    __slots__ = ("_allowance", "counters", "gauges", "left_out", "limits", "logged_at", "refused")

    def __init__(self, limits: LimitsConfig, counters: Tally | None = None) -> None:
        self.limits = limits
        self.counters = Tally() if counters is None else counters
        self.gauges: dict[str, float] = {}
        self.refused = Tally()
        self._allowance = float(limits.plugin_log_rate)
        self.logged_at = 0.0
        self.left_out = 0

    def refuse(self, bound: str, text: str) -> PluginError:
        """Count a call beyond a bound; the error to be raised."""
        self.refused[bound] += 1
        return PluginError(text)

    def count(self, name: str, by: int) -> None:
        """See :meth:`ildm.api.NodeApi.count`."""
        if by.__class__ is not int or not -MOST <= by <= MOST:
            raise PluginError("a number is counted that is no int of 64 bits")
        if name not in self.counters:
            check_name(name)
            name = self._named(name)
        self.counters[name] += by

    def gauge(self, name: str, value: float) -> None:
        """See :meth:`ildm.api.NodeApi.gauge`."""
        number = checked_gauge(value)
        if name not in self.gauges:
            check_name(name)
            name = self._named(name)
        self.gauges[name] = number

    def _named(self, name: str) -> str:
        if len(self.counters) + len(self.gauges) < self.limits.plugin_names:
            return name
        self.refused["names"] += 1
        return OTHER

    def may_log(self, now: float) -> bool:
        """Whether another line is within the rate; if not, it is counted."""
        rate = self.limits.plugin_log_rate
        self._allowance = min(float(rate), self._allowance + (now - self.logged_at) * rate)
        self.logged_at = now
        if self._allowance < 1:
            self.left_out += 1
            self.refused["log"] += 1
            return False
        self._allowance -= 1
        return True

    def take_left_out(self) -> dict[str, int]:
        """A field that says how many lines are missing before this one; empty: none."""
        left_out, self.left_out = self.left_out, 0
        return {"left_out": left_out} if left_out else {}
