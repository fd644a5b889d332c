"""Trees of the least delay: what nodes say of their links, and which links carry messages for that."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest

from ildm.config import Address
from ildm.config.rules import NeighborConfig
from ildm.core.link.control import WEIGHT, send_control
from ildm.core.link.topology import Advertisement
from ildm.core.link.tree import TreeMembership
from ildm.core.link.weights import CHANGE, FLOOR, STEPS, Said, Weights, steps
from ildm.testing.virtual.world import World
from tests.support.delays import Delays, tree
from tests.support.rings import cut
from tests.support.site import Site, session_of


def mesh(world: World, names: str, algorithm: str = "sf", **settings: Any) -> list[Site]:
    """Each site with a link to each other; older links are those of earlier names."""
    sites = [Site(world, name, algorithm, **settings) for name in names]
    for near, far in itertools.combinations(sites, 2):
        far.node.links.add(Address(near.name, 2), False)
        world.run(0.2)
    world.run(10)
    return sites


def weights(site: Site) -> Weights:
    membership = site.node.links.membership
    assert isinstance(membership, TreeMembership)
    return membership.weights


def swaps(sites: list[Site]) -> int:
    return max(site.node.counters["tree_swaps"] for site in sites)


def older(site: Site) -> None:
    """From now on the node is of a release without weights, as far as its neighbours hear."""
    hello = site.node.links.judge.hello
    site.node.links.judge.hello = lambda *given: replace(hello(*given), features=frozenset())  # type: ignore[method-assign]
    weights(site).stop()


# what is said ---------------------------------------------------------------------------------------


def test_a_doubling_is_four_steps() -> None:
    assert [steps(FLOOR * 2**n) for n in range(5)] == [0, 4, 8, 12, 16]
    assert steps(0.0) == steps(FLOOR / 2) == 0
    assert steps(FLOOR * 1.19) == 1


def test_the_longest_path_is_the_sum_of_its_links(world: World) -> None:
    Delays(world, ab=0.004, bc=0.016, bd=0.032, ac=0.5, ad=0.5, cd=0.5)
    a, b, *_ = mesh(world, "abcd")
    found, other = (site.node.links.membership.path_seconds for site in (a, b))
    assert found == other == pytest.approx(0.016 + 0.032, rel=0.2)


def test_without_weights_nobody_knows_the_longest_path(world: World) -> None:
    (a, _) = mesh(world, "ab", link={"tree": "age"})
    assert a.node.links.membership.path_seconds is None


@pytest.mark.parametrize(
    ("weight", "seconds"),
    [(10 - STEPS, 600), (10 - CHANGE, 600), (10 + CHANGE, 600), (10 + STEPS, 5), (100, 5)],
)
def test_a_change_is_said_when_it_has_lasted(weight: int, seconds: int) -> None:
    said = Said(10, 0.0)
    assert not any(said.look(weight, float(now), 300.0) for now in range(seconds))
    assert said.look(weight, float(seconds), 300.0)


def test_a_small_change_is_not_said_at_all() -> None:
    said = Said(10, 0.0)
    for weight in (10 - CHANGE + 1, 10 + CHANGE - 1):
        assert not any(said.look(weight, float(now), 300.0) for now in range(10_000))


def test_a_better_time_has_to_last_without_a_break() -> None:
    said = Said(10, 0.0)
    for now in range(10_000):
        assert not said.look(10 if now % 300 == 299 else 0, float(now), 300.0)


# the tree -------------------------------------------------------------------------------------------


def test_the_slow_link_of_a_ring_is_left_out(world: World, algorithm: str) -> None:
    """It is the oldest."""
    Delays(world, ab=0.050)
    sites = mesh(world, "abc", algorithm)
    assert tree(sites) == {"ac", "bc"}


def test_links_of_one_site_weigh_the_same(world: World) -> None:
    Delays(world, default=0.0005, ab=0.0009)
    sites = mesh(world, "abc")
    assert tree(sites) == {"ab", "ac"}
    assert swaps(sites) == 0


@pytest.mark.parametrize("rtt", [0.01, 0.04, 0.2])
@pytest.mark.parametrize("pair", ["ab", "bc"])
def test_a_link_that_becomes_ten_times_slower_is_left_within_30_seconds(
    world: World, pair: str, rtt: float
) -> None:
    delays = Delays(world, default=rtt / 2, ac=rtt)
    sites = mesh(world, "abc")
    assert tree(sites) == {"ab", "bc"}
    before = swaps(sites)
    delays.set(pair, rtt * 5)
    world.run(30)
    assert tree(sites) == {"ab", "bc", "ac"} - {pair}
    assert swaps(sites) == before + 1


def test_a_link_is_taken_back_when_it_has_been_fast_for_long(world: World) -> None:
    delays = Delays(world, ac=0.010)
    sites = mesh(world, "abc")
    delays.set("ab", 0.5)
    world.run(100)
    assert tree(sites) == {"ac", "bc"}
    delays.set("ab", 0.005)
    world.run(290)
    assert tree(sites) == {"ac", "bc"}
    world.run(400)
    assert tree(sites) == {"ab", "bc"}


@pytest.mark.parametrize("phase", [5, 50, 100, 299])
def test_a_delay_that_jumps_swaps_links_seldom(world: World, phase: int) -> None:
    delays = Delays(world, ac=0.010)
    sites = mesh(world, "abc")
    before = swaps(sites)
    for turn in range(7200 // phase):
        delays.set("ab", 0.005 if turn % 2 else 0.5)
        world.run(phase)
    assert swaps(sites) - before <= 7200 / 300
    world.run(2000)
    assert tree(sites) in ({"ab", "bc"}, {"ac", "bc"})


@pytest.mark.parametrize("named_by", ["b", "a"])
def test_a_cost_keeps_messages_off_a_link(world: World, named_by: str) -> None:
    """Whichever end has it; the smaller node id measures."""
    Delays(world, ac=0.006)
    sites = []
    for name in "abc":
        sites.append(site := Site(world, name, "sf"))
        if name == named_by:
            entry = NeighborConfig(url=Address("z", 2), id="b" if name == "a" else "a", cost=20)
            site.node.config.link.neighbors.append(entry)
    for near, far in itertools.combinations(sites, 2):
        far.node.links.add(Address(near.name, 2), False)
    world.run(20)
    assert tree(sites) == {"ac", "bc"}


def test_a_tree_of_a_mesh_is_the_one_of_least_weight(world: World) -> None:
    names = "abcdefgh"
    between = {
        one + other: 0.004 * (1 + 7 * i % 29)
        for i, (one, other) in enumerate(itertools.combinations(names, 2))
    }
    Delays(world, **between)
    sites = mesh(world, names)
    chosen: set[str] = set()
    groups = {name: {name} for name in names}
    for one, other in sorted(between, key=lambda pair: steps(2 * between[pair])):
        if groups[one] is not groups[other]:
            chosen.add(one + other)
            groups[one] |= groups[other]
            for name in groups[one]:
                groups[name] = groups[one]
    found = tree(sites)
    assert len(found) == len(names) - 1
    assert sum(steps(2 * between[pair]) for pair in found) == sum(steps(2 * between[pair]) for pair in chosen)


# all nodes decide alike -----------------------------------------------------------------------------


def alike(sites: list[Site]) -> None:
    graphs = [weights(site).topology.graph() for site in sites]
    assert all(graph == graphs[0] for graph in graphs)


@pytest.mark.parametrize("old", ["a", "b", "c", "d"])
@pytest.mark.parametrize("by", ["release", "key"])
def test_with_one_node_that_says_no_weights_ages_alone_decide(world: World, old: str, by: str) -> None:
    Delays(world, ab=0.100, ad=0.100)
    sites = [
        Site(world, name, "sf", link={"tree": "age" if name == old and by == "key" else "delay"})
        for name in "abcd"
    ]
    if by == "release":
        older(sites["abcd".index(old)])
    for near, far in ("ab", "bc", "cd", "ad"):
        next(site for site in sites if site.name == far).node.links.add(Address(near, 2), False)
        world.run(1)
    world.run(60)
    assert tree(sites) == {"ab", "bc", "cd"}
    assert not any(site.node.counters["tree_swaps"] for site in sites)
    alike(sites)
    sites["abcd".index(old)].kill()
    for site in sites:
        for far in list(site.node.links.links):
            if old in (site.name, far):
                site.node.links.remove(far)
    world.run(20)
    alike([site for site in sites if site.name != old])


def test_a_node_that_has_come_back_older_ends_the_choice_by_weight(world: World) -> None:
    Delays(world, ab=0.050)
    sites = mesh(world, "abc")
    assert tree(sites) == {"ac", "bc"}
    sites[2].crash()
    world.run(1)
    sites[2].start(("a", "b"))
    older(sites[2])
    world.run(60)
    alike(sites[:2])
    assert weights(sites[0]).topology.weights is weights(sites[1]).topology.weights is None


def test_a_node_that_has_come_back_moves_no_link(world: World) -> None:
    Delays(world, ab=0.050)
    sites = mesh(world, "abc")
    before = [site.node.counters["tree_swaps"] for site in sites[1:]]
    sites[0].kill()
    world.run(1)
    sites[0].start()
    world.run(60)
    assert tree(sites) == {"ac", "bc"}
    assert [site.node.counters["tree_swaps"] for site in sites[1:]] == before


def test_words_that_were_lost_are_told_on_the_next_connection(world: World) -> None:
    delays = Delays(world, ac=0.010)
    sites = mesh(world, "abcd")
    for site in sites[:2]:
        for link in site.node.links.links.values():
            link.features = frozenset()  # it sends none
    delays.set("ab", 0.5)
    world.run(60)
    assert weights(sites[0])._words != weights(sites[2])._words
    for near, far in itertools.combinations(sites, 2):
        cut(near, far, dark=False)
        world.run(2)
    world.run(60)
    alike(sites)
    for site in sites:
        assert weights(site)._words == weights(sites[0])._words
    assert "ab" not in tree(sites)


def test_a_clock_that_was_set_back_between_two_lives_does_no_harm(world: World) -> None:
    delays = Delays(world, ab=0.050)
    sites = mesh(world, "abc")
    sites[0].kill()
    world.clocks["a"] = -1e6
    world.run(1)
    sites[0].start()
    world.run(20)
    alike(sites)
    assert tree(sites) == {"ac", "bc"}
    delays.set("bc", 1.0)
    delays.set("ac", 1.0)
    world.run(60)
    alike(sites)
    assert "ab" in tree(sites)


# malformed ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "payload",
    [b"", b"[]", b'["z", 1, 2, {"a": -1}]', b'["z", 1, 2, {"a": 0.5}]', b'["z", 1, 2, []]', b"[" * 10_000],
)
def test_a_malformed_word_ends_the_session(world: World, payload: bytes) -> None:
    a, _ = mesh(world, "ab")
    send_control(a.node.links.links["b"], WEIGHT, payload)
    world.run(5)
    assert a.links() == {"b": "active"}, "it comes again"
    assert sum(site.node.counters["link_malformed"] for site in (a, _)) == 1


def test_words_of_many_nodes_are_bounded(world: World) -> None:
    a, b = mesh(world, "ab", link={"max_nodes": 20})
    for number in range(50):
        word = Advertisement(f"n{number}", 1, 0, {})
        send_control(a.node.links.links["b"], WEIGHT, word.encode())
    world.run(5)
    assert weights(b).words <= 20
    assert {"a", "b"} <= set(weights(b)._words)


def test_a_word_in_the_name_of_this_node_is_outbid(world: World) -> None:
    a, b = mesh(world, "ab")
    (own,) = [weights(a)._words["a"]]
    forged = own._replace(sequence=own.sequence + 1000, links={"b": 77})
    session_of(b, "a").sender.wire.write(b"")  # type: ignore[union-attr]
    weights(b)._words["a"] = forged
    send_control(b.node.links.links["a"], WEIGHT, forged.encode())
    world.run(10)
    assert weights(b)._words["a"].links == own.links
    assert weights(b)._words["a"].sequence > forged.sequence
    json.loads(weights(b)._words["a"].encode())
