"""Whether an output queue is congested (OctopiA, Eq. 3)."""

from __future__ import annotations


class LinkLoad:
    """Link status of one output queue: ``Q * (1 + Q_in) / (1 + Q_out) > tau``.

    ``Q`` is what the queue holds now, ``Q_in`` and ``Q_out`` what entered and left it in the last full
    window. The number that left follows from the number that entered and the change of the queue. A window
    ends with the first look after it is over, so that a link that is silent costs nothing.

    Args:
        tau: the queue is congested above it.
        window: seconds.
    """

    __slots__ = ("_begin", "_entered", "_length", "_ratio", "tau", "window")

    def __init__(self, tau: float, window: float) -> None:
        self.tau = tau
        self.window = window
        self._begin = 0.0
        self._length = 0
        self._entered = 0
        self._ratio = 1.0

    def sent(self, messages: int = 1) -> None:
        """So many have been put into the queue."""
        self._entered += messages

    def element(self, now: float, length: int) -> float:
        """The congestion element ``(1 + Q_in) / (1 + Q_out)`` of the last full window.

        Args:
            length: messages in the queue now.
        """
        if now - self._begin >= self.window:
            left = max(0, self._entered - (length - self._length))
            self._ratio = (1 + self._entered) / (1 + left)
            self._begin, self._length, self._entered = now, length, 0
        return self._ratio

    def congested(self, now: float, length: int) -> bool:
        """Whether messages had better take another way."""
        return length * self.element(now, length) > self.tau
