"""Growing pauses between attempts, with jitter."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random


class Backoff:
    """Doubles from ``minimum`` to ``maximum`` seconds; each pause is 50-100 % of its step."""

    def __init__(self, random: Random, minimum: float, maximum: float) -> None:
        self._random = random
        self.minimum = minimum
        self.maximum = maximum
        self._step = minimum

    def next(self) -> float:
        pause = self._step * (0.5 + self._random.random() / 2)
        self._step = min(self.maximum, self._step * 2)
        return pause

    def reset(self) -> None:
        self._step = self.minimum
