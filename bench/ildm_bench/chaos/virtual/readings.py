"""What nodes in virtual time say of themselves, put into the history; see `ildm_bench.chaos.readings`."""

from __future__ import annotations

from collections.abc import Mapping

from ildm.testing.virtual.world import World
from ildm_bench.chaos.evidence import ADMITTING
from ildm_bench.chaos.recording import Recorder
from ildm_bench.chaos.virtual.site import Site

INTERVAL = 1.0
"""Seconds from one reading to the next; live it is the same."""


class Readings:
    """Counters by which nodes say what the check would else take for a fault of theirs."""

    def __init__(self, world: World, sites: Mapping[str, Site], recorder: Recorder) -> None:
        self.world = world
        self.sites = sites
        self.recorder = recorder
        self._told: dict[tuple[str, str, int], int] = {}

    def repeat(self) -> None:
        """Read all, now and again and again."""
        for site in self.sites.values():
            if not site.driver.dead:
                self.take(site)
        self.world.call_at(self.world.time + INTERVAL, self.repeat)

    def take(self, site: Site) -> None:
        """Read one; what has changed in this life of the node is told."""
        process = f"node/{site.name}"
        life = self.recorder.lives[process]
        for name in ADMITTING:
            count = site.node.counters[name]
            if count != self._told.get((process, name, life), 0):
                self._told[process, name, life] = count
                self.recorder.note(process, "counters", "ok", topic=name, seq=count)
