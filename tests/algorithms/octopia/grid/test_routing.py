"""Ways of publications: the paper's figures, worked cases, and random grids."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from ildm_algorithms.octopia.grid.scot import Grid, Place
from tests.support.examples import MORE

from .grids import Links, Routes, grid_of

FOUR = grid_of("a-b b-c", 4)
THREE = grid_of("a-b b-c", 3)


def ways(routes: Routes, publisher: str, matching: str) -> str:
    return str(routes.publish(publisher, matching.split()))


class TestFigure7:
    """K_4 x a-b-c, the publisher at b3."""

    def test_b_some_target_ilinks_are_congested(self) -> None:
        links = {
            "b3": Links({"b1": 1, "b2": 2, "b0": 50}, congested=["b0"]),
            "b1": Links({"b0": 50}, congested=["b0"]),
        }
        matching = "c0 c1 c2 a3 c3"
        assert len(Routes(FOUR).publish("b3", matching.split()).hops) == 8
        assert ways(Routes(FOUR, "idr", links), "b3", matching) == (
            "b3>a3, b3>c3, b3>b1 0001, b3>b2, b1>c1 0001, b2>c2, c1>c0"
        )

    def test_c_all_target_ilinks_are_congested(self) -> None:
        links = {"b3": Links({"c3": 1, "a3": 2, "b0": 50, "b2": 50}, congested=["b0", "b2"])}
        matching = "a0 c0 c2 a3 c3"
        assert len(Routes(FOUR).publish("b3", matching.split()).hops) == 7
        assert ways(Routes(FOUR, "idr", links), "b3", matching) == (
            "b3>a3, b3>c3 0101, c3>c0, c3>c2, c0>b0, b0>a0"
        )

    def test_d_all_target_links_are_congested(self) -> None:
        links = {
            "b3": Links({"b2": 10, "b0": 50, "b1": 40, "c3": 30}, congested=["b0", "b1", "b2", "c3"]),
            "b2": Links({"b1": 20}, congested=["b1"]),
            "b0": Links({"b1": 20}, congested=["b1"]),
            "a0": Links({"a1": 20}, congested=["a1"]),
        }
        matching = "a0 c1 a2 c3"
        assert len(Routes(FOUR).publish("b3", matching.split()).hops) == 7
        assert ways(Routes(FOUR, "idr", links), "b3", matching) == (
            "b3>c3, b3>b2 0011, b2>a2, b2>b0 0010, b0>a0 0010, a0>a1, a1>b1, b1>c1"
        )


class TestThreeByThree:
    """K_3 x a-b-c, the publisher at a0; subscribers at b1, a1, c0, c2."""

    MATCHING = "b1 a1 c0 c2"

    def test_static(self) -> None:
        assert ways(Routes(THREE), "a0", "b1 a1 c0") == "a0>b0, a0>a1, b0>c0, a1>b1"
        assert len(Routes(THREE).publish("a0", self.MATCHING.split()).hops) == 7

    def test_some_ilinks_are_congested(self) -> None:
        links = {"a0": Links({"a2": 20}, congested=["a2"])}
        spread = Routes(THREE, "idr", links).publish("a0", self.MATCHING.split())
        assert str(spread) == "a0>b0, a0>a1 0100, b0>c0, a1>b1, a1>a2, a2>b2, b2>c2"

    def test_the_next_one_is_congested_too(self) -> None:
        links = {"a0": Links({"a2": 20}, congested=["a2"]), "a1": Links({"a2": 20}, congested=["a2"])}
        spread = Routes(THREE, "idr", links).publish("a0", self.MATCHING.split())
        assert str(spread) == "a0>b0, a0>a1 0100, b0>c0, a1>b1 0100, b1>b2, b2>c2"

    def test_all_ilinks_are_congested(self) -> None:
        links = {"a0": Links(congested=["a1", "a2"])}
        spread = Routes(THREE, "idr", links).publish("a0", self.MATCHING.split())
        assert str(spread) == "a0>b0 0110, b0>c0, b0>b1, b0>b2, b1>a1, b2>c2"

    def test_all_links_are_congested(self) -> None:
        links = {"a0": Links({"a1": 20, "a2": 15, "b0": 12}, congested=["a1", "a2", "b0"])}
        spread = Routes(THREE, "idr", links).publish("a0", self.MATCHING.split())
        assert str(spread) == "a0>b0, a0>a2 0010, b0>c0, a2>b2, a2>a1, b2>c2, a1>b1"


class TestLinksThatAreDown:
    def test_static_routing_goes_round(self) -> None:
        links = {"a0": Links(down=["a1"])}
        assert ways(Routes(THREE, "spr", links), "a0", "b1") == "a0>b0 0010, b0>b1"

    def test_dynamic_routing_does_not_take_what_is_down_however_short_its_queue(self) -> None:
        links = {"a0": Links({"a1": 0, "a2": 20}, congested=["a2"], down=["a1"])}
        spread = Routes(THREE, "idr", links).publish("a0", ["b1", "b2"])
        assert str(spread) == "a0>a2 0010, a2>b2, a2>a1, a1>b1"

    def test_a_search_goes_through_the_whole_cluster(self) -> None:
        # a star: from the leaf p over the middle m to q, back, and on to r
        grid = grid_of("m-p m-q m-r", 2)
        links = {f"{label}0": Links(down=[f"{label}1"]) for label in "pmq"}
        spread = Routes(grid, "spr", links).publish("p0", ["m1"])
        assert str(spread) == "p0>m0 0010, m0>q0 0010, q0>m0 0010, m0>r0 0010, r0>r1, r1>m1"
        assert spread.hops[3].copy.tried == ("p", "m", "q")

    def test_a_search_delivers_nothing_twice(self) -> None:
        links = {"b0": Links(down=["b1"]), "c0": Links(down=["c1"])}
        spread = Routes(THREE, "spr", links).publish("b0", ["c0", "b1"])
        # c0 has the message by the tree, carries what is left, and sends it back for the clusters alone
        assert str(spread) == "b0>c0 0010, c0>b0 0010, b0>a0 0010, a0>a1, a1>b1"

    def test_what_no_way_leads_to_is_said(self) -> None:
        links = {f"{label}{index}": Links(down=[f"{label}1"]) for label in "abc" for index in (0, 2)}
        spread = Routes(THREE, "spr", links).publish("b0", ["a1", "a2"])
        assert spread.undeliverable == {1}
        assert [hop.copy.to for hop in spread.hops if not hop.copy.tried] == ["b2", "a2"]

    def test_a_cluster_whose_node_here_is_dead_is_entered_elsewhere(self) -> None:
        routes = Routes(THREE, "spr", dead={"b1"})
        assert ways(routes, "b0", "c1") == "b0>a0 0010, a0>a1, a1>c1"


class Chance:
    """Other links are congested with each step, and queues have other lengths."""

    def __init__(self, random: Random, down: set[frozenset[str]], here: str) -> None:
        self.random = random
        self.down = down
        self.here = here

    def usable(self, node_id: str) -> bool:
        return frozenset((self.here, node_id)) not in self.down

    def queued(self, node_id: str) -> float:
        return self.random.randrange(5)

    def congested(self, node_id: str) -> bool:
        return self.random.random() < 0.5


class Everywhere(dict[str, Chance]):
    def __init__(self, random: Random, down: set[frozenset[str]]) -> None:
        self.random, self.down_links = random, down

    def get(self, node_id: str, default: object = None) -> Chance:  # type: ignore[override]
        return Chance(self.random, self.down_links, node_id)


def random_grid(random: Random) -> Grid:
    regions = [f"r{number}-" for number in range(random.randint(1, 7))]
    labels = [text[:-1] for text in regions]
    edges = [f"{label}-{random.choice(labels[:at])}" for at, label in enumerate(labels) if at]
    clusters = [str(index) for index in range(random.randint(1, 5))]
    places = [Place(label, name) for label in labels for name in clusters]
    return Grid(edges or labels, clusters, {f"{place}": place for place in places})


@pytest.mark.parametrize("routing", ["spr", "idr"])
def test_each_cluster_is_entered_once_and_each_broker_gets_one_copy(routing: str) -> None:
    random = Random(11)
    for _ in range(1500 * MORE):
        grid = random_grid(random)
        routes = Routes(grid, routing, Everywhere(random, set()))
        nodes = [*grid.members]
        for _ in range(20):
            publisher = random.choice(nodes)
            matching = random.sample(nodes, random.randrange(len(nodes) + 1))
            # bits that nothing matches, too: a cluster that has not answered
            clusters = range(len(grid.clusters))
            wanted = {grid.cluster(home) for home in matching} | {
                index for index in clusters if random.random() < 0.2
            }
            spread = routes.publish(publisher, matching, wanted)
            got = Counter(hop.copy.to for hop in spread.hops)
            assert max(got.values(), default=0) <= 1
            assert publisher not in got
            assert {*matching} <= {publisher, *got}
            entered = [
                grid.cluster(hop.copy.to)
                for hop in spread.hops
                if grid.cluster(hop.copy.to) != grid.cluster(hop.sender)
            ]
            assert sorted(entered) == sorted(wanted - {grid.cluster(publisher)})
            assert not spread.undeliverable
            if routing == "spr":
                assert not any(hop.copy.clusters for hop in spread.hops)


@pytest.mark.parametrize("routing", ["spr", "idr"])
def test_with_nodes_and_links_gone_each_cluster_is_entered_once_or_said_to_be_out_of_reach(
    routing: str,
) -> None:
    random = Random(12)
    found: Counter[str] = Counter()
    for _ in range(1500 * MORE):
        grid = random_grid(random)
        nodes = [*grid.members]
        dead = set(random.sample(nodes, random.randrange(len(nodes))))
        live = [node_id for node_id in nodes if node_id not in dead]
        # iLinks alone: an aLink that is down without its nodes being dead is left to sending again
        down = {
            frozenset((a, b))
            for a in live
            for b in live
            if grid.place(a).region == grid.place(b).region and a < b and random.random() < 0.3
        }
        routes = Routes(grid, routing, Everywhere(random, down), dead)
        for _ in range(10):
            publisher = random.choice(live)
            matching = random.sample(live, random.randrange(len(live) + 1))
            spread = routes.publish(publisher, matching)
            assert all(frozenset((hop.sender, hop.copy.to)) not in down for hop in spread.hops)
            whole = Counter(hop.copy.to for hop in spread.hops if not hop.copy.tried)
            assert max(whole.values(), default=0) <= 1
            entered = {
                grid.cluster(hop.copy.to)
                for hop in spread.hops
                if grid.cluster(hop.copy.to) != grid.cluster(hop.sender)
            } | {grid.cluster(publisher)}
            wanted = {grid.cluster(home) for home in matching}
            assert entered - {grid.cluster(publisher)} <= wanted
            assert wanted - entered == spread.undeliverable
            reached = {home for home in matching if grid.cluster(home) in entered}
            assert reached <= {publisher, *whole}
            assert len(spread.hops) <= 3 * len(grid.members) * len(grid.clusters)
            found["searches"] += any(hop.copy.tried for hop in spread.hops)
            found["out of reach"] += bool(spread.undeliverable)
    assert min(found["searches"], found["out of reach"]) > 50
