"""MQTT over the overlay: filters, retained messages, waiting, QoS (both over a list and a Skip Graph)."""

from __future__ import annotations

import re

import pytest

from ildm.api import MessageTrace
from tests.algorithms.tbps.world import KINDS, Node, World

PLACE = re.compile(r" r\d/s\d")
OVER = pytest.mark.parametrize("over", KINDS)


def payloads(node: Node) -> list[str]:
    return [delivery.payload.decode() for delivery in node.deliveries]


def keys(node: Node) -> list[str]:
    """Without the places of nodes, which only some algorithms know."""
    return [PLACE.sub("", key.key) for key in node.algorithm.overlay().keys]


@OVER
def test_filters(over: str) -> None:
    world = World(over)
    p, *subscribers = world.start("p", "s1", "s2", "s3", "s4", "s5", "s6", "s7")
    for node, topic_filter in zip(subscribers, ["a/b", "a/+", "a/#", "+/b", "#", "a", "$SYS/#"], strict=True):
        node.subscribe(topic_filter)
    world.settle()
    for topic in ("a/b", "a", "a/b/c", "x/b", "a/", "/b", "b"):
        p.publish(topic, topic)
        world.settle()
    assert payloads(subscribers[0]) == ["a/b"]
    assert payloads(subscribers[1]) == ["a/b", "a/"]
    assert payloads(subscribers[2]) == ["a/b", "a", "a/b/c", "a/"]
    assert payloads(subscribers[3]) == ["a/b", "x/b", "/b"]
    assert payloads(subscribers[4]) == ["a/b", "a", "a/b/c", "x/b", "a/", "/b", "b"]
    assert payloads(subscribers[5]) == ["a"]
    assert payloads(subscribers[6]) == []
    assert keys(subscribers[6]) == ["default s7"]
    assert keys(subscribers[3]) == ["# subscriber s4", "default s4"]


@OVER
def test_one_copy_for_each_node_and_none_for_the_publisher(over: str) -> None:
    world = World(over)
    p, s = world.start("p", "s")
    s.subscribe("a/b", "a/+", "a/#", "#", "+/+")
    p.subscribe("a/b")
    world.settle()
    p.publish("a/b", "1", qos=1)
    world.settle()
    assert len(s.injected) == 1
    assert p.injected == []
    assert s.counters["duplicates"] == 2  # the segments a/b, a/# and # lead to s


def test_a_segment_has_one_key_until_its_last_filter_goes() -> None:
    world = World()
    (s,) = world.start("s")
    s.subscribe("a/#", "a/+", "a", "a/b")
    world.settle()
    assert keys(s) == ["a subscriber s", "a/# subscriber s", "a/b subscriber s", "default s"]
    s.unsubscribe("a/#")
    world.settle()
    assert "a/# subscriber s" in keys(s)
    s.unsubscribe("a/+", "a")
    world.settle()
    assert keys(s) == ["a/b subscriber s", "default s"]  # not swallowed by the filter that covered it


def test_keys_follow_a_client_that_changes_its_mind() -> None:
    world = World()
    (s,) = world.start("s")
    for _ in range(3):
        s.subscribe("t")
        world.run(0.0005)
        s.unsubscribe("t")
        world.run(0.0015)
    s.subscribe("t")
    world.settle()
    assert keys(s) == ["default s", "t subscriber s"][::-1]
    s.publish("t")
    s.unsubscribe("t")
    world.settle()
    assert keys(s) == ["# publisher s", "t publisher s", "t/# publisher s", "default s"]


@OVER
def test_messages_wait_in_order_until_the_keys_have_joined(over: str) -> None:
    world = World(over, waiting_messages=4)
    p, s = world.start("p", "s")
    s.subscribe("t/#")
    world.settle()
    for number in range(3):
        p.publish("t/x", str(number))
    assert p.algorithm.outbox.waiting == 3
    world.settle()
    p.publish("t/x", "3")
    world.settle()
    assert payloads(s) == ["0", "1", "2", "3"]


@OVER
def test_what_finds_no_room_to_wait_goes_out_without_a_key(over: str) -> None:
    world = World(over, waiting_messages=4)
    p, s = world.start("p", "s")
    s.subscribe("t/#")
    world.settle()
    for number in range(6):
        p.publish("t/x", str(number))
        assert p.algorithm.outbox.waiting <= 4
    world.settle()
    p.publish("t/x", "6")
    world.settle()
    assert payloads(s) == list("0123456")
    assert p.counters["waiting_full"] == 1
    assert p.algorithm.outbox.waiting == p.algorithm.outbox.waiting_bytes == 0


def test_waiting_counts_against_the_expiry_interval() -> None:
    world = World()
    p, s = world.start("p", "s")
    s.subscribe("t")
    world.settle()
    p.algorithm.graph.insert = lambda key: world.kernel.schedule(
        3.2, world.line.enter, p.algorithm.graph, key
    )  # type: ignore[method-assign, assignment]
    p.publish("t", "short", expiry=3)
    p.publish("t", "long", expiry=10)
    world.run(5)
    assert payloads(s) == ["long"]
    assert p.counters["expired"] == 1
    assert list(s.injected[0].properties.values()) == [7]


