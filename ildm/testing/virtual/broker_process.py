"""A broker that is a process of a world: it can be killed, or stand still."""

from __future__ import annotations

from collections.abc import Callable

from ildm.config import Address
from ildm.mqtt import Publish
from ildm.testing.virtual.broker import Broker
from ildm.testing.virtual.makes import Make
from ildm.testing.virtual.process import Process
from ildm.testing.virtual.world import World


class BrokerProcess(Broker):
    """It listens from the start on, and again after :meth:`start`."""

    def __init__(self, world: World, address: Address, make: Make) -> None:
        super().__init__(make)
        self.world = world
        self.address = address
        self.lost: Callable[[Publish], None] = lambda message: None
        """Told of each message that was acknowledged and is gone with a crash."""
        self.process: Process
        self.start()

    def start(self) -> None:
        """Begin to listen."""
        self.process = Process(self.world, f"broker {self.address}")
        self.world.listen(self.address, self.connection, self.process)

    def kill(self) -> None:
        """kill -9: of what it has, the make says what is left."""
        self.world.kill(self.process)
        for message in self.end(self.make):
            self.lost(message)
