"""Reliable casts among nodes that are slow, hang or are cut off, and what is remembered of casts."""

from __future__ import annotations

from typing import Any

import pytest

from ildm_algorithms.overlay.casts.history import AT_ONCE, Work, without
from ildm_algorithms.overlay.casts.routing import SFB
from ildm_algorithms.overlay.config import OverlayConfig
from ildm_algorithms.overlay.graph import CastResult
from ildm_algorithms.overlay.keys import EVERYTHING, Range
from ildm_algorithms.overlay.peers import Peers
from ildm_algorithms.overlay.wire.messages import Cast, CastAck, CastBusy, Ping, decode, encode
from tests.algorithms.overlay.scheduler import Network, Node
from tests.algorithms.overlay.test_graph import grown


def largest(origin: Node, nodes: list[Node]) -> Node:
    """The delegate that gets the largest part of a cast to everything."""
    forwards = SFB.split(origin.graph._table, EVERYTHING).forwards
    chosen = max(forwards, key=lambda f: sum(key in f.target for node in nodes for key in node.wanted))
    return next(node for node in nodes if node.peer == chosen.to.peer)


@pytest.mark.parametrize("seed", [0, 8, 10, 16, 19, 21])
def test_a_hung_node_costs_the_others_a_first_time_out(seed: int) -> None:
    """It reads nothing, and nobody is told: what it would hand on goes other ways, and soon at once.

    In some of these graphs nodes one after the other lead to it, or none of the origin leads past it.
    """
    network, nodes = grown(24, seed, pending_casts=200)
    origin = nodes[0]
    hung = largest(origin, nodes)
    others = [node for node in nodes if node is not hung]
    network.hang(hung.node_id)
    late: dict[int, float] = {}
    done: list[CastResult] = []
    for number in range(400):
        begun = network.time
        payload = b"%d" % number
        origin.graph.cast(EVERYTHING, payload, reliable=True, done=done.append)
        network.run(0.05)
        late[number] = begun
    network.run(40)
    assert {result.why for result in done} == {""}
    assert len(done) == 400
    delays = slowest(network, others, late)
    # two time-outs without a sign, 0.5 s and 1 s, at the first that waits for it; one at those that are told
    assert max(delays.values()) <= 2.5
    # when all around it know, it costs nothing
    assert max(delay for number, delay in delays.items() if late[number] > late[0] + 8) < 0.5
    assert not any(node.counters.get("pending_casts_full") for node in nodes)


def slowest(network: Network, nodes: list[Node], begun: dict[int, float]) -> dict[int, float]:
    """How long each cast took to the last of some nodes, all of which it has reached once."""
    delays: dict[int, float] = {}
    for node in nodes:
        numbers = [int(arrival.payload) for arrival in node.arrivals]
        assert sorted(numbers) == sorted(begun)
        for number, when in zip(numbers, node.times, strict=True):
            delays[number] = max(delays.get(number, 0.0), when - begun[number])
    return delays


def test_a_node_that_stands_still_for_a_moment_is_suspected_by_nobody() -> None:
    network, nodes = grown(20)
    before = sum(node.counters.get("repairs", 0) for node in nodes)
    for node in nodes[3:15:4]:
        network.hang(node.node_id)
        network.run(1.8)
        network.go_on(node.node_id)
        network.run(5.0)
    assert sum(node.counters.get("suspected", 0) for node in nodes) == 0
    assert sum(node.counters.get("repairs", 0) for node in nodes) == before


@pytest.mark.parametrize(("seconds", "suspected"), [(1.5, 0), (3.0, 20), (6.0, 20)])
def test_a_node_whose_answers_are_late_is_not_suspected(seconds: float, suspected: int) -> None:
    """Unless nothing at all comes for longer than the patience lasts, when it becomes slow."""
    network, nodes = grown(20)
    network.slow["n7"] = seconds
    network.run(30)
    assert network.wrongly_suspected <= suspected
    before = network.wrongly_suspected
    network.run(60)
    assert network.wrongly_suspected == before
    assert sum(node.counters.get("suspected", 0) for node in nodes) == before


