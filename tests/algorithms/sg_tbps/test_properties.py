"""Against the naive matcher: whatever has happened before, each publish reaches who wants it, once."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ildm.mqtt import topic_matches
from tests.algorithms.tbps.world import GRAPHS, World

FILTERS = ["a", "a/b", "a/+", "a/#", "+/b", "#", "b/#", "+", "b", "a/", "/+", "+/+", "a-b", "a/b/#"]
TOPICS = ["a", "a/b", "a/c", "b", "b/b", "c/b", "a/", "/b", "a-b", "a/b/c"]
NODES = [f"n{number}" for number in range(8)]
ACTION = st.one_of(
    st.tuples(st.just("toggle"), st.sampled_from(NODES), st.sampled_from(FILTERS)),
    st.tuples(st.just("publish"), st.sampled_from(NODES), st.sampled_from(TOPICS)),
    st.tuples(st.just("wait"), st.sampled_from([0.001, 0.01, 2.0])),
)
ACTIONS = st.lists(ACTION, max_size=25)


def act(world: World, action: tuple) -> None:  # type: ignore[type-arg]
    if action[0] == "wait":
        world.run(action[1])
        return
    node = world.nodes.get(action[1])
    if node is None:
        return
    if action[0] == "publish":
        node.publish(action[2], "early")
    elif action[2] in node.local_interest:
        node.unsubscribe(action[2])
    else:
        node.subscribe(action[2])


def check(world: World, qos: int) -> None:
    """Publish everything everywhere; compare with who has a matching filter."""
    for publisher in world.nodes.values():
        for topic in TOPICS:
            for node in world.nodes.values():
                node.injected.clear()
            publisher.publish(topic, "now", qos=qos)
            world.settle()
            for node in world.nodes.values():
                wanted = node is not publisher and any(topic_matches(f, topic) for f in node.local_interest)
                got = [(message.topic, message.payload) for message in node.injected]
                assert got == [(topic, b"now")] * wanted, (publisher.node_id, node.node_id, topic)


def check_publishers(world: World) -> None:
    """A publisher is suspended exactly if its segment has no subscriber."""
    subscribed = set()
    for node in world.nodes.values():
        for code, member in node.algorithm.segments.members.items():
            if member.filters:
                subscribed.add(code)
    for node in world.nodes.values():
        for code, member in node.algorithm.segments.members.items():
            if not member.subscribed:
                assert member.suspended == (code not in subscribed), (node.node_id, member.segment.text)


@settings(max_examples=40, deadline=None)
@given(ACTIONS, st.sampled_from([0, 1]))
@example([("publish", node, "a") for node in ("n0", "n1", "n3")], 0)
def test_each_publish_reaches_exactly_the_nodes_that_want_it(actions: list[tuple], qos: int) -> None:  # type: ignore[type-arg]
    world = World("line")
    world.add(*NODES[:5])
    for action in actions:
        act(world, action)
    world.run(3)
    check(world, qos)
    check_publishers(world)


@pytest.mark.parametrize("over", GRAPHS)
@settings(max_examples=5, deadline=None)
@given(ACTIONS, st.integers(0, 1000))
def test_the_same_over_a_skip_graph(over: str, actions: list[tuple], seed: int) -> None:  # type: ignore[type-arg]
    world = World(over, seed)
    world.add(*NODES)
    world.settle()
    for action in actions:
        act(world, action)
    world.run(10)
    check_some(world)
    check_publishers(world)


def check_some(world: World) -> None:
    """Like :func:`check`, all messages at once."""
    for node in world.nodes.values():
        node.injected.clear()
    for publisher in world.nodes.values():
        for topic in TOPICS:
            publisher.publish(topic, publisher.node_id, qos=1)
    world.run(10)
    for node in world.nodes.values():
        got = sorted((message.topic, message.payload.decode()) for message in node.injected)
        wanted = sorted(
            (topic, publisher)
            for publisher in world.nodes
            for topic in TOPICS
            if publisher != node.node_id and any(topic_matches(f, topic) for f in node.local_interest)
        )
        assert got == wanted, node.node_id


@pytest.mark.parametrize("over", GRAPHS)
def test_after_messages_were_lost_and_doubled(over: str) -> None:
    world = World(over, 1, status_interval=5.0)
    world.add(*NODES[:6])
    world.settle()
    world.loss = 0.1
    for at, node in enumerate(world.nodes.values()):
        node.subscribe(FILTERS[at], FILTERS[at + 4])
        for topic in TOPICS:
            node.publish(topic)
        world.run(1)
        node.unsubscribe(FILTERS[at])
    world.run(5)
    world.loss = 0.0
    world.run(60)
    check_some(world)
    check_publishers(world)


@pytest.mark.parametrize("over", GRAPHS)
@pytest.mark.parametrize("seed", range(2))
def test_after_a_node_is_killed_in_the_middle_of_traffic(over: str, seed: int) -> None:
    world = World(over, seed, status_interval=5.0)
    world.add(*NODES)
    world.settle()
    for at, node in enumerate(world.nodes.values()):
        node.subscribe(FILTERS[at], FILTERS[at + 4])
        for topic in TOPICS:
            node.publish(topic)
    world.run(1)
    for number in (3, 5):
        world.kill(world.nodes[NODES[number]])
        for node in world.nodes.values():
            node.publish("a/b", qos=1)
        world.run(1)
    world.run(40)
    check_some(world)
    check_publishers(world)


@pytest.mark.parametrize("over", GRAPHS)
def test_copies_that_come_to_the_next_life_of_a_node(over: str) -> None:
    """It has its keys, but nobody beside them yet: what it cannot hand on is no part that has been served."""
    world = World(over, 1)
    first, *others = world.add(*NODES)
    for node in others:
        node.subscribe("t")
    world.settle()
    first.publish("t", "first", qos=1)
    world.run(10)
    for node in others:
        first.publish("t", node.node_id, qos=1)
        world.restart(node)
        world.run(30)
        have = {
            other.node_id for other in others if node.node_id.encode() in {m.payload for m in other.injected}
        }
        assert have == set(NODES[1:]), f"{node.node_id} restarted"


@pytest.mark.parametrize("over", GRAPHS)
@pytest.mark.parametrize("seed", range(2))
def test_two_overlays_become_one(over: str, seed: int) -> None:
    """With subscribers on one side, publishers on the other, and retained messages on both."""
    world = World(over, seed, status_interval=5.0)
    world.add(*NODES[:3])
    far = world.apart("m0")
    world.add("m1", "m2", to=far)
    near = world.nodes["n0"]
    near.subscribe("a/#", "b")
    far.subscribe("+/b", "b")
    near.publish("b", "near", retain=True)
    far.publish("a/b", "far", retain=True)
    world.nodes["m1"].publish("a/c")
    world.nodes["n1"].publish("b/b")
    world.run(10)
    world.nodes["m2"].publish("b", "newer", retain=True)
    world.run(5)
    assert near.broker["b"].payload == b"near"
    assert "a/b" not in near.broker
    world.introduce(far, near)
    world.run(60)
    assert near.broker["a/b"].payload == b"far"
    assert near.broker["b"].payload == far.broker["b"].payload == b"newer"
    check_some(world)
    check_publishers(world)


RETAINED = st.lists(
    st.one_of(
        st.tuples(st.just("toggle"), st.sampled_from(NODES[:4]), st.sampled_from(FILTERS)),
        st.tuples(st.just("set"), st.sampled_from(NODES[:4]), st.sampled_from(TOPICS[:4]), st.booleans()),
    ),
    max_size=12,
)


@settings(max_examples=40, deadline=None)
@given(RETAINED)
def test_a_broker_has_the_newest_retained_message_of_what_its_clients_want(actions: list[tuple]) -> None:  # type: ignore[type-arg]
    world = World("line")
    world.add(*NODES[:4])
    newest: dict[str, bytes] = {}
    for number, action in enumerate(actions):
        if action[0] == "set":
            payload = str(number) if action[3] else ""
            world.nodes[action[1]].publish(action[2], payload, retain=True)
            newest[action[2]] = payload.encode()
        else:
            act(world, action)
        world.run(6)
        for node in world.nodes.values():
            wanted = {
                topic: payload
                for topic, payload in newest.items()
                if payload and any(topic_matches(f, topic) for f in node.local_interest)
            }
            has = {topic: message.payload for topic, message in node.broker.items()}
            assert {topic: has.get(topic) for topic in wanted} == wanted
            # and nothing that is not the newest, wanted or not
            assert {topic: newest[topic] for topic in has} == has
