"""Start nodes in virtual time: found, kept, refreshed, lost; clusters that come and go."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from pydantic import ValidationError

from ildm.api import MessageTrace, TreeNode
from ildm_algorithms.stla import Stla
from ildm_algorithms.stla.plugin import FromStart
from ildm_algorithms.tbps.keys.encoding import Segment
from tests.algorithms.tbps.world import Node, World


def sites(*names: str, **options: Any) -> tuple[World, list[Node]]:
    """``eu/x``: node x in the cluster eu."""
    world = World("stla", **options)
    nodes = [join(world, name) for name in names]
    world.settle()
    return world, nodes


def join(world: World, path: str) -> Node:
    *place, name = path.split("/")
    return world.start(name, locality=place)[0]


def start(node: Node, topic: str = "t") -> str | None:
    """The start node of a publisher, as ``ildm overlay`` shows it."""
    (key,) = (key for key in node.algorithm.overlay().keys if key.key.startswith(f"{topic} publisher"))
    shown = key.facts["start"]
    return None if shown is None else str(shown)


def tree(world: World, node: Node, topic: str = "t") -> TreeNode:
    """The way of a message to the subscribers of the topic itself."""
    traces: list[MessageTrace] = []
    node.algorithm.trace(topic, traces.append)
    world.settle()
    (trace,) = traces
    assert trace.complete
    assert trace.trees[0].tree is not None
    return trace.trees[0].tree


def got(node: Node) -> list[str]:
    return [delivery.payload.decode() for delivery in node.deliveries]


def publish_each_second(world: World, publisher: Node, first: int, count: int, qos: int = 1) -> list[str]:
    payloads = [str(number) for number in range(first, first + count)]
    for payload in payloads:
        publisher.publish("t", payload, qos=qos)
        world.run(1.0)
    return payloads


def test_a_node_must_know_where_it_is() -> None:
    with pytest.raises(ValidationError, match=r"locality\n.*required"):
        Stla.Config.model_validate({})
    with pytest.raises(ValidationError, match="locality"):
        Stla.Config.model_validate({"locality": []})
    with pytest.raises(ValidationError, match=r"locality\.0"):
        Stla.Config.model_validate({"locality": ["", "paris"]})


def test_messages_begin_in_the_own_cluster() -> None:
    world, (p, us, eu, asia) = sites("eu/p", "us/s1", "eu/s2", "asia/s3")
    for node in (us, eu, asia):
        node.subscribe("t")
    world.settle()
    p.publish("t", "first")
    world.settle()
    assert start(p) == "t subscriber eu s2"
    assert p.counters["start_searches"] == 1  # the wildcard segments are suspended
    assert [got(node) for node in (us, eu, asia)] == [["first"]] * 3
    shown = tree(world, p)
    assert [child.node for child in shown.children] == ["s2"]
    assert shown.keys == []


def test_a_new_publishers_messages_wait_for_the_search() -> None:
    world, (p, us, eu) = sites("eu/p", "us/s1", "eu/s2")
    us.subscribe("t")
    eu.subscribe("t")
    world.settle()
    spreading = p.algorithm.spreading
    assert isinstance(spreading, FromStart)
    begun = []
    cast = spreading.graph.cast

    def noted(*args: Any, **options: Any) -> None:
        begun.append(options["entry"])
        cast(*args, **options)

    spreading.graph.cast = noted  # type: ignore[method-assign]
    p.publish("t", "1")
    p.publish("t", "2")
    world.settle()
    assert [entry.peer.node_id for entry in begun if entry] == ["s2", "s2"]
    assert got(us) == got(eu) == ["1", "2"]


def test_suspended_publishers_search_nothing_and_resumed_ones_do() -> None:
    world, (p, q, s) = sites("eu/p", "us/q", "us/s")
    q.publish("t")
    p.publish("t")
    world.settle()
    before = p.counters.get("start_searches", 0)
    p.publish("t")
    world.settle()
    assert start(p) is None
    assert p.counters.get("start_searches", 0) == before
    s.subscribe("t")
    world.settle()
    p.publish("t", "found meanwhile")
    world.settle()
    assert start(p) == "t subscriber us s"
    s.unsubscribe("t")
    world.settle()
    p.publish("t", "in vain")
    join(world, "eu/z").subscribe("t")
    world.settle()
    p.publish("t", "again")  # a RESUME has come: what was known is of no use
    world.settle()
    assert got(s) == ["found meanwhile"]
    assert got(world.living["z"]) == ["again"]
    assert start(p) == "t subscriber eu z"


def test_who_subscribes_is_its_own_start() -> None:
    world, (p, s) = sites("eu/p", "eu/s")
    s.subscribe("t")
    p.subscribe("t")
    world.settle()
    p.publish("t", "1")
    world.settle()
    segment = Segment.exact("t")
    assert isinstance(p.algorithm.spreading, FromStart)
    assert segment.code not in p.algorithm.spreading.starts
    assert tree(world, p).keys == ["t subscriber eu p"]
    p.unsubscribe("t")
    world.settle()
    p.publish("t", "2")
    world.settle()
    assert start(p) == "t subscriber eu s"
    assert got(s) == ["1", "2"]


def test_a_cluster_that_appears_is_used_after_a_while() -> None:
    world, (p, far) = sites("eu/p", "us/s1")
    far.subscribe("t")
    world.settle()
    p.publish("t", "first")
    world.settle()
    assert start(p) == "t subscriber us s1"
    near = join(world, "eu/s2")
    near.subscribe("t")
    world.settle()
    sent = publish_each_second(world, p, 0, 25)
    assert got(near) == sent
    assert got(far) == ["first", *sent]
    assert start(p) == "t subscriber eu s2"


def test_a_cluster_that_all_have_left_is_left_alone() -> None:
    world, (p, near, other, far) = sites("eu/p", "eu/s1", "eu/s2", "us/s3")
    for node in (near, other, far):
        node.subscribe("t")
    world.settle()
    p.publish("t", "first")
    world.settle()
    assert start(p) == "t subscriber eu s1"
    for node in (near, other):
        node.unsubscribe("t")
        p.publish("t", f"{node.node_id} leaves", qos=1)  # the start is stale, the message passes through
        world.settle()
    sent = publish_each_second(world, p, 0, 25)
    assert got(far) == ["first", "s1 leaves", "s2 leaves", *sent]
    assert start(p) == "t subscriber us s3"


@pytest.mark.parametrize("qos", [0, 1])
def test_a_start_that_dies(qos: int) -> None:
    world, (p, near, *far) = sites("eu/p", "eu/s1", "us/s2", "us/s3", "asia/s4")
    for node in (near, *far):
        node.subscribe("t")
    world.settle()
    sent = publish_each_second(world, p, 0, 2, qos)
    assert start(p) == "t subscriber eu s1"
    world.kill(near.node_id)
    sent += publish_each_second(world, p, 2, 8, qos)
    world.run(20)
    for node in far:
        # of QoS 0 what was under way is lost
        assert sorted(got(node), key=int) == ([*sent[:2], *sent[3:]] if qos == 0 else sent)
    assert p.counters["starts_lost"] >= 1
    assert start(p) != "t subscriber eu s1"


def test_a_cluster_that_is_cut_off() -> None:
    world, nodes = sites("eu/p", "us/q", "us/s1", "us/s2", "eu/s3", probe_interval=5.0)
    p, q, *subscribers = nodes
    for node in subscribers:
        node.subscribe("t")
    world.settle()
    publish_each_second(world, p, 0, 2)
    q.publish("t", "q", qos=1)
    world.settle()
    assert start(q) == "t subscriber us s1"
    world.partition([q.node_id, subscribers[2].node_id])
    sent = publish_each_second(world, q, 10, 5)
    assert set(sent) <= set(got(subscribers[2]))
    assert q.counters["starts_lost"] >= 1
    assert start(q) != "t subscriber us s1"
    world.heal()
    world.run(120)
    sent = publish_each_second(world, q, 20, 30)
    for node in subscribers:
        assert [payload for payload in got(node) if payload in sent] == sent
    assert start(q) in ("t subscriber us s1", "t subscriber us s2")


def test_start_nodes_are_bounded() -> None:
    world, (p, s) = sites("eu/p", "eu/s", max_starts=2)
    s.subscribe("a", "b", "c")
    world.settle()
    for topic in "abc":
        p.publish(topic, topic)
    world.settle()
    assert isinstance(p.algorithm.spreading, FromStart)
    assert len(p.algorithm.spreading.starts) == 2
    assert p.counters["starts_displaced"] >= 1
    for topic in "abc":
        p.publish(topic, topic.upper())
    world.settle()
    assert sorted(got(s)) == ["A", "B", "C", "a", "b", "c"]


def test_every_segment_of_a_topic_has_its_own_start() -> None:
    world, (p, exact, wild) = sites("eu/p", "eu/s1", "us/s2")
    exact.subscribe("a/b")
    wild.subscribe("a/#")
    world.settle()
    p.publish("a/b", "1", qos=1)
    world.settle()
    assert start(p, "a/b") == "a/b subscriber eu s1"
    assert start(p, "a/#") == "a/# subscriber us s2"
    assert start(p, "#") is None
    assert got(exact) == got(wild) == ["1"]


def test_a_retained_message_reaches_publishers_by_way_of_the_start() -> None:
    world, (p, q, s) = sites("eu/p", "us/q", "us/s")
    q.publish("t", "older", retain=True)
    s.subscribe("t")
    world.settle()
    p.publish("t", "newer", retain=True)
    world.run(10)
    assert start(p) == "t subscriber us s"
    assert s.broker.retained["t"].payload == b"newer"
    assert b"newer" in [message.payload for message in q.injected]


def test_topics_of_an_aggregate_have_start_nodes_too() -> None:
    """They have no key of their own in the segment, so what is known of its status is the aggregate's."""
    world, (p, far, near) = sites("eu/p", "asia/s1", "eu/s2", siblings=2, hot=0)
    for node in (far, near):
        node.subscribe("d/7")
    world.settle()
    for number in range(8):
        p.publish(f"d/{number}")
    world.settle()
    p.publish("d/7", "again", qos=1)
    world.run(10)
    assert got(far) == got(near) == ["x", "again"]
    assert not any(key.key.startswith("d/7 publisher") for key in p.algorithm.overlay().keys)
    assert isinstance(p.algorithm.spreading, FromStart)
    ref = p.algorithm.spreading.starts[Segment.exact("d/7").code].ref
    assert ref is not None
    assert ref.peer.node_id == "s2"


