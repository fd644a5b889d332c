"""What DNS says in virtual time: each site hears of those it is to dial, or what a fault makes of that."""

from __future__ import annotations

from ildm.config import Address, LookupConfig
from ildm.core.link.discovery import MOST
from ildm.mqtt import IldmError
from ildm.testing.virtual.world import World
from ildm_bench.chaos.schedule import Setting

LINKS = 2
"""Port where the node of a site listens for others; the host is the site's name."""
LOOKUPS = [{"host": "peers", "port": LINKS}]
INTERVAL = 1.0
"""Seconds from one question to the next."""
EACH = 3
"""Value of the fault with which each second has another kind of answers."""


class Names:
    """The name servers of all sites."""

    def __init__(self, world: World, setting: Setting) -> None:
        self.world = world
        self.setting = setting
        self.spoilt: dict[str, int] = {}
        """How a fault has changed the answers to a site; see its kind, ``dns``."""
        world.names = self._answer

    def _answer(self, who: str, question: LookupConfig) -> list[Address] | BaseException:
        how = self.spoilt.get(who)
        if how == EACH:
            how = (0, 1, 2, None)[int(self.world.time) % 4]
        if how == 0:
            return []
        if how == 1:
            return IldmError("no name server answers")
        return self._right(who) if how is None else self._wrong()

    def _right(self, who: str) -> list[Address]:
        """Those that a site is to dial, and itself."""
        dialed = [far for near, far in self.setting.links if near == who]
        return [Address(site, LINKS) for site in (*dialed, who)]

    def _wrong(self) -> list[Address]:
        """Any sites, and hosts that there are not; in two answers there are more than a node keeps."""
        hosts = [*self.setting.sites, *(f"nowhere{number}" for number in range(2 * MOST))]
        return [Address(host, LINKS) for host in self.world.random.sample(hosts, MOST)]
