"""What nodes in virtual time say of themselves, put into the history; see `ildm_bench.chaos.readings`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from ildm.testing.virtual.recount import recount
from ildm.testing.virtual.world import World
from ildm_bench.chaos.evidence import TOLD
from ildm_bench.chaos.recording import Recorder
from ildm_bench.chaos.verdict import admits
from ildm_bench.chaos.virtual.site import Site

INTERVAL = 1.0
"""Seconds from one reading to the next; live it is the same."""


@cache
def is_told(counter: str) -> bool:
    """Whether a node says by it what would else be taken for a fault that it does not admit."""
    return counter in TOLD or admits(counter)


class Readings:
    """Counters that are told, of all nodes."""

    def __init__(self, world: World, sites: Mapping[str, Site], recorder: Recorder) -> None:
        self.world = world
        self.sites = sites
        self.recorder = recorder
        self._told: dict[tuple[str, str, int], int] = {}

    def repeat(self) -> None:
        """Read all, now and again and again, and count again what nodes count."""
        for site in self.sites.values():
            if not site.driver.dead:
                recount(site.node)
                self.take(site)
        self.world.call_at(self.world.time + INTERVAL, self.repeat)

    def take(self, site: Site) -> None:
        """Read one; what has changed in this life of the node is told."""
        process = f"node/{site.name}"
        life = self.recorder.lives[process]
        for name, count in site.node.counters.items():
            if is_told(name) and count != self._told.get((process, name, life), 0):
                self._told[process, name, life] = count
                self.recorder.note(process, "counters", "ok", topic=name, seq=count)
