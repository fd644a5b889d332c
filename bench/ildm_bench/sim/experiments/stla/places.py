"""The plugins themselves on simulated nodes in places, message by message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ildm.testing import Between, Delay, LinkModel, PluginWorld, normal
from ildm_algorithms.sg_tbps import SgTbps
from ildm_algorithms.stla import Stla
from ildm_algorithms.stla.start import shared_layers
from ildm_bench.sim.clusters import SIGMA

PUBLISHER = "publisher"
TOPIC = "t"
QUIET = {"ping_interval": 1e6, "check_interval": 1e6}
"""Of the overlay: nothing fails here, so nobody needs to look."""
JOINED = 5.0
"""Virtual seconds for a key to join, before the next one does: so that no check has to mend tables."""


def world_of(
    algorithm: type[Stla] | type[SgTbps],
    places: Mapping[str, Sequence[str]],
    latency: Sequence[float],
    seed: int,
) -> PluginWorld:
    """Nodes that have joined one after the other, and a topic to which all but ``PUBLISHER`` subscribe.

    places: of each node, among them the publisher. latency: for each number of layers two places share, from
    0, the mean of a message in ms. Links once made stay, and a first message has been published.
    """
    delays = [normal(mean / 1000, SIGMA * mean / 1000) for mean in latency]

    def choose(sender: str, receiver: str) -> Delay:
        return delays[shared_layers(places[sender], places[receiver])]

    model = LinkModel(delay=Between(choose), idle=1e9)
    world = PluginWorld(algorithm, {"overlay": QUIET, "status_interval": 1e6}, seed, model)
    names = list(places)
    for number, name in enumerate(names):
        options = {"locality": list(places[name])} if issubclass(algorithm, Stla) else None
        world.add(name, introducer=names[number // 2] if number else None, options=options)
        world.run(JOINED)
    for name in names:
        if name != PUBLISHER:
            world[name].subscribe(TOPIC)
            world.run(JOINED)
    world[PUBLISHER].publish(TOPIC, b"first")
    world.run(10.0)
    return world


def fastest(world: PluginWorld, deliveries: int) -> dict[str, float]:
    """By subscriber the shortest latency of so many messages, in ms."""
    subscribers = [node for node in world.alive() if node.node_id != PUBLISHER]
    for node in subscribers:
        node.deliveries.clear()
    for number in range(deliveries):
        world[PUBLISHER].publish(TOPIC, str(number).encode())
        world.run(2.0)
    found = {}
    for node in subscribers:
        latencies = [
            delivery.time - delivery.sent for delivery in node.deliveries if delivery.sent is not None
        ]
        assert len(latencies) == deliveries
        found[node.node_id] = 1000 * min(latencies)
    return found
