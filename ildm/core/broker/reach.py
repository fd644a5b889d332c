"""Whether the broker can be reached, as all sessions with it find."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ildm.core.driver import NO_DESCRIPTOR

if TYPE_CHECKING:
    from collections.abc import Callable

    from ildm.config import Address
    from ildm.core.broker.broker_choice import BrokerChoice
    from ildm.core.counters import Counters
    from ildm.core.driver import Driver
    from ildm.core.plugin.dispatch import Dispatch
    from ildm.core.session import BaseSession
    from ildm.mqtt import MqttError


class Reach:
    """One per node. A change is logged once.

    Args:
        came: called when the broker is there again.
        out_of_descriptors: called when this node could open no connection.
    """

    def __init__(
        self,
        driver: Driver,
        counters: Counters,
        dispatch: Dispatch,
        brokers: BrokerChoice,
        came: Callable[[], None],
        out_of_descriptors: Callable[[], None],
    ) -> None:
        self.driver = driver
        self.counters = counters
        self.dispatch = dispatch
        self.brokers = brokers
        self.down_reason: str | None = None
        """Why the broker serves nobody, for people; None: it does."""
        self.since = driver.wall()
        """Unix time at which the broker was found to be there, or not."""
        self.loop: str | None = None
        """Why the address of the broker leads back to this node; None: no loop is known."""
        self._told: dict[Address, str] = {}
        self._came = came
        self._out_of_descriptors = out_of_descriptors

    def looped(self, reason: str | None) -> None:
        """The address of the broker leads back to this node, for that reason, or no more."""
        self.loop = reason
        self.found(reason)

    def found(self, reason: str | None) -> None:
        """The broker was reached (None) or not."""
        reason = self.loop or reason
        if reason == NO_DESCRIPTOR:
            self._out_of_descriptors()
            return
        if reason is None:
            self._told.clear()
        if reason == self.down_reason:
            return
        if reason is None or self.down_reason is None:
            self.since = self.driver.wall()
        self.down_reason = reason
        address = self.brokers.current
        if reason is None:
            self.driver.log("info", "broker reachable", broker=str(address))
            self._came()
        elif self._told.get(address) != reason:
            self._told[address] = reason
            self.driver.log("warning", "broker unavailable", broker=str(address), reason=reason)

    def missed(self, address: Address, reason: str) -> None:
        """There was no way to the broker at one of its addresses: perhaps the next one is used now."""
        if address == self.brokers.current:
            self.found(reason)
        if reason != NO_DESCRIPTOR:
            self.brokers.failed(address)

    def broke_protocol(self, session: BaseSession, error: MqttError) -> None:
        """The broker has sent what cannot be MQTT."""
        self.counters["malformed_from_broker"] += 1
        self.driver.log("error", "broker broke the protocol", clause=error.clause, error=str(error))
        self.dispatch.call("on_recv_failure", session, error)
