"""How many bytes a second the senders of one link may write: a bucket of tokens, one a byte.

A write takes its bytes whatever the bucket holds, so the bucket may be in debt. While it is empty, messages
wait in their queue. All other packets go at once: handshakes, acknowledgements, signs of life, interest.
Messages that wait can therefore still be overtaken, dropped or rerouted, and no order changes.

The bucket holds half of the burst, and one write may have the other half. So in any time the burst and the
rate's bytes go, apart from the debt of packets that do not wait and of one large message.
"""

from __future__ import annotations

from typing import Final

LEAST_WRITE: Final = 512
"""Bytes of messages that one write may have, however low the rate is."""
MOST_DEBT: Final = 2.0
"""Seconds of the rate that packets which do not wait may take while messages wait. Then nothing is read, as
most of them answer what was read."""
PERIOD: Final = 10.0
"""Seconds of which the use is told."""


class Budget:
    """Of one link. All times are monotonic, in seconds."""

    __slots__ = ("_at", "_before", "_now", "_since", "_tokens", "burst", "rate", "share", "spent", "waited")

    def __init__(self, now: float, rate: int, burst: int, senders: int) -> None:
        self.rate = 1
        self.burst = 1
        self.share = 1
        """Bytes of messages that one sender may write at once."""
        self._tokens = 0.0
        self._at = self._since = now
        self._now = self._before = 0
        self.spent = 0
        """Bytes that were written."""
        self.waited = 0
        """Bytes of messages that had to wait for tokens."""
        self.limit(now, rate, burst, senders)
        self._tokens = float(self._room)

    @property
    def _room(self) -> int:
        return self.burst - self.burst // 2

    def limit(self, now: float, rate: int, burst: int, senders: int) -> None:
        """Another rate holds, in bytes a second; debts stay."""
        self._fill(now)
        self.rate, self.burst = rate, burst
        self.share = max(LEAST_WRITE, burst // 2 // senders)
        self._tokens = min(self._tokens, float(self._room))

    def _fill(self, now: float) -> None:
        passed = now - self._at
        if passed > 0:
            self._at = now
            self._tokens = min(float(self._room), self._tokens + passed * self.rate)

    def take(self, now: float, size: int) -> None:
        """So many bytes were written."""
        self._fill(now)
        self._tokens -= size
        self.spent += size
        self._pass(now)
        self._now += size

    def wait(self, now: float) -> float:
        """Time until messages may be written; 0: now."""
        self._fill(now)
        return -self._tokens / self.rate if self._tokens <= -1 else 0.0

    @property
    def most_debt(self) -> float:
        """Bytes of :data:`MOST_DEBT`, beside a burst."""
        return MOST_DEBT * self.rate + self.burst

    def used(self, now: float) -> float:
        """Which part of the rate was used in the last ten to twenty seconds."""
        self._pass(now)
        return (self._before + self._now) / (self.rate * (PERIOD + now - self._since))

    def _pass(self, now: float) -> None:
        passed = now - self._since
        if passed >= PERIOD:
            self._before = self._now if passed < 2 * PERIOD else 0
            self._now = 0
            self._since = now
