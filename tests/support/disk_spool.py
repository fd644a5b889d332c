"""Sites whose nodes keep a spool as in production, on a disk in memory."""

from __future__ import annotations

from random import Random
from typing import Any

from ildm.api import Algorithm
from ildm.config import LinkConfig, SpoolConfig
from ildm.state.spool import FileSpool
from ildm.testing.virtual.disk import SimDisk
from ildm.testing.virtual.driver import WorldDriver
from ildm.testing.virtual.world import World
from tests.support.site import Site


class DiskSite(Site):
    """A site; ``spooling`` is the section ``spool`` of its node's configuration."""

    def __init__(
        self, world: World, name: str, algorithm: str | type[Algorithm], spooling: dict[str, Any], **more: Any
    ) -> None:
        self.disk = SimDisk(
            Random(name),
            (lambda delay, work: world.call_at(world.time + delay, work))
            if spooling.get("mode") == "power"
            else None,
        )
        super().__init__(world, name, algorithm, spooling=spooling, **more)

    def start(self, neighbors: tuple[str, ...] = (), *, new_state: bool = False) -> None:
        """Begin a life with what the disk has."""
        self.spool_driver = driver = WorldDriver(self.world, self.name)
        config = SpoolConfig.model_validate(self.settings["spooling"])
        self.spool = FileSpool(
            self.disk,
            config,
            wall=driver.wall,
            call_later=driver.call_later,
            log=driver.log,
            expiry=LinkConfig.model_validate(self.settings.get("link", {})).expiry,
        )
        self.settings["counters"] = self.spool.counters
        super().start(neighbors, new_state=new_state)

    def kill(self, silent: bool = False, *, power: bool = False) -> None:
        """As for any site; ``power``: what the disk has not synced is lost with it."""
        if power:
            self.disk.cut_power()
        else:
            self.disk.kill()
        self.world.kill(self.spool_driver)
        super().kill(silent)

    def reborn(self, *neighbors: str, power: bool = False) -> None:
        """Kill the node and start it again at once."""
        self.kill(power=power)
        self.store = self.store.copy()
        self.start(neighbors)

    @property
    def disk_spool(self) -> FileSpool:
        assert isinstance(self.spool, FileSpool)
        return self.spool

    @property
    def kept(self) -> int:
        """Messages the node still has for anybody, counted for each."""
        assert self.node.custody is not None
        return self.node.custody.report().messages
