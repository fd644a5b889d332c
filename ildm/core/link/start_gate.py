"""After a start, clients wait until neighbours that nothing is known of have told their interest.

Else the broker acknowledges messages that this node has no reason to transfer yet. A neighbour whose record
was restored needs no wait: messages queue for it from the first one on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING

from ildm.core.link.state import LinkState

if TYPE_CHECKING:
    from ildm.api import Timer
    from ildm.config import Address
    from ildm.core.link.dialer import Neighbor
    from ildm.core.link.link import NeighborLink
    from ildm.core.link.parts import LinkParts

AT_ONCE = 100
"""Clients that go on in one iteration of the event loop: the broker's listen backlog is short."""
ELSEWHERE = (LinkState.BLOCKED, LinkState.BLOCKED_INVITED)
"""States of a link whose neighbour is reached on another path."""


class StartGate:
    """Holds clients until the interest of all neighbours it waits for is known, or the time is over.

    Args:
        links: the manager's links by node id.
        neighbors: those of the configuration and the administrator.
    """

    def __init__(
        self, parts: LinkParts, links: Mapping[str, NeighborLink], neighbors: Mapping[Address, Neighbor]
    ) -> None:
        self.parts = parts
        self._links = links
        self._neighbors = neighbors
        self._unknown: dict[Address, None] = {}
        self._held: dict[Hashable, Callable[[], None]] = {}
        self._timer: Timer | None = None
        self._told = False

    @property
    def closed(self) -> bool:
        """A client has to wait, also behind those that are going on just now."""
        return bool(self._unknown or self._held)

    @property
    def waiting_for(self) -> list[str]:
        """The neighbours whose interest is not known."""
        return [str(address) for address in self._unknown]

    def close(self, unknown: Iterable[Address], seconds: float) -> None:
        """Wait for these neighbours; at the start of the node."""
        if seconds:
            self._unknown = dict.fromkeys(unknown)
        if self._unknown:
            self._timer = self.parts.driver.call_later(seconds, self._time_over, seconds)

    def stop(self) -> None:
        """The node stops, and ends its clients."""
        self._unknown.clear()
        self._held.clear()
        self._cancel_timer()

    def hold(self, client: Hashable, go_on: Callable[[], None]) -> None:
        """``go_on`` is called once, later, unless the client lets go before."""
        if not self._told:
            self._told = True
            self.parts.driver.log(
                "info", "clients wait until neighbours have told their interest", neighbors=self.waiting_for
            )
        self._held[client] = go_on

    def let_go(self, client: Hashable) -> None:
        """A client has gone."""
        self._held.pop(client, None)

    def look(self) -> None:
        """Something has changed about links or neighbours."""
        if not self._unknown:
            return
        for address in [address for address in self._unknown if self._is_known(address)]:
            del self._unknown[address]
        if not self._unknown:
            self._open()

    def give_up(self, address: Address) -> None:
        """This address never leads to a neighbour."""
        if self._unknown.pop(address, self) is None and not self._unknown:
            self._open()

    def _is_known(self, address: Address) -> bool:
        neighbor = self._neighbors.get(address)
        if neighbor is None:
            return True  # it was removed
        link = self._links.get(neighbor.node_id or "")
        if link is None:
            return False
        if link.state in ELSEWHERE:
            return True
        return link.state is LinkState.ACTIVE and not link.received_interest.synchronizing

    def _time_over(self, seconds: float) -> None:
        self.parts.counters["start_waits_expired"] += 1
        self.parts.driver.log(
            "warning",
            "clients are served before all neighbours have told their interest",
            neighbors=self.waiting_for,
            seconds=seconds,
        )
        self._unknown.clear()
        self._open()

    def _open(self) -> None:
        self._cancel_timer()
        if self._told:
            self.parts.driver.log("info", "clients wait no longer for neighbours", clients=len(self._held))
        if self._held:
            self._let_on()

    def _let_on(self) -> None:
        for client in list(self._held)[:AT_ONCE]:
            go_on = self._held.pop(client, None)
            if go_on is not None:  # else one before has ended it
                go_on()
        if self._held:
            self._timer = self.parts.driver.call_later(0, self._let_on)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