def test_a_part_divided_anew_is_served_once() -> None:
    """The delegate gets everything and serves it, but no answer comes back: it looks dead."""
    network, nodes = grown(32)
    network.resets = False
    origin = nodes[0]
    mute = largest(origin, nodes)
    begin = network.time
    network.cut = lambda a, b: (a, b) == (mute.node_id, origin.node_id) and network.time < begin + 8
    network.sent.clear()
    done: list[CastResult] = []
    origin.graph.cast(EVERYTHING, b"x", reliable=True, done=done.append)
    network.run(40)
    assert [result.complete for result in done] == [True]
    assert [len(node.arrivals) for node in nodes] == [1] * len(nodes)
    assert sum(node.counters.get("cast_parts_met", 0) for node in nodes) > 0
    # 31 would do; its part is given to others once when it is unresponsive, and once when it is suspected
    assert network.sent["Cast"] <= 3 * 31


def test_what_a_delegate_is_at_is_left_to_it() -> None:
    """Below it somebody hangs: those above ask seldom, and nobody divides anything anew."""
    network, nodes = grown(32)
    origin = nodes[0]
    done: list[CastResult] = []
    origin.graph.cast(EVERYTHING, b"", trace=True, done=done.append)
    network.run(3)
    hung = deepest(done.pop().tree)
    assert hung["depth"] >= 3
    network.hang(hung["node"])
    network.sent.clear()
    origin.graph.cast(EVERYTHING, b"x", reliable=True, done=done.append)
    network.run(1.9)
    assert not done
    assert network.sent["Cast"] <= 31 + 5 * hung["depth"]
    assert sum(node.counters.get("cast_parts_rerouted", 0) for node in nodes) <= 1
    network.go_on(hung["node"])
    network.run(10)
    assert [result.complete for result in done] == [True]


def deepest(tree: Any) -> Any:
    """The node of a trace that is farthest from its root."""
    return max((tree, *map(deepest, tree["children"])), key=lambda node: node["depth"])


# what is remembered -------------------------------------------------------------------------------


def copies(network: Network) -> list[tuple[str, str, bytes]]:
    """Keeps every copy of a cast that is sent from now on."""
    kept: list[tuple[str, str, bytes]] = []
    carry = network.carry

    def keep(sender: str, to: str, data: bytes) -> None:
        if isinstance(decode(data), Cast):
            kept.append((sender, to, data))
        carry(sender, to, data)

    network.carry = keep  # type: ignore[method-assign]
    return kept


def test_no_copy_is_served_again_while_its_origin_may_send_it() -> None:
    """However many casts come in between."""
    network, nodes = grown(6, seen=4)
    kept = copies(network)
    nodes[0].graph.cast(EVERYTHING, b"first", reliable=True)
    network.run(1)
    first = list(kept)
    for number in range(300):
        nodes[0].graph.cast(EVERYTHING, b"%d" % number, reliable=True)
        nodes[1].graph.cast(EVERYTHING, b"%d" % number)
        network.run(0.1)
    for sender, to, data in first:
        network.nodes[to].graph.receive(sender, data)
    network.run(1)
    for node in nodes:
        assert [arrival.payload for arrival in node.arrivals].count(b"first") == 1


def test_casts_are_forgotten_when_none_can_come_again() -> None:
    network, nodes = grown(4, cast_deadline=2.0)
    for number in range(200):
        nodes[0].graph.cast(EVERYTHING, b"%d" % number, reliable=True)
        network.run(0.1)
    for node in nodes:
        history = node.graph._caster.parts.history
        assert len(history) <= 40
        assert history.bytes == sum(taken.bytes for taken in history._casts.values())


def test_after_a_burst_casts_are_forgotten_a_few_at_a_time() -> None:
    """Unless there is no room for a new one."""
    network, nodes = grown(4, cast_deadline=2.0, cast_bytes=1_000_000)
    history = nodes[0].graph._caster.parts.history
    for number in range(5 * AT_ONCE):
        nodes[0].graph.cast(EVERYTHING, b"%d" % number, reliable=True)
    network.run(10)
    for left in range(4, -1, -1):
        nodes[0].graph.cast(EVERYTHING, b"later", reliable=True)
        assert AT_ONCE * left < len(history) <= AT_ONCE * left + 5
    for number in range(5 * AT_ONCE):
        nodes[0].graph.cast(EVERYTHING, b"%d" % number, reliable=True)
    network.run(10)
    nodes[0].graph.cast(EVERYTHING, bytes(900_000), reliable=True)
    assert len(history) < 2 * AT_ONCE