def test_an_idle_publisher_leaves_but_not_the_holder_of_a_retained_message() -> None:
    world = World(publisher_idle=10.0)
    p, s = world.start("p", "s")
    p.publish("t")
    p.publish("r", "kept", retain=True)
    world.run(5)
    p.publish("t")
    world.run(6)
    assert "t publisher p" in keys(p)
    world.run(10)
    assert keys(p) == ["# publisher p", "r publisher p", "r/# publisher p", "default p"]
    s.publish("r", "newer", retain=True)
    world.run(25)
    assert keys(p) == ["default p"]
    assert "r publisher s" in keys(s)


@OVER
def test_quality_of_service_is_the_lowest_of_message_link_and_subscriber(over: str) -> None:
    world = World(over, qos=1)
    p, zero, two = world.start("p", "s0", "s2")
    zero.subscribe("t", qos=0)
    two.subscribe("t", qos=2)
    world.settle()
    for qos in (0, 1, 2):
        p.publish("t", qos=qos)
        world.settle()
    assert [message.qos for message in zero.injected] == [0, 0, 0]
    assert [message.qos for message in two.injected] == [0, 1, 1]


# retained messages --------------------------------------------------------------------------------


@OVER
@pytest.mark.parametrize("topic_filter", ["a/b", "a/#", "+/b", "#"])
def test_a_new_subscriber_gets_what_was_retained_elsewhere(over: str, topic_filter: str) -> None:
    world = World(over)
    p, s, later = world.start("p", "s", "later")
    p.publish("a/b", "old", retain=True)
    p.publish("a/b", "kept", retain=True, qos=1)
    p.publish("a/b", "passing")
    p.publish("x/y/z", "other", retain=True)
    world.settle()
    for node in (s, later):  # the second asks the first
        node.subscribe(topic_filter)
        world.run(10)
        assert [p for p in payloads(node) if p != "other"] == ["kept"]
        assert node.broker.retained["a/b"].payload == b"kept"
        assert node.injected[0].qos == 1
    assert later.counters.get("queries", 0) == 0


@OVER
def test_deletions_hold(over: str) -> None:
    world = World(over)
    p, q, s, later = world.start("p", "q", "s", "later")
    p.publish("t", "kept", retain=True)
    world.settle()
    s.subscribe("t")
    world.settle()
    q.publish("t", "", retain=True)
    world.run(10)
    assert payloads(s) == ["kept", ""]
    assert s.broker.retained == p.broker.retained == {}
    later.subscribe("#")
    world.run(10)
    assert payloads(later) == []


@OVER
def test_the_newest_wins_everywhere(over: str) -> None:
    world = World(over)
    p, q, s = world.start("p", "q", "s")
    for number in range(4):
        (p, q)[number % 2].publish("t", str(number), retain=True)
        world.settle()
    s.subscribe("+")
    world.run(10)
    assert payloads(s)[-1] == "3"
    assert s.broker.retained["t"].payload == b"3"
    # p has no subscriber any more who could keep its broker up to date
    assert {node.broker.retained["t"].payload for node in (p, q) if "t" in node.broker.retained} == {b"3"}


@OVER
def test_nothing_stale_is_served_after_the_last_subscriber_has_gone(over: str) -> None:
    world = World(over)
    p, s = world.start("p", "s")
    p.publish("t", "1", retain=True)
    world.settle()
    s.subscribe("t")
    world.run(10)
    s.unsubscribe("t")
    world.run(10)
    assert s.broker.retained == {}
    p.publish("t", "2", retain=True)
    world.settle()
    s.deliveries.clear()
    s.subscribe("t")
    world.run(10)
    assert payloads(s) == ["2"]
    s.unsubscribe("t")
    world.run(10)
    s.deliveries.clear()
    s.subscribe("t")
    world.run(10)
    assert payloads(s) == ["2"]
    s.unsubscribe("t")
    s.subscribe("t")  # a moment later
    world.run(10)
    assert "" not in payloads(s)


def test_copies_answer_when_the_holder_is_gone() -> None:
    world = World()
    p, s, later = world.start("p", "s", "later")
    s.subscribe("t")
    world.settle()
    p.publish("t", "kept", retain=True)
    world.settle()
    world.kill("p")
    later.subscribe("+")
    world.run(10)
    assert payloads(later) == ["kept"]


def test_answers_are_bounded() -> None:
    world = World(retained_answers=3)
    p, s = world.start("p", "s")
    for number in range(5):
        p.publish(f"t/{number}", str(number), retain=True)
    world.settle()
    s.subscribe("t/#")
    world.run(10)
    assert sorted(payloads(s)) == ["2", "3", "4"]
    assert p.counters["answers_cut"] == 1


