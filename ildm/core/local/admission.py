"""How many clients a node takes, and what it says to those for whom there is no room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ildm.mqtt import ConnectReturnCode, ReasonCode

if TYPE_CHECKING:
    from ildm.config import LimitsConfig
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver
    from ildm.core.session import BaseSession, Origin

TOLD_AT_ONCE = 16
"""Refused clients whose CONNECT is awaited, so that they can be told why; further ones are closed."""
LOG_EVERY = 10.0
"""Seconds between two lines of the log about refused clients."""
NOT_AUTHENTICATED = frozenset(
    (
        ConnectReturnCode.BAD_USER_NAME_OR_PASSWORD,
        ConnectReturnCode.NOT_AUTHORIZED,
        ReasonCode.BAD_USER_NAME_OR_PASSWORD,
        ReasonCode.NOT_AUTHORIZED,
        ReasonCode.BANNED,
        ReasonCode.BAD_AUTHENTICATION_METHOD,
    )
)
"""CONNACKs that refuse a client for who it is (3.1.1: 3.2.2.3; 5: 3.2.2.2); no code means two things."""


class Admission:
    """Refuses clients before something else runs out, above all the file descriptors.

    Links, the administrator and the store need some, too: a node without one left cannot do anything.
    """

    def __init__(self, driver: Driver, limits: LimitsConfig, counters: Counters) -> None:
        self.driver = driver
        self.limits = limits
        self.counters = counters
        self.descriptors_for: int | None = None
        """Clients that there are file descriptors for, two for each; None: no bound is known."""
        self.being_told: set[BaseSession] = set()
        self._quiet_until = 0.0
        self._unlogged = 0
        self._quiet_of_blocked_until = 0.0
        self._blocked = 0

    def refuses(self, clients: int) -> str | None:
        """What a further client would exceed; None if it may stay."""
        if clients >= self.limits.clients:
            return "limits.clients"
        if self.descriptors_for is not None and clients >= self.descriptors_for:
            return "file descriptors"
        return None

    def refused(self, session: BaseSession, limit: str) -> bool:
        """A client has to go: whether it may be told so first."""
        self.counters["connections_refused"] += 1
        if limit == "file descriptors":
            self.counters["connections_refused_descriptors"] += 1
        self._log(limit)
        if len(self.being_told) >= TOLD_AT_ONCE:
            return False
        self.being_told.add(session)
        return True

    def out_of_descriptors(self) -> None:
        """There was none left for a connection to the broker."""
        self.counters["out_of_descriptors"] += 1
        self._log("file descriptors")

    def refused_with(self, code: int, origin: Origin | None) -> None:
        """A CONNACK with this code has gone to a client; if it is refused for who it is, its address may be
        blocked for that."""
        if code not in NOT_AUTHENTICATED:
            return
        self.counters["authentication_failures"] += 1
        address = None if origin is None else origin.authentication_failed()
        if address is None:
            return
        self._blocked += 1
        now = self.driver.now()
        if now < self._quiet_of_blocked_until:
            return
        self._quiet_of_blocked_until = now + LOG_EVERY
        self.driver.log(
            "warning",
            "address blocked: its clients were refused too often",
            address=address,
            seconds=self.limits.auth_block,
            blocked=self._blocked,
        )
        self._blocked = 0

    def _log(self, limit: str) -> None:
        self._unlogged += 1
        now = self.driver.now()
        if now < self._quiet_until:
            return
        self._quiet_until = now + LOG_EVERY
        self.driver.log(
            "warning",
            "no room for more clients",
            limit=limit,
            clients_possible=self.limits.clients if limit == "limits.clients" else self.descriptors_for,
            refused=self._unlogged,
        )
        self._unlogged = 0