def test_at_the_bound_new_casts_are_refused_and_none_is_forgotten() -> None:
    network, nodes = grown(4, cast_bytes=20_000, cast_deadline=4.0)
    done: list[CastResult] = []
    for number in range(40):
        nodes[0].graph.cast(EVERYTHING, b"%d" % number, reliable=True, done=done.append)
    network.run(2)
    assert {result.why for result in done if not result.complete} == {"full"}
    assert 10 < sum(result.complete for result in done) < 30
    assert nodes[0].counters["cast_bytes_full"] == sum(not result.complete for result in done)
    network.run(10)
    done.clear()
    nodes[0].graph.cast(EVERYTHING, b"later", reliable=True, done=done.append)
    network.run(2)
    assert done[0].complete


def test_who_has_no_room_says_so_and_is_asked_again() -> None:
    network, nodes = grown(4)
    small = network.add("small", cast_bytes=2_000, cast_deadline=3.0).start(15)
    small.graph.join(nodes[0].peer)
    network.settle()
    done: list[CastResult] = []
    for number in range(4):
        nodes[0].graph.cast(EVERYTHING, b"%d" % number, reliable=True, done=done.append)
    network.run(100)
    assert small.counters["cast_bytes_full"] > 0
    assert "suspected" not in nodes[0].counters
    assert sum(result.complete for result in done) == len(small.arrivals)


def test_a_result_says_why_it_is_not_complete() -> None:
    # before the others are taken for dead: without them there is nobody to miss
    network, nodes = grown(3, cast_deadline=1.0)
    network.resets = False
    network.cut = lambda a, b: True
    done: list[CastResult] = []
    nodes[0].graph.cast(EVERYTHING, b"x", reliable=True, done=done.append)
    network.run(5)
    assert [(result.complete, result.why) for result in done] == [(False, "deadline")]


def test_all_give_up_when_the_origin_does() -> None:
    network, nodes = grown(24, cast_deadline=6.0)
    network.resets = False
    origin = nodes[0]
    for node in nodes[12:]:
        network.hang(node.node_id)
    origin.graph.cast(EVERYTHING, b"x", reliable=True)
    network.run(7)
    assert not any(node.graph._caster.parts.busy for node in nodes[:12])


# time-outs ----------------------------------------------------------------------------------------


def test_time_outs_follow_the_round_trip_times() -> None:
    config = OverlayConfig()
    peers = Peers(config)
    assert peers.timeout("a") == config.ack_timeout / 3
    peers.measured("a", 1.0)
    assert peers.timeout("a") == pytest.approx(1.0 + 4 * 0.5)
    for _ in range(100):
        peers.measured("a", 1.0)
    assert peers.timeout("a") == pytest.approx(1.0, abs=0.01)
    for _ in range(100):
        peers.measured("a", 0.001)
    assert peers.timeout("a") == config.timeout_min
    for _ in range(10):
        peers.back_off("a")
    assert peers.timeout("a") == config.timeout_max
    peers.measured("a", 0.001)
    assert peers.timeout("a") == config.timeout_min


def test_what_is_known_of_peers_is_bounded() -> None:
    peers = Peers(OverlayConfig(peers=10))
    for number in range(100):
        peers.received(f"n{number}", float(number))
    assert len(peers._known) == 10
    assert peers.last_received("n99") == 99.0
    assert peers.silent(90.5)("n90")
    assert not peers.silent(90.5)("n91")


def test_a_far_node_is_asked_once() -> None:
    """Nothing is sent twice over a connection with a round trip of 1.2 s, once that has been measured."""
    network = Network(delay=(0.6, 0.6))
    nodes = [network.add(f"n{i}").start(10 * i) for i in range(4)]
    for node in nodes[1:]:
        node.graph.join(nodes[0].peer)
    network.settle()
    network.run(60)
    pings, pongs = network.sent["Ping"], network.sent["Pong"]
    numbers: list[int] = []
    carry = network.carry

    def keep(sender: str, to: str, data: bytes) -> None:
        message = decode(data)
        if isinstance(message, Ping):
            numbers.append(message.id)
        carry(sender, to, data)

    network.carry = keep  # type: ignore[method-assign]
    network.run(60)
    assert network.sent["Ping"] - pings == pytest.approx(network.sent["Pong"] - pongs, abs=8)
    # each of 4 nodes has one neighbour on its left at two levels at most, and asks it every 2 s
    assert len(numbers) <= 4 * 2 * 31


