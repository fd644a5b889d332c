"""Golden transcripts of the procedures of the lists, and the rules behind them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ildm.api import Peer
from ildm_algorithms.overlay.keys import Ref
from ildm_algorithms.overlay.lists.tables import between, distinct, nearer_left
from ildm_algorithms.overlay.wire.messages import Seq, SetR, encode
from tests.algorithms.overlay.scheduler import Network, Node
from tests.support.transcripts import check_transcript

QUIET = {"ping_interval": 1e6, "check_interval": 1e6}
A, B, C, D = (number << 62 for number in range(4))


def show(network: Network) -> None:
    """The tables at the end, which must be right."""
    assert network.faults() == []
    for node in sorted(network.nodes.values(), key=lambda node: node.graph.keys()):
        for key in node.graph.keys():  # noqa: SIM118
            levels = [
                f"{left.key.decode() if left else '-'} {right.key.decode() if right else '-'}"
                for left, right in node.graph.neighbors(key)
            ]
            network.line(f"{key.decode()}: {' | '.join(levels)}")


def settled(**options: float) -> tuple[Network, list[Node]]:
    """10-n1, 20-n2 and 30-n3; all share level 0, the first and the last also level 1."""
    network = Network(1, note=True)
    nodes = []
    for number, vector in ((1, A), (2, C), (3, B)):
        node = network.add(f"n{number}", vector, **(QUIET | options)).start(10 * number)
        if nodes:
            node.graph.join(nodes[0].peer)
            network.settle()
            network.run(5)
        nodes.append(node)
    return network, nodes


def test_insertion() -> None:
    network, nodes = settled()
    network.line("# a key of n2 between the others")
    nodes[1].insert(25)
    network.settle()
    show(network)
    check_transcript("overlay_insert", network.lines)


def test_removal_from_the_top_down() -> None:
    network, nodes = settled()
    network.lines.clear()
    network.line("# n1 removes a key, then n3 stops")
    nodes[0].insert(15)
    network.settle()
    network.line("# removal")
    nodes[0].remove(b"00015-n1")
    network.settle()
    network.line("# n3 stops")
    nodes[2].leave()
    network.settle()
    network.run(5)
    assert "n3" not in network.nodes
    show(network)
    check_transcript("overlay_remove", network.lines)


def test_neighbours_that_leave_at_the_same_time() -> None:
    network, nodes = settled()
    network.lines.clear()
    nodes[1].leave()
    nodes[2].leave()
    network.settle()
    network.run(10)
    assert set(network.nodes) == {"n1"}
    show(network)
    check_transcript("overlay_leave_together", network.lines)


def test_crash_found_by_a_broken_connection() -> None:
    network, nodes = settled()
    network.lines.clear()
    network.line("# n2 crashes, n3 and n1 notice")
    nodes[1].crash()
    nodes[2].graph.unreachable("n2")
    nodes[0].graph.unreachable("n2")
    network.settle()
    network.run(1)
    show(network)
    check_transcript("overlay_crash", network.lines)


def test_crash_found_by_pings() -> None:
    network, nodes = settled(ping_interval=2.0)
    network.lines.clear()
    network.resets = False
    network.line("# n2 crashes in silence")
    nodes[1].crash()
    took = network.settle()
    config = nodes[0].graph.config
    assert took <= 1.1 * config.ping_interval + config.patience + 1
    show(network)
    check_transcript("overlay_crash_silent", network.lines)


def test_two_graphs_become_one() -> None:
    network = Network(2, note=True)
    pairs = []
    for numbers in ((1, 3), (2, 4)):
        pair = [
            network.add(f"n{n}", vector, **QUIET).start(10 * n)
            for n, vector in zip(numbers, (A, C), strict=True)
        ]
        pair[1].graph.join(pair[0].peer)
        pairs.append(pair)
        network.run(5)
    network.lines.clear()
    network.line("# n1 with n3, n2 with n4: n3 joins n4")
    pairs[0][1].graph.join(pairs[1][1].peer)
    network.settle()
    show(network)
    check_transcript("overlay_merge", network.lines)


@pytest.mark.parametrize("joining", [False, True])
def test_who_is_put_right_of_a_key_by_a_repair_was_passed_over_until_then(joining: bool) -> None:
    _, (first, _, _) = settled()
    first.events.clear()
    peer, terms = Peer("n9", "n9:1"), first.graph._context.terms
    new = Ref(b"00012-n9", peer, B)
    first.graph.receive("n9", encode(SetR(1, peer, 0, b"00010-n1", new, Seq(1, 0), b"", b"", joining, terms)))
    assert (("merging",) in first.events) is not joining


key = st.binary(min_size=1, max_size=2)


@given(key, key, key)
def test_between_goes_right_around_the_ring(low: bytes, middle: bytes, high: bytes) -> None:
    if low < high:
        assert between(low, middle, high) == (low < middle < high)
    elif low > high:
        assert between(low, middle, high) == (middle > low or middle < high)
    else:
        assert between(low, middle, high) == (middle != low)


@given(key, key, key)
def test_one_of_two_left_neighbours_is_nearer(own: bytes, a: bytes, b: bytes) -> None:
    if len({own, a, b}) == 3:
        assert nearer_left(own, a, b) != nearer_left(own, b, a)
    assert not nearer_left(own, a, a)
    # Oneself, all around the ring, is the farthest.
    assert nearer_left(own, a, own) == (a != own)


def test_neighbours_for_repair_are_on_different_nodes() -> None:
    refs = [Ref(b"%d" % i, Peer(f"n{i // 2}", "h:1"), 0) for i in range(12)]
    assert [ref.key for ref in distinct(refs, "n1")] == [b"0", b"4", b"6", b"8"]
