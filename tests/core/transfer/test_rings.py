"""Where links close a ring and others are used than before: who keeps what, and for how long."""

from __future__ import annotations

from typing import ClassVar

import pytest

from ildm.api import Link, NodeApi, PluginConfig, Route, TreeAlgorithm
from ildm.core.link.link import NeighborLink
from ildm.core.link.state import LinkState
from ildm.core.link.tree import TreeMembership
from ildm.core.transfer.rerouting import REST
from ildm.mqtt import Publish, Version
from ildm.testing.fake_node import FakeNode
from ildm.testing.virtual.world import World
from ildm_algorithms.sf import SubscriptionFlooding
from tests.support.memory_spool import MemorySpool
from tests.support.spooled_rings import cut, payloads, publish, ring


class Hesitant(TreeAlgorithm):
    """Floods, but not what has lost its way, before it is told to."""

    asked: ClassVar[list[tuple[str, str, bool, str | None]]] = []
    may: ClassVar[set[str]] = set()

    def __init__(self, api: NodeApi, config: PluginConfig) -> None:
        super().__init__(api, config)
        self.may.clear()
        self.asked.clear()

    def route(self, topic: str, retain: bool, source: Link | None) -> Route:
        return [(link, 2) for link in self.api.links]

    def reroute(self, topic: str, retain: bool, source: Link | None) -> Route:
        self.asked.append((self.api.node_id, topic, retain, source and source.node_id))
        return [(link, 2) for link in self.api.links] if self.may else []


def test_the_algorithm_says_where_goes_what_has_lost_its_way() -> None:
    world = World()
    a, b, c, d = ring(world, "abcd", Hesitant)
    publisher = a.client("p")
    cut(world, a, b)
    publish(publisher, 0, 20, 2)
    world.run(60)
    assert set(Hesitant.asked) == {("a", "t", False, None)}
    assert not payloads(b)
    assert a.node.custody is not None
    assert a.node.custody.report().messages == 20  # it waits until it may go
    Hesitant.may.add("go")
    world.run(10)
    for site in (b, c, d):
        assert sorted(payloads(site)) == list(range(20))
    assert set(Hesitant.asked) == {
        ("a", "t", False, None),
        ("d", "t", False, "a"),
        ("c", "t", False, "d"),
        ("b", "t", False, "c"),
    }
    assert a.node.custody.report().messages == 0


class Discreet(TreeAlgorithm):
    """Lets b have no odd numbers: not from a, nor from c, which knows where what it sends comes from."""

    asked: ClassVar[list[tuple[str, bytes]]] = []

    def route_message(self, message: Publish, source: Link | None, turn: int) -> Route:
        odd = int(message.payload) % 2
        return [(link, 2) for link in self.api.links if not (odd and link.node_id == "b")]

    def reroute_message(self, message: Publish, source: Link | None) -> Route:
        self.asked.append((self.api.node_id, message.payload))
        message.payload = b"changed"  # a copy of its own
        return self.route_message(Publish(topic="t", payload=self.asked[-1][1]), source, 0)


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("killed", [False, True])
def test_an_algorithm_that_decides_on_payloads_sees_what_has_lost_its_way(qos: int, killed: bool) -> None:
    """a - b - c - d: b and c are cut off a; what a keeps goes by d and c, and b gets what it may have."""
    world = World()
    Discreet.asked.clear()
    a, b, c, d = ring(world, "abcd", Discreet)
    publisher = a.client("p")
    cut(world, a, b)
    publish(publisher, 0, 20, qos)
    if killed:
        a.kill()
        assert isinstance(a.spool, MemorySpool)
        a.spool = a.spool.next_life()
        a.store = a.store.copy()
        a.start()
    world.run(120)
    assert {payload for name, payload in Discreet.asked if name == "a"} == {
        b"%d" % n for n in range(0, 20, 2)
    }
    assert sorted(payloads(b)) == list(range(0, 20, 2))
    for site in (c, d):
        assert sorted(set(payloads(site))) == list(range(0, 20, 2))
    assert a.node.custody is not None
    assert a.node.custody.report().messages == 0


class Flooding(TreeAlgorithm):
    def route(self, topic: str, retain: bool, source: Link | None) -> Route:
        return [(link, 2) for link in self.api.links]


def test_a_run_that_an_earlier_algorithm_has_kept_goes_where_any_of_it_may() -> None:
    world = World()
    Discreet.asked.clear()
    a, b, _, _ = ring(world, "abcd", Flooding)
    publisher = a.client("p")
    cut(world, a, b)
    packets = [Publish(topic="t", payload=b"%d" % n, qos=1, packet_id=n + 1) for n in range(8)]
    publisher.transport.write(b"".join(packet.encode(Version.V311) for packet in packets))
    world.run(0.2)
    assert not payloads(b)
    a.kill()
    assert isinstance(a.spool, MemorySpool)
    a.spool, a.store, a.algorithm = a.spool.next_life(), a.store.copy(), Discreet
    a.start()
    world.run(120)
    assert {payload for _, payload in Discreet.asked} == {b"%d" % n for n in range(8)}
    assert sorted(payloads(b)) == list(range(8))


