"""The rest of the node, as far as what plugins are handed needs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ildm.config import Config
    from ildm.core.broker.injection import Injector
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver, Store
    from ildm.core.link.manager import LinkManager
    from ildm.core.local.site_rules import SiteRules
    from ildm.core.plugin.dispatch import Dispatch
    from ildm.core.status import NodeState
    from ildm.core.transfer.custody import Custody
    from ildm.core.transfer.retained import RetainedStore
    from ildm.core.transfer.router import Router


@dataclass(frozen=True, slots=True)
class HostParts:
    """Handed to everything in this wing, so that nothing climbs up to the node."""

    node_id: str
    config: Config
    driver: Driver
    store: Store
    counters: Counters
    state: NodeState
    dispatch: Dispatch
    custody: Custody | None
    retained: RetainedStore
    router: Router
    injector: Injector
    links: LinkManager
    site_rules: SiteRules