def test_a_trace_of_a_topic_one_does_not_publish_to_begins_at_the_closest() -> None:
    world, (p, far, near) = sites("eu/p", "asia/s1", "eu/s2")
    far.subscribe("t")
    near.subscribe("t")
    world.settle()
    shown = tree(world, p)
    assert [child.node for child in shown.children] == ["s2"]


@pytest.mark.parametrize("seed", range(3))
def test_nothing_of_qos_1_is_lost_while_nodes_come_and_go(seed: int) -> None:
    """Clusters empty and fill up; who has subscribed for 2 s and stays has each message once."""
    random = Random(seed)
    clusters = ("eu/a", "eu/b", "us/a")
    world, nodes = sites(*(f"{clusters[at % 3]}/n{at}" for at in range(9)), seed=seed, status_interval=5.0)
    publishers, subscribers = nodes[:2], nodes[2:]
    for node in subscribers[::2]:
        node.subscribe("t")
    since = dict.fromkeys(subscribers[::2], 0.0)
    world.run(10.0)
    expected: dict[Node, list[str]] = {node: [] for node in since}
    for number in range(40):
        if number % 2 == 0:
            node = random.choice(subscribers)
            if node not in since:
                node.subscribe("t")
                since[node] = world.kernel.now
            elif len(since) > 1 and random.random() < 0.7:
                node.unsubscribe("t")
                del since[node]
                expected.pop(node, None)
            elif len(since) > 1 and len(subscribers) > 4:
                world.kill(node.node_id)
                del since[node]
                expected.pop(node, None)
                subscribers.remove(node)
        publisher, payload = random.choice(publishers), str(number)
        publisher.publish("t", payload, qos=1)
        for node, begun in since.items():
            if begun < world.kernel.now - 2:
                expected.setdefault(node, []).append(payload)
        world.run(1.0)
    world.run(40.0)
    for node, payloads in expected.items():
        have = got(node)
        assert [have.count(payload) for payload in payloads] == [1] * len(payloads), node.node_id