def test_a_link_stays_until_its_neighbour_is_reached_on_another_path_for_a_while() -> None:
    world = World()
    a, b, _ = ring(world, "abc", "sf")
    link = a.node.links.links["b"]
    spare = a.node.links.links["c"]
    b.subscriber("#", qos=1)
    world.run(1)
    cut(world, a, b)
    while spare.state is not LinkState.ACTIVE:
        world.run(0.01)
    joined = world.time
    assert link.state is LinkState.DOWN
    assert link.interest
    while link.in_cooperation:
        world.run(0.01)
    pause = REST * a.node.config.link.settle
    assert pause <= world.time - joined < 3 * pause
    assert "b" not in a.node.links.links


def test_what_the_spool_does_not_keep_comes_once_at_most_and_what_is_passed_by_is_counted() -> None:
    world = World()
    a, b, _ = ring(world, "abc")
    telemetry = a.client("p")
    cut(world, a, b)
    for number in range(1500):
        telemetry.send(Publish(topic="t", payload=b"%d" % number))
        world.run(0.02)
    world.run(20)
    got = payloads(b)
    assert len(got) == len(set(got)) > 300
    assert a.node.counters["link_dropped_other_path_qos0"] > 0


def test_which_nodes_are_behind_a_link_is_known_after_a_restart() -> None:
    world = World()
    a, b, _, _ = ring(world, "abcd")
    behind = {"b": {"b", "c", "d"}}
    assert {n: link.subtree.nodes for n, link in a.node.links.links.items() if link.in_cooperation} == behind
    b.kill()
    a.node.links.links["b"].subtree.reroute_pending = True
    assert a.node.links.parts.memory is not None
    a.node.links.parts.memory.joined(a.node.links.links["b"])
    a.kill()
    assert isinstance(a.spool, MemorySpool)
    a.spool = a.spool.next_life()
    a.store = a.store.copy()
    a.start()
    restored = a.node.links.links["b"]
    assert restored.state is LinkState.DOWN
    assert restored.subtree.nodes == {"b", "c", "d"}
    assert restored.subtree.reroute_pending


def test_what_waits_for_a_link_goes_round_when_nodes_behind_it_come_behind_another() -> None:
    """b is gone and comes back, when c and d have come behind the spare link."""
    world = World()
    a, b, c, d = ring(world, "abcd")
    publisher = a.client("p")
    b.kill()
    publish(publisher, 0, 50, 2)
    world.run(1)
    assert isinstance(b.spool, MemorySpool)
    b.spool = b.spool.next_life()
    b.store = b.store.copy()
    b.start()
    world.run(60)
    for site in (b, c, d):
        assert sorted(payloads(site)) == list(range(50))
    assert a.node.counters["link_rerouted"] >= 50
    assert not any(link.subtree.reroute_pending for link in a.node.links.links.values())
    assert a.node.custody is not None
    assert a.node.custody.report().messages == 0


def test_sf_sends_what_has_lost_its_way_to_all_but_those_that_want_it_at_qos_0() -> None:
    node = FakeNode(SubscriptionFlooding)
    one, two, three = (node.link(name) for name in "abc")
    one.hear({"t": 0})
    two.hear({"t": 1})
    algorithm = node.plugin
    assert dict(algorithm.route("t", False, None)) == {one: 0, two: 1}
    assert list(algorithm.reroute("t", False, None)) == [(two, 2), (three, 2)]
    assert list(algorithm.reroute("t", False, three)) == [(two, 2)]
    assert list(algorithm.reroute("t", True, two)) == [(one, 2), (three, 2)]


def test_nodes_that_come_behind_another_link_stay_behind_the_first_until_they_are_reached() -> None:
    """And are not asked anew as the others answer: that makes answers under way worthless."""
    world = World()
    sites = {site.name: site for site in ring(world, "abcdefgh")}
    a = sites["a"]
    membership = a.node.links.membership
    assert isinstance(membership, TreeMembership)
    questions = []
    ask = membership.paths._send

    def noted(link: NeighborLink, answer: bool, number: int, to: str, sender: str, hops: int) -> None:
        if sender == "a" and not answer:
            questions.append(to)
        ask(link, answer, number, to, sender, hops)

    membership.paths._send = noted  # type: ignore[method-assign]
    link = a.node.links.links["b"]
    cut(world, sites["d"], sites["e"])
    while a.links()["h"] == "not":
        world.run(0.01)
    assert {*"bcde"} <= link.subtree.nodes
    world.run(30)
    assert link.subtree.nodes == set("bcd")
    assert a.node.links.links["h"].subtree.nodes == set("efgh")
    assert sorted(questions) == [*"efgh"]