def test_who_subscribed_before_its_node_joined_gets_what_was_retained_elsewhere() -> None:
    world = World("graph")
    (p,) = world.start("p")
    p.publish("a/b", "kept", retain=True)
    world.settle()
    s = world.apart("s")
    s.subscribe("a/#")
    world.settle()
    assert payloads(s) == []
    world.link("s", "p")
    world.run(15)
    assert payloads(s) == ["kept"]


@pytest.mark.parametrize("lost", ["ANSWER t all", "QUERY"])
def test_a_neighbour_that_does_not_answer_is_not_the_last_resort(lost: str) -> None:
    world = World()
    p, s, later = world.start("p", "s", "later")
    p.publish("t", "kept", retain=True)
    s.subscribe("t")
    world.run(5)
    world.line.lose = lambda node, text: text.startswith(lost) and world.kernel.now < 6
    later.subscribe("t")
    world.run(1.5)
    assert payloads(later) == []
    world.run(5)
    assert payloads(later) == ["kept"]
    assert later.counters["queries"] == 1


def test_a_neighbour_that_is_still_asking_says_so() -> None:
    world = World()
    p, s, later = world.start("p", "s", "later")
    p.publish("t", "kept", retain=True)
    world.settle()
    s.subscribe("t")
    world.run(0.1)
    later.subscribe("t")
    world.run(0.5)
    assert payloads(later) == ["kept"]
    assert later.counters["queries"] == 1


def test_holders_repeat_what_somebody_may_have_missed() -> None:
    world = World(retained_interval=20.0)
    p, s = world.start("p", "s")
    s.subscribe("+")
    world.run(5)
    world.line.lose = lambda node, text: text.startswith("PUBLISH")
    p.publish("t", "kept", retain=True)
    world.settle()
    world.line.lose = lambda node, text: False
    assert payloads(s) == []
    world.run(40)
    assert payloads(s) == ["kept"]  # and only once, however often it is repeated
    p.publish("t", "", retain=True)
    world.run(40)
    assert payloads(s) == ["kept", ""]


@OVER
def test_what_entered_before_a_restart_is_found(over: str) -> None:
    world = World(over)
    _, p, s = world.start("n", "p", "s")
    p.publish("t", "kept", retain=True)
    world.settle()
    p = world.restart("p")
    world.run(20)
    assert "t publisher p" in keys(p)
    s.subscribe("#")
    world.run(10)
    assert payloads(s) == ["kept"]


# the rest -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("over", ["line", "graph"])
def test_overlay_and_trace(over: str) -> None:
    world = World(over)
    p, s, both = world.start("p", "s", "b")
    s.subscribe("a/b")
    both.subscribe("a/+")
    world.settle()
    p.publish("a/b")
    world.settle()
    shown = p.algorithm.overlay()
    assert shown.node == "p"
    assert shown.facts == {
        "rendezvous points": 4,
        "suspended": 2,
        "topics with keys": 1,
        "aggregates": 0,
        "waiting messages": 0,
    }
    states = {
        key.key: (key.status, key.facts.get("rendezvous"), key.facts.get("suspended")) for key in shown.keys
    }
    assert states == {
        "# publisher p": ("in", True, True),
        "a/b publisher p": ("in", True, False),
        "a/# publisher p": ("in", True, False),
        "a/b/# publisher p": ("in", True, True),
        "default p": ("in", None, None),
    }
    by_key = {key.key: key for key in shown.keys}
    assert by_key["a/b publisher p"].levels[0] == ("a/b subscriber s", "a/b/# publisher p")
    assert by_key["a/b publisher p"].facts["role"] == "publisher"
    assert by_key["a/b publisher p"].facts["epoch"] == "1 p"
    assert by_key["default p"].facts == {"role": "default"}
    traces: list[MessageTrace] = []
    p.algorithm.trace("a/b", traces.append)
    world.settle()
    (trace,) = traces
    assert (trace.topic, trace.nodes, trace.complete) == ("a/b", 2, True)
    assert [(tree.name, tree.facts["suspended"]) for tree in trace.trees] == [
        ("a/b", False),
        ("a/b/#", True),
        ("a/#", False),
        ("#", True),
    ]
    assert trace.trees[1].tree is None
    assert "a/b subscriber s" in str(trace.trees[0].tree)
    assert len(both.injected) == 1  # the message, and nothing by the trace


def test_what_others_send_in_error_does_no_harm() -> None:
    world = World()
    a, b = world.start("a", "b")
    for payload in (b"", b"?", b"M", b"S\0\0", b"Q\xff", b"K\0\0\0\1x", b"A\2\0\0\0\0\0\0\0\1x", b"T\0"):
        a.algorithm.graph.hooks.received(b.peer, payload)
    assert a.counters["malformed"] == 8
    assert len(a.logged) == 8


def test_a_node_that_stops_leaves_the_graph() -> None:
    world = World()
    a, b = world.start("a", "b")
    a.subscribe("t")
    world.settle()
    a.algorithm.on_ildm_stop()
    world.settle()
    assert [key for key in world.line.keys if world.line.owners[key].peer == a.peer] == []
    assert a.logged == [("left the overlay", {})]
    assert keys(b) == ["default b"]
