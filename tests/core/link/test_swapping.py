"""One link of the tree for another while messages cross: nothing twice, and hardly a pause."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from ildm.api import Link, Route, TreeAlgorithm
from ildm.config import Address
from ildm.core.link import swapping
from ildm.core.link.control import SWAP, send_control
from ildm.core.link.swapping import Swap, Swaps
from ildm.core.link.tree import TreeMembership
from ildm.mqtt import SubAck, Subscribe, Subscription, Unsubscribe
from ildm.testing.virtual.world import World
from tests.support.delays import tree
from tests.support.rings import cut
from tests.support.site import Site
from tests.support.swaps import SLOW, Ring

RINGS = [("abc", "ab"), ("abc", "bc"), ("abcd", "bc"), ("abcdef", "cd")]
SWAPPED = 4.2
"""Seconds after a link has become slow: then another one takes its place."""


def swaps(site: Site) -> Swaps:
    membership = site.node.links.membership
    assert isinstance(membership, TreeMembership)
    return membership.swaps


@pytest.mark.parametrize("algorithm", ["sf", "pf"])
@pytest.mark.parametrize(("names", "pair"), RINGS)
def test_a_swap_costs_what_was_under_way(world: World, names: str, pair: str, algorithm: str) -> None:
    ring = Ring(world, names, algorithm)
    for site in ring.sites:
        site.subscriber("#", qos=2)
    before = ring.count("tree_swaps")
    ring.delays.set(pair, SLOW)
    world.run(SWAPPED - 0.1)
    ring.load(0.4)
    world.run(5)
    assert ring.count("tree_swaps") > before
    assert ring.tree == ring.all - {pair}
    assert not ring.count("tree_swaps_given_up")
    assert not any(ring.twice(qos) for qos in (0, 1, 2))
    assert not ring.lost(1) | ring.lost(2)
    around = 2 * (0.010 + 0.005 * (len(names) - 2))  # a round trip of what is left of the ring
    assert max(ring.gaps(0).values()) < 2 * around + 3 * ring.period
    assert ring.most_lost(0) * 3 * ring.period < SLOW + 2 * around


@pytest.mark.parametrize("algorithm", ["sf", "pf"])
@pytest.mark.parametrize(("pair", "who"), [("bc", "a"), ("ab", "d")])
def test_a_site_that_wants_qos_0_gets_a_message_once(
    world: World, pair: str, who: str, algorithm: str
) -> None:
    """It has got it without an identity, and others want it to be rerouted past it."""
    ring = Ring(world, "abcd", algorithm)
    ring.site(who).subscriber("#", qos=0)
    others = [name for name in "abcd" if name != who]
    for name in others:
        ring.site(name).subscriber("+/b/#", qos=2)
    ring.delays.set(pair, SLOW)
    world.run(SWAPPED - 0.1)
    ring.load(0.4, qos=(1, 2))
    world.run(5)
    assert ring.tree == ring.all - {pair}
    assert who not in {name for qos in (1, 2) for name, _ in ring.twice(qos)}
    missing = {topic for name in others for qos in (1, 2) for topic in ring.missing(name, qos)}
    assert not {topic for topic in missing if "b" in topic}
    withheld = ring.site(who).node.counters["link_again_withheld"]
    assert bool(withheld) == (algorithm == "sf")


class OnceToC(TreeAlgorithm):
    """Messages to c cross at QoS 0."""

    def route(self, topic: str, retain: bool, source: Link | None) -> Route:
        return [(link, 0 if link.node_id == "c" else 2) for link in self.api.links]


def test_what_is_rerouted_does_not_cross_at_qos_0(world: World) -> None:
    """It may have crossed already, and nobody behind that link can tell."""
    ring = Ring(world, "abcd", OnceToC)
    ring.delays.set("ab", SLOW)
    world.run(SWAPPED - 0.1)
    ring.load(0.4, qos=(2,))
    world.run(5)
    assert ring.tree == ring.all - {"ab"}
    assert ring.site("d").node.counters["link_again"]
    assert not ring.twice(2)


def test_without_the_word_a_link_joins_when_the_news_have_settled(world: World) -> None:
    """A node between the ends knows nothing of it."""
    ring = Ring(world, "abcdef")
    for site in ring.sites:
        site.subscriber("#", qos=2)
    for link in ring.site("b").node.links.links.values():
        link.features -= {swapping.FEATURE}
    ring.delays.set("cd", SLOW)
    world.run(SWAPPED - 0.1)
    ring.load(0.4)
    world.run(5)
    assert ring.tree == ring.all - {"cd"}
    assert ring.site("a").node.counters["tree_swaps_given_up"] == 1
    assert not any(ring.twice(qos) for qos in (0, 1, 2))
    assert not ring.lost(1) | ring.lost(2)


@pytest.mark.parametrize("late", [-0.02, 0.0, 0.01, 0.02, 0.03, 0.05, 0.2])
@pytest.mark.parametrize("who", "abcd")
def test_who_subscribes_meanwhile_misses_nothing_that_comes_later(
    world: World, who: str, late: float
) -> None:
    ring = Ring(world, "abcd")
    client = ring.site(who).client("late")
    ring.delays.set("bc", SLOW)
    world.run(SWAPPED + late - 0.1)
    ring.load(0.1, qos=(1,))
    client.send(Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter="#", qos=1)]))
    publishing = ring.start(qos=(1,))
    assert world.run_until(lambda: bool(client.got(SubAck)), 3)
    told = world.time
    world.run(0.3)
    publishing.stop()
    world.run(5)
    assert not {topic for topic in ring.missing(who, 1) if ring.sent[topic] > told}
    assert not ring.twice(1)


@pytest.mark.parametrize("late", [-0.05, 0.0, 0.02, 0.05, 0.2])
def test_what_is_no_longer_wanted_is_forgotten_everywhere(world: World, late: float) -> None:
    """Interest does not go round and round what is a ring for a moment."""
    ring = Ring(world, "abcd")
    client = ring.site("b").subscriber("t/#")
    ring.delays.set("bc", SLOW)
    world.run(SWAPPED + late)
    client.send(Unsubscribe(packet_id=2, topic_filters=["t/#"]))
    world.run(30)
    assert ring.tree == ring.all - {"bc"}
    links = [link for site in ring.sites for link in site.node.links.links.values()]
    assert not any(link.interest for link in links)


@pytest.mark.parametrize("late", [0.0, 0.01, 0.03])
@pytest.mark.parametrize("what", ["a", "b", "c", "d", "ad", "bc", "ab"])
def test_a_fault_amid_a_swap_ends_in_the_right_tree(world: World, what: str, late: float) -> None:
    ring = Ring(world, "abcd")
    for site in ring.sites:
        site.subscriber("#", qos=2)
    ring.delays.set("bc", SLOW)
    world.run(SWAPPED + late - 0.1)
    ring.load(0.1, qos=(1, 2))
    if len(what) == 1:
        ring.site(what).kill()
    else:
        near, far = map(ring.site, what)
        world.barred |= {(far.name, Address(near.name, 2)), (near.name, Address(far.name, 2))}
        cut(near, far, dark=False)
    world.run(40)
    left = [site for site in ring.sites if site.name != what]
    up = {pair for pair in ring.all if what not in (*pair, pair)}
    assert tree(left) == (up if len(up) < len(left) else up - {"bc"})
    began = world.time
    ring.load(0.1, qos=(1,))
    world.run(5)
    for site in left:
        got = {topic for _, topic in ring.arrived[site.name]}
        later = {t for t, at in ring.sent.items() if at >= began and t[2] not in (what, site.name)}
        assert not later - got
    assert not ring.twice(1) | ring.twice(2)


def join_at_once(made: Swaps, *given: Any) -> None:
    Swaps.begin(made, *given)
    swap, made.waits = made.waits, None
    if swap is not None:
        made.join(swap.new["ha".index(made.node_id)])


@pytest.mark.parametrize("waits", [True, False])
def test_a_link_that_does_not_wait_for_the_word_doubles_messages(world: World, waits: bool) -> None:
    ring = Ring(world, "abcdefgh", "pf", spare=0.006)
    for end in "ah" * (not waits):
        made = swaps(ring.site(end))
        made.begin = partial(join_at_once, made)  # type: ignore[method-assign]
    ring.delays.set("de", SLOW)
    world.run(SWAPPED - 0.1)
    ring.load(0.3, qos=(0,))
    world.run(8)
    assert ring.tree == ring.all - {"de"}
    assert bool(ring.twice(0)) == (not waits)


# words ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "word",
    [
        b"",
        b"[]",
        b'["a", ["a", "b"], ["a", "c"], -1]',
        b'["a", ["a", "b"], ["a"], 1]',
        b'["a", ["a", "b"], ["a", 5], 1]',
        b'["", ["a", "b"], ["a", "c"], 1]',
        b'["a", ["a", "b"], ["a", "c"], true]',
        b"[" * 5000,
    ],
)
def test_a_malformed_word_ends_the_session(world: World, word: bytes) -> None:
    ring = Ring(world, "abc")
    send_control(ring.site("a").node.links.links["b"], SWAP, word)
    world.run(5)
    assert ring.site("b").node.counters["link_malformed"] == 1
    assert ring.tree == ring.all - {ring.spare}


def test_a_word_of_another_swap_moves_nothing(world: World) -> None:
    ring = Ring(world, "abc")
    for old, new in (("ab", "ac"), ("ab", "bc"), ("xy", "ac")):
        word = json.dumps(["c", list(old), list(new), 5]).encode()
        send_control(ring.site("b").node.links.links["c"], SWAP, word)
    world.run(5)
    assert ring.tree == ring.all - {ring.spare}


def test_a_word_does_not_go_round_for_ever(world: World) -> None:
    ring = Ring(world, "abc")
    links: list[Any] = [site.node.links.links[far] for site, far in zip(ring.sites, "bca", strict=True)]
    assert links[0].features >= {swapping.FEATURE}
    before = world.events
    word = json.dumps(["nobody", ["a", "b"], ["a", "c"], 5]).encode()
    send_control(links[0], SWAP, word)
    world.run(0.5)
    assert world.events - before < 200


def test_forests_that_differ_by_more_than_a_link_are_no_swap() -> None:
    ab, bc, cd, ac, ad = ("a", "b"), ("b", "c"), ("c", "d"), ("a", "c"), ("a", "d")
    assert swapping.swap_of({ab, bc}, {ab, ac}) == Swap(bc, ac)
    assert swapping.swap_of({ab, bc}, {ab, bc}) is None
    assert swapping.swap_of({ab, bc, cd}, {ab, ac, ad}) is None
    assert swapping.swap_of({ab, bc}, {ab}) is None
