"""The addresses which this node dials, and when."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ildm.config import Address
from ildm.core.backoff import Backoff
from ildm.mqtt import IldmError

if TYPE_CHECKING:
    from ildm.core.link.link import NeighborLink
    from ildm.core.link.parts import LinkParts
    from ildm.core.link.ports import Dialing

TOKEN = 12


class Neighbor:
    """An address. States: connecting, linked, down, refused, duplicate.

    Args:
        expected: the only node that may answer there: the address was not given by an administrator,
            the link is made on demand.
    """

    def __init__(self, parts: LinkParts, address: Address, saved: bool, expected: str | None = None) -> None:
        self.address = address
        self.saved = saved
        self.expected = expected
        self.found = False
        """DNS has named it, and nobody else."""
        self.state = "connecting"
        self.reason: str | None = None
        self.since = parts.driver.wall()
        self.node_id: str | None = expected
        self.token = ""
        self.session: Dialing | None = None
        self.timer: Any = None
        self.due = 0.0
        """When the timer ends, in monotonic time."""
        self.gone = False
        self.former_secret = False
        """It has refused the link secret of now: the one before is tried, as long as that is good."""
        config = parts.config
        self.backoff = Backoff(parts.driver.random, config.reconnect_min, config.reconnect_max)

    def enter(self, state: str, reason: str | None, now: float) -> bool:
        """Change the state; False if it was already this one for this reason."""
        if (state, reason) == (self.state, self.reason):
            return False
        self.state, self.reason, self.since = state, reason, now
        return True


STATES = {
    "duplicate": "duplicate",
    **dict.fromkeys(("", "malformed", "internal", "disconnected", "timeout", "outdated"), "down"),
}
"""State of a neighbour by the kind of refusal that has ended its connection; any other kind: refused."""


class Dialer:
    """Dials the neighbours, again and again where a connection does not come about or does not last.

    Args:
        session: makes the session number ``index`` for a dial.
    """

    def __init__(self, parts: LinkParts, session: Callable[[Neighbor, int], Dialing]) -> None:
        self.parts = parts
        self.driver = parts.driver
        self.config = parts.config
        self.neighbors: dict[Address, Neighbor] = {}
        """Those of the configuration and the administrator."""
        self._session = session
        self._stopped = False

    def add(self, address: Address, saved: bool) -> Neighbor:
        """Take an address in, without dialing it yet.

        Raises:
            IldmError: it is there already (unless it has refused: then it is tried anew), or there are
                too many.
        """
        known = self.neighbors.get(address)
        if known is not None and known.state == "refused":
            self.remove(known)
        elif known is not None:
            raise IldmError(f"{address} is already a neighbour")
        if len(self.neighbors) >= self.config.max_neighbors:
            raise IldmError(f"there are {len(self.neighbors)} neighbours already (link.max_neighbors)")
        neighbor = self.neighbors[address] = Neighbor(self.parts, address, saved)
        return neighbor

    def remove(self, neighbor: Neighbor) -> None:
        """Dial an address no more."""
        neighbor.gone = True
        del self.neighbors[neighbor.address]
        self.give_up(neighbor)

    def stop(self) -> None:
        """Dial nothing more."""
        self._stopped = True
        for neighbor in self.neighbors.values():
            self.give_up(neighbor)

    def dial(self, neighbor: Neighbor) -> None:
        """Begin a connection that is to become a link's first."""
        neighbor.timer = None
        if neighbor.gone or self._stopped:
            return
        neighbor.token = self.driver.token(TOKEN).hex()
        neighbor.session = self._session(neighbor, 0)
        self.driver.dial(neighbor.address, neighbor.session, self.config.connect_timeout)

    def dial_later(self, neighbor: Neighbor) -> None:
        """Dial after the pause that is due."""
        pause = neighbor.backoff.next()
        if not (neighbor.gone or self._stopped) and neighbor.timer is None:
            neighbor.due = self.driver.now() + pause
            neighbor.timer = self.driver.call_later(pause, self.dial, neighbor)

    def hurry(self) -> None:
        """There is a link again, with whomever: those that were down, perhaps for the same reason, are tried
        after the shortest pause."""
        for neighbor in self.neighbors.values():
            if neighbor.state != "down" or neighbor.timer is None:
                continue
            neighbor.backoff.reset()
            pause = neighbor.backoff.next()
            if self.driver.now() + pause < neighbor.due:  # else one that comes and goes would put it off
                neighbor.timer.cancel()
                neighbor.timer = None
                neighbor.backoff.reset()
                self.dial_later(neighbor)

    def dial_session(self, neighbor: Neighbor, link: NeighborLink, token: str, index: int) -> None:
        """Begin one of the further connections of a link."""
        # a link that was connected anew meanwhile has dialed all its sessions
        if not (link.token == token == neighbor.token) or not link.connected or neighbor.gone:
            return
        if all(session.index != index for session in link.open_sessions):
            self.driver.dial(neighbor.address, self._session(neighbor, index), self.config.connect_timeout)

    def dial_session_later(self, neighbor: Neighbor, link: NeighborLink, index: int) -> None:
        """One of the further connections of a link is gone."""
        self.driver.call_later(
            self.config.reconnect_min, self.dial_session, neighbor, link, link.token, index
        )

    def give_up(self, neighbor: Neighbor) -> None:
        """End a connection that is not a link's yet."""
        if neighbor.timer is not None:
            neighbor.timer.cancel()
            neighbor.timer = None
        if neighbor.session is not None and neighbor.session.link is None:
            neighbor.session.abort()

    def linked(self, neighbor: Neighbor, node_id: str) -> None:
        """Its connection has become a link's."""
        neighbor.node_id = node_id
        neighbor.backoff.reset()
        neighbor.enter("linked", None, self.driver.wall())

    def failed(self, neighbor: Neighbor, kind: str, reason: str) -> None:
        """Its connection has ended; it is dialed again, unless the far administrator has removed it."""
        state = STATES.get(kind, "refused")
        if neighbor.enter(state, reason, self.driver.wall()) and state != "duplicate":
            self.driver.log(
                "warning",
                "neighbour refuses" if state == "refused" else "neighbour down",
                address=str(neighbor.address),
                reason=reason,
            )
        if kind != "removed":
            self.dial_later(neighbor)

    def link_lost(self, node_id: str, kind: str, reason: str) -> None:
        """A link has gone: addresses that led to it, too, are tried at once, or with it removed."""
        for neighbor in self.neighbors.values():
            if neighbor.state != "duplicate" or neighbor.node_id not in (node_id, None):
                continue
            if kind == "removed" and neighbor.node_id is not None:
                self.give_up(neighbor)
                neighbor.session = None
                neighbor.enter("refused", reason, self.driver.wall())
            else:
                self.dial_later(neighbor)


def address_of(peer: str) -> Address:
    """The far end of a connection as an address; port 0 where it has none."""
    host, _, port = peer.rpartition(":")
    return Address(host, int(port)) if port.isdecimal() else Address(peer, 0)
