"""What links carry in any ten seconds, as the network sees it; put into the history."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping

from ildm.config import LinkConfig
from ildm.core.transfer.budget import MOST_DEBT
from ildm.testing.virtual.pipe import Pipe
from ildm.testing.virtual.world import World
from ildm_bench.chaos.drawing import TREE
from ildm_bench.chaos.recording import Recorder
from ildm_bench.chaos.schedule import Setting, Variant
from ildm_bench.chaos.verdict import CARRIED

SPAN = 10.0
"""Seconds."""
TOLERANCE = 1.05
CONNECTION = 3000
"""Bytes that a connection takes whatever the rate is: its handshake, and news of both nodes."""


PAGE = 32 << 10
"""Bytes of the largest message of an overlay, which goes whole; those of clients are smaller."""


def bound(setting: Setting, site: str) -> int | None:
    """Most bytes from a site to another in so many seconds but for :data:`CONNECTION`; None: any number."""
    rate = LinkConfig.model_validate(setting.options.get("link", {})).rate
    if "rate" in setting.variants.get(site, Variant()).without:
        return None
    asked = None if setting.variants else rate.in_  # some may not have the feature
    rates = [each for each in (rate.out, asked) if each is not None]
    if not rates:
        return None
    least = min(rates)
    page = 0 if setting.algorithm in TREE else PAGE
    return int(TOLERANCE * least * SPAN + rate.burst_of(least) + MOST_DEBT * least) + page


class Carried:
    """Of all links of a run, by direction; all connections of a link count together.

    ``most``: the :func:`bound` of each site that has one.
    """

    def __init__(self, world: World, recorder: Recorder, most: Mapping[str, int]) -> None:
        self.world = world
        self.recorder = recorder
        self.most = most
        self._gone: dict[str, deque[tuple[float, int]]] = defaultdict(deque)
        self._sums: dict[str, int] = defaultdict(int)
        self._highest: dict[str, int] = {}

    def meter(self, pipe: Pipe, ends: tuple[str, str]) -> None:
        """Count what goes over a new connection."""
        for end, (near, far) in ((pipe, ends), (pipe.other, ends[::-1])):
            if near not in self.most:
                continue
            process, most = f"link/{near}/{far}", self.most[near]
            end.metered = lambda size, process=process, most=most: self._went(process, size, most)
            self._went(process, -CONNECTION, most)
            if process not in self._highest:
                self._highest[process] = 0
                self.recorder.note(process, "counters", "info", topic=CARRIED, seq=most)

    def _went(self, process: str, size: int, most: int) -> None:
        now, gone = self.world.time, self._gone[process]
        gone.append((now, size))
        self._sums[process] += size
        while gone[0][0] <= now - SPAN:
            self._sums[process] -= gone.popleft()[1]
        found = self._sums[process]
        if found > most and found > self._highest[process]:
            self._highest[process] = found
            self.recorder.note(process, "counters", "ok", topic=CARRIED, seq=found)
