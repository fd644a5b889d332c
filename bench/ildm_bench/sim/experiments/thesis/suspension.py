"""SG-TBPS itself when the last subscriber of a topic leaves, message by message (thesis 3.2.3)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from ildm.testing import LinkModel, PluginWorld, lognormal
from ildm_algorithms.sg_tbps import SgTbps
from ildm_bench.sim.member import overlay_kinds

TOPIC = "topic"
CALM = 10.0
"""Virtual seconds after which every join and every signal of so few nodes is over."""
ONCE = 3.0
"""Virtual seconds after which a message has gone all its ways."""
OTHERS = 1.3
"""Nodes for each node that has a part in the topic."""


class Suspension:
    """Nodes that take part in nothing, publishers of a topic, and one subscriber.

    ``nodes``: all of them. Counted are messages that carry publishes or signals (Cast).
    """

    def __init__(self, publishers: int, seed: int) -> None:
        self.nodes = round((publishers + 1) * OTHERS)
        random = Random(seed)
        self.world = PluginWorld(
            SgTbps, {"qos": 0, "routing": "mrf"}, seed, LinkModel(delay=lognormal(0.005, 0.5))
        )
        self.world.network.classify = overlay_kinds()
        for number in range(self.nodes):
            known = f"n{random.randrange(number)}" if number else None
            self.world.add(f"n{number}", introducer=known)
            self.world.run(0.2)
        self.world.run(CALM)
        self.subscriber, *self.publishers = random.sample(self.world.alive(), publishers + 1)

    def publish(self) -> dict[str, int]:
        """All publishers publish once: messages on the overlay, and how many reach the subscriber."""
        before = len(self.subscriber.deliveries)
        casts = self._casts(self._publish, ONCE)
        return {"messages": casts, "delivered": len(self.subscriber.deliveries) - before}

    def run(self) -> dict[str, Any]:
        """With a subscriber, to suspend all publishers, without one, and with one again."""
        self.subscriber.subscribe(TOPIC)
        self.world.run(CALM)
        self._casts(self._publish, CALM)  # the publishers join the topic
        found: dict[str, Any] = {"nodes": self.nodes, "publishers": len(self.publishers)}
        found |= {f"{name}_with": value for name, value in self.publish().items()}
        found["signals"] = self._casts(lambda: self.subscriber.unsubscribe(TOPIC), CALM)
        found |= {f"{name}_without": value for name, value in self.publish().items()}
        self.subscriber.subscribe(TOPIC)
        self.world.run(CALM)
        return found | {f"{name}_again": value for name, value in self.publish().items()}

    def _publish(self) -> None:
        for node in self.publishers:
            node.publish(TOPIC)

    def _casts(self, step: Callable[[], None], seconds: float) -> int:
        before = self.world.network.sent["Cast"]
        step()
        self.world.run(seconds)
        return self.world.network.sent["Cast"] - before
