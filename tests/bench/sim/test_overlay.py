"""The overlay in the simulator: it grows by messages into the tables that the builder makes at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from ildm.testing import Cause, LinkModel, PluginWorld, SimNode, lognormal, uniform
from ildm_algorithms.overlay.casts.routing import ROUTINGS
from ildm_algorithms.overlay.graph import Arrival, SkipGraph
from ildm_algorithms.overlay.keys import EVERYTHING, Range
from ildm_bench.sim.growth import graphs, grow, member, quiet
from ildm_bench.sim.member import Member, expected_tables, overlay_kinds, wrong_links
from ildm_bench.sim.routing import Routing, spread
from ildm_bench.sim.tables import NONE, Graph, build

NODES = 40


@pytest.fixture(scope="module")
def world() -> PluginWorld:
    """Forty nodes that have joined one after another; nothing but what a test does happens in it."""
    world, growth = grow(NODES, seed=5, spacing=5.0)  # none while another is still about it
    assert growth.wrong == 0
    assert growth.reached == NODES
    assert growth.joins > 1
    world.network.classify = overlay_kinds()
    return world


def built(world: PluginWorld) -> tuple[Graph, list[bytes]]:
    """The same keys and vectors in the builder's hands."""
    owned = sorted((key, graph.vector) for graph in graphs(world) for key in list(graph.keys()))
    vectors = np.array([vector for _, vector in owned], np.uint64)
    return build(np.arange(len(owned)), vectors), [key for key, _ in owned]


def test_the_tables_are_those_of_the_builder(world: PluginWorld) -> None:
    graph, keys = built(world)
    owners = {key: overlay for overlay in graphs(world) for key in list(overlay.keys())}
    for rank, key in enumerate(keys):
        levels = owners[key].neighbors(key)
        for level in range(graph.levels):
            found = levels[level] if level < len(levels) else (None, None)
            ranks = graph.left[level][rank], graph.right[level][rank]
            assert [None if ref is None else ref.key for ref in found] == [
                None if at == NONE else keys[at] for at in ranks
            ]


@pytest.mark.parametrize("routing", ["sfb", "mrf"])
@pytest.mark.parametrize(("start", "low", "high"), [(20, 0, NODES), (0, 10, 30), (39, 3, 4), (12, 12, 40)])
def test_casts_take_the_trees_of_the_builder(
    world: PluginWorld, routing: Routing, start: int, low: int, high: int
) -> None:
    graph, keys = built(world)
    tree = spread(graph, start, low, high, routing)
    wanted = {keys[rank]: int(depth) for rank, depth in zip(tree.ranks, tree.depth, strict=True)}
    nodes = [member(world[key.decode()]) for key in keys]
    for node in nodes:
        node.arrivals.clear()
    before = world.network.sent["Cast"]
    end = keys[high] if high < len(keys) else keys[-1] + b"\0"
    nodes[start].graph.cast(Range(keys[low], end), b"payload", routing=ROUTINGS[routing])
    world.run(5.0)
    found = {key: arrival.depth for node in nodes for arrival in node.arrivals for key in arrival.keys}
    assert found == wanted
    assert world.network.sent["Cast"] - before == tree.messages


class Witness(Member):
    """Notes the hops of the simulator beside the depth of the cast."""

    def delivered(self, arrival: Arrival) -> None:
        assert isinstance(self.api, SimNode)
        cause = self.api.network.cause
        assert cause is not None
        self.seen = (cause.hops, arrival.depth)


def test_hops_of_the_simulator_are_depths_of_the_cast() -> None:
    world = PluginWorld(Witness, {"overlay": quiet()}, 2)
    for number in range(20):
        world.add(f"n{number:02}", introducer="n00" if number else None)
        world.run(5.0)
    world.network.cause = Cause("n07", world.kernel.now, 0)
    member(world["n07"]).graph.cast(EVERYTHING, b"x")
    world.network.cause = None
    world.run(5.0)
    seen = [node.algorithm.seen for node in world.alive() if isinstance(node.algorithm, Witness)]
    assert len(seen) == 20
    assert max(seen) > (1, 1)
    assert all(hops == depth for hops, depth in seen)


def test_nodes_with_several_keys_that_join_all_at_once() -> None:
    world = PluginWorld(
        Member, {"overlay": {"check_interval": 4.0}}, 3, LinkModel(delay=uniform(0.001, 0.05))
    )
    for number in range(12):
        world.add(f"n{number:02}", introducer=f"n{(number - 1):02}" if number else None)
    everyone = [member(node) for node in world.alive()]
    for number, node in enumerate(everyone):
        for extra in range(number % 3):
            node.graph.insert(f"key{(number * 7 + extra * 5) % 12:02}/{number:02}".encode())
    keys = 12 + sum(number % 3 for number in range(12))
    world.settle(lambda: _right([node.graph for node in everyone], keys), limit=120.0)


def test_crashed_and_leaving_nodes_are_mended_away_and_a_partition_heals() -> None:
    world = PluginWorld(Member, None, 8, LinkModel(delay=lognormal(0.005, 0.5)))
    names = [f"n{number:02}" for number in range(16)]
    for name in names:
        world.add(name, introducer="n00" if name != "n00" else None)
    world.settle(lambda: _right(graphs(world), 16), limit=120.0)
    world.kill("n03")
    world.kill("n07", silent=True)
    world.stop("n11")
    world.settle(lambda: _right(graphs(world), 13), limit=120.0)
    world.partition(names[:8])
    world.run(120.0)
    world.heal()
    world.settle(lambda: _right(graphs(world), 13), limit=300.0)


def _right(members: Sequence[SkipGraph], keys: int) -> bool:
    return sum(len(graph.keys()) for graph in members) == keys and not wrong_links(members)


def test_expected_tables_of_a_small_graph() -> None:
    half = 1 << 63
    keys = {b"a": 0, b"b": half, b"c": 1 << 62, b"d": half}
    assert expected_tables(keys) == {
        b"a": [(None, b"b"), (None, b"c")],
        b"b": [(b"a", b"c"), (None, b"d")],
        b"c": [(b"b", b"d"), (b"a", None)],
        b"d": [(b"c", None), (b"b", None)],
    }


def test_a_quiet_overlay_sends_nothing_by_itself(world: PluginWorld) -> None:
    assert quiet()["ping_interval"] > 1e5
    before = world.network.sent.total()
    world.run(1000.0)
    assert world.network.sent.total() == before
