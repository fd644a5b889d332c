"""The rest of the node, as far as links need it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ildm.config import Address, LimitsConfig, LinkConfig
    from ildm.core.broker.injection import Injector
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver
    from ildm.core.link.compression import Compression
    from ildm.core.link.link_store import LinkStore
    from ildm.core.link.versions import Range
    from ildm.core.plugin.dispatch import Dispatch
    from ildm.core.transfer.custody import Custody
    from ildm.core.transfer.retained import RetainedStore
    from ildm.core.transfer.router import Router


class LinkEvents(Protocol):
    """What the node is told of its links."""

    def change_begins(self, change: str, address: Address) -> None:
        """Adding (``add``) or removing (``remove``) a neighbour begins."""

    def change_done(self, change: str) -> None:
        """The same has ended."""


@dataclass(frozen=True, slots=True)
class LinkParts:
    """Handed to everything in this wing, so that nothing climbs up to the node."""

    node_id: str
    boot: int
    """When this life of the node began, in ms of Unix time."""
    algorithm: str
    wire: tuple[int, int]
    """Lowest and highest version of the algorithm's own messages that it reads."""
    release: str
    protocols: Range
    """Versions of the link protocol that its code has."""
    has_overlay: bool
    driver: Driver
    config: LinkConfig
    limits: LimitsConfig
    counters: Counters
    dispatch: Dispatch
    router: Router
    retained: RetainedStore
    injector: Injector
    events: LinkEvents
    memory: LinkStore | None
    """What outlives a restart; None where nothing does."""
    custody: Custody | None
    compression: Compression
    epoch: int = 0
    """Of the claim by which this node owns its site; 0: it is in no pair."""
