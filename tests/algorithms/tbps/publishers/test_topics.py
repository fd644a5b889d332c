"""Many topics of one node: bounded keys, nothing missed, nothing sent for what nobody wants."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ildm.api import MessageTrace
from ildm.mqtt import topic_matches
from ildm_algorithms.tbps.keys.encoding import segments_of_topic
from tests.algorithms.tbps.world import Node, World

OVER = pytest.mark.parametrize("over", ["line", "graph"])


def payloads(node: Node) -> list[str]:
    return [message.payload.decode() for message in node.injected]


def topics(node: Node) -> list[str]:
    return sorted(message.topic for message in node.injected)


def keys(node: Node, role: str = "") -> list[str]:
    return [key.key for key in node.algorithm.overlay().keys if role in key.key]


def aggregates(node: Node) -> set[str]:
    return {route.name for route in node.algorithm.outbox.routes.aggregates.values()}


def gateway(over: str = "line", *names: str, **options: Any) -> tuple[World, list[Node]]:
    """A world whose first node has an aggregate at ``site``, beside two topics with keys of their own."""
    world = World(over, 1, **{"siblings": 2, **options})
    nodes = world.start("gw", *names)
    for number in range(3):
        nodes[0].publish(f"site/dev{number}/temp")
    world.settle()
    world.run(3)
    assert aggregates(nodes[0]) == {"site/#"}
    return world, nodes


# keys ---------------------------------------------------------------------------------------------


def test_keys_are_bounded_whatever_is_published() -> None:
    world = World(siblings=4, max_topics=10, max_aggregates=5)
    (node,) = world.start("p")
    for tenant in range(20):
        for device in range(20):
            for kind in range(3):
                node.publish(f"t{tenant}/dev{device}/k{kind}", qos=1)
        world.settle()
        assert len(keys(node)) <= 1 + 10 * 5 + 5 * 3
    assert len(aggregates(node)) <= 5
    assert node.counters["aggregates_merged"]
    assert node.algorithm.outbox.waiting == 0


def test_few_topics_have_keys_of_their_own() -> None:
    world = World(siblings=4)
    (node,) = world.start("p")
    for name in ["a", "b", "c/1", "c/2", "d/1/x", "d/2/x"] * 2:
        node.publish(name)
    world.settle()
    assert aggregates(node) == set()
    assert "d/1/x publisher p" in keys(node)


@pytest.mark.parametrize(
    ("names", "prefix"),
    [
        (["a/1", "a/2", "a/3"], "a/#"),
        (["a/1/t", "a/2/t", "a/3/t"], "a/#"),
        (["a/b/1", "a/b/2", "a/b/3"], "a/b/#"),
        (["1", "2", "3", "4", "5", "6"], "#"),
        (["1", "2", "3", "4", "5", "x/y"], "x/#"),
        (["/1", "/2", "/3"], "/#"),
    ],
)
def test_the_prefix_is_the_longest_with_many_topics(names: list[str], prefix: str) -> None:
    world = World(siblings=2, max_topics=5)
    (node,) = world.start("p")
    for name in names:
        node.publish(name)
    assert aggregates(node) == {prefix}


def test_an_idle_aggregate_leaves_but_not_one_that_holds_retained_messages() -> None:
    world, (gw,) = gateway(publisher_idle=10.0)
    world.run(20)
    assert keys(gw) == ["default gw"]
    assert gw.counters["aggregates_idle"] == 1
    for number in range(3):
        gw.publish(f"site/dev{number}/temp", retain=True)
    world.run(50)
    assert aggregates(gw) == {"site/#"}


def test_a_hot_topic_gets_keys_of_its_own_and_loses_them_to_a_hotter_one() -> None:
    world, (gw, s) = gateway("line", "s", max_topics=2, hot=5)
    s.subscribe("site/dev7/temp", "site/dev8/temp")
    world.settle()
    sent = 0
    for topic in ("site/dev7/temp", "site/dev8/temp", "site/dev9/temp"):
        for _ in range(8):
            gw.publish(topic, str(sent), qos=1)
            sent += 1
            world.settle()
    assert payloads(s) == [str(number) for number in range(16)]  # in order, each once
    assert [key for key in keys(gw, " publisher") if "temp publisher" in key] == [
        "site/dev7/temp publisher gw",
        "site/dev8/temp publisher gw",
    ]
    assert gw.counters["topics_hot"] == gw.counters["topics_displaced"] == 2


def test_what_people_see() -> None:
    world, (gw, s) = gateway("line", "s")
    s.subscribe("site/dev7/temp")
    world.settle()
    view = gw.algorithm.overlay()
    (key,) = (key for key in view.keys if "aggregate" in key.key)
    assert key.key == "site/# aggregate gw"
    assert key.facts == {
        "role": "aggregate",
        "knowledge": "knowing",
        "segments with subscribers": 1,
        "sends everywhere": False,
    }
    assert view.facts["topics with keys"] == 2
    assert view.facts["aggregates"] == 1
    traces: list[MessageTrace] = []
    gw.algorithm.trace("site/dev7/temp", traces.append)
    world.settle()
    gw.algorithm.trace("site/dev8/temp", traces.append)
    world.settle()
    assert [trace.nodes for trace in traces] == [1, 0]
    assert [tree.facts["suspended"] for tree in traces[0].trees] == [False, True, True, True, True]
    assert all(tree.facts["suspended"] for tree in traces[1].trees)


# interest -----------------------------------------------------------------------------------------


@OVER
def test_nobody_listens_and_nothing_is_sent(over: str) -> None:
    world, (gw, s, *_) = gateway(over, "s", "x", "y")
    s.subscribe("other/#", "site/dev5/temp/deep", "site/+")  # none of them matches
    world.run(10)
    gw.publish("site/dev0/temp")
    world.run(10)
    count = gw.counters["suspended_publishes"]
    casts = gw.algorithm.graph._number if over == "line" else 0  # type: ignore[attr-defined]
    for number in range(20):
        gw.publish(f"site/dev{number}/other", qos=number % 3)
    world.settle()
    assert s.injected == []
    # of the segments of each topic only that of site/+ is not empty
    assert gw.counters["suspended_publishes"] - count == 20 * 4
    if over == "line":
        assert gw.algorithm.graph._number - casts == 20  # type: ignore[attr-defined]


@OVER
@pytest.mark.parametrize(
    "wanted", ["site/dev7/temp", "site/dev7/#", "site/+/temp", "site/#", "+/dev7/+", "#"]
)
def test_interest_appears_and_vanishes(over: str, wanted: str) -> None:
    world, (gw, s, t) = gateway(over, "s", "t")
    for node in (s, t):
        node.subscribe(wanted)
        world.settle()
        gw.publish("site/dev7/temp", node.node_id, qos=1)
        world.settle()
    assert payloads(s) == ["s", "t"]
    assert payloads(t) == ["t"]
    s.unsubscribe(wanted)
    world.settle()
    gw.publish("site/dev7/temp", "t alone")
    world.settle()
    t.unsubscribe(wanted)
    world.settle()
    gw.publish("site/dev7/temp", "lost", qos=1)
    world.run(40)
    before = gw.counters["suspended_publishes"]
    gw.publish("site/dev7/temp", "not sent", qos=1)
    assert gw.counters["suspended_publishes"] - before == 5  # all segments of the topic
    assert payloads(s) == ["s", "t"]
    assert payloads(t) == ["t", "t alone"]


@OVER
def test_interest_from_before_is_found(over: str) -> None:
    world = World(over, 2, siblings=2)
    gw, s, t, u = world.start("gw", "s", "t", "u")
    s.subscribe("site/dev9/temp")
    t.subscribe("site/dev9/temp", "site/+/temp")
    gw.subscribe("site/dev8/temp")  # its own key is the first of this segment
    u.subscribe("site/dev8/temp")
    world.settle()
    for number in range(10):
        gw.publish(f"site/dev{number}/temp", qos=1)
    world.run(10)
    for node in (s, t, u):
        node.injected.clear()
    for number in range(10):
        gw.publish(f"site/dev{number}/temp")
    gw.unsubscribe("site/dev8/temp")
    world.settle()
    gw.publish("site/dev8/temp")
    world.settle()
    assert topics(s) == ["site/dev9/temp"]
    assert topics(t) == sorted([*(f"site/dev{number}/temp" for number in range(10)), "site/dev8/temp"])
    assert topics(u) == ["site/dev8/temp"] * 2


def test_what_was_announced_in_vain_is_found_by_asking() -> None:
    """And the messages of QoS 1 which were not sent meanwhile, as long as they are offered."""
    world, (gw, s) = gateway("line", "s")
    world.line.lose = lambda node, text: text.startswith(("FILTERS", "MISSED"))
    s.subscribe("site/dev7/temp")
    world.run(30)
    world.line.lose = lambda node, text: False
    for number in range(12):
        gw.publish("site/dev7/temp", str(number), qos=1)
        world.run(5)
    assert payloads(s)[-1] == "11"
    assert len(payloads(s)) > 5
    assert payloads(s) == sorted(payloads(s), key=int)
    assert gw.counters["late_sent"]


def test_more_segments_than_can_be_known_are_all() -> None:
    world, (gw, s) = gateway("line", "s", max_interest=3)
    s.subscribe(*(f"site/dev{number}/temp" for number in range(10, 16)))
    world.settle()
    assert gw.counters["interest_overflows"] == 1
    for number in range(20):
        gw.publish(f"site/dev{number}/temp")
    world.settle()
    assert topics(s) == [f"site/dev{number}/temp" for number in range(10, 16)]
    s.unsubscribe(*(f"site/dev{number}/temp" for number in range(11, 16)))
    for _ in range(15):
        gw.publish("site/dev9/temp")
        world.run(10)
    before = gw.counters["suspended_publishes"]
    gw.publish("site/dev9/temp")
    assert gw.counters["suspended_publishes"] - before == 5


# nothing is lost ------------------------------------------------------------------------------------


@OVER
def test_a_burst_of_topics_loses_nothing(over: str) -> None:
    """300 topics at once, each thrice, of QoS 1, with room for 100."""
    world = World(over, 3, max_topics=100, siblings=1000)
    gw, s, t = world.start("gw", "s", "t")
    s.subscribe("burst/+")
    t.subscribe(*(f"burst/{number}" for number in range(0, 300, 50)))
    world.settle()
    for turn in range(3):
        for number in range(300):
            gw.publish(f"burst/{number}", str(turn), qos=1)
            world.run(0.0005)
    world.run(20)
    assert topics(s) == sorted(f"burst/{number}" for number in range(300) for _ in range(3))
    assert topics(t) == sorted(f"burst/{number}" for number in range(0, 300, 50) for _ in range(3))
    for node, name in ((s, "burst/299"), (s, "burst/0"), (t, "burst/250")):
        assert [m.payload for m in node.injected if m.topic == name] == [b"0", b"1", b"2"]


def test_messages_reach_everybody_when_no_key_can_be_had() -> None:
    world = World("graph", 4, overlay={"max_keys": 12})
    gw, s, t = world.start("gw", "s", "t")
    s.subscribe("a/#")
    t.subscribe("a/x3", "+/x14")
    world.settle()
    for number in range(20):
        gw.publish(f"a/x{number}", qos=1)
    world.run(10)
    assert topics(s) == sorted(f"a/x{number}" for number in range(20))
    assert topics(t) == ["a/x14", "a/x3"]
    assert gw.counters["keys_refused"]
    assert gw.counters["outlets_late"]
    assert len(gw.algorithm.graph.keys()) <= 12
    assert gw.algorithm.outbox.waiting == 0


@OVER
def test_aggregates_merge_and_what_waits_goes_on(over: str) -> None:
    world = World(over, 5, siblings=1, max_topics=4, max_aggregates=2)
    gw, s = world.start("gw", "s")
    s.subscribe("a/#", "b/1/x")
    world.settle()
    sent = [f"{top}/{middle}/{leaf}" for middle in range(4) for top in "ab" for leaf in "xyz"]
    for topic in sent:
        gw.publish(topic, qos=1)
    world.run(15)
    assert topics(s) == sorted([*(topic for topic in sent if topic[0] == "a"), "b/1/x"])
    assert len(aggregates(gw)) <= 2
    s.injected.clear()
    for topic in sent:
        gw.publish(topic)
    world.settle()
    assert topics(s) == sorted([*(topic for topic in sent if topic[0] == "a"), "b/1/x"])


@pytest.mark.parametrize("seed", range(2))
def test_partition_and_heal(seed: int) -> None:
    world = World("graph", seed, siblings=2, status_interval=5.0)
    nodes = world.start("gw", "n1", "n2", "s1", "s2", "s3")
    gw, s2, s3 = nodes[0], nodes[4], nodes[5]
    for number in range(5):
        gw.publish(f"site/dev{number}/temp", "early", retain=number == 4)
    s2.subscribe("site/dev3/temp")
    world.run(10)
    world.partition(["s1", "s2", "s3"])
    world.run(40)
    s3.subscribe("site/dev4/#", "site/dev2/temp")  # where the gateway cannot hear of it
    world.run(20)
    world.heal()
    world.run(90)
    for node in nodes:
        node.injected.clear()
    for number in range(5):
        gw.publish(f"site/dev{number}/temp", "now", qos=1)
    world.run(10)
    assert topics(s2) == ["site/dev3/temp"]
    assert topics(s3) == ["site/dev2/temp", "site/dev4/temp"]
    assert s3.broker.retained["site/dev4/temp"].payload == b"early"


# retained -----------------------------------------------------------------------------------------


@OVER
def test_more_retained_topics_than_keys(over: str) -> None:
    """60 held, room for 50; also after a restart."""
    world = World(over, 6, max_topics=50, siblings=1000)
    gw, s, t = world.start("gw", "s", "t")
    for number in range(60):
        gw.publish(f"dev{number}/state", str(number), retain=True)
    world.run(10)
    s.subscribe("+/state")
    t.subscribe("dev0/state", "dev59/state")
    world.run(10)
    assert len(s.broker.retained) == 60
    assert sorted(t.broker.retained) == ["dev0/state", "dev59/state"]
    gw = world.restart("gw")
    world.run(15)
    for node in (s, t):
        node.unsubscribe(*list(node.local_interest))
    world.run(10)
    assert s.broker.retained == t.broker.retained == {}
    t.subscribe("#")
    s.subscribe("dev0/state", "dev59/state")
    world.run(10)
    assert len(t.broker.retained) == 60
    assert sorted(s.broker.retained) == ["dev0/state", "dev59/state"]


@OVER
@pytest.mark.parametrize("newest", ["x", ""])
def test_an_aggregate_hears_of_newer_retained_messages(over: str, newest: str) -> None:
    world, (gw, p, s) = gateway(over, "p", "s")
    gw.publish("site/dev8/temp", "old", retain=True)
    world.settle()
    p.publish("site/dev8/temp", newest, retain=True)  # with a key of its own there
    world.run(5)
    assert "site/dev8/temp" not in gw.broker.retained
    world.kill("p")
    s.subscribe("site/dev8/temp")
    world.run(20)
    assert "site/dev8/temp" not in s.broker.retained  # at least not what is older
    gw.publish("site/dev8/temp", "again", retain=True)
    world.run(5)
    assert s.broker.retained["site/dev8/temp"].payload == b"again"


def test_two_aggregates_with_the_same_topic() -> None:
    world = World(siblings=1)
    a, b, s = world.start("a", "b", "s")
    for round_ in range(3):
        for node in (a, b):
            for number in range(4):
                node.publish(f"p/{number}", f"{node.node_id}{round_}", retain=True)
            world.run(3)
    assert a.broker.retained == {}
    assert len(b.broker.retained) == 4
    s.subscribe("p/#")
    world.run(10)
    assert {message.payload for message in s.broker.retained.values()} == {b"b2"}


def test_who_must_hear_of_a_retained_message_hears_once() -> None:
    world, (gw, *_) = gateway("line", "s")
    for _ in range(5):
        gw.publish("site/dev8/temp", retain=True)
        world.settle()
    assert gw.counters["retained_told"] == 3  # the aggregates of site/dev8, site and the empty prefix


# everything at once -------------------------------------------------------------------------------

NODES = ["n0", "n1", "n2", "n3"]
TOPICS = [f"{top}/{middle}/{leaf}" for top in "ab" for middle in "cd" for leaf in "xyz"] + [
    "a",
    "a/c",
    "b",
    "",
]
TOPICS = [topic for topic in TOPICS if topic]
FILTERS = ["#", "a/#", "a/c/#", "a/+/x", "+/c/x", "a/c/x", "b/d/z", "a", "a/c", "b/+", "+", "b/d/z/#"]
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("toggle"), st.sampled_from(NODES), st.sampled_from(FILTERS)),
        st.tuples(st.just("publish"), st.sampled_from(NODES), st.sampled_from(TOPICS)),
        st.tuples(st.just("all"), st.sampled_from(NODES), st.just("")),
        st.tuples(st.just("wait"), st.just(""), st.sampled_from([0.001, 0.01, 0.5, 4.0, 20.0])),
    ),
    max_size=25,
)
OPTIONS = st.fixed_dictionaries(
    {
        "siblings": st.integers(0, 3),
        "max_topics": st.integers(0, 6),
        "max_aggregates": st.integers(1, 3),
        "max_interest": st.sampled_from([0, 2, 100]),
        "hot": st.sampled_from([0, 1, 3]),
        "waiting_messages": st.sampled_from([0, 3, 1000]),
    }
)


def act(world: World, actions: list[tuple[str, str, Any]]) -> None:
    for kind, name, what in actions:
        node = world.living.get(name)
        if node is None:
            world.run(what)
        elif kind == "all":
            for topic in TOPICS:
                node.publish(topic, "early")
        elif kind == "publish":
            node.publish(what, "early")
        elif what in node.local_interest:
            node.unsubscribe(what)
        else:
            node.subscribe(what)


def check(world: World, qos: int) -> None:
    """What each node gets of everything that all publish, in one go."""
    for node in world.living.values():
        node.injected.clear()
    for publisher in world.living.values():
        for topic in TOPICS:
            publisher.publish(topic, publisher.node_id, qos=qos)
    world.settle()
    for node in world.living.values():
        wanted = sorted(
            (topic, publisher)
            for publisher in world.living
            for topic in TOPICS
            if publisher != node.node_id and any(topic_matches(f, topic) for f in node.local_interest)
        )
        got = sorted((message.topic, message.payload.decode()) for message in node.injected)
        assert got == wanted, node.node_id


def check_silence(world: World) -> None:
    """When all is known, aggregates send nothing into a segment without subscribers."""
    wanted = {
        member.segment.code
        for node in world.living.values()
        for member in node.algorithm.segments.members.values()
        if member.filters
    }
    for node in world.living.values():
        for topic in TOPICS:
            for segment in segments_of_topic(topic):
                own = node.algorithm.segments.get(segment)
                if own is None and node.algorithm.outbox.suspended(topic, segment) is False:
                    assert segment.code in wanted


@settings(max_examples=40, deadline=None)
@given(ACTIONS, OPTIONS, st.sampled_from([0, 1]))
def test_everybody_gets_what_it_wants(
    actions: list[tuple[str, str, Any]], options: dict[str, Any], qos: int
) -> None:
    world = World("line", **options)
    world.start(*NODES)
    act(world, actions)
    world.run(3)
    check(world, qos)
    assert all(
        len(keys(node)) <= 1 + options["max_topics"] * 5 + options["max_aggregates"] * 4 + len(FILTERS)
        for node in world.living.values()
    )
    if options["max_interest"] == 100:
        world.run(10)
        check(world, 1)
        world.run(10)
        check_silence(world)


@pytest.mark.parametrize("over", ["graph", "atm_tbps", "stla"])
@settings(max_examples=2, deadline=None)
@given(ACTIONS, OPTIONS, st.integers(0, 1000))
def test_the_same_over_overlays(
    over: str, actions: list[tuple[str, str, Any]], options: dict[str, Any], seed: int
) -> None:
    world = World(over, seed, **options)
    world.start(*NODES)
    world.settle()
    act(world, actions)
    world.run(8)
    check(world, 1)
