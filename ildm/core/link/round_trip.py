"""Round-trip time of a link: PINGREQ and PINGRESP of its first session, which both ends send.

One PINGREQ at a time is measured. Its number finds the answer, because a neighbour answers in order. A sample
counts only if the sender had nothing to write before it: else it would measure a queue.
"""

from __future__ import annotations

from collections import deque

SAMPLES = 6
"""The least of so many samples is the value: what a busy machine adds is left out."""


class RoundTrip:
    """Of one link; it outlives the link's connections, as the path is most often the same again."""

    __slots__ = ("_answered", "_asked", "_measured", "_samples", "_since", "value")

    def __init__(self) -> None:
        self.value: float | None = None
        """Seconds; None: not known yet."""
        self._samples: deque[float] = deque(maxlen=SAMPLES)
        self.connected()

    def connected(self) -> None:
        """There is a new connection. The value stands until that has been measured."""
        self._samples.clear()
        self._asked = self._answered = 0
        self._measured = 0
        """Number of the PINGREQ that is measured; 0: none."""
        self._since = 0.0

    @property
    def pending(self) -> bool:
        """A PINGREQ has no answer yet."""
        return self._answered < self._asked

    def asked(self, now: float, idle: bool) -> None:
        """A PINGREQ was written; ``idle``: nothing had to be written before it."""
        self._asked += 1
        if idle and not self._measured:
            self._measured, self._since = self._asked, now

    def answered(self, now: float) -> None:
        """A PINGRESP has come; one too many means nothing."""
        if not self.pending:
            return
        self._answered += 1
        if self._answered == self._measured:
            self._measured = 0
            self._samples.append(now - self._since)
            self.value = min(self._samples)
