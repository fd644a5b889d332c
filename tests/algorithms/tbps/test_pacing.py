"""Thousands of filters at once: no call of the node works long, all are in in the end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ildm.api import MessageTrace
from ildm.testing import Kernel
from ildm_algorithms.exchange.pacing import BURST, Pace
from ildm_algorithms.tbps.describe import NO_KEY, UNPUBLISHED
from tests.algorithms.tbps.world import Node, World


@contextmanager
def longest(world: World) -> Iterator[list[int]]:
    """How many functions of the algorithm are called in the longest turn of a node."""
    most, count = [0], 0
    turn = told = world.kernel.current

    def called(frame: Any, event: str, arg: object) -> None:
        nonlocal count, turn, told
        if frame.f_code is Kernel.run.__code__:
            told = world.kernel.current  # what comes after is the test's own, and no turn of a node
        if turn is not world.kernel.current:
            count, turn = 0, world.kernel.current
        count += (
            turn is not told
            and event == "call"
            and frame.f_globals["__name__"].startswith("ildm_algorithms.")
        )
        most[0] = max(most[0], count)

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        yield most
    finally:
        sys.setprofile(before)


def keys(node: Node) -> int:
    return len(node.algorithm.graph.keys())


def test_many_filters_at_once_are_entered_and_left_a_few_at_a_time() -> None:
    world = World("graph")
    _, node, _ = world.start("a", "b", "c")
    world.settle()
    filters = [f"site/{number:04}" for number in range(120)]
    with longest(world) as most:
        node.algorithm.on_interest_changed(None, dict.fromkeys(filters, 1))
        at_first = keys(node)
        world.run(3.0)
        assert keys(node) == 121
        node.algorithm.on_interest_changed(None, dict.fromkeys(filters))
        world.run(3.0)
    assert at_first <= 1 + BURST
    assert keys(node) == 1
    assert not node.algorithm.segments.members
    assert most[0] < 5_000  # about what 16 keys take; all at once take some hundred thousand


def test_thousands_of_filters_of_one_segment_are_each_asked_for_once() -> None:
    """They share a key; what is retained is asked for each filter of its own."""
    world = World("graph")
    a, b = world.start("a", "b")
    world.settle()
    b.algorithm.on_interest_changed(None, {f"site/+/{number}": 1 for number in range(400)})
    world.run(10.0)
    assert keys(b) == 2
    assert b.counters["queries"] == 400
    a.publish("site/x/7", "kept", retain=True)
    world.settle()
    assert [message.payload for message in b.injected] == [b"kept"]


def test_who_subscribes_while_others_wait_has_the_same_turns() -> None:
    """Publishers' keys do not wait behind thousands of subscribers', nor those that leave."""
    world = World("graph")
    a, b = world.start("a", "b")
    a.subscribe("news")
    world.settle()
    b.algorithm.on_interest_changed(None, {f"site/{number:04}": 1 for number in range(300)})
    world.run(0.1)
    b.publish("news", "now", qos=1)
    world.run(0.2)
    assert [message.payload for message in a.injected] == [b"now"]
    assert keys(b) < 290


def test_a_filter_given_up_before_its_turn_never_enters() -> None:
    world = World("graph")
    _, b = world.start("a", "b")
    world.settle()
    filters = [f"site/{number:04}" for number in range(300)]
    b.algorithm.on_interest_changed(None, dict.fromkeys(filters, 1))
    b.algorithm.on_interest_changed(None, dict.fromkeys(filters))
    world.run(3.0)
    assert keys(b) == 1
    b.algorithm.on_interest_changed(None, dict.fromkeys(filters, 1))
    world.run(0.01)
    b.algorithm.on_interest_changed(None, dict.fromkeys(filters[:150]))
    world.run(5.0)
    assert keys(b) == 151
    assert not b.algorithm.segments._pace.waiting


def test_a_key_without_room_enters_when_another_has_left() -> None:
    world = World("graph")
    (a,) = world.start("a")
    (b,) = world.start("b", overlay={"max_keys": 4})
    b.subscribe("t/1", "t/2", "t/3", "t/4", "t/5")
    world.settle()
    assert keys(b) == 4
    assert b.counters["keys_refused"] == 2
    told = [fields for event, fields in b.logged if event == "no room for a key in the overlay"]
    assert [(fields["segment"], fields["role"]) for fields in told] == [("t/4", "subscriber")]
    b.unsubscribe("t/1")
    world.settle()
    a.publish("t/4", "four")
    a.publish("t/5", "five")
    world.settle()
    assert [message.payload for message in b.injected] == [b"four"]
    b.unsubscribe("t/4")
    world.settle()
    a.publish("t/5", "five")
    world.settle()
    assert [message.payload for message in b.injected] == [b"four", b"five"]
    assert keys(b) == 4


def test_subscribers_have_the_room_of_publishers() -> None:
    """Keys of publishers leave for them, in whatever order they come; both get what they send each other."""
    world = World("graph")
    a, b = world.start("a", "b", overlay={"max_keys": 7})
    a.subscribe("b/#")
    for number in range(6):
        b.publish(f"b/{number}", "early", qos=1)
    world.run(10)
    assert keys(b) == 7
    b.subscribe("a/0", "a/1", "a/2")
    world.run(10)
    for number in range(6):
        b.publish(f"b/{number}", "late", qos=1)
    b.subscribe("a/3", "a/4")
    world.run(10)
    for number in range(6):
        a.publish(f"a/{number}", "x", qos=1)
        b.publish(f"c/{number}", "y", qos=1)
    a.subscribe("c/#")
    world.run(20)
    assert sorted(message.topic for message in b.injected) == [f"a/{number}" for number in range(5)]
    got = sorted((message.topic, message.payload) for message in a.injected)
    wanted = [(f"b/{number}", text) for number in range(6) for text in (b"early", b"late")]
    assert [entry for entry in got if entry[0].startswith("b")] == wanted
    assert keys(b) <= 7
    assert b.counters["keys_ceded"] >= 5
    assert "subscribers_refused" not in b.counters
    b.unsubscribe("a/0", "a/1", "a/2", "a/3", "a/4")
    world.run(10)
    assert keys(b) == 7  # publishers' keys are back


def test_an_aggregate_that_has_made_room_sends_everywhere_until_it_is_back() -> None:
    world = World("graph", max_topics=0)
    a, b = world.start("a", "b")
    (c,) = world.start("c", max_topics=0, overlay={"max_keys": 3})
    for number in range(5):
        c.publish(f"dev/{number}", qos=1)
    world.run(10)
    c.subscribe("x", "y")
    world.run(10)
    assert c.counters["keys_ceded"]
    a.subscribe("dev/1")
    b.subscribe("dev/#")
    world.run(5)
    c.publish("dev/1", "new", qos=1)
    world.run(5)
    assert [message.payload for message in a.injected] == [b"new"]
    assert [message.payload for message in b.injected] == [b"new"]
    c.unsubscribe("x", "y")
    world.run(10)
    b.subscribe("dev/2")
    a.subscribe("dev/3")
    world.run(5)
    c.publish("dev/3", "newer", qos=1)
    world.run(5)
    assert [message.payload for message in a.injected] == [b"new", b"newer"]


def test_a_subscription_without_room_is_named() -> None:
    world = World("graph")
    world.start("a")
    (b,) = world.start("b", overlay={"max_keys": 2})
    b.subscribe("t/1", "t/2", "t/3")
    world.settle()
    assert b.counters["subscribers_refused"] == 2
    said = [
        fields["filters"] for event, fields in b.logged if event.startswith("no room for the key of a sub")
    ]
    assert said == ["t/2", "t/3"]
    assert b.algorithm.overlay().tables == {NO_KEY: [{"filter": "t/2"}, {"filter": "t/3"}]}
    b.unsubscribe("t/1", "t/2")
    world.settle()
    assert b.algorithm.overlay().tables == {}


def test_pieces_of_work_have_a_pace_and_a_bound() -> None:
    world = World("graph")
    (node,) = world.start("a")
    begun: list[int] = []

    def work(number: int) -> bool:
        begun.append(number)
        return True

    pace = Pace(node, rate=10.0, at_once=BURST + 5)
    for number in range(100):
        pace.add(lambda number=number: work(number))
    assert begun == list(range(BURST))
    world.run(0.35)
    assert len(begun) == BURST + 3
    world.run(10.0)
    assert len(begun) == BURST + 5
    pace.ended()
    assert len(begun) == BURST + 6
    assert pace.waiting == 100 - len(begun)


def test_a_trace_of_a_topic_nobody_has_used_is_answered_at_once() -> None:
    """Some of its segments this node publishes to: nobody is there, so that it is suspended in them."""
    world = World("graph")
    a, _ = world.start("a", "b")
    a.publish("other/topic")
    world.settle()
    traces: list[MessageTrace] = []
    a.algorithm.trace("nobody/here", traces.append)
    world.run(1.0)
    assert [(trace.nodes, trace.complete) for trace in traces] == [(0, True)]
    assert len(traces[0].trees) == 4


def test_a_trace_says_that_this_site_does_not_publish_to_the_topic() -> None:
    world = World("graph")
    a, b = world.start("a", "b")
    b.subscribe("t")
    a.publish("t")
    world.settle()
    traces: list[MessageTrace] = []
    for node in (a, b):
        node.algorithm.trace("t", traces.append)
        world.run(1.0)
    mine, other = traces
    assert all(UNPUBLISHED not in tree.facts for tree in mine.trees)
    assert all(tree.facts[UNPUBLISHED] is True for tree in other.trees)
