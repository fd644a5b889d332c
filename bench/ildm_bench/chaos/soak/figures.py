"""What a soak has measured, and what is wrong with it.

A gauge grows if its Theil-Sen slope over the last half of the samples is above what it may be, and what it
has grown by there is more than it varies anyway. A node that was killed is judged by its last life.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from ildm_bench.chaos.stored import Stored

SOAK = "soak.json"
GAUGES: dict[str, tuple[float, float]] = {
    "rss_bytes": (1.0, 8 << 20),  # what was in hand while a neighbour was away stays with the allocator
    "objects": (0.01, 5_000),
    "entries": (0.01, 5_000),
    "descriptors": (1e-4, 16),
    "tasks": (1e-4, 16),
    "timers": (1e-4, 64),
}
"""Of a node: the slope it may have, per event, and the growth in half of a soak that says nothing yet."""
LEFT = (1.2, 20)
"""Instances of a class after quiet, compared with those after the first quiet: times, and more."""
ENTRIES = "entries of "
LEFT_ENTRIES = (1.2, 5_000)
"""The same for entries of tables: those of the last messages, to know them again, fill up to their bounds."""
FEWEST = 6
"""Samples of one life of a node, fewer of which have no slope."""


class Sample(BaseModel):
    """A node at one time. ``events``: until then, of all kinds; ``t``: seconds since the soak began."""

    model_config = ConfigDict(extra="forbid")

    t: float
    events: int
    node: str
    life: int
    rss_bytes: int
    descriptors: int
    tasks: int
    timers: int
    objects: int
    entries: int


class Soak(Stored):
    """One soak. ``first``, ``last``: by node the instances by class, and timers, before and after it."""

    FILE: ClassVar[str] = SOAK

    title: str
    machine: str
    seconds: float
    messages: int
    received: int
    connects: int
    cuts: int
    kills: int
    samples: list[Sample]
    first: dict[str, dict[str, int]]
    last: dict[str, dict[str, int]]
    quiet: bool = Field(description="Whether nothing waited any more before the last look.")
    wrong: list[str] = Field(default=[], description="Processes that ended by themselves, and the like.")

    @property
    def events(self) -> int:
        return self.messages + self.connects + self.cuts + self.kills

    @property
    def nodes(self) -> list[str]:
        return sorted({sample.node for sample in self.samples})

    def life(self, node: str) -> list[Sample]:
        """Its samples since it was last started, which is the first time if nobody killed it."""
        samples = [sample for sample in self.samples if sample.node == node]
        return [sample for sample in samples if sample.life == samples[-1].life]

    def slope(self, node: str, gauge: str) -> float | None:
        """Per event, over the last half; None with too few samples."""
        samples = self._last_half(node)
        if len(samples) < FEWEST:
            return None
        return theil_sen([s.events for s in samples], [getattr(s, gauge) for s in samples])

    def growing(self) -> list[str]:
        """Gauges that grow, in words."""
        found = []
        for node in self.nodes:
            events = [sample.events for sample in self._last_half(node)]
            for gauge, (allowed, noise) in GAUGES.items():
                slope = self.slope(node, gauge)
                if slope is None or slope <= allowed:
                    continue
                grown = slope * (events[-1] - events[0])
                if grown > noise:
                    found.append(f"node {node}: {gauge} grows by {slope:.3g} an event ({grown:,.0f} so far)")
        return found

    def left(self) -> list[str]:
        """Classes with more instances than before, in words; of nodes that were not killed.

        Those of Python itself count among the objects only: what they are of nobody would know.
        """
        return [
            f"node {node}: {number} {name} are left, {before} were there before"
            for node, classes in sorted(self.last.items())
            if node in self.first
            and len({sample.life for sample in self.samples if sample.node == node}) == 1
            for name, number in classes.items()
            if name.partition(".")[0] not in sys.stdlib_module_names
            for before in [self.first[node].get(name, 0)]
            for times, more in [LEFT_ENTRIES if name.startswith(ENTRIES) else LEFT]
            if number > before * times + more
        ]

    def problems(self) -> list[str]:
        """All that is wrong; nothing, if the soak was passed."""
        waiting = [] if self.quiet else ["something still waited after quiet"]
        return [*self.growing(), *self.left(), *waiting, *self.wrong]

    def _last_half(self, node: str) -> list[Sample]:
        samples = self.life(node)
        return samples[len(samples) // 2 :]


def theil_sen(x: Sequence[float], y: Sequence[float]) -> float:
    """The median of the slopes between all pairs of points with different x; 0 without any.

    Not moved by less than 29 % of points that are anywhere (Sen 1968).
    """
    across = np.subtract.outer(np.asarray(x, float), np.asarray(x, float))
    up = np.subtract.outer(np.asarray(y, float), np.asarray(y, float))
    pairs = across > 0
    return float(np.median(up[pairs] / across[pairs])) if pairs.any() else 0.0
