"""A Skip Graph of a few nodes as its application sees it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ildm.api import Peer
from ildm_algorithms.overlay.casts.routing import MRF, ROUTINGS, SFB, Routing
from ildm_algorithms.overlay.graph import CastResult
from ildm_algorithms.overlay.keys import EVERYTHING, Range, Ref
from ildm_algorithms.overlay.wire.messages import (
    Lookup,
    OverlayError,
    Pong,
    Seq,
    SetL,
    SetRNak,
    Tell,
    WalkReply,
    encode,
)
from tests.algorithms.overlay.scheduler import Network, Node, expected, key_of, union


def grown(count: int, seed: int = 0, keys: int = 1, **options: Any) -> tuple[Network, list[Node]]:
    """A converged graph; node i has the keys 10 * i, and 10 * (i + count) and so on."""
    network = Network(seed)
    nodes: list[Node] = []
    for i in range(count):
        node = network.add(f"n{i}", **options).start(10 * i)
        if nodes:
            node.graph.join(network.random.choice(nodes).peer)
        node.insert(*(10 * (i + count * more) for more in range(1, keys)))
        nodes.append(node)
        network.run(1)
    network.settle()
    return network, nodes


def received(nodes: list[Node]) -> list[bytes]:
    return sorted(key for node in nodes for arrival in node.arrivals for key in arrival.keys)


@pytest.mark.parametrize("base", [2, 3, 16])
def test_nodes_that_join_one_after_another(base: int) -> None:
    network = Network(base)
    first = network.add("n0", base=base).start(0)
    for i in range(1, 10):
        network.add(f"n{i}", base=base).start(10 * i).graph.join(first.peer)
        network.run(2)
    assert union(list(network.nodes.values())) == [key_of(10 * i, f"n{i}") for i in range(10)]
    network.run(60)
    everyone = list(network.nodes.values())
    right = expected(sorted(Ref(key, n.peer, n.graph.vector) for n in everyone for key in n.wanted), base)
    for node in everyone:
        (key,) = node.wanted
        assert [tuple(ref and ref.key for ref in pair) for pair in node.graph.neighbors(key)] == right[key]


def test_joined_is_told_with_the_status_of_the_left_neighbour() -> None:
    network = Network()
    a = network.add("a").start(10)
    assert a.events == [("joined", b"00010-a", None, b"")]
    b = network.add("b").start(5)
    b.graph.join(a.peer)
    network.settle()
    a.events.clear()
    b.events.clear()
    b.insert(7, 20)
    network.settle()
    assert ("joined", b"00007-b", b"00005-b", b"status of 00005-b") in b.events
    assert ("joined", b"00020-b", b"00010-a", b"status of 00010-a") in b.events
    assert {event for event in a.events if event[0] == "changed"} == {("changed", b"00010-a")}


def test_the_least_key_gets_no_status_from_the_greatest() -> None:
    network, nodes = grown(3)
    nodes[2].insert(0)
    nodes[1].insert(1)
    network.settle()
    nodes[2].graph.insert(b"\x01first")
    nodes[2].wanted.add(b"\x01first")
    network.settle()
    assert ("joined", b"\x01first", None, b"") in nodes[2].events


def test_insert_and_remove_may_be_repeated() -> None:
    network, nodes = grown(4)
    node = nodes[1]
    node.events.clear()
    key = key_of(77, "n1")
    node.insert(77)
    node.insert(77)
    network.settle()
    node.remove(key, key)
    node.insert(77)
    network.run(10)
    network.settle()
    node.remove(key)
    network.settle()
    assert [e for e in node.events if e[0] in {"joined", "left"}] == [
        ("joined", key, key_of(30, "n3"), b"status of " + key_of(30, "n3")),
        ("left", key),
        ("joined", key, key_of(30, "n3"), b"status of " + key_of(30, "n3")),
        ("left", key),
    ]
    node.graph.remove(b"never there")


def test_a_key_removed_before_it_is_in() -> None:
    network, nodes = grown(5)
    nodes[0].insert(45)
    nodes[0].remove(key_of(45, "n0"))
    network.run(10)
    network.settle()
    assert key_of(45, "n0") not in union(nodes)
    assert [e for e in nodes[0].events if e == ("left", key_of(45, "n0"))]


def test_lookup() -> None:
    network, nodes = grown(12, keys=2)
    found: list[tuple[Any, ...]] = []
    keys = union(nodes)
    for i, key in enumerate(keys):
        for target in (key, key + b"\0"):
            nodes[i % 12].graph.lookup(target, lambda *answer: found.append(answer))
            network.run(2)
            pred, succ, hops = found.pop()
            assert pred.key == key
            assert (succ.key if succ else None) == (keys[i + 1] if i + 1 < len(keys) else None)
            assert hops <= 12
    nodes[0].graph.lookup(b"", lambda *answer: found.append(answer))
    network.run(2)
    assert found[0][0] is None
    assert found[0][1].key == keys[0]


@pytest.mark.parametrize("routing", ROUTINGS.values(), ids=str)
@pytest.mark.parametrize("reliable", [False, True])
@pytest.mark.parametrize("keys", [1, 3])
def test_a_cast_reaches_every_key_of_its_range_once(routing: Routing, reliable: bool, keys: int) -> None:
    network, nodes = grown(14, keys=keys)
    results: list[CastResult] = []
    every = union(nodes)
    ranges = [
        EVERYTHING,
        Range(every[3], every[9]),
        Range(every[-2], every[-1]),
        Range(every[0] + b"\0", every[1]),
    ]
    for target in ranges:
        for origin in nodes[::5]:
            origin.graph.cast(
                target,
                b"payload",
                routing=routing,
                reliable=reliable,
                done=results.append if reliable else None,
            )
            network.run(5)
            wanted = [key for key in every if key in target]
            assert received(nodes) == wanted
            assert {a.payload for n in nodes for a in n.arrivals} <= {b"payload"}
            assert {a.origin for n in nodes for a in n.arrivals} <= {origin.peer}
            if reliable:
                result = results.pop()
                assert result.complete
                assert result.keys == len(wanted)
                assert result.tree is None
                deepest = max((a.depth for n in nodes for a in n.arrivals), default=0)
                assert result.depth >= deepest
            for node in nodes:
                node.arrivals.clear()
    assert results == []


def test_a_trace_delivers_nothing_and_shows_the_tree() -> None:
    network, nodes = grown(10, keys=2)
    results: list[CastResult] = []
    nodes[4].graph.cast(EVERYTHING, b"", routing=MRF, trace=True, done=results.append)
    network.run(10)
    assert received(nodes) == []
    (result,) = results
    keys: list[bytes] = []
    edges = 0

    def visit(node: dict[str, Any], depth: int) -> None:
        nonlocal edges
        assert node["depth"] == depth <= result.depth
        keys.extend(node["keys"])
        for child in node["children"]:
            edges += 1
            visit(child, depth + 1)

    visit(result.tree, 0)
    assert result.tree["node"] == "n4"
    assert sorted(keys) == union(nodes)
    assert result.hops == edges


def test_the_tree_of_a_trace_is_bounded() -> None:
    network, nodes = grown(12, trace_nodes=1)
    results: list[CastResult] = []
    nodes[0].graph.cast(EVERYTHING, b"", trace=True, done=results.append)
    network.run(10)
    assert results[0].keys == 12
    assert len(str(results[0].tree)) < 12 * 60


def test_without_delivery_a_cast_is_silent() -> None:
    network, nodes = grown(4)
    nodes[0].graph.cast(EVERYTHING, b"x", deliver=False)
    network.run(2)
    assert received(nodes) == []


def test_casts_of_one_turn_stay_in_order_where_messages_do() -> None:
    network, nodes = grown(10)
    network.delay = (0.01, 0.01)
    for number in range(50):
        nodes[3].graph.cast(EVERYTHING, b"%d" % number, turn=3)
        network.run(0.001)
    network.run(5)
    for node in nodes:
        assert [a.payload for a in node.arrivals] == [b"%d" % number for number in range(50)]


def test_a_reliable_cast_survives_loss_and_a_crash_in_the_tree() -> None:
    network, nodes = grown(16)
    network.loss = 0.1
    network.duplicate = 0.1
    results: list[CastResult] = []
    nodes[5].graph.cast(EVERYTHING, b"x", reliable=True, done=results.append)
    network.run(0.03)
    victim = next(node for node in nodes if not node.arrivals)
    victim.crash()
    network.run(40)
    assert len(results) == 1
    assert results[0].complete
    assert received(nodes) == [key for key in union(nodes) if key not in victim.wanted]


def test_a_cast_that_cannot_be_completed_ends_at_its_deadline() -> None:
    network, nodes = grown(6, cast_deadline=3.0)
    results: list[CastResult] = []
    network.resets = False
    network.cut = lambda a, b: True
    nodes[0].graph.cast(EVERYTHING, b"x", reliable=True, done=results.append)
    network.run(20)
    assert [result.complete for result in results] == [False]


def test_reliable_casts_are_bounded() -> None:
    network, nodes = grown(4, pending_casts=2)
    results: list[CastResult] = []
    for _ in range(3):
        nodes[0].graph.cast(EVERYTHING, b"x", reliable=True, done=results.append)
    network.run(5)
    assert sorted(result.complete for result in results) == [False, True, True]
    assert nodes[0].counters["pending_casts_full"] == 1


def test_tell() -> None:
    network, nodes = grown(2)
    nodes[0].graph.tell(nodes[1].peer, b"hello")
    nodes[0].graph.tell(nodes[0].peer, b"self")
    network.run(1)
    assert nodes[1].direct == [(nodes[0].peer, b"hello")]
    assert nodes[0].direct == [(nodes[0].peer, b"self")]


def test_nodes_that_join_each_other_in_a_circle_at_once() -> None:
    network = Network(5)
    nodes = [network.add(f"n{i}").start(10 * i) for i in range(6)]
    for i, node in enumerate(nodes):
        node.graph.join(nodes[(i + 1) % 6].peer)
    network.settle(30)


def test_a_join_waits_for_its_introducer() -> None:
    network = Network(6)
    network.resets = False
    late = Peer("late", "late:1")
    early = network.add("early").start(5)
    early.graph.join(late)
    network.run(20)
    network.add("late").start(1)
    network.settle(30)
    assert union(list(network.nodes.values())) == [b"00001-late", b"00005-early"]


@pytest.mark.parametrize("former", [(), (5,), (5, 25, 35)])
def test_a_node_that_others_still_take_for_its_earlier_life_joins(former: tuple[int, ...]) -> None:
    """All that is looked up leads back to it; neither pings nor checks put that right in time."""
    network, nodes = grown(5, ping_interval=1e6, check_interval=1e6)
    nodes[1].insert(*former)
    network.settle()
    nodes[1].crash()
    again = network.add("n1", ping_interval=1e6, check_interval=1e6).start(10)
    again.graph.join(nodes[3].peer)
    network.run(1.0)
    assert not again.graph.alone
    left, right = again.graph.neighbors(key_of(10, "n1"))[0]
    assert left is not None
    assert left.key == key_of(0, "n0")
    assert right is None or right.peer.node_id == "n2"


def test_no_key_is_put_beside_a_node_that_others_still_take_for_its_earlier_life() -> None:
    """It is alone: what is cast in the graph would not come to the key, nor what is cast by it to others."""
    still = {"ping_interval": 1e6, "check_interval": 1e6}
    network, nodes = grown(4, **still)
    nodes[1].crash()
    again = network.add("n1", **still).start(10)
    nodes[3].insert(12)
    network.run(5.0)
    assert again.graph.alone
    left, _ = nodes[3].graph.neighbors(key_of(12, "n3"))[0]
    assert left is not None
    assert left.key == key_of(0, "n0")


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("number", [5, 15])
def test_the_last_key_of_one_of_two_nodes_is_replaced(number: int, seed: int) -> None:
    """The other node is alone when the new key asks, and takes none of a node that has no other."""
    network, (_, node) = grown(2, seed)
    node.remove(key_of(10, "n1"))
    node.insert(number)
    network.settle()


@pytest.mark.parametrize("keys", [(), (35,)])
@pytest.mark.parametrize("level", [0, 1])
def test_a_left_neighbour_that_is_an_own_key_and_gone_is_replaced(level: int, keys: tuple[int, ...]) -> None:
    network, nodes = grown(4)
    node = nodes[2].insert(*keys)
    network.settle()
    gone = Ref(key_of(15, "n2"), node.peer, node.graph.vector)
    late = SetL(level, key_of(20, "n2"), gone, Seq(9, 0), b"", (), node.graph._context.terms)
    node.graph.receive("n1", encode(late))
    assert network.faults()
    network.settle()


def test_a_partition_heals_when_one_node_joins_again() -> None:
    network, nodes = grown(10)
    network.resets = False
    near = {f"n{i}" for i in range(0, 10, 2)}
    network.cut = lambda a, b: (a in near) != (b in near)
    network.run(60)
    results: list[CastResult] = []
    nodes[0].graph.cast(EVERYTHING, b"x", reliable=True, done=results.append)
    network.run(5)
    assert results[0].complete
    assert results[0].keys == 5
    network.cut = lambda a, b: False
    nodes[3].graph.join(nodes[4].peer)
    network.settle()


def test_a_living_node_that_was_suspected_stays_in() -> None:
    network, nodes = grown(8)
    for node in nodes:
        if node is not nodes[3]:
            node.graph.unreachable("n3")
    network.settle()
    assert key_of(30, "n3") in union(nodes)


def test_who_has_repaired_links_past_a_living_node_hears_since_when() -> None:
    network, nodes = grown(8)
    begun = network.time
    network.resets = False
    network.cut = lambda a, b: "n3" in (a, b)
    for node in nodes:
        if node is not nodes[3]:
            node.graph.unreachable("n3")
    network.run(5)
    assert not told_of_passing(nodes)
    network.cut = lambda a, b: False
    network.settle()
    told = told_of_passing(nodes)
    assert begun - nodes[0].graph.config.patience <= min(told) <= begun


def told_of_passing(nodes: list[Node]) -> list[float]:
    return [
        since
        for node in nodes
        for event, *since_when in node.events
        if event == "passed over"
        for since in since_when
    ]


def test_joining_ones_own_graph_costs_a_lookup_only() -> None:
    network, nodes = grown(8, ping_interval=1e6, check_interval=1e6)
    before = network.messages
    nodes[2].graph.join(nodes[6].peer)
    nodes[2].graph.join(nodes[2].peer)
    network.run(10)
    assert network.messages - before <= 8


def test_a_node_that_stops_leaves_a_right_structure_and_no_timers() -> None:
    network, nodes = grown(8, keys=3)
    stopped: list[str] = []
    nodes[2].leave(lambda: stopped.append("n2"))
    nodes[6].leave(lambda: stopped.append("n6"))
    with pytest.raises(OverlayError):
        nodes[2].graph.stop(lambda: None)
    with pytest.raises(OverlayError):
        nodes[2].graph.insert(b"x")
    network.run(10)
    assert sorted(stopped) == ["n2", "n6"]
    network.settle()
    assert nodes[2].graph._context._timers == set()
    nodes[2].graph.receive("n1", encode(Tell(nodes[1].peer, b"late")))
    assert nodes[2].direct == []


def test_a_node_cut_off_stops_within_its_time() -> None:
    network, nodes = grown(4)
    network.cut = lambda a, b: True
    config = nodes[1].graph.config
    nodes[1].leave()
    network.run(config.leave_timeout + config.grace + 0.1)
    assert "n1" not in network.nodes


def test_what_others_send_raises_nothing() -> None:
    _, nodes = grown(2)
    graph = nodes[0].graph
    for data in (b"", b"\x00", b"\xff\xff", b"\x05abc"):
        graph.receive("n1", data)
    assert nodes[0].counters["malformed"] == 4


def test_misuse_is_refused() -> None:
    network = Network()
    node = network.add("a", max_keys=2)
    with pytest.raises(OverlayError):
        node.graph.insert(b"x")
    node.start(1)
    with pytest.raises(OverlayError):
        node.graph.start(b"again")
    for key in (b"", b"\xff" * 8 + b"x"):
        with pytest.raises(OverlayError):
            node.graph.insert(key)
    with pytest.raises(OverlayError):
        node.graph.cast(EVERYTHING, b"", done=lambda result: None)
    node.insert(2)
    with pytest.raises(OverlayError):
        node.graph.insert(b"one too many")
    assert node.counters["max_keys"] == 1


def test_description_is_json() -> None:
    network, nodes = grown(3, keys=2)
    text = json.loads(json.dumps(nodes[1].graph.describe()))
    assert text["node"] == "n1"
    assert [key["status"] for key in text["keys"]] == ["IN", "IN"]
    assert text["keys"][0]["levels"][0][0] == {"key": key_of(0, "n0").hex(), "node": "n0"}
    assert network.faults() == []


@pytest.mark.parametrize("seed", [5, 6, 8])
def test_a_reliable_cast_is_handed_on_before_its_node_leaves(seed: int) -> None:
    """The node it is first given to has died silently, and the origin stops before anybody has noticed."""
    network, nodes = grown(12, seed=seed)
    network.resets = False
    origin, target = nodes[0], Range(key_of(10, ""), key_of(120, ""))
    forwards = SFB.split(origin.graph, target).forwards
    largest = max(
        forwards, key=lambda forward: sum(key in forward.target for node in nodes for key in node.wanted)
    )
    dead = network.nodes[largest.to.peer.node_id]
    dead.crash()
    origin.graph.cast(target, b"last words", reliable=True)
    stopped: list[float] = []
    origin.graph.stop(lambda: stopped.append(network.time))
    network.run(20)
    assert stopped
    for node in nodes[1:]:
        expected_payloads = [b"last words"] if node is not dead else []
        assert [arrival.payload for arrival in node.arrivals] == expected_payloads


def test_a_process_that_has_stood_still_suspects_nobody() -> None:
    """Its time-outs are over before it has read the answers that have come meanwhile."""
    network, (a, b) = grown(2)
    for _ in range(60):
        network.run(1.03)
        network.stand_still(3.0)
    assert a.counters.get("stalls", 0) + b.counters.get("stalls", 0) > 0
    assert "suspected" not in a.counters
    assert "suspected" not in b.counters


def test_a_request_is_answered_by_its_answer_alone() -> None:
    """Another kind of answer under its number is malformed, and the right one counts all the same."""
    network, nodes = grown(32)
    graph = nodes[0].graph
    found: list[bytes | None] = []
    wanted = [key for node in nodes for key in node.wanted]
    for key in wanted:
        graph.lookup(key, lambda pred, succ, hops: found.append(pred and pred.key))
    open_requests = graph._context._requests.items()
    number = next(number for number, request in open_requests if isinstance(request.message, Lookup))
    for answer in (WalkReply(number, None, False, False, 0), SetRNak(number, False, None), Pong(number, ())):
        graph.receive("n1", encode(answer))
    assert nodes[0].counters["malformed"] == 3
    network.run(1)
    assert len(found) == 32
    assert set(found) == set(wanted)
