"""Links that are dead or congested: parallel ways between clusters, and ways by a third node."""

from __future__ import annotations

from ildm.api import MessageTrace
from ildm.testing import LinkModel, constant
from ildm_algorithms.octopia.grid.contacts import ContactState
from tests.algorithms.octopia.worlds import LINE, make, octopia, payloads


def test_a_dead_link_within_a_cluster_is_gone_around_by_another_node() -> None:
    world = make(LINE, 2)
    world["b0"].subscribe("t", 1)
    world["c0"].subscribe("t", 1)
    world.run(1)
    world.cut("a0", "b0")
    for number in range(60):
        world["a0"].publish("t", b"%d" % number, 1)
        world.run(1)
    state = octopia(world, "a0").members.contacts["b0"].state
    assert state is ContactState.RELAYED
    assert octopia(world, "a0").members.view.primary == {"b": "b0"}  # the tree is whole
    world.run(20)
    for name in ("b0", "c0"):
        assert sorted(payloads(world, name), key=int) == [b"%d" % number for number in range(60)]
    assert world.counters()["relayed_for_others"] > 0
    world.heal()
    world.run(30)
    assert octopia(world, "a0").members.contacts["b0"].state is ContactState.UP


def test_a_dead_link_between_clusters_is_gone_around() -> None:
    world = make(LINE, 2)
    for name in ("a1", "b1", "c1"):
        world[name].subscribe("t", 1)
    world.run(1)
    world["a0"].publish("t", b"first", 1)
    world.run(1)
    world.cut("a0", "a1")
    for number in range(60):
        world["a0"].publish("t", b"%d" % number, 1)
        world.run(1)
    world.run(20)
    for name in ("a1", "b1", "c1"):
        assert sorted(payloads(world, name)[1:], key=int) == [b"%d" % number for number in range(60)]
    assert world.counters()["searches"] + world.counters()["relayed_for_others"] > 0


def test_a_link_that_breaks_for_a_moment_costs_no_repair() -> None:
    world = make(LINE, 2)
    world["b0"].subscribe("t", 1)
    world.run(1)
    link = world["a0"].by_id["b0"]
    for number in range(5):
        world["a0"].publish("t", b"%d" % number, 1)
    world.network.lose(link)  # with what was on its way
    world.run(5)
    assert payloads(world, "b0") == [b"%d" % number for number in range(5)]
    assert not any(event == "node lost" for _, _, event, _ in world.logs)


def delays(routing: str) -> list[float]:
    """Of 200 messages from a0 to c1 while the link a0-a1 lets nothing out for a second and a half."""
    world = make(LINE, 2, model=LinkModel(delay=constant(0.002)), routing=routing, tau=5.0)
    world["c1"].subscribe("t", 0)
    world["c0"].subscribe("t", 0)
    world.run(1)
    world["a0"].publish("t", b"", 0)
    world.run(1)
    world["a0"].by_id["a1"].ready_at = world.kernel.now + 1.5
    world["c1"].deliveries.clear()
    for number in range(200):
        world["a0"].publish("t", b"%d" % number, 0)
        world.run(0.005)
    world.run(2)
    return [d.time - d.sent for d in world["c1"].deliveries if d.sent is not None]


def test_idr_goes_around_a_congested_link_and_spr_waits() -> None:
    spr, idr = delays("spr"), delays("idr")
    assert len(spr) == len(idr) == 200  # each got all, once
    assert min(spr) > 0.5
    assert sum(delay < 0.1 for delay in idr) > 150
    assert sum(idr) < sum(spr) / 5


def test_the_view_shows_the_grid_and_what_is_wrong() -> None:
    world = make(LINE, 2)
    world["a0"].publish("t", b"")
    world["c1"].subscribe("t")
    world.kill("b0")
    world.run(20)
    view = octopia(world, "a0").overlay()
    assert view.node == "a0"
    assert view.facts["place"] == "a/c0"
    links = {row["node"]: (row["link"], row["state"]) for row in view.tables["links"]}
    assert links == {"a1": ("iLink", "up"), "b0": ("-", "down"), "c0": ("aLink", "up")}
    assert view.tables["advertisements"] == [{"number": 1, "filter": "t", "c1": "1"}]
    assert [row["cluster"] for row in view.tables["clusters"]] == ["c0", "c1"]
    assert [row["region"] for row in view.tables["regions"]] == ["a", "b", "c"]
    assert "refused" not in view.tables


def test_a_trace_shows_the_way_of_a_message() -> None:
    world = make(LINE, 3)
    world["c2"].subscribe("filter/price>80/stock/#")
    world["b0"].subscribe("stock/+")
    world.run(1)
    world["a0"].publish("stock/x", b"")
    world.run(1)
    got: list[MessageTrace] = []
    octopia(world, "a0").trace("stock/x", got.append)
    world.run(5)
    (found,) = got
    assert (found.nodes, found.messages, found.depth, found.complete) == (2, 4, 3, True)
    (tree,) = found.trees
    assert tree.tree is not None
    assert [child.node for child in tree.tree.children] == ["a2", "b0"]
    assert tree.tree.children[1].keys == ["stock/+"]
    assert world["c2"].deliveries == []


def test_a_trace_of_what_nobody_wants() -> None:
    world = make(LINE, 2)
    world["a0"].publish("t", b"")
    world.run(1)
    got: list[MessageTrace] = []
    octopia(world, "a0").trace("t", got.append)
    assert got[0].trees[0].tree is None
    assert (got[0].nodes, got[0].messages) == (0, 0)


def test_a_trace_below_the_root_goes_nowhere() -> None:
    world = make(LINE, 2)
    world["c1"].subscribe("filter/#")
    world.run(1)
    got: list[MessageTrace] = []
    octopia(world, "a0").trace("filter/price>80/stock/x", got.append)
    world.run(1)
    assert [(found.nodes, found.messages, found.trees[0].tree) for found in got] == [(0, 0, None)]


def test_a_trace_ends_though_a_node_does_not_answer() -> None:
    world = make(LINE, 2)
    world["c0"].subscribe("t")
    world.run(1)
    world.kill("b0", silent=True)
    got: list[MessageTrace] = []
    octopia(world, "a0").trace("t", got.append)
    world.run(4)
    assert [found.complete for found in got] == [False]
