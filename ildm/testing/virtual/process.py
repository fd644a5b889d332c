"""A process in a world in virtual time: it can end without a word, or stand still."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ildm.api import Unreachable
from ildm.core.driver import NO_DESCRIPTOR

if TYPE_CHECKING:
    from ildm.config import Address
    from ildm.testing.virtual.world import VirtualTimer, World

ACCEPT_PAUSE = 0.1
"""Seconds until one without descriptors looks again whether it can accept a connection."""


class Process:
    """Whoever owns timers and ends of connections. ``name`` says whose it is where paths are barred."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.dead = False
        """It has ended: nothing it asked for happens any more."""
        self.paused = False
        """It stands still; what falls due happens when it goes on, in order."""
        self.descriptors = True
        """False: no connection can be made or accepted."""
        self.held: list[tuple[VirtualTimer, Callable[..., None], tuple[object, ...]]] = []

    def pause(self) -> None:
        """As by SIGSTOP."""
        self.paused = True

    def go_on(self) -> None:
        """As by SIGCONT."""
        self.paused = False
        held, self.held = self.held, []
        for timer, callback, args in held:
            self.world.put(self.world.time, timer, callback, args)

    def dial(self, address: Address, endpoint: Any, timeout: float) -> None:
        """Connect; ends in ``endpoint.connection_made`` or ``endpoint.dial_failed``."""
        world = self.world

        waiting: list[VirtualTimer] = []

        def connect() -> None:
            owner = world.owners.get(address)
            if address not in world.listeners:
                over.cancel()
                endpoint.dial_failed(f"{address}: connection refused", Unreachable.REFUSED)
            elif owner is not None and (owner.paused or not owner.descriptors):
                waiting[:] = [world.call_at(world.time + ACCEPT_PAUSE, connect, owner=self)]
            else:
                over.cancel()
                world.connect(address, endpoint, self.name, self)

        def no_answer() -> None:
            for timer in waiting:
                timer.cancel()
            endpoint.dial_failed(f"no answer from {address} within {timeout:g} s", Unreachable.NO_ANSWER)

        if not self.descriptors:
            world.call_at(world.time, endpoint.dial_failed, NO_DESCRIPTOR, Unreachable.NO_ANSWER, owner=self)
            return
        over = world.call_at(world.time + timeout, no_answer, owner=self)
        if address not in world.unreachable and (self.name, address) not in world.barred:
            latency = world.latencies.get(address, world.latency)
            world.call_at(world.time + latency, connect, owner=self)
