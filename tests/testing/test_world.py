"""The virtual network: PF and SF on trees, faults, and what the simulated node promises to plugins."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pytest

from ildm.api import (
    Algorithm,
    Link,
    NodeApi,
    OverlayAlgorithm,
    Peer,
    PluginConfig,
    PluginError,
    Route,
    SendResult,
    Stamp,
    TreeAlgorithm,
    Unreachable,
)
from ildm.mqtt import Property, Publish, Version, decode, topic_matches
from ildm.testing import (
    Between,
    LinkModel,
    PluginWorld,
    SimNode,
    SimulationError,
    constant,
    exponential,
    lognormal,
    normal,
    uniform,
)
from ildm_algorithms.pf import PublicationFlooding
from ildm_algorithms.sf import SubscriptionFlooding

FIGURE_5_5 = (("I1", "I2"), ("I2", "I3"), ("I2", "I4"), ("I3", "I5"))


def five_nodes(algorithm: type[Algorithm], **model: Any) -> PluginWorld:
    world = PluginWorld(algorithm, model=LinkModel(**model))
    for name in ("I1", "I2", "I3", "I4", "I5"):
        world.add(name)
    for a, b in FIGURE_5_5:
        world.link(a, b)
    world.settle()
    return world


def got(node: SimNode) -> list[str]:
    return [delivery.topic for delivery in node.deliveries]


# publication and subscription flooding --------------------------------------------------------


def test_pf_of_figure_5_5() -> None:
    world = five_nodes(PublicationFlooding)
    world["I2"].subscribe("t")
    world["I3"].subscribe("t")
    world["I5"].publish("t", b"x")
    world.settle()
    assert world.network.sent == {"publish": 4}
    assert {name: got(node) for name, node in world.nodes.items()} == {
        "I1": [],
        "I2": ["t"],
        "I3": ["t"],
        "I4": [],
        "I5": [],
    }
    (delivery,) = world["I2"].deliveries
    assert (delivery.payload, delivery.origin, delivery.hops) == (b"x", "I5", 2)
    assert delivery.time - (delivery.sent or 0.0) == pytest.approx(0.002)


def test_sf_of_figure_5_6() -> None:
    world = five_nodes(SubscriptionFlooding)
    world["I2"].subscribe("t")
    world.settle()
    assert world.network.sent == {"subscribe": 4}
    world["I3"].subscribe("t")
    world.settle()
    assert world.network.sent == {"subscribe": 5}  # to I2 only
    world["I5"].publish("t")
    world.settle()
    assert world.network.sent == {"subscribe": 5, "publish": 2}
    assert got(world["I2"]) == got(world["I3"]) == ["t"]


def test_sizes_are_those_of_the_frames() -> None:
    world = five_nodes(PublicationFlooding)
    for size in (0, 100, 200, 20_000):
        world.network.bytes.clear()
        world["I5"].publish("t/1", b"x" * size, qos=1)
        world.settle()
        message = Publish(topic="t/1", payload=b"x" * size, qos=1, packet_id=1)
        assert world.network.bytes["publish"] == 4 * len(message.encode(Version.V5))


@pytest.mark.parametrize("algorithm", [PublicationFlooding, SubscriptionFlooding])
def test_200_nodes_get_each_wanted_message_once(algorithm: type[Algorithm]) -> None:
    random = Random(7)
    model = LinkModel(delay=lognormal(0.005, 0.8), sessions=4, processing=0.0001, sending=0.0001)
    world = PluginWorld(algorithm, seed=7, model=model)
    names = [f"n{i}" for i in range(200)]
    for number, name in enumerate(names):
        world.add(name, introducer=names[random.randrange(number)] if number else None)
    filters = ["a", "a/b", "a/+", "a/#", "+/b", "#", "b/#", "c"]
    for name in names:
        for topic_filter in random.sample(filters, random.randrange(4)):
            world[name].subscribe(topic_filter)
    world.settle()
    published = []
    for number in range(100):
        topic = random.choice(["a", "a/b", "a/c", "b", "b/b", "c", "d/b", "e"])
        payload = str(number).encode()
        world[random.choice(names)].publish(topic, payload, publisher=0)
        published.append((topic, payload))
    world.settle()
    for node in world.nodes.values():
        wanted = Counter(
            (topic, payload)
            for topic, payload in published
            if any(topic_matches(f, topic) for f in node.local_interest)
        )
        assert Counter((d.topic, d.payload) for d in node.deliveries) == wanted


def test_equal_seeds_give_equal_runs() -> None:
    def trace(seed: int) -> list[tuple[str, float]]:
        world = PluginWorld(PublicationFlooding, seed=seed, model=LinkModel(delay=uniform(0.001, 0.1)))
        for number in range(20):
            world.add(f"n{number}", introducer=f"n{number // 2}" if number else None)
        world.settle()
        for node in world.nodes.values():
            node.subscribe("#")
        for node in world.nodes.values():
            node.publish("t")
        world.settle()
        return [(name, delivery.time) for name, delivery in world.deliveries()]

    assert len(trace(1)) == 400
    assert trace(1) == trace(1)
    assert trace(1) != trace(2)


@pytest.mark.parametrize("sessions", [1, 3])
def test_the_order_of_one_publisher_holds(sessions: int) -> None:
    world = five_nodes(PublicationFlooding, delay=uniform(0.001, 0.5), sessions=sessions)
    world["I1"].subscribe("#")
    for number in range(50):
        world["I5"].publish("t", bytes([number]), publisher=5)
    world.settle()
    assert [d.payload[0] for d in world["I1"].deliveries] == list(range(50))


def test_a_model_may_give_up_the_order() -> None:
    world = five_nodes(PublicationFlooding, delay=uniform(0.001, 0.5), ordered=False)
    world["I1"].subscribe("#")
    for number in range(50):
        world["I5"].publish("t", bytes([number]), publisher=5)
    world.settle()
    order = [d.payload[0] for d in world["I1"].deliveries]
    assert order != sorted(order)
    assert sorted(order) == list(range(50))


def test_qos_is_the_smallest_on_the_way() -> None:
    world = five_nodes(SubscriptionFlooding)
    world["I2"].subscribe("t", qos=1)
    world["I3"].subscribe("t", qos=2)
    world.settle()
    world["I5"].publish("t", qos=2)
    world.settle()
    assert [d.qos for d in world["I2"].deliveries] == [1]
    assert [d.qos for d in world["I3"].deliveries] == [2]


def test_retained_messages_reach_every_site_and_later_subscribers_and_later_nodes() -> None:
    world = five_nodes(SubscriptionFlooding)
    world["I1"].publish("t", b"old", retain=True)
    world.settle()
    world["I5"].publish("t", b"new", retain=True)
    world.settle()
    world.add("I6", introducer="I4")
    world.settle()
    for name in ("I1", "I4", "I6"):
        world[name].subscribe("t")
        (delivery,) = world[name].deliveries
        assert (delivery.payload, delivery.retain) == (b"new", True)
        (message,) = world[name].retained("#")
        assert message.payload == b"new"


def test_of_two_retained_messages_at_the_same_time_one_wins_everywhere() -> None:
    world = five_nodes(PublicationFlooding)
    world["I1"].publish("t", b"1", retain=True)
    world["I5"].publish("t", b"5", retain=True)
    world.settle()
    held = {node.broker.retained["t"].payload for node in world.nodes.values()}
    assert held == {b"5"}  # equal times: the greater node id


def test_dollar_topics_stay() -> None:
    world = five_nodes(PublicationFlooding)
    for node in world.nodes.values():
        node.subscribe("$SYS/#")
        node.subscribe("#")
    world["I2"].publish("$SYS/x")
    world.settle()
    assert [name for name, _ in world.deliveries()] == ["I2"]
    assert world.network.sent["publish"] == 0


def test_an_outage_of_a_tree_link_loses_nothing() -> None:
    world = five_nodes(SubscriptionFlooding)
    world["I1"].subscribe("t")
    world.settle()
    world.partition(["I5"])
    world["I5"].publish("t", b"1")
    world.run(10.0)
    assert got(world["I1"]) == []
    world.heal()
    world["I5"].publish("t", b"2")
    world.settle()
    assert [d.payload for d in world["I1"].deliveries] == [b"1", b"2"]


def test_a_long_outage_takes_the_link_down_and_it_comes_back() -> None:
    world = five_nodes(SubscriptionFlooding, expiry=20.0)
    world["I1"].subscribe("t")
    world.settle()
    world.partition(["I5"])
    world.run(30.0)
    assert world["I5"].links == []
    world["I5"].publish("t", b"1")
    world.heal()
    world.settle()
    world["I5"].publish("t", b"2")
    world.settle()
    assert [d.payload for d in world["I1"].deliveries] == [b"2"]


def test_a_node_that_died_and_returns_takes_part_again() -> None:
    world = five_nodes(SubscriptionFlooding)
    world["I1"].subscribe("t")
    world["I5"].subscribe("t")
    world.settle()
    world.kill("I3")
    world.run(1.0)
    world.add("I3")
    world.settle()
    world["I5"].publish("t")
    world.settle()
    assert got(world["I1"]) == ["t"]
    assert got(world["I5"]) == ["t"]


@pytest.mark.parametrize("keep", [False, True])
def test_a_node_that_starts_again_has_what_it_left_if_that_is_kept(keep: bool) -> None:
    world = five_nodes(SubscriptionFlooding)
    alone = world.add("alone")
    alone.subscribe("t")
    alone.publish("r", b"kept", retain=True)
    world.kill("alone")
    again = world.add("alone", introducer="I5", keep=keep)
    world.settle()
    world["I1"].publish("t")
    world["I1"].subscribe("r")
    world.settle()
    assert got(again) == ["t"] * keep
    assert got(world["I1"]) == ["r"] * keep
    assert list(again.broker.retained) == ["r"] * keep


def test_unlinked_nodes_hear_nothing_more_of_each_other() -> None:
    world = five_nodes(SubscriptionFlooding)
    world["I1"].subscribe("t")
    world.settle()
    world.unlink("I2", "I1")
    world.settle()
    world["I5"].publish("t")
    world.settle()
    assert got(world["I1"]) == []
    assert world.network.sent["publish"] == 0
    world.link("I1", "I5")
    world.settle()
    world["I4"].publish("t")
    world.settle()
    assert got(world["I1"]) == ["t"]
    assert world["I1"].deliveries[0].hops == 4


def test_a_link_that_closes_a_cycle_of_a_tree_is_refused() -> None:
    world = five_nodes(PublicationFlooding)
    with pytest.raises(SimulationError, match="would close a cycle"):
        world.link("I5", "I1")


# topology "any" -------------------------------------------------------------------------------


class Talker(OverlayAlgorithm):
    """Keeps what it is told."""

    def __init__(self, api: NodeApi, config: Any) -> None:
        super().__init__(api, config)
        self.heard: list[tuple[str, bytes]] = []
        self.events: list[str] = []
        self.then: Callable[[], object] = lambda: None
        self.published: list[tuple[Publish, int]] = []

    def on_publish(self, message: Publish, turn: int) -> None:
        self.published.append((message, turn))

    def on_message(self, sender: Peer, data: bytes, turn: int) -> None:
        self.heard.append((sender.node_id, data))

    def on_unreachable(self, node_id: str, reason: Unreachable) -> None:
        self.events.append(f"unreachable {node_id} at {self.api.now():.3f}: {reason}")
        self.then()

    def on_link_up(self, link: Link) -> None:
        marks = " dialed" * link.dialed + " introducer" * link.introducer
        self.events.append(f"up {link.peer.node_id}{marks}")

    def on_link_down(self, link: Link) -> None:
        self.events.append(f"down {link.node_id}")

    def on_ildm_stop(self) -> None:
        self.events.append("stop")


def talkers(count: int, **model: Any) -> tuple[PluginWorld, list[SimNode], list[Talker]]:
    world = PluginWorld(Talker, model=LinkModel(**model))
    nodes = [world.add(f"n{i}") for i in range(count)]
    plugins = []
    for node in nodes:
        assert isinstance(node.algorithm, Talker)
        plugins.append(node.algorithm)
    return world, nodes, plugins


def test_data_goes_over_a_link_made_on_demand() -> None:
    world, (one, two), (first, second) = talkers(2)
    assert one.send(two.peer, b"1")
    assert one.send(two.peer, b"2")
    world.settle()
    assert second.heard == [("n0", b"1"), ("n0", b"2")]
    assert world.kernel.now == pytest.approx(0.005)  # four delays of the handshake, then the data
    assert first.events == ["up n1 dialed"]
    assert second.events == ["up n0"]
    assert two.send(one.peer, b"3")
    world.settle()
    assert first.heard == [("n1", b"3")]
    assert world.kernel.now == pytest.approx(0.006)
    assert [link.node_id for link in one.links] == ["n1"]


def test_simultaneous_dials_end_in_one_link() -> None:
    world, (one, two), (first, second) = talkers(2, delay=uniform(0.001, 0.01))
    one.send(two.peer, b"1")
    two.send(one.peer, b"2")
    world.settle()
    assert (first.heard, second.heard) == ([("n1", b"2")], [("n0", b"1")])
    assert len(first.events) == len(second.events) == 1


def test_an_introducer_is_told_by_the_link() -> None:
    world, (one, _), (first, second) = talkers(2)
    world.link("n0", "n1")
    world.settle()
    assert first.events == ["up n1 dialed introducer"]
    assert second.events == ["up n0"]
    world.link("n1", "n0")
    assert second.events == ["up n0", "up n0 introducer"]
    assert len(one.links) == 1


def test_nobody_at_the_address() -> None:
    world, (one, two), (first, _) = talkers(2)
    assert one.send(Peer("nobody", "nobody.sim:1885"), b"x")
    assert one.send(Peer("n1", "elsewhere.sim:1885"), b"x")
    world.settle()
    assert first.events == ["unreachable nobody at 0.002: refused", "unreachable n1 at 0.002: refused"]
    assert world.network.lost == {"unreachable": 2}
    assert one.send(two.peer, b"right")
    world.settle()
    assert len(first.events) == 3


def test_data_to_oneself_is_refused() -> None:
    world, (one,), _ = talkers(1)
    assert one.send(one.peer, b"x") is SendResult.SELF
    assert world.network.lost == {"not sendable": 1}


def test_a_crash_resets_links_and_refuses_new_ones() -> None:
    world, (one, two, three), (first, second, third) = talkers(3)
    one.send(two.peer, b"1")
    world.settle()
    world.run(1.0 - world.kernel.now)
    world.kill("n1")
    one.send(two.peer, b"lost")
    three.send(two.peer, b"lost")
    world.settle()
    assert second.heard == [("n0", b"1")]
    assert first.events == ["up n1 dialed", "down n1", "unreachable n1 at 1.001: lost"]
    assert third.events == ["unreachable n1 at 1.002: refused"]
    assert world.network.lost.total() == 2


def test_a_power_cut_is_noticed_by_time_outs_only() -> None:
    world, (one, two, three), (first, second, third) = talkers(3)
    one.send(two.peer, b"1")
    world.settle()
    world.run(1.0 - world.kernel.now)
    world.kill("n1", silent=True)
    one.send(two.peer, b"lost")
    three.send(two.peer, b"lost")
    world.settle()
    assert second.heard == [("n0", b"1")]
    assert first.events[1:] == ["down n1", "unreachable n1 at 16.000: no answer"]
    assert third.events == ["unreachable n1 at 6.000: no answer"]


def test_a_node_of_the_same_id_starts_anew() -> None:
    world, (one, two), (first, second) = talkers(2)
    one.send(two.peer, b"1")
    world.settle()
    world.kill("n1", silent=True)
    again = world.add("n1")
    assert first.events[1:] == ["down n1", "unreachable n1 at 0.005: lost"]
    one.send(again.peer, b"2")
    world.settle()
    assert isinstance(again.algorithm, Talker)
    assert again.algorithm.heard == [("n0", b"2")]
    assert second.heard == [("n0", b"1")]


def test_each_life_of_a_node_has_chances_of_its_own() -> None:
    """Else who numbers messages from anywhere gave those of a second life the numbers of the first."""
    drawn = []
    for _ in range(2):
        world, _, _ = talkers(2)
        lives = [world["n0"].random.random(), world["n1"].random.random()]
        for _ in range(2):
            world.kill("n1")
            lives.append(world.add("n1").random.random())
        drawn.append(lives)
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == 4


def test_a_hook_that_sends_again_costs_few_dials() -> None:
    world, (one, two), (first, _) = talkers(2)
    world.kill("n1")
    first.then = lambda: one.send(two.peer, b"again")
    one.send(two.peer, b"first")
    world.run(60.0)
    # pauses of 0.25 to 0.5 s, 0.5 to 1 s, ... and of 2.5 to 5 s from the fifth on
    assert 60 / 5 < len(first.events) < 5 + 60 / 2.5
    assert world.network.lost["unreachable"] == len(first.events)


@pytest.mark.parametrize("dialer", ["n0", "n1"])
def test_what_waits_in_a_pause_arrives_when_the_node_is_back(dialer: str) -> None:
    world, (one, two), (first, _) = talkers(2)
    world.kill("n1")
    first.then = lambda: one.send(two.peer, b"again") and one.send(two.peer, b"and again")
    one.send(two.peer, b"first")
    world.run(60.0)
    told = len(first.events)
    two = world.add("n1")
    if dialer == "n1":
        two.send(one.peer, b"here")
        world.run(0.1)
        assert first.heard == [("n1", b"here")]
    world.run(5.1)
    assert isinstance(two.algorithm, Talker)
    assert two.algorithm.heard == [("n0", b"again"), ("n0", b"and again")]
    assert first.events[told:] == ["up n1" + " dialed" * (dialer == "n0")]
    assert one.by_id["n1"].under_way == 0
    world.run(60.0)
    assert len(first.events) == told + 1


def test_too_many_nodes_that_cannot_be_reached() -> None:
    world, (one, two), (first, _) = talkers(2)
    results = []
    for number in range(1100):
        results.append(one.send(Peer(f"x{number}", f"x{number}.sim:1885"), b"x"))
        world.run(0.003)
    assert results == [SendResult.OK] * 1000 + [SendResult.FULL] * 100
    assert len(first.events) == 1000
    world.run(10.0)
    assert one.send(Peer("x", "x.sim:1885"), b"x")
    assert one.send(two.peer, b"x")


def test_configured_neighbours_meet_again() -> None:
    world, _, (first, _) = talkers(2)
    world.link("n0", "n1")
    world.settle()
    world.kill("n1")
    world.settle()
    world.add("n1")
    world.settle()
    assert [event.split(" at ")[0] for event in first.events] == [
        "up n1 dialed introducer",
        "down n1",
        "unreachable n1",
        "up n1 dialed introducer",
    ]


def test_a_short_partition_delays_a_long_one_breaks() -> None:
    world, (one, two), (first, second) = talkers(2)
    one.send(two.peer, b"1")
    world.settle()
    world.partition(["n0"])
    one.send(two.peer, b"2")
    world.run(5.0)
    assert len(second.heard) == 1
    world.heal()
    world.settle()
    assert len(second.heard) == 2
    world.partition(["n0"], ["n1"])
    one.send(two.peer, b"3")
    world.run(20.0)
    world.heal()
    world.settle()
    assert len(second.heard) == 2
    assert first.events[-1].startswith("unreachable n1")
    assert second.events[-1].startswith("unreachable n0")


def test_a_cut_parts_two_nodes_alone() -> None:
    world, (one, two, three), (first, second, third) = talkers(3)
    one.send(two.peer, b"1")
    world.settle()
    world.cut("n0", "n1")
    for node in (one, three):
        node.send(two.peer, b"2")
    two.send(three.peer, b"3")
    world.run(20.0)
    assert second.heard == [("n0", b"1"), ("n2", b"2")]
    assert third.heard == [("n1", b"3")]
    assert first.events[-1] == "unreachable n1 at 15.005: no answer"
    world.heal()
    one.send(two.peer, b"4")
    world.settle()
    assert second.heard[-1] == ("n0", b"4")


def test_what_is_sent_is_told() -> None:
    world = five_nodes(SubscriptionFlooding)
    told: list[tuple[str, str, Any]] = []
    world.network.on_carry = lambda link, what: told.append((link.here.node_id, link.node_id, what))
    world["I3"].subscribe("t", 1)
    world.settle()
    world["I5"].publish("t")
    world.settle()
    assert told[0] == ("I3", "I2", {"t": 1})
    assert [(here, far, what.topic) for here, far, what in told if isinstance(what, Publish)] == [
        ("I5", "I3", "t")
    ]


def test_neighbours_of_a_dial_begun_in_a_partition_find_each_other_when_it_heals() -> None:
    """Though that dial is under way then, and fails later."""
    world = PluginWorld(PublicationFlooding, model=LinkModel())
    world.add("n0")
    world.add("n1")
    world.partition(["n0"])
    world.link("n0", "n1")
    world.run(1.0)
    world.heal()
    world.run(20.0)
    world["n0"].subscribe("a")
    world["n1"].publish("a", b"")
    world.settle()
    assert got(world["n0"]) == ["a"]


def test_idle_links_are_closed_without_alarm() -> None:
    world, (one, two, three), (first, second, _) = talkers(3)
    one.send(two.peer, b"1")
    world.run(200.0)
    one.send(three.peer, b"2")  # links are looked over when another one is made
    world.settle()
    assert first.events == ["up n1 dialed", "down n1", "up n2 dialed"]
    assert second.events == ["up n0", "down n0"]


def test_stopping_tells_the_plugin_and_then_the_peers() -> None:
    world, (one, two), (first, second) = talkers(2)
    one.send(two.peer, b"1")
    world.settle()
    world.stop("n1")
    assert second.events[-1] == "stop"
    two.send(one.peer, b"bye")
    world.settle()
    assert first.heard == [("n1", b"bye")]
    assert first.events[-1].startswith("unreachable n1")
    assert not two.alive


def test_the_queue_is_bounded() -> None:
    world, (one, two), (_, second) = talkers(2, queue_messages=3)
    assert [one.send(two.peer, b"x") for _ in range(5)] == [SendResult.OK] * 3 + [SendResult.FULL] * 2
    world.settle()
    assert len(second.heard) == 3
    assert world.network.lost == {"queue": 2}
    assert one.send(two.peer, b"x")


def test_loss_and_duplication() -> None:
    world, (one, two), (_, second) = talkers(2, loss=0.2, duplicate=0.3, queue_messages=10_000)
    for _ in range(2000):
        one.send(two.peer, b"x")
    world.settle()
    arrived = 2000 - world.network.lost["loss"]
    assert 1500 < arrived < 1700
    assert 1.2 * arrived < len(second.heard) < 1.4 * arrived


def test_busy_nodes_let_messages_wait() -> None:
    world, nodes, plugins = talkers(4, processing=0.01, handshake=0)
    for node in nodes[1:]:
        node.send(nodes[0].peer, b"x")
    world.settle()
    assert len(plugins[0].heard) == 3
    assert world.kernel.now == pytest.approx(0.001 + 3 * 0.01)


def test_how_busy_a_node_is_may_depend_on_node_and_kind() -> None:
    times = {("n0", "long"): 0.05, ("n0", "short"): 0.01, ("n1", "short"): 0.02}
    asked = []

    def processing(node_id: str, kind: str) -> float:
        asked.append((node_id, kind))
        return times[node_id, kind]

    world, nodes, plugins = talkers(3, processing=processing, handshake=0)
    world.network.classify = bytes.decode
    zero, one, two = nodes
    assert [node.node_id for node in nodes] == ["n0", "n1", "n2"]
    one.send(zero.peer, b"long")
    two.send(zero.peer, b"short")
    zero.send(one.peer, b"short")
    world.run(0.0225)
    assert [len(plugin.heard) for plugin in plugins] == [0, 1, 0]
    world.settle()
    assert world.kernel.now == pytest.approx(0.001 + 0.05 + 0.01)
    assert sorted(asked) == sorted(times)


def test_times_may_be_exponential() -> None:
    drawn = [exponential(0.004)(random) for random in [Random(2)] for _ in range(5_000)]
    assert min(drawn) >= 0
    assert sum(drawn) / len(drawn) == pytest.approx(0.004, rel=0.05)
    assert sum(time > 0.004 for time in drawn) / len(drawn) == pytest.approx(math.exp(-1), abs=0.03)


def test_sending_takes_time_for_each_copy() -> None:
    world, nodes, plugins = talkers(4, sending=0.01, handshake=0)
    for node in nodes[1:]:
        nodes[0].send(node.peer, b"x")
    world.settle()
    assert all(len(plugin.heard) == 1 for plugin in plugins[1:])
    assert world.kernel.now == pytest.approx(3 * 0.01 + 0.001)


def test_publishes_go_to_the_plugin_whole_and_retained_ones_stamped() -> None:
    _, (one, two), (first, second) = talkers(2)
    one.subscribe("#")
    one.publish("a", b"1", qos=1, publisher=7)
    one.publish("$b", b"2")
    one.publish("c", b"3", retain=True)
    assert [(m.topic, turn) for m, turn in first.published] == [("a", 7), ("c", 1)]
    assert got(one) == ["a", "c"]  # "#" does not match "$b"
    stamped = first.published[1][0]
    packet = decode(stamped.encode(Version.V5), Version.V5)
    assert isinstance(packet, Publish)
    two.inject(packet)
    two.inject(packet)  # the very same again: not published
    two.subscribe("c")
    assert [d.payload for d in two.deliveries] == [b"3"]
    one.publish("c", b"4", retain=True)
    two.inject(first.published[2][0])
    two.inject(packet)  # older: known already to be so, and live subscribers get it without the flag
    assert [d.payload for d in two.deliveries] == [b"3", b"4", b"3"]
    assert two.broker.retained["c"].payload == b"4"
    assert [m.payload for m in two.retained("+")] == [b"4"]
    assert second.published == []


def test_what_is_remembered_is_a_repetition_with_its_expiry_rounded_up() -> None:
    """As the live node answers: else others would take the repetition for news, and let it go too early."""
    world, (one,), _ = talkers(1)
    one.publish("t", b"x", retain=True, properties={Property.MESSAGE_EXPIRY_INTERVAL: 10})
    world.run(8.6)
    (message,) = one.retained("t")
    ((_, text),) = message.properties[Property.USER_PROPERTY]
    assert Stamp.parse(text)[1]
    assert message.properties[Property.MESSAGE_EXPIRY_INTERVAL] == 2
    world.run(8.6)
    assert list(one.retained("t")) == []


# wrong plugins and calls ----------------------------------------------------------------------


class Broken(TreeAlgorithm):
    def on_interest_changed(self, source: Link | None, changes: Mapping[str, int | None]) -> None:
        if source is None:
            for link in self.api.links:
                link.inter_subscribe(dict.fromkeys(changes, 0))
        else:
            raise RuntimeError("no idea")

    def route(self, topic: str, retain: bool, source: Link | None) -> Route:
        return [("nonsense", 2)]  # type: ignore[list-item]


def test_an_exception_of_a_plugin_ends_the_run() -> None:
    world = five_nodes(Broken)
    world["I2"].subscribe("t")
    with pytest.raises(SimulationError, match=r"at 0\.005000 s.*no idea"):
        world.settle()


def test_a_wrong_route_ends_the_run() -> None:
    world = five_nodes(Broken)
    with pytest.raises(SimulationError, match="answered 'nonsense'"):
        world["I2"].publish("t")


def test_a_failing_timer_names_its_node() -> None:
    world, (one, _), _ = talkers(2)

    def fail() -> None:
        raise RuntimeError("tick")

    one.call_later(2.0, fail)
    with pytest.raises(SimulationError, match=r"at 2\.000000 s in <node n0>: RuntimeError\('tick'\)"):
        world.run(5.0)


def test_dead_nodes_have_no_timers_and_no_clients() -> None:
    world, (one, _), (first, _) = talkers(2)
    one.call_later(1.0, first.events.append, "tick")
    world.kill("n0")
    world.settle()
    assert first.events == []
    with pytest.raises(SimulationError, match="is dead"):
        one.publish("t")
    with pytest.raises(SimulationError, match="is dead already"):
        world.kill("n0")


def test_wrong_calls_are_refused() -> None:
    world, (one, _), _ = talkers(2)
    with pytest.raises(SimulationError, match="there already"):
        world.add("n0")
    with pytest.raises(SimulationError, match="no node 'n9'"):
        world.link("n0", "n9")
    with pytest.raises(SimulationError, match="its own neighbour"):
        world.link("n0", "n0")
    with pytest.raises(SimulationError, match="no subscription"):
        one.unsubscribe("t")
    with pytest.raises(SimulationError, match="no TCP connections"):
        one.create_session("h", 1)
    with pytest.raises(ValueError, match="shares below 1"):
        LinkModel(loss=1.0)
    with pytest.raises(ValueError, match="at least"):
        LinkModel(sessions=0)


def test_settle_says_when_a_condition_never_comes() -> None:
    world, (one, _), _ = talkers(2)

    def again() -> None:
        one.call_later(1.0, again)

    again()
    with pytest.raises(SimulationError, match="not at rest after 5"):
        world.settle(limit=5.0)
    with pytest.raises(SimulationError, match="does not hold after 5"):
        world.settle(lambda: False, limit=5.0)
    assert world.settle(lambda: world.kernel.now >= 12.0) == pytest.approx(2.0)


def test_delays_follow_their_distribution() -> None:
    random = Random(1)

    def mean(delay: Any) -> float:
        return sum(delay(random) for _ in range(4000)) / 4000

    assert constant(0.5)(random) == 0.5
    assert mean(uniform(1.0, 3.0)) == pytest.approx(2.0, rel=0.05)
    assert mean(normal(1.0, 0.1)) == pytest.approx(1.0, rel=0.05)
    assert min(normal(0.0, 1.0, least=0.2)(random) for _ in range(100)) == 0.2
    assert mean(lognormal(1.0, 0.5)) == pytest.approx(1.133, rel=0.05)  # e to the power of sigma^2 / 2


# nodes and pairs of nodes that differ ---------------------------------------------------------


def test_a_delay_may_depend_on_both_ends() -> None:
    asked = []

    def choose(sender: str, receiver: str) -> Callable[[Random], float]:
        asked.append((sender, receiver))
        return constant(3.0 if "n2" in (sender, receiver) else 0.5)

    world, (one, two, three), (_, second, third) = talkers(3, delay=Between(choose))
    for to in (two, three):
        one.send(to.peer, b"x")
    world.settle()
    times = {}
    for to, plugin in ((two, second), (three, third)):
        begin = world.kernel.now
        one.send(to.peer, b"y")
        world.settle()
        assert plugin.heard == [("n0", b"x"), ("n0", b"y")]
        times[to.node_id] = world.kernel.now - begin
    assert times == {"n1": 0.5, "n2": 3.0}
    assert asked.count(("n0", "n1")) == 1, "asked once for each link, not each message"


class Place(PluginConfig):
    place: str
    size: int = 1


class Placed(TreeAlgorithm[Place]):
    """Has options, one of them without a default."""

    def route(self, topic: str, retain: bool, source: Link | None) -> Route:
        return ()


def test_nodes_may_have_options_of_their_own() -> None:
    world = PluginWorld(Placed, {"size": 2})
    a = world.add("a", options={"place": "eu"})
    b = world.add("b", options={"place": "us", "size": 3})
    assert [node.algorithm.config.model_dump() for node in (a, b)] == [
        {"place": "eu", "size": 2},
        {"place": "us", "size": 3},
    ]
    world.kill("b")
    assert world.add("b").algorithm.config.place == "us"  # type: ignore[attr-defined]
    with pytest.raises(PluginError, match=r"algorithm 'Placed': place: Field required"):
        world.add("c")
    assert "c" not in world.nodes
