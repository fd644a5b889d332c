"""The way of a message by the paper's figure 6: ideal vectors, and time that depends on clusters."""

from __future__ import annotations

import pytest

from ildm.testing import Between, LinkModel, PluginWorld, SimNode, constant
from ildm_algorithms.overlay.graph import SkipGraph
from ildm_algorithms.stla import Stla

PLACES = {f"n{rank}": "AB"[rank // 4] for rank in range(8)} | {"n5+": "B"}


class Ideal(Stla):
    """The first digits of a node's vector are its rank backwards: lists are evenly spaced."""

    def make_graph(self) -> SkipGraph:
        rank = int(self.api.node_id[1])
        vector = int(f"{rank:03b}"[::-1], 2) << 61
        # the publisher meets nobody above the lowest lists
        vector |= 1 << 60 if self.api.node_id.endswith("+") else 0
        return SkipGraph(self.api, self, self.config.overlay, vector)


def two_clusters() -> PluginWorld:
    near, far = constant(0.0002), constant(0.020)
    delay = Between(lambda sender, receiver: near if PLACES[sender] == PLACES[receiver] else far)
    world = PluginWorld(Ideal, model=LinkModel(delay=delay, idle=1e9))
    for name, place in PLACES.items():
        world.add(name, introducer=None if name == "n0" else "n0", options={"locality": [place]})
        world.run(2.0)
    for name in PLACES:
        if name != "n5+":
            world[name].subscribe("t")
            world.run(2.0)
    world.run(60.0)
    return world


def arrivals(nodes: list[SimNode]) -> list[float]:
    """Milliseconds each took for its last message."""
    last = [node.deliveries[-1] for node in nodes]
    return [round(1000 * (delivery.time - (delivery.sent or 0.0)), 3) for delivery in last]


def test_a_message_crosses_to_the_other_cluster_once_on_each_path() -> None:
    world = two_clusters()
    publisher = world["n5+"]
    subscribers = [world[f"n{rank}"] for rank in range(8)]
    publisher.publish("t", b"first: the start is found, links are made")
    world.run(5.0)
    publisher.publish("t", b"second")
    world.run(0.5)
    times = arrivals(subscribers)
    assert times == [20.4, 20.2, 20.4, 20.2, 0.4, 0.2, 0.4, 0.4]
    assert sum(times) / 8 == pytest.approx(10.325)
    assert [node.deliveries[-1].hops for node in subscribers] == [3, 2, 3, 2, 2, 1, 2, 2]
