"""How long something takes, counted in buckets as histograms of Prometheus have them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

BUCKETS: Sequence[float] = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds in seconds."""


class Timing:
    """Observations of one kind of time, in seconds."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        """Of each bucket and of what is beyond the last, not accumulated."""
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.sum += seconds


class Timings:
    """What a node times: once for each connection, never for a message."""

    def __init__(self) -> None:
        self.handshake = Timing()
        """TLS with clients."""
        self.connect = Timing()
        """Connections to the broker for clients."""
        self.connack = Timing()
        """From a client's CONNECT to the broker's CONNACK, what enhanced authentication takes with it."""
        self.handover = Timing()
        """Nobody was served while a process took the clients of the one before it."""
