"""Which of several addresses of the broker is used.

In their order, from the first: one that cannot be reached is left for the next, after the last comes the
first again. An address that works is kept, also when an earlier one comes back: sessions live there, and all
clients of a site have to meet at one broker. While some still do at an address where new connections fail,
the failures have to be several and to last; what is left there ends when another address is taken up.
"""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ildm.config import Address

FAILURES = 3
"""Failures in a row, without one connection between them, at an address that has sessions."""


class BrokerChoice:
    """One per node.

    Args:
        lasting: seconds that the failures have to last at an address that has sessions.
        moved: called when another address is to be tried.
        changed: called with the address used before when another one has been reached; it may not be
            configured any more.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        now: Callable[[], float],
        lasting: float,
        moved: Callable[[], None],
        changed: Callable[[Address], None],
    ) -> None:
        self.addresses = tuple(addresses)
        self.places = _places(addresses)
        """Where a connection leads to, as transports say it, of those addresses of which that is known."""
        self.current = self.addresses[0]
        """Where connections are made."""
        self.used = self.current
        """Where the last one was made."""
        self.failovers = 0
        """Changes from one that is configured."""
        self.since: float | None = None
        """When another one was reached, by the clock ``now``."""
        self._now = now
        self._lasting = lasting
        self._moved = moved
        self._changed = changed
        self._open: dict[Address, int] = {}
        self._failures = 0
        self._first_failure = 0.0

    def reached(self, address: Address) -> None:
        """A connection was made."""
        self._open[address] = self._open.get(address, 0) + 1
        if address != self.current:
            return  # one that took long: the others have gone on
        self._failures = 0
        if address != self.used:
            before, self.used = self.used, address
            self.failovers += before in self.addresses
            self.since = self._now()
            self._changed(before)

    def ended(self, address: Address) -> None:
        """One that was made has gone."""
        self._open[address] -= 1

    def failed(self, address: Address) -> None:
        """None could be made, or the broker said there that it cannot serve."""
        if address != self.current or len(self.addresses) == 1:
            return
        self._failures += 1
        if self._failures == 1:
            self._first_failure = self._now()
        lasted = self._now() - self._first_failure >= self._lasting
        if self._open.get(address, 0) > 0 and not (self._failures >= FAILURES and lasted):
            return
        self._try(self.addresses[(self.addresses.index(address) + 1) % len(self.addresses)])

    def replace(self, addresses: Sequence[Address]) -> None:
        """Others are configured: the one in use is kept if it is among them, else the first is tried."""
        self.addresses = tuple(addresses)
        self.places = _places(addresses)
        if self.current not in self.addresses:
            self._try(self.addresses[0])

    def _try(self, address: Address) -> None:
        self._failures = 0
        self.current = address
        self._moved()


def _places(addresses: Sequence[Address]) -> dict[Address, str]:
    """Of those in numbers of IPv4; to ask each transport takes longer than to set a time-out."""
    return {address: f"{address.host}:{address.port}" for address in addresses if _is_ipv4(address)}


def _is_ipv4(address: Address) -> bool:
    if address.scheme == "unix" or address.is_wildcard:
        return False
    try:
        IPv4Address(address.host)
    except ValueError:
        return False
    return True
