"""Nodes that do not have alike what all of a graph must: they are refused by name, and harm nobody."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from ildm.api import Peer
from ildm_algorithms.atm_tbps.messages import FIRST_MESSAGES
from ildm_algorithms.atm_tbps.spreading import FAR
from ildm_algorithms.overlay.casts.routing import SFB, Routing
from ildm_algorithms.overlay.graph import CastResult, SkipGraph
from ildm_algorithms.overlay.keys import EVERYTHING, Ref
from ildm_algorithms.overlay.terms import NO_MESSAGES, terms_of
from ildm_algorithms.overlay.wire.codec import TEXT, Format
from ildm_algorithms.overlay.wire.messages import Seq, SetL, Term, Terms, encode
from tests.algorithms.overlay.scheduler import Network, Node, expected
from tests.algorithms.overlay.test_graph import grown

OTHER = Routing("other", 64, SFB.split)


class New(NamedTuple):
    """A message of a later release."""

    text: str


def refusals(node: Node) -> list[str]:
    return [
        f"{fields['refused']}: {fields['differences']}"
        for event, fields in ((e[0], e[1]) for e in node.events if len(e) == 2)
        if isinstance(event, str) and event.startswith("node refused") and isinstance(fields, dict)
    ]


def wrong(nodes: Sequence[Node], base: int = 2) -> list[bytes]:
    """Keys whose tables are not those of a graph of these nodes alone."""
    refs = sorted(Ref(key, n.peer, n.graph.vector) for n in nodes for key in n.wanted)
    right = expected(refs, base)
    return [
        key
        for node in nodes
        for key in node.wanted
        if [tuple(ref and ref.key for ref in pair) for pair in node.graph.neighbors(key)] != right[key]
    ]


@pytest.mark.parametrize("joins", ["the other one", "this one"])
def test_a_node_with_another_base_is_refused_by_name_on_both_sides(joins: str) -> None:
    network, nodes = grown(6)
    other = network.add("other", base=4).start(25)
    introducer = nodes[3]
    if joins == "this one":
        introducer.graph.join(other.peer)
    else:
        other.graph.join(introducer.peer)
    network.run(60)
    assert other.graph.alone
    assert wrong(nodes) == []
    # once, however often it tries
    assert refusals(introducer) == ["other: overlay.base is 2 here, 4 there"]
    assert refusals(other) == ["n3: overlay.base is 4 here, 2 there"]
    for node, stranger in ((introducer, "other"), (other, "n3")):
        assert node.counters["nodes_refused"] == 1
        assert list(node.graph.refused) == [stranger]
        assert list(node.graph.describe()["refused"]) == [stranger]
    assert introducer.counters.get("messages_refused", 0) + other.counters.get("messages_refused", 0) > 3
    assert not any(node.counters.get("suspected") for node in nodes)


def test_two_graphs_with_different_bases_stay_apart() -> None:
    network, nodes = grown(8)
    others = [network.add(f"o{i}", base=4).start(10 * i + 5) for i in range(8)]
    for node in others[1:]:
        node.graph.join(others[0].peer)
        network.run(2)
    others[4].graph.join(nodes[4].peer)
    nodes[1].graph.join(others[6].peer)
    network.run(90)
    assert wrong(nodes) == []
    assert wrong(others, base=4) == []
    nodes[0].graph.cast(EVERYTHING, b"x")
    network.run(3)
    assert [len(node.arrivals) for node in nodes] == [1] * 8
    assert [len(node.arrivals) for node in others] == [0] * 8


def test_it_joins_when_it_has_been_set_right() -> None:
    network, nodes = grown(4)
    other = network.add("other", base=4).start(25)
    other.graph.join(nodes[1].peer)
    network.run(20)
    other.crash()
    again = network.add("other").start(25)
    again.graph.join(nodes[1].peer)
    network.settle()
    network.run(5)
    assert again.graph.refused == {}
    assert nodes[1].graph.refused == {}


def test_a_member_that_comes_back_with_another_base_is_closed_out() -> None:
    """The others know its key and address, and think for a moment that it is the one it was."""
    network, nodes = grown(9)
    nodes[4].crash()
    other = network.add("n4", base=3).start(40)
    other.graph.join(nodes[0].peer)
    network.run(60)
    rest = [node for node in nodes if node is not nodes[4]]
    assert wrong(rest) == []
    assert other.graph.alone
    done: list[CastResult] = []
    rest[0].graph.cast(EVERYTHING, b"x", reliable=True, done=done.append)
    network.run(10)
    assert [result.complete for result in done] == [True]
    assert [len(node.arrivals) for node in rest] == [1] * 8


def test_a_node_with_another_way_to_spread_is_refused() -> None:
    network = Network()
    network.parts = lambda node: {"routings": (OTHER,)} if node.node_id == "b" else {}
    a, b = network.add("a").start(1), network.add("b").start(2)
    b.graph.join(a.peer)
    network.run(10)
    assert refusals(a) == ["b: routings is - here, 64:other there"]
    assert refusals(b) == ["a: routings is 64:other here, - there"]
    assert a.graph.alone


def test_options_that_may_differ_do_not_part_nodes() -> None:
    network = Network()
    a = network.add("a").start(1)
    b = network.add("b", ping_interval=3.0, cast_deadline=9.0, routing="mrf", max_keys=9).start(2)
    b.graph.join(a.peer)
    network.settle()
    assert a.graph.refused == {}


def test_what_others_say_of_their_terms_is_kept_within_bounds() -> None:
    network, (node, *_) = grown(2)
    mine = tuple(Term(name, value) for name, value in node.graph._agreement.terms.items())
    many = tuple(Term(f"t{number}", "1") for number in range(1_000))
    for number in range(500):
        sender = f"x{number}"
        node.graph.receive(sender, encode(Terms(Peer(sender, f"{sender}:1"), False, many)))
    assert len(node.graph.refused) == 64
    assert max(map(len, node.graph.refused.values())) < 32
    node.graph.receive("x499", encode(Terms(Peer("x499", "x499:1"), True, mine)))
    assert "x499" not in node.graph.refused
    node.graph.receive("n0", encode(Terms(node.peer, True, many)))
    assert node.node_id not in node.graph.refused
    before = node.graph.neighbors(b"00000-n0")
    stranger = Ref(b"00001-x", Peer("x", "x:1"), 0)
    node.graph.receive("x", encode(SetL(0, b"00000-n0", stranger, outranking(node), b"", (), 7)))
    assert node.graph.neighbors(b"00000-n0") == before
    assert "malformed" not in node.counters
    network.run(5)
    assert wrong([*network.nodes.values()]) == []


def outranking(node: Node) -> Seq:
    """A number that outranks that of the link there is."""
    link = node.graph._table.nodes[b"00000-n0"].links[0]
    return link.lseq.gnext


@pytest.mark.parametrize(
    ("routings", "messages", "check"),
    [((), NO_MESSAGES, 1_906_126_467), ((FAR,), FIRST_MESSAGES, 3_856_140_912)],
    ids=["sg_tbps", "atm_tbps"],
)
def test_the_terms_of_a_release_are_those_of_the_one_before(
    routings: tuple[Routing, ...], messages: str, check: int
) -> None:
    """Nodes of two releases are in one graph while it is upgraded, so the checksums never change."""
    assert terms_of(2, routings, messages).check == check


def test_what_a_message_is_called_here_and_new_ones_do_not_divide_a_graph() -> None:
    _, (node,) = grown(1)
    env, hooks = node.graph.env, node.graph.hooks
    more = SkipGraph(env, hooks, messages=[(Format(99, New, (TEXT,)), lambda message: None)])
    assert more._context.terms == node.graph._context.terms
