"""Against the naive matcher: whatever has happened before, each publish reaches who wants it, once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ildm.mqtt import topic_matches
from tests.algorithms.tbps.world import GRAPHS, MODEL, World

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
    node = world.living.get(action[1])
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
    for publisher in world.living.values():
        for topic in TOPICS:
            for node in world.living.values():
                node.injected.clear()
            publisher.publish(topic, "now", qos=qos)
            world.settle()
            for node in world.living.values():
                wanted = node is not publisher and any(topic_matches(f, topic) for f in node.local_interest)
                got = [(message.topic, message.payload) for message in node.injected]
                assert got == [(topic, b"now")] * wanted, (publisher.node_id, node.node_id, topic)


def check_publishers(world: World) -> None:
    """A publisher is suspended exactly if its segment has no subscriber."""
    subscribed = set()
    for node in world.living.values():
        for code, member in node.algorithm.segments.members.items():
            if member.filters:
                subscribed.add(code)
    for node in world.living.values():
        for code, member in node.algorithm.segments.members.items():
            if not member.subscribed:
                assert member.suspended == (code not in subscribed), (node.node_id, member.segment.text)


@settings(max_examples=40, deadline=None)
@given(ACTIONS, st.sampled_from([0, 1]))
@example([("publish", node, "a") for node in ("n0", "n1", "n3")], 0)
def test_each_publish_reaches_exactly_the_nodes_that_want_it(actions: list[tuple], qos: int) -> None:  # type: ignore[type-arg]
    world = World("line")
    world.start(*NODES[:5])
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
    world.start(*NODES)
    world.settle()
    for action in actions:
        act(world, action)
    world.run(10)
    check_some(world)
    check_publishers(world)


def check_some(world: World) -> None:
    """Like :func:`check`, all messages at once."""
    for node in world.living.values():
        node.injected.clear()
    for publisher in world.living.values():
        for topic in TOPICS:
            publisher.publish(topic, publisher.node_id, qos=1)
    world.run(10)
    for node in world.living.values():
        got = sorted((message.topic, message.payload.decode()) for message in node.injected)
        wanted = sorted(
            (topic, publisher)
            for publisher in world.living
            for topic in TOPICS
            if publisher != node.node_id and any(topic_matches(f, topic) for f in node.local_interest)
        )
        assert got == wanted, node.node_id


@pytest.mark.parametrize("over", GRAPHS)
def test_after_messages_were_lost_and_doubled(over: str) -> None:
    world = World(over, 1, status_interval=5.0)
    world.start(*NODES[:6])
    world.settle()
    world.network.model = replace(MODEL, loss=0.1, duplicate=0.05)
    for at, node in enumerate(world.living.values()):
        node.subscribe(FILTERS[at], FILTERS[at + 4])
        for topic in TOPICS:
            node.publish(topic)
        world.run(1)
        node.unsubscribe(FILTERS[at])
    world.run(5)
    world.network.model = MODEL
    world.run(60)
    check_some(world)
    check_publishers(world)


@pytest.mark.parametrize("over", GRAPHS)
@pytest.mark.parametrize("seed", range(2))
def test_after_a_node_is_killed_in_the_middle_of_traffic(over: str, seed: int) -> None:
    world = World(over, seed, status_interval=5.0)
    world.start(*NODES)
    world.settle()
    for at, node in enumerate(world.living.values()):
        node.subscribe(FILTERS[at], FILTERS[at + 4])
        for topic in TOPICS:
            node.publish(topic)
    world.run(1)
    for number in (3, 5):
        world.kill(NODES[number])
        for node in world.living.values():
            node.publish("a/b", qos=1)
        world.run(1)
    world.run(40)
    check_some(world)
    check_publishers(world)


@pytest.mark.parametrize("over", GRAPHS)
def test_copies_that_come_to_the_next_life_of_a_node(over: str) -> None:
    """It has its keys, but nobody beside them yet: what it cannot hand on is no part that has been served."""
    world = World(over, 1)
    first, *others = world.start(*NODES)
    for node in others:
        node.subscribe("t")
    world.settle()
    first.publish("t", "first", qos=1)
    world.run(10)
    for name in NODES[1:]:
        first.publish("t", name, qos=1)
        world.restart(name)
        world.run(30)
        have = {
            node_id
            for node_id, node in world.living.items()
            if name.encode() in {m.payload for m in node.injected}
        }
        assert have == set(NODES[1:]), f"{name} restarted"


@pytest.mark.parametrize("over", GRAPHS)
@pytest.mark.parametrize("seed", range(2))
def test_two_overlays_become_one(over: str, seed: int) -> None:
    """With subscribers on one side, publishers on the other, and retained messages on both."""
    world = World(over, seed, status_interval=5.0)
    world.start(*NODES[:3])
    far = world.apart("m0")
    world.start("m1", "m2", to="m0")
    near = world.living["n0"]
    near.subscribe("a/#", "b")
    far.subscribe("+/b", "b")
    near.publish("b", "near", retain=True)
    far.publish("a/b", "far", retain=True)
    world.living["m1"].publish("a/c")
    world.living["n1"].publish("b/b")
    world.run(10)
    world.living["m2"].publish("b", "newer", retain=True)
    world.run(5)
    assert near.broker.retained["b"].payload == b"near"
    assert "a/b" not in near.broker.retained
    world.link("m0", "n0")
    world.run(60)
    assert near.broker.retained["a/b"].payload == b"far"
    assert near.broker.retained["b"].payload == far.broker.retained["b"].payload == b"newer"
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
    world.start(*NODES[:4])
    newest: dict[str, bytes] = {}
    for number, action in enumerate(actions):
        if action[0] == "set":
            payload = str(number) if action[3] else ""
            world.living[action[1]].publish(action[2], payload, retain=True)
            newest[action[2]] = payload.encode()
        else:
            act(world, action)
        world.run(6)
        for node in world.living.values():
            wanted = {
                topic: payload
                for topic, payload in newest.items()
                if payload and any(topic_matches(f, topic) for f in node.local_interest)
            }
            has = {topic: message.payload for topic, message in node.broker.retained.items()}
            assert {topic: has.get(topic) for topic in wanted} == wanted
            # and nothing that is not the newest, wanted or not
            assert {topic: newest[topic] for topic in has} == has
