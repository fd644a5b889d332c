"""SG-TBPS itself on simulated nodes."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from ildm.mqtt import topic_matches
from ildm.testing import LinkModel, PluginWorld, lognormal
from ildm_algorithms.sg_tbps import SgTbps
from ildm_bench.sim.member import wrong_links

FILTERS = ["a", "a/b", "a/+", "a/#", "+/b", "#", "b/#", "c"]
TOPICS = ["a", "a/b", "a/c", "b", "b/b", "c", "d/b", "e"]


def overlay_of(nodes: int, seed: int, **options: object) -> PluginWorld:
    world = PluginWorld(SgTbps, options, seed, LinkModel(delay=lognormal(0.005, 0.5)))
    random = Random(seed)
    for number in range(nodes):
        world.add(f"n{number:03}", introducer=f"n{random.randrange(number):03}" if number else None)
        world.run(0.2)
    return world


def settled(world: PluginWorld) -> bool:
    """All nodes are in one graph with the right tables."""
    graphs = []
    for node in world.alive():
        assert isinstance(node.algorithm, SgTbps)
        graphs.append(node.algorithm.graph)
    return all(graph.keys() for graph in graphs) and not wrong_links(graphs)


@pytest.mark.parametrize(("nodes", "qos"), [(3, 0), (40, 0), (15, 1)])
def test_each_node_gets_each_message_it_wants_once(nodes: int, qos: int) -> None:
    world = overlay_of(nodes, seed=3)
    random = Random(nodes)
    everyone = world.alive()
    for node in everyone:
        for topic_filter in random.sample(FILTERS, random.randrange(4)):
            node.subscribe(topic_filter, qos)
    world.run(10.0)
    world.settle(lambda: settled(world))
    published = []
    for number in range(60):
        topic, payload = random.choice(TOPICS), str(number).encode()
        random.choice(everyone).publish(topic, payload, qos)
        published.append((topic, payload))
        world.run(0.05)
    world.run(20.0)
    for node in everyone:
        wanted = Counter(
            message for message in published if any(topic_matches(f, message[0]) for f in node.local_interest)
        )
        assert Counter((d.topic, d.payload) for d in node.deliveries) == wanted


def test_the_order_of_one_publisher_holds() -> None:
    world = overlay_of(12, seed=4)
    for node in world.alive()[:6]:
        node.subscribe("t")
    world.run(10.0)
    world.settle(lambda: settled(world))
    world["n011"].publish("t", b"\0", publisher=1)
    world.run(10.0)
    world.settle(lambda: settled(world))
    for number in range(1, 50):
        world["n011"].publish("t", bytes([number]), publisher=1)
    world.run(10.0)
    for node in world.alive()[:6]:
        assert [d.payload[0] for d in node.deliveries] == list(range(50))


def test_without_subscribers_a_publish_costs_nothing() -> None:
    world = overlay_of(8, seed=5, overlay={"ping_interval": 1e6, "check_interval": 1e6}, status_interval=1e6)
    world["n003"].publish("t", b"1")
    world.run(20.0)
    sent = world.network.sent.total()
    for _ in range(10):
        world["n003"].publish("t", b"2")
    world.run(0.5)
    assert world.network.sent.total() == sent
    world["n005"].subscribe("t")
    world.run(5.0)
    world["n003"].publish("t", b"3")
    world.run(5.0)
    assert [d.payload for d in world["n005"].deliveries] == [b"3"]


def test_a_late_subscriber_gets_the_retained_message() -> None:
    world = overlay_of(8, seed=6)
    world["n003"].publish("t/x", b"old", retain=True)
    world.run(5.0)
    world["n003"].publish("t/x", b"new", retain=True)
    world.run(10.0)
    world["n006"].subscribe("t/+")
    world["n007"].subscribe("t/x")
    world.run(10.0)
    for name in ("n006", "n007"):
        assert [d.payload for d in world[name].deliveries] == [b"new"]
