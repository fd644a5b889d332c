"""The rest of the node, as far as links need it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ildm.config import LinkConfig
    from ildm.core.broker.injection import Injector
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver
    from ildm.core.link.memory import Memory
    from ildm.core.plugin.dispatch import Dispatch
    from ildm.core.transfer.custody import Custody
    from ildm.core.transfer.retained import Retained
    from ildm.core.transfer.router import Router


@dataclass(frozen=True, slots=True)
class LinkParts:
    """Handed to everything in this wing, so that nothing climbs up to the node."""

    node_id: str
    boot: int
    """When this life of the node began, in ms of Unix time."""
    algorithm: str
    driver: Driver
    config: LinkConfig
    counters: Counters
    dispatch: Dispatch
    router: Router
    retained: Retained
    injector: Injector
    memory: Memory | None = None
    """What outlives a restart; None where nothing does."""
    custody: Custody | None = None
