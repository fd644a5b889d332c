"""Random lives of a grid: nodes are killed and started again, the network falls apart and heals.

Meanwhile messages of QoS 1 with numbers are published. Who wants one has to get it, whatever happened.
"""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import NamedTuple

from ildm.mqtt import topic_matches
from ildm.testing import Delivery, LinkModel, PluginWorld, constant, lognormal
from ildm.testing.node import SimNode
from ildm_algorithms.octopia import Octopia
from tests.algorithms.octopia.worlds import grid

FILTERS = ("filter/n>5/t/#", "t/+", "filter/even=true/t/a", "#")
SHAPES: tuple[tuple[tuple[str, ...], int], ...] = (
    (("a-b", "b-c"), 3),
    (("a-b", "a-c", "c-d"), 2),
    (("a",), 5),
    (("a-b",), 2),
    (("a-b", "b-c", "b-d"), 1),
)
MODELS = (
    LinkModel(),
    LinkModel(delay=lognormal(0.02, 0.5)),
    LinkModel(loss=0.05),
    LinkModel(delay=constant(0.05), sending=0.005),
    LinkModel(sessions=3, delay=lognormal(0.02, 1.0)),
)
STEPS = 25
SETTLE = 150.0
"""Seconds without trouble at the end; the longest pause of those who ask again is 120."""


class Message(NamedTuple):
    number: int
    publisher: str
    topic: str
    payload: bytes

    def wanted(self, node: str, topic_filter: str) -> bool:
        """Whether a node with this filter has to get it from the algorithm, or its own broker."""
        if topic_filter == FILTERS[0]:
            return self.number > 5
        if topic_filter == FILTERS[2]:
            return self.number % 2 == 0 and self.topic == "t/a"
        return node != self.publisher and topic_matches(topic_filter, self.topic)

    def topic_for(self, topic_filter: str) -> str:
        """The one on which the subscriber gets it."""
        root, _, rest = topic_filter.partition("/")
        return f"filter/{rest.partition('/')[0]}/{self.topic}" if root == "filter" else self.topic


class Schedule:
    """One such life, as a seed has it.

    Attributes:
        published: the messages.
        got: how often which node got what on which topic.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        regions, clusters = self.random.choice(SHAPES)
        options = grid(regions, clusters)
        members = options["members"]
        if self.random.random() < 0.4 and len(members) > 5:  # clusters may differ in size
            for name in self.random.sample(sorted(members), 2):
                del members[name]
        options |= {
            "routing": self.random.choice(["spr", "idr"]),
            "summary": self.random.choice([0, 1, 100]),
        }
        self.names = sorted(members)
        self.world = PluginWorld(Octopia, options, seed=seed, model=self.random.choice(MODELS))
        self.world.on_delivery = self._delivered
        self.got: Counter[tuple[str, str, bytes]] = Counter()
        self.published: list[Message] = []
        self.filters = {name: self.random.choice(FILTERS) for name in self.names}
        self.publishers = self.random.sample(self.names, min(3, len(self.names) - 1))
        """They are never killed: what they have not told anybody would be lost with them."""
        self.dead: set[str] = set()
        self.parted = False

    def _delivered(self, node: SimNode, delivery: Delivery) -> None:
        self.got[node.node_id, delivery.topic, delivery.payload] += 1

    def run(self) -> None:
        for name in self.names:
            self._start(name)
        self.world.run(5.1)
        for _ in range(STEPS):
            self._trouble()
            for publisher in self.publishers:
                for _ in range(self.random.randrange(3)):
                    self._publish(publisher)
            self.world.run(self.random.choice([0.01, 0.5, 2.0, 8.0, 20.0]))
        self.world.heal()
        for name in sorted(self.dead):
            self._start(name)
        self.world.run(SETTLE)

    def _start(self, name: str) -> None:
        """A persistent session keeps its subscription while the node is away."""
        first = self.names[0]
        self.world.add(name, first if name != first and first not in self.dead else None)
        self.world[name].subscribe(self.filters[name], 1)

    def _trouble(self) -> None:
        choice = self.random.random()
        if choice < 0.25:
            victims = [n for n in self.names if n not in self.publishers and n not in self.dead]
            if victims and len(self.dead) < len(self.names) // 2:
                victim = self.random.choice(victims)
                self.world.kill(victim, silent=self.random.random() < 0.5)
                self.dead.add(victim)
        elif choice < 0.5 and self.dead:
            name = self.random.choice(sorted(self.dead))
            self.dead.discard(name)
            self._start(name)
        elif choice < 0.65 and not self.parted:
            most = max(2, len(self.names) - 2)
            self.world.partition(self.random.sample(self.names, self.random.randrange(1, most)))
            self.parted = True
        elif choice < 0.8 and self.parted:
            self.world.heal()
            self.parted = False

    def _publish(self, publisher: str) -> None:
        number = len(self.published) + 1
        topic = self.random.choice(["t/a", "t/b"])
        payload = json.dumps({"n": number, "even": number % 2 == 0}).encode()
        self.published.append(Message(number, publisher, topic, payload))
        self.world[publisher].publish(topic, payload, 1)

    def lost(self) -> list[tuple[str, Message]]:
        """What somebody should have got and has not."""
        return [
            (name, message)
            for name, topic_filter in self.filters.items()
            for message in self.published
            if message.wanted(name, topic_filter)
            and not self.got[name, message.topic_for(topic_filter), message.payload]
        ]

    def unwanted(self) -> list[tuple[str, Message]]:
        """What somebody got and should not have; the own broker of a publisher serves its plain filters."""
        return [
            (name, message)
            for name, topic_filter in self.filters.items()
            for message in self.published
            if not message.wanted(name, topic_filter)
            and self.got[name, message.topic_for(topic_filter), message.payload]
            > (name == message.publisher and not topic_filter.startswith("filter"))
        ]
