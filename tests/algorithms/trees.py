"""Trees of nodes whose messages are written down."""

from __future__ import annotations

from collections.abc import Iterable

from ildm.api import Algorithm
from ildm.testing import RecordingBroker, SimNode, Transcript

FIGURE_5_5 = ("I1 I2", "I2 I3", "I2 I4", "I3 I5")
"""Also Fig. 5.6: I2 is joined with I1, I3 and I4; I3 with I5."""


class Tree(Transcript):
    """Nothing is under way between two calls."""

    def __init__(self, algorithm: type[Algorithm], links: Iterable[str]) -> None:
        super().__init__(algorithm)
        for pair in links:
            self.join(*pair.split())

    def join(self, a: str, b: str) -> None:
        for name in (a, b):
            self.node(name)
        self.link(a, b)
        self.settle()

    def node(self, name: str) -> SimNode:
        return self.nodes.get(name) or self.add(name)

    def part(self, a: str, b: str) -> None:
        self.unlink(a, b)
        self.settle()

    def subscribe(self, name: str, topic_filter: str, qos: int = 0) -> None:
        self.node(name).subscribe(topic_filter, qos)
        self.settle()

    def unsubscribe(self, name: str, topic_filter: str) -> None:
        self.node(name).unsubscribe(topic_filter)
        self.settle()

    def publish(self, name: str, topic: str, retain: bool = False) -> None:
        self.node(name).publish(topic, retain=retain)
        self.settle()

    def injected(self, name: str) -> list[str]:
        """Topics of what came into a broker from elsewhere."""
        broker = self.node(name).broker
        assert isinstance(broker, RecordingBroker)
        return [message.topic for message in broker.injected]
