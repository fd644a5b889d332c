"""A wildcard subscription where one site holds very many retained messages: how long a node works at a time.

Two simulated nodes; the CPU time of each call of either, from the subscription on.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

from ildm.api import Peer
from ildm.testing import PluginWorld, SimNode
from ildm_algorithms.sg_tbps import SgTbps
from ildm_bench.micro.measure import machine, options

SECONDS = 60.0
"""Virtual ones until all is there."""


class _Clock:
    """CPU time of calls of plugins."""

    def __init__(self) -> None:
        self.longest = self.total = 0.0

    def call(self, work: Callable[..., None], *args: Any) -> None:
        began = time.process_time()
        work(*args)
        took = time.process_time() - began
        self.total += took
        self.longest = max(self.longest, took)


class _Node(SimNode):
    """One whose timers are timed."""

    __slots__ = ("clock",)
    clock: _Clock

    def fire(self, callback: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.clock.call(super().fire, callback, args)


class _Timed(SgTbps):
    """What comes from other nodes is timed, too."""

    def on_message(self, sender: Peer, data: bytes, turn: int) -> None:
        assert isinstance(self.api, _Node)
        self.api.clock.call(super().on_message, sender, data, turn)


class _World(PluginWorld):
    clock = _Clock()

    def make_node(self, node_id: str) -> SimNode:
        node = _Node(self, node_id, self.algorithm, self._configs[node_id])
        node.clock = self.clock
        return node


def measure(messages: int) -> tuple[float, float, int]:
    """Longest call in ms, time of all calls in s, messages that have come."""
    world = _World(_Timed, {"siblings": 1, "retained_answers": messages})
    for name in ("holder", "asker"):
        world.add(name)
    world.link("asker", "holder")
    world.run(10.0)
    for number in range(messages):
        world["holder"].publish(f"site/dev{number}", b"kept", retain=True)
        if number % 1_000 == 0:
            world.run(0.1)
    world.run(30.0)
    gc.collect()
    gc.freeze()
    gc.disable()
    world["asker"].subscribe("site/#")
    world.clock.longest = world.clock.total = 0.0
    world.run(SECONDS)
    return 1_000 * world.clock.longest, world.clock.total, len(world["asker"].deliveries)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    arguments = parser.parse_args()
    print(machine())
    longest, total, came = measure(arguments.messages)
    print(f"{arguments.messages} retained messages, {came} came")
    print(f"CPU: {total:.2f} s in all, longest call {longest:.1f} ms")


if __name__ == "__main__":
    main()
