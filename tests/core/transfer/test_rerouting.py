"""A spare link loses nothing: what waited for the one that failed goes over the one that takes its place."""

from __future__ import annotations

import pytest

from ildm.config import Address
from ildm.core.link.topology import Advertisement, Topology
from ildm.mqtt import Publish
from ildm.testing.virtual.world import World
from tests.support.rings import Publisher, cut, ring


@pytest.mark.parametrize("dark", [True, False])
@pytest.mark.parametrize("names", ["abc", "abcd"])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("algorithm", ["pf", "sf"])
def test_every_message_of_an_outage_arrives_by_the_spare_link(
    world: World, algorithm: str, names: str, qos: int, dark: bool
) -> None:
    """Those routed before it was noticed, too, and in all directions."""
    sites = ring(world, names, algorithm)
    for site in sites:
        site.subscriber("#", qos=qos)
    world.run(2)
    publishers = [Publisher(site, qos) for site in sites]
    world.listeners.pop(Address("a", 2))  # the path from b to a is gone for good
    cut(sites[0], sites[1], dark)
    for _ in range(200):
        for publisher in publishers:
            publisher.send(1)
    world.run(120)
    everything = {topic for publisher in publishers for topic in publisher.topics}
    for site in sites:
        own = {topic for topic in everything if topic.startswith(site.name)}
        assert everything - own - set(site.broker.topics()) == set()
    for site in sites:
        assert not {name: n for name, n in site.node.counters.items() if "_dropped" in name}
        assert site.node.links.idle


def test_a_new_path_carries_what_waited_only_once(world: World) -> None:
    """Nobody behind a link that has joined since can have had a message; QoS 0 comes, too."""
    a, b, c = ring(world, "abc")
    publisher, telemetry = Publisher(a, 1), a.client("t")
    world.listeners.pop(Address("a", 2))
    cut(a, b, dark=False)
    publisher.send(20)
    for i in range(20):
        telemetry.send(Publish(topic=f"qos0/{i}", payload=b"x"))
    world.run(60)
    for site in (b, c):
        topics = site.broker.topics()
        assert sorted(topics) == sorted([*publisher.topics, *[f"qos0/{i}" for i in range(20)]])


def test_what_finds_no_path_is_dropped_in_the_end_and_counted(world: World) -> None:
    a, b, c = ring(world, "abc", link={"expiry": 20})
    publisher = Publisher(a, 1)
    c.node.links.cooperation.offer = lambda link: None  # type: ignore[method-assign]
    world.listeners.pop(Address("a", 2))
    cut(a, b, dark=False)
    publisher.send(20)
    world.run(15)
    assert a.node.links.cooperation.rerouting.queued_messages == 20
    world.run(15)
    assert a.node.counters["link_dropped_no_path_qos1"] == 20
    assert a.node.links.cooperation.rerouting.queued_messages == 0


def test_the_first_link_of_a_path() -> None:
    topology = Topology("a", 1, 100)
    topology.set_links({"b": 1, "c": 5})
    for node, links in (("b", {"a": 1, "d": 2}), ("d", {"b": 2, "c": 3}), ("c", {"d": 3, "a": 5})):
        topology.receive(Advertisement(node, 1, 1, links))
    assert {node: topology.hop(node) for node in "bcdx"} == {"b": "b", "c": "b", "d": "b", "x": None}
    topology.set_links({"c": 5})
    assert {node: topology.hop(node) for node in "bcd"} == {"b": "c", "c": "c", "d": "c"}
