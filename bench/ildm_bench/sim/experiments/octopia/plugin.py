"""The plugin itself, in `ildm.testing.PluginWorld`, with the clients and times of the event model."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ildm.testing import Delivery, LinkModel, PluginWorld, SimNode, constant, exponential
from ildm_algorithms.octopia import Octopia
from ildm_algorithms.octopia.messages import CODEC
from ildm_bench.sim.brokers import EDGES, Costs
from ildm_bench.sim.experiments.octopia.setting import GRID, NODES
from ildm_bench.sim.workload import TOPIC, Publisher, Subscriber, attributes

PUB, SUBS = "Pub", "Subs"
"""Kinds of the plugin's messages."""
FOUND = 10.0
"""Seconds until all nodes have found each other."""
PAUSE = 1.0


class InWorld:
    """All nodes of the grid, with what clients advertise and subscribe to."""

    def __init__(
        self, costs: Costs, publishers: Sequence[Publisher], subscribers: Sequence[Subscriber], seed: int
    ) -> None:
        self.rows: Counter[str] = Counter()
        """Of each node's PRT."""
        self.costs = costs
        self.quiet = True
        model = LinkModel(
            delay=exponential(costs.hop) if costs.exponential else constant(costs.hop),
            processing=self._processing,
            sending=costs.sending,
            queue_messages=1_000_000,
        )
        options: dict[str, Any] = {
            "regions": list(EDGES),
            "clusters": list(GRID.clusters),
            "members": {node_id: str(place) for node_id, place in GRID.members.items()},
            "summary": 0,
        }
        self.world = world = PluginWorld(Octopia, options, seed=seed, model=model)
        world.network.classify = lambda data: type(CODEC.decode(data)).__name__
        world.on_delivery = self._delivered
        self.got: dict[int, list[tuple[str, float]]] = {}
        """By publication: nodes with clients that got it, and the delay of each client's copy."""
        for node_id in NODES:
            world.add(node_id, introducer=None if node_id == NODES[0] else NODES[0])
        world.run(FOUND)
        for publisher in publishers:
            algorithm = world[publisher.node_id].algorithm
            assert isinstance(algorithm, Octopia)
            algorithm.advertise(publisher.advertised)
        world.run(FOUND)
        for subscriber in subscribers:
            text = subscriber.wanted.expression.format()
            world[subscriber.node_id].subscribe(f"filter/{text}/{TOPIC}", client=str(subscriber.uid))
        world.run(FOUND)
        for node_id in NODES:
            algorithm = world[node_id].algorithm
            assert isinstance(algorithm, Octopia)
            self.rows[node_id] = len(algorithm.replicas.prt)

    def publish(self, publisher: Publisher, number: int) -> int:
        """One message; the copies of it between nodes."""
        before = self.world.network.sent[PUB]
        self.quiet = False
        payload = json.dumps({**attributes(publisher.symbol), "number": number})
        self.world[publisher.node_id].publish(TOPIC, payload.encode())
        self.world.run(PAUSE)
        self.quiet = True
        return self.world.network.sent[PUB] - before

    def _processing(self, node_id: str, kind: str) -> float:
        if self.quiet or kind != PUB:
            return 0.0
        return self.costs.matching + self.costs.prt_row * self.rows[node_id]

    def _delivered(self, node: SimNode, delivery: Delivery) -> None:
        assert delivery.sent is not None
        number = json.loads(delivery.payload)["number"]
        self.got.setdefault(number, []).append((node.node_id, delivery.time - delivery.sent))
