"""A member that does not own the site, as far as it serves clients; see :mod:`ildm.core.pair`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ildm.core.guests.joining import Joining
from ildm.core.guests.outbox import Outbox
from ildm.core.guests.parts import GuestRegistry, GuestRouter, GuestWaits
from ildm.core.guests.routes import GuestRoutes
from ildm.core.local.parts import ClientParts
from ildm.core.local.rules import PublishRules
from ildm.core.local.waits import Waits
from ildm.core.node import Node
from ildm.core.trial import EmptyStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from ildm.config import Address, Config
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver
    from ildm.core.plugin.loading import PluginSpecs


class GuestNode(Node):
    """A node without algorithm, links, injection and state, whose clients are guests of the owner.

    Args:
        at: where the owner listens for members.
        life: of this process, told from all other processes.
    """

    def __init__(
        self,
        config: Config,
        plugins: PluginSpecs,
        driver: Driver,
        *,
        node_id: str,
        member: str,
        life: str,
        at: Address,
        counters: Counters,
        release: str = "",
    ) -> None:
        self.outbox = Outbox(driver, counters)
        site = config.site.model_copy(update={"rules": []})
        super().__init__(
            config.model_copy(update={"site": site}),
            plugins._replace(algorithm=None),
            driver,
            EmptyStore(),
            node_id=node_id,
            counters=counters,
            release=release,
        )
        assert isinstance(self.clients, GuestRegistry)
        self.joining = Joining(
            driver, self.outbox, self.clients, self.guest_waits, at, node_id=node_id, member=member, life=life
        )

    def start_serving(self) -> None:
        """Begin to work."""
        self.state.start()
        self.calendar.start()
        self.dispatch.start()
        self.joining.start()

    def _router(self) -> GuestRouter:
        router = GuestRouter(
            self.driver,
            self.dispatch,
            self.counters,
            self.config.limits.route_cache,
            self.config.link.round_robin,
            self.retained,
            self.injector,
            self.outbox,
        )
        router.routes = GuestRoutes(self.dispatch, self.counters, self.config.limits.route_cache)
        return router

    def _client_registry(self, cooperates: bool) -> GuestRegistry:
        return GuestRegistry(
            self.driver,
            self.store,
            self.config.limits,
            self.counters,
            PublishRules(self.config.publish),
            self.outbox,
            self.calendar,
        )

    def _client_waits(self, kind: type[Waits] = GuestWaits) -> Waits:
        made = super()._client_waits(kind)
        assert isinstance(made, GuestWaits)
        self.guest_waits = made.follow(self.outbox)
        return made

    def _client_parts(self) -> ClientParts:
        self.custody = self.outbox
        try:
            return super()._client_parts()
        finally:
            self.custody = None  # all but clients would take it for that of a spool

    def drain(self, finished: Callable[[], None]) -> None:
        def left() -> None:
            self.outbox.flush()
            self.joining.stop()
            finished()

        super().drain(left)
