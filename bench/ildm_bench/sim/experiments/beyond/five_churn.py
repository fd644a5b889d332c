"""Sites that come, leave and crash while messages are published, under any of the algorithms."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar

from ildm.testing import Delivery, SimNode
from ildm_bench.sim.experiments.beyond.five_sites import Sites

TOPIC = "topic"


@dataclass
class Due:
    """A message on its way: to whom it is due, and who has got it how often."""

    published: float
    publisher: str
    subscribers: frozenset[str]
    got: Counter[str] = field(default_factory=Counter)


class Changing:
    """One run. Trees are mended by their operator ``MENDED`` seconds after a site has gone."""

    RATE: ClassVar = 30.0
    """Changes a minute."""
    SETTLED: ClassVar = 10.0
    """Seconds that publisher and subscriber have to be there before and after a message."""
    MENDED: ClassVar = 2.0
    EVERY: ClassVar = 0.25
    """Seconds from one message to the next."""

    def __init__(self, method: str, nodes: int, seed: int, qos: int) -> None:
        self.qos = qos
        self.sites = Sites(method, "three regions", nodes, seed, qos)
        self.world = self.sites.world
        self.random = Random(f"{seed}/churn")  # the same changes under all algorithms
        self.world.on_delivery = self.delivered
        self.born = {node.node_id: 0.0 for node in self.sites.living()}
        self.died: dict[str, float] = {}
        self.subscribers: set[str] = set()
        for number, node in enumerate(self.sites.living()):
            if number % 2:
                self._subscribe(node)
        self.messages: list[Due] = []

    def run(self, seconds: float) -> dict[str, Any]:
        """Change for so long, come to rest; ``lost``: share of the messages due."""
        world = self.world
        # All publish once, so that none of them joins the topic while it is measured.
        for node in world.alive():
            if node.node_id not in self.subscribers:
                node.publish(TOPIC, b"warm", self.qos)
        world.run(15.0)
        end = world.kernel.now + seconds
        world.kernel.post(self._pause(), self._change, end)
        world.kernel.post(0.0, self._publish, end)
        world.run(seconds + 2 * self.SETTLED)
        due = got = 0
        for message in self.messages:
            if self._stayed(message.publisher, message):
                named = [name for name in message.subscribers if self._stayed(name, message)]
                due += len(named)
                got += sum(message.got[name] > 0 for name in named)
        twice = sum(count - 1 for message in self.messages for count in message.got.values())
        return {"due": due, "lost": 1 - got / due if due else 0.0, "twice": twice}

    def _subscribe(self, node: SimNode) -> None:
        self.subscribers.add(node.node_id)
        node.subscribe(TOPIC, self.qos)

    def _pause(self) -> float:
        return self.random.expovariate(self.RATE / 60)

    def _change(self, end: float) -> None:
        now = self.world.kernel.now
        if self.random.random() < 0.5:
            number = len(self.born)
            self.sites.places[number] = self.random.randrange(3)
            node = self.sites.join(number)
            self.born[node.node_id] = now
            if self.random.random() < 0.5:
                self._subscribe(node)
        elif len(living := self.sites.living()) > 4:
            self._end(self.random.choice(living).node_id)
        if now + (pause := self._pause()) < end:
            self.world.kernel.post(pause, self._change, end)

    def _end(self, name: str) -> None:
        self.died[name] = self.world.kernel.now
        self.sites.gone.add(name)
        if self.random.random() < 0.5:
            self.world.stop(name)
        else:
            self.world.kill(name, silent=self.random.random() < 0.5)
        if self.sites.shape:
            self.world.kernel.post(self.MENDED, self.sites.mend, name)

    def _publish(self, end: float) -> None:
        now = self.world.kernel.now
        living = [
            name for name in self.born if name not in self.died and now - self.born[name] >= self.SETTLED
        ]
        publishers = [name for name in living if name not in self.subscribers]
        if publishers:
            publisher = self.random.choice(publishers)
            self.messages.append(Due(now, publisher, frozenset(living) & self.subscribers))
            self.world[publisher].publish(TOPIC, str(len(self.messages) - 1).encode(), self.qos)
        if now + self.EVERY < end:
            self.world.kernel.post(self.EVERY, self._publish, end)

    def delivered(self, node: SimNode, delivery: Delivery) -> None:
        """A local client has got a message."""
        if delivery.payload != b"warm":
            self.messages[int(delivery.payload)].got[node.node_id] += 1

    def _stayed(self, name: str, message: Due) -> bool:
        return self.died.get(name, float("inf")) >= message.published + self.SETTLED
