"""What is enough of a node for parts that need nothing else of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from ildm.api import Injections, Peer
from ildm.testing.kernel import Kernel, Timer


class FakeApi:
    """Of :class:`ildm.api.NodeApi` time, chance, counters and log."""

    def __init__(self, node_id: str = "n0", kernel: Kernel | None = None) -> None:
        self.kernel = Kernel() if kernel is None else kernel
        self.node_id = node_id
        self.peer = Peer(node_id, f"{node_id}:1")
        self.random = Random(0)
        self.counters: Counter[str] = Counter()
        self.logged: list[tuple[str, dict[str, object]]] = []
        self.state: dict[str, bytes] = {}
        self.injections = Injections(0, 0)

    def now(self) -> float:
        return self.kernel.now

    def wall(self) -> float:
        return self.kernel.now

    def call_later(self, delay: float, callback: Callable[..., None], *args: object) -> Timer:
        return self.kernel.schedule(delay, callback, *args)

    def count(self, name: str, by: int = 1) -> None:
        self.counters[name] += by

    def log(self, event: str, **fields: object) -> None:
        self.logged.append((event, fields))

    def keep(self, data: bytes) -> int | None:
        """There is no spool."""

    def has_injected(self, origin: str, number: int) -> bool | None:
        """So that is not known."""

    def run(self, seconds: float) -> None:
        self.kernel.run(self.kernel.now + seconds)
