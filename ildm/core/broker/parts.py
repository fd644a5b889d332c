"""The rest of the node, as far as its own talk with the broker needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ildm.config import Config
    from ildm.core.broker.broker_choice import BrokerChoice
    from ildm.core.broker.reach import Reach
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver, Store
    from ildm.core.plugin.dispatch import Dispatch
    from ildm.core.transfer.custody import Custody
    from ildm.core.transfer.retained import RetainedStore
    from ildm.mqtt import Publish


class BrokerEvents(Protocol):
    """What the node is asked about its clients' values, and told of the broker's."""

    def left_will(self, topic: str, payload: bytes) -> bool:
        """Whether a client of this node has left such a will."""

    def value_found(self, value: Publish) -> None:
        """A retained message of the broker's has prevailed: the other sites are to get it."""


class BrokerParts:
    """Handed to everything in this wing, so that nothing climbs up to the node."""

    def __init__(
        self,
        *,
        node_id: str,
        config: Config,
        driver: Driver,
        store: Store,
        counters: Counters,
        dispatch: Dispatch,
        brokers: BrokerChoice,
        reach: Reach,
        retained: RetainedStore,
        custody: Custody | None,
        password: str | None,
        cooperates: bool,
        events: BrokerEvents,
    ) -> None:
        self.node_id = node_id
        self.config = config
        self.driver = driver
        self.store = store
        self.counters = counters
        self.dispatch = dispatch
        self.brokers = brokers
        self.reach = reach
        self.retained = retained
        self.custody = custody
        """What survives this node of messages that cross; None: nothing does."""
        self.password = password
        """Of the node's own sessions; a reload may change it."""
        self.cooperates = cooperates
        """An algorithm is loaded."""
        self.events = events
