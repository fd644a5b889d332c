"""Nodes that die, come back, join; a network that falls apart: the same tables as without, nothing lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ildm.testing import LinkModel, PluginWorld, constant
from tests.algorithms.octopia.schedules import Schedule
from tests.algorithms.octopia.worlds import LINE, make, octopia, payloads, sent, tables
from tests.support.examples import MORE


@pytest.mark.parametrize("seed", range(12 * MORE))
def test_nothing_is_lost_whatever_happens(seed: int) -> None:
    schedule = Schedule(seed)
    schedule.run()
    assert schedule.lost() == []
    assert schedule.unwanted() == []
    assert schedule.world.counters()["malformed"] == 0


def subscribe(world: PluginWorld, *names: str) -> None:
    for name in names:
        world[name].subscribe("filter/n>0/t/#", 1)
        world[name].subscribe(f"own/{name}", 1)


def advertise(world: PluginWorld) -> None:
    for name in ("a0", "b1", "c2"):
        world[name].publish("t/x", b"{}")
        world[name].publish("own/c1", b"{}")


def restarted(world: PluginWorld) -> None:
    world.kill("b1")
    world.run(30)
    world.add("b1", introducer="a0")
    subscribe(world, "b1")
    world["b1"].publish("t/x", b"{}")
    world["b1"].publish("own/c1", b"{}")


def parted(world: PluginWorld) -> None:
    world.partition(["a0", "b0", "b1"])
    world.run(40)
    world["b1"].unsubscribe("own/b1")
    world["c1"].subscribe("filter/m=1/t/x", 1)
    world.heal()


def cut_off(world: PluginWorld) -> None:
    world.partition(["a1", "b1", "c1"])
    world.run(40)
    world["c0"].subscribe("t/x")
    world.heal()


@pytest.mark.parametrize("trouble", [restarted, parted, cut_off])
def test_tables_are_those_of_a_world_without_trouble(trouble: Callable[[PluginWorld], None]) -> None:
    """Both worlds: one in which it happened, one in which it did not."""
    names = [f"{region}{cluster}" for region in "abc" for cluster in range(3)]
    troubled, calm = make(LINE, 3), make(LINE, 3)
    for world in (troubled, calm):
        subscribe(world, *names)
        advertise(world)
        world.run(2)
    trouble(troubled)
    if trouble is parted:
        calm["b1"].unsubscribe("own/b1")
        calm["c1"].subscribe("filter/m=1/t/x", 1)
    if trouble is cut_off:
        calm["c0"].subscribe("t/x")
    for world in (troubled, calm):
        world.run(60)
    assert tables(troubled) == tables(calm)


def test_around_a_dead_node_its_neighbours_link_to_the_least_of_them() -> None:
    world = make(("a-b", "b-c", "b-d"), 2)
    for name in ("a0", "c0", "d0", "c1"):
        world[name].subscribe("t", 1)
    world.run(1)
    world.kill("b0")
    world.run(20)
    assert octopia(world, "a0").members.view.primary == {"c": "c0", "d": "d0"}
    assert octopia(world, "c0").members.view.primary == {"a": "a0"}
    world["d0"].publish("t", b"1", 1)
    world.run(1)
    assert [payloads(world, name) for name in ("a0", "c0", "c1")] == [[b"1"]] * 3
    assert len(octopia(world, "a0").replicas.prt) == 3  # its rows are gone


def test_a_message_under_way_goes_around_a_node_that_dies() -> None:
    world = make(LINE, 3, model=LinkModel(delay=constant(0.05)))
    for name in ("c0", "c2"):
        world[name].subscribe("t", 1)
    world.run(2)
    world["a0"].publish("t", b"known", 1)
    world.run(2)
    world.kill("b0")
    world.kill("b2")
    world["a0"].publish("t", b"1", 1)
    world.run(2)
    assert [payloads(world, name) for name in ("c0", "c2")] == [[b"known", b"1"]] * 2
    assert world.counters()["rerouted"] >= 1


def test_a_cluster_is_reached_over_another_region_when_its_node_here_is_dead() -> None:
    world = make(LINE, 3)
    world["c1"].subscribe("t", 1)
    world.run(1)
    world["a0"].publish("t", b"0", 1)
    world.run(1)
    world.kill("a1")
    world.run(20)
    world["a0"].publish("t", b"1", 1)
    world.run(1)
    assert payloads(world, "c1") == [b"0", b"1"]
    assert octopia(world, "a0").counters["searches"] >= 1
    assert octopia(world, "a0").replicas.clt.bits(1)[1] is None  # nobody answers for it: perhaps all of it


def test_nothing_is_searched_for_a_cluster_that_nobody_reaches() -> None:
    world = make(LINE, 2)
    for name in ("a1", "b1", "c1"):
        world.kill(name)
    world.run(30)
    world["a0"].publish("t", b"1", 1)
    world.run(1)
    assert octopia(world, "a0").counters["undeliverable"] == 1
    assert world.counters()["searches"] == 0
    assert octopia(world, "a0").offers.owed == ["a1", "b1", "c1"]


def test_the_order_of_a_publisher_is_kept_with_static_routing() -> None:
    world = make(LINE, 3, model=LinkModel(delay=constant(0.02)))
    world["c2"].subscribe("t", 1)
    world.run(1)
    for number in range(300):
        world["a0"].publish("t", b"%d" % number, 1, publisher=1)
        world.run(0.01)
    world.run(5)
    assert payloads(world, "c2") == [b"%d" % number for number in range(300)]


def test_a_node_that_joins_later_is_found_by_all() -> None:
    world = make(LINE, 2)
    world.kill("c1")
    world.run(20)
    world.add("c1", introducer="b0")  # a node of another cluster and region
    world.run(2)
    world["c1"].subscribe("t", 1)
    world.run(1)
    world["a0"].publish("t", b"1", 1)
    world.run(1)
    assert payloads(world, "c1") == [b"1"]
    assert all(octopia(world, node.node_id).replicas.lacking() == [] for node in world.alive())


def test_a_node_that_stops_in_order_is_missed_at_once() -> None:
    world = make(LINE, 2)
    world.stop("b0")
    world.run(0.5)
    assert octopia(world, "a0").members.view.primary == {"c": "c0"}
    assert "b0" not in octopia(world, "b1").members.view.secondary.values()


def test_a_node_that_stops_waits_for_what_is_under_way() -> None:
    world = make(LINE, 2, model=LinkModel(delay=constant(0.3)), run=15.0)
    world["c1"].subscribe("t", 1)
    world.run(5)
    world["a0"].publish("t", b"1", 1)
    world.stop("a0")
    assert octopia(world, "a0").is_leaving()
    world.run(3)
    assert not octopia(world, "a0").is_leaving()
    assert payloads(world, "c1") == [b"1"]
    world.kill("b0")
    world["c0"].publish("t", b"2", 1)
    world.stop("c0")
    world.run(4.5)
    assert not octopia(world, "c0").is_leaving()  # whatever is missing


def test_a_session_that_outlives_a_restart_misses_nothing() -> None:
    world = make(LINE, 2)
    world["c1"].subscribe("filter/n>1/t", 1)
    world.run(1)
    world["a0"].publish("t", b'{"n": 9}', 1)
    world.run(25)
    world.kill("c1")
    world.run(30)
    for number in range(1, 5):
        world["a0"].publish("t", b'{"n": %d}' % number, 1)
    world.run(30)
    world.add("c1", introducer="a0")
    world["c1"].subscribe("filter/n>1/t", 1)
    world.run(10)
    assert payloads(world, "c1") == [
        b'{"n": 2}',
        b'{"n": 3}',
        b'{"n": 4}',
    ]  # what it had it does not get again
    assert octopia(world, "a0").offers.owed == []


def test_large_sets_are_fetched_in_pages_while_they_change() -> None:
    world = make(LINE, 1, model=LinkModel(delay=constant(0.01)))
    c0 = octopia(world, "c0")
    c0.on_interest_changed(None, {f"filter/n={number}/t": 1 for number in range(2000)})
    world.run(5)
    world.kill("a0")
    world.run(20)
    world.add("a0", introducer="b0")
    for number in range(200):
        c0.on_interest_changed(None, {f"filter/n={number}/t": None, f"filter/m={number}/t": 1})
        world.run(0.01)
    world.run(10)
    for name in ("a0", "b0"):
        assert octopia(world, name).replicas.lacking() == []
        assert octopia(world, name).replicas.prt.at("c0") == c0.replicas.prt.at("c0")
    assert len(c0.replicas.prt) == 2000
    assert octopia(world, "a0").counters["fetches"] <= 6


def test_who_was_away_for_longer_than_messages_are_kept_is_told() -> None:
    world = make(("a",), 2, absence_period=20.0)
    world["a1"].subscribe("t", 1)
    world["a0"].publish("t", b"0", 1)
    world.run(1)
    world.kill("a1")
    world.run(20)
    world["a0"].publish("t", b"1", 1)
    world.run(60)
    assert octopia(world, "a0").counters["debts_expired"] >= 1
    world.add("a1", introducer="a0")
    world["a1"].subscribe("t", 1)
    world.run(10)
    assert payloads(world, "a1") == []
    assert any(event == "away for longer than publishers keep messages" for _, _, event, _ in world.logs)


def test_each_message_that_a_site_for_good_away_lacks_is_counted_as_it_goes() -> None:
    world = make(("a",), 3, absence_period=900.0)
    world["a1"].subscribe("t", 1)
    world["a2"].subscribe("t", 1)
    world["a0"].publish("t", b"0", 1)
    world.run(30)
    world.kill("a1")
    world.run(30)
    for number in range(1, 11):
        world["a0"].publish("t", b"%d" % number, 1)
        world.run(60)
    assert world.counters()["kept_missed"] == 0
    world.run(1_300)
    assert world.counters()["kept_missed"] == 10
    assert len(payloads(world, "a2")) == 11
    assert octopia(world, "a0").counters["debts_expired"] == 1


def test_what_is_owed_is_known_after_a_restart() -> None:
    """Others are asked nothing but for what may have been under way."""
    world = make(("a",), 3, spool=True)
    for name in ("a1", "a2"):
        world[name].subscribe("t", 1)
    world["a0"].publish("t", b"0", 1)
    world.run(30)
    world.kill("a1")
    world.run(30)
    for number in range(1, 11):
        world["a0"].publish("t", b"%d" % number, 1)
        world.run(60)
    world.kill("a0")
    world.run(30)
    world.add("a0", introducer="a2")
    world.run(100)
    assert octopia(world, "a0").offers.owed == ["a1"]
    asked = world.network.sent["offer"]
    world.add("a1", introducer="a2")
    world["a1"].subscribe("t", 1)
    world.run(60)
    assert payloads(world, "a1") == [b"%d" % number for number in range(1, 11)]
    assert payloads(world, "a2") == [b"%d" % number for number in range(11)]
    assert octopia(world, "a0").offers.owed == []
    assert world.network.sent["offer"] > asked


def test_the_former_name_of_the_bound_is_taken() -> None:
    world = make(("a",), 2, interest_period=20.0)
    assert octopia(world, "a0").config.absence_period == 20.0


def test_acknowledgements_end_what_is_pending() -> None:
    world = make(LINE, 3)
    for name in ("a0", "b1", "c2"):
        world[name].subscribe("#", 1)
    world.run(1)
    for number in range(50):
        world["c0"].publish(f"t/{number % 5}", b"", 1)
    world.run(5)
    assert [octopia(world, node.node_id).casting.bytes for node in world.alive()] == [0] * 9
    assert not any(octopia(world, node.node_id).casting.busy for node in world.alive())
    assert world.counters()["repeated"] == 0
    assert sent(world, "owed") == (0,)