@pytest.mark.parametrize(
    ("ranges", "taken", "left"),
    [
        ([(b"b", b"f")], (b"a", b"z"), []),
        ([(b"b", b"f")], (b"c", b"d"), [(b"b", b"c"), (b"d", b"f")]),
        ([(b"b", b"f")], (b"f", b"z"), [(b"b", b"f")]),
        ([(b"a", b"c"), (b"d", b"f")], (b"b", b"e"), [(b"a", b"b"), (b"e", b"f")]),
    ],
)
def test_ranges_without_another(ranges: Any, taken: Any, left: Any) -> None:
    assert without([Range(*r) for r in ranges], Range(*taken)) == [Range(*r) for r in left]


def test_answers_of_nobody_are_ignored() -> None:
    _, nodes = grown(2)
    for message in (CastBusy(1, False, False), CastBusy(1, True, False), CastAck(1, 7, 0, 0, 0, 0, b"")):
        nodes[0].graph.receive("n1", encode(message))
    assert "malformed" not in nodes[0].counters


@pytest.mark.parametrize("seed", range(6))
def test_who_stood_between_two_keys_of_a_crashed_node_is_not_passed_over(seed: int) -> None:
    """Those around close the gap as soon as they notice; it has its place again when it has noticed, too."""
    network = Network(seed)
    network.resets = False
    nodes = [network.add(f"n{i}").start(10 * i) for i in (0, 1, 2, 4, 5, 6)]
    for node in nodes[1:]:
        node.graph.join(nodes[0].peer)
        network.run(1)
    gone, between = nodes[2].insert(35), nodes[4]
    network.settle()
    between.insert(27)
    network.settle()
    gone.crash()
    done: dict[int, list[CastResult]] = {}
    for number in range(120):
        done[number] = []
        nodes[0].graph.cast(
            Range(b"00026", b"00028"), b"%d" % number, reliable=True, done=done[number].append
        )
        network.run(0.1)
    network.run(40)
    had = {int(arrival.payload) for arrival in between.arrivals}
    assert [number for number, (result,) in done.items() if result.complete and number not in had] == []
    assert sum(result.complete for (result,) in done.values()) == 120


def test_sums_of_what_others_say_they_have_reached_can_be_told() -> None:
    """One that says it has reached 2^32 - 1 keys does not keep the nodes above it from acknowledging."""
    _, nodes = grown(2)
    sent: list[Cast] = []
    nodes[0].graph._caster._spread = lambda message, *rest: sent.append(message)  # type: ignore[method-assign]
    nodes[0].graph.cast(EVERYTHING, b"", note=b"n")
    work = Work(("n", 1), sent[0], 1.0)
    for _ in range(3):
        work.add(CastAck(1, 0, 0xFFFF_FFFF, 0xFFFF_FFFF, 0xFFFF_FFFF, 0xFFFF, b""))
    assert decode(encode(work.ack)) == work.ack


@pytest.mark.parametrize(("depth", "arrives"), [(100, True), (128, False)])
def test_a_copy_that_never_comes_to_its_part_ends(depth: int, arrives: bool) -> None:
    """With a neighbour missing two nodes hand it to and fro; the way into a part is short otherwise."""
    network, nodes = grown(12)
    near, sender, far = nodes[0], nodes[1], nodes[8]
    (key,) = far.wanted
    copy = Cast(
        number=1,
        origin=sender.peer,
        parent=sender.peer,
        request=1,
        low=key,
        high=key + b"\0",
        routing=0,
        reliable=True,
        trace=False,
        deliver=True,
        control=False,
        depth=depth,
        at=b"",
        strays=0,
        line=0,
        left=3000,
        turn=0,
        unresponsive=(),
        extra=(),
        note=b"",
        payload=b"x",
    )
    near.graph.receive(sender.node_id, encode(copy))
    network.run(5)
    assert [arrival.payload for arrival in far.arrivals] == [b"x"] * arrives
    assert (near.counters.get("hops_exceeded", 0) > 0) is not arrives
