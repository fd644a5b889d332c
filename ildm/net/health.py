"""Whether the node can serve: it listens, does not stop, has its broker, and keeps what it acknowledges.

After a start it may wait for neighbours first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ildm.api import Unreachable

if TYPE_CHECKING:
    from ildm.core.node import Node

REMEMBERED = 5.0
"""Seconds that the answer of a broker is good for."""
FULL_FOR = 5.0
"""Seconds that publishers may wait for room in the spool: a burst, or a hiccup of the disk, is no news."""
PATIENCE = 2.0
"""Seconds that a broker has to take a connection."""


class Health:
    """Says what keeps a node from serving.

    A node with an algorithm has sessions of its own with the broker. One that only relays has none: it is
    tried whether the broker takes a connection, when somebody asks, every :data:`REMEMBERED` seconds at most.
    """

    def __init__(self, node: Node) -> None:
        self.node = node
        self._known: str | None = "not tried yet"
        self._known_until = 0.0
        self._asking: list[Callable[[str | None], None]] = []

    def problems(self, done: Callable[[list[str]], None]) -> None:
        """``done`` gets what is wrong, a line each for people; nothing when the node is ready."""
        node = self.node

        def told(broker: str | None) -> None:
            found = []
            if not node.accepting or node.state.status.value == "stopped":
                found.append("the node is not running" if node.accepting else "the node is stopping")
            contested = node.injector.contested
            if (missed := broker or contested) is not None:
                found.append(f"broker {node.broker_address}: {missed}")
            if neighbors := node.links.start_gate.waiting_for:
                found.append(f"clients wait for the interest of {', '.join(neighbors)}")
            custody = node.custody
            if custody is not None and custody.full_for >= FULL_FOR:
                why = custody.spool.failure or "no room"
                waits = "are refused" if node.local.refusal is not None else "wait"
                found.append(f"spool {node.config.spool_directory}: {why}; publishers of QoS 1 and 2 {waits}")
            done(found)

        self.broker(told)

    @property
    def broker_missed(self) -> str | None:
        """Why the broker is not there, as far as that is known without asking it; None: it is."""
        node = self.node
        if not node.router.active:
            return self._known
        return None if node.injector.connected else node.reach.down_reason or "not connected yet"

    def broker(self, done: Callable[[str | None], None]) -> None:
        """``done`` gets the same once it is known."""
        node = self.node
        if node.router.active or node.driver.now() < self._known_until:
            done(self.broker_missed)
            return
        self._asking.append(done)
        if len(self._asking) == 1:
            self._knock(len(node.brokers.addresses))

    def _knock(self, tries: int) -> None:
        """At the address in use, and at the next ones if nobody is there."""
        node = self.node
        address = node.broker_address

        def answered(reason: str | None) -> None:
            if reason is not None:
                node.reach.missed(address, reason)
                if tries > 1 and node.broker_address != address:
                    self._knock(tries - 1)
                    return
            self._answered(reason)

        node.driver.dial(address, _Knock(answered), PATIENCE)

    def _answered(self, reason: str | None) -> None:
        self._known = reason or self.node.reach.loop
        self._known_until = self.node.driver.now() + REMEMBERED
        asking, self._asking = self._asking, []
        for done in asking:
            done(self._known)


class _Knock:
    """The end of a connection that ends as soon as there is one."""

    def __init__(self, told: Callable[[str | None], None]) -> None:
        self._told = told

    def connection_made(self, transport: Any) -> None:
        self._told(None)
        transport.close()

    def data_received(self, data: bytes) -> None:
        """A broker says nothing before a CONNECT."""

    def eof_received(self) -> bool | None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        pass

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass

    def dial_failed(self, reason: str, why: Unreachable = Unreachable.NO_ANSWER) -> None:
        self._told(reason)
