"""What is known of other nodes' answering: when their last messages came, and how long they take.

Time-outs are those of RFC 6298: smoothed round-trip time and four times its deviation. A time-out doubles
with each one that passes in vain, until the next measurement. Only answers that belong to one sending are
measured (Karn). Parts of casts are measured apart: their acknowledgement takes as long as all that lies
below.
"""

from __future__ import annotations

from collections.abc import Callable

from ildm_algorithms.overlay.config import OverlayConfig

__all__ = ["Peers"]

_NEVER = float("-inf")
_ROOM = 8
"""The part of all nodes that makes room for others: one in so many."""


class Estimate:
    """Round-trip time to one node, in seconds (RFC 6298, 2)."""

    __slots__ = ("backed_off", "deviation", "smoothed")

    def __init__(self) -> None:
        self.smoothed = 0.0
        self.deviation = 0.0
        self.backed_off = 1

    def measured(self, seconds: float) -> None:
        if self.smoothed:
            self.deviation += (abs(self.smoothed - seconds) - self.deviation) / 4
            self.smoothed += (seconds - self.smoothed) / 8
        else:
            self.smoothed, self.deviation = seconds, seconds / 2
        self.backed_off = 1

    @property
    def timeout(self) -> float:
        """0 without a measurement."""
        return self.smoothed + 4 * self.deviation


class _Known(Estimate):
    """One node: the estimate is of its answers. There are very many of these."""

    __slots__ = ("parts", "received_at")

    def __init__(self) -> None:
        super().__init__()
        self.received_at = _NEVER
        self.parts: Estimate | None = None


class Peers:
    """At most ``peers`` nodes; at the bound those silent for the longest make room, several at once."""

    def __init__(self, config: OverlayConfig) -> None:
        self.config = config
        self._known: dict[str, _Known] = {}
        self.routed = Estimate()
        """Of requests that others pass on."""

    def _of(self, node_id: str) -> _Known:
        known = self._known.get(node_id)
        return self._add(node_id) if known is None else known

    def _add(self, node_id: str) -> _Known:
        if len(self._known) >= self.config.peers:
            oldest = sorted(self._known, key=self.last_received)
            for each in oldest[: len(oldest) // _ROOM + 1]:
                del self._known[each]
        known = self._known[node_id] = _Known()
        return known

    def received(self, node_id: str, now: float) -> None:
        known = self._known.get(node_id)  # with each message: no further call
        if known is None:
            known = self._add(node_id)
        known.received_at = now

    def last_received(self, node_id: str) -> float:
        """When a message of a node came; long ago if it is not known."""
        known = self._known.get(node_id)
        return _NEVER if known is None else known.received_at

    def silent(self, since: float) -> Callable[[str], bool]:
        """A test for nodes from which nothing was received since."""
        return lambda node_id: self.last_received(node_id) < since

    # time-outs ----------------------------------------------------------------------------------

    def measured(self, node_id: str, seconds: float) -> None:
        """A node has answered."""
        self._of(node_id).measured(seconds)

    def measured_part(self, node_id: str, seconds: float) -> None:
        """A node has acknowledged a part of a cast."""
        known = self._of(node_id)
        if known.parts is None:
            known.parts = Estimate()
        known.parts.measured(seconds)

    def back_off(self, node_id: str) -> None:
        """A node has not answered in time."""
        known = self._of(node_id)
        known.backed_off = min(2 * known.backed_off, 64)

    def timeout(self, node_id: str) -> float:
        """Seconds to wait for an answer before it is asked again."""
        config = self.config
        known = self._known.get(node_id)
        if known is None or not known.smoothed:
            return config.ack_timeout / 3
        timeout = max(known.timeout, config.timeout_min) * known.backed_off
        return min(timeout, config.timeout_max)

    @property
    def routed_timeout(self) -> float:
        """Seconds to wait for the answer to a request that others pass on."""
        return max(self.config.ack_timeout, min(self.routed.timeout, self.config.timeout_max))

    def part_timeout(self, node_id: str) -> float:
        """Seconds to wait for the acknowledgement of a part, or a sign that it is being served."""
        known = self._known.get(node_id)
        if known is None or not known.smoothed:
            timeout = self.config.ack_timeout / 3
        else:
            timeout = 2 * max(known.timeout, self.config.timeout_min)
        if known is not None and known.parts is not None:
            timeout = max(timeout, min(known.parts.timeout, self.config.ack_timeout))
        return min(timeout, self.config.timeout_max)
