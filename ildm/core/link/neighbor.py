"""An address which this node dials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ildm.config import Address
from ildm.core.backoff import Backoff

if TYPE_CHECKING:
    from ildm.core.link.manager import LinkManager
    from ildm.core.link.session import LinkSession


class Neighbor:
    """States: connecting, linked, down, refused, duplicate.

    Args:
        expected: the only node that may answer there: the address was not given by an administrator,
            the link is made on demand.
    """

    def __init__(
        self, manager: LinkManager, address: Address, saved: bool, expected: str | None = None
    ) -> None:
        self.address = address
        self.saved = saved
        self.expected = expected
        self.state = "connecting"
        self.reason: str | None = None
        self.since = manager.driver.wall()
        self.node_id: str | None = expected
        self.token = ""
        self.session: LinkSession | None = None
        self.timer: Any = None
        self.gone = False
        config = manager.config
        self.backoff = Backoff(manager.driver.random, config.reconnect_min, config.reconnect_max)

    def enter(self, state: str, reason: str | None, now: float) -> bool:
        """Change the state; False if it was already this one for this reason."""
        if (state, reason) == (self.state, self.reason):
            return False
        self.state, self.reason, self.since = state, reason, now
        return True


def address_of(peer: str) -> Address:
    """The far end of a connection as an address; port 0 where it has none."""
    host, _, port = peer.rpartition(":")
    return Address(host, int(port)) if port.isdecimal() else Address(peer, 0)
