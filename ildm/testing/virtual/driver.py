"""The driver of one node in a world in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from ildm.testing.virtual.process import Process
from ildm.testing.virtual.world import VirtualTimer, World

if TYPE_CHECKING:
    from ildm.config import Address, LookupConfig


class WorldDriver(Process):
    """The driver of one node in a world."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.random = Random(world.random.getrandbits(64))
        self.logged: list[tuple[str, str, dict[str, object]]] = []
        self.clock = world.clocks.get(name, 0.0)
        """Seconds its wall clock is ahead."""

    def now(self) -> float:
        return self.world.time

    def precise(self) -> float:
        return self.world.time

    def wall(self) -> float:
        return 1_700_000_000.0 + self.world.time + self.clock

    def token(self, size: int) -> bytes:
        return self.random.randbytes(size)

    def call_soon(self, callback: Callable[..., None], *args: object) -> object:
        return self.world.call_at(self.world.time, callback, *args, owner=self)

    def in_turn(self, callback: Callable[[], None]) -> None:
        self.call_soon(callback)

    def call_later(self, delay: float, callback: Callable[..., None], *args: object) -> VirtualTimer:
        return self.world.call_at(self.world.time + delay, callback, *args, owner=self)

    def resolve(self, question: LookupConfig, done: Callable[[list[Address] | BaseException], None]) -> None:
        def answer() -> None:
            done(self.world.names(self.name, question))

        self.call_later(self.world.latency, answer)

    def offload(self, owner: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        try:
            result = work()
        except BaseException as error:
            result = error
        self.call_soon(done, result)

    def log(self, level: str, event: str, **fields: object) -> None:
        self.logged.append((level, event, fields))
