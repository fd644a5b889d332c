"""Other rules for links that are at work: the neighbour is told, and nothing is begun anew."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.config import Address, TopicRule
from ildm.testing.virtual.world import World
from tests.support.memory_spool import MemorySpool
from tests.support.ruled_links import HQ, injected, pair, publish
from tests.support.site import Site

ALL = {"allow": ["#"]}


def follow(world: World, site: Site, *rules: dict[str, Any]) -> None:
    """What a reload of `link.rules` does."""
    link = site.node.config.link
    link.__dict__["rules"] = [TopicRule.model_validate(rule) for rule in rules]
    site.node.settings_changed()
    world.run(2)


@pytest.mark.parametrize("algorithm", ["pf", "sf"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_crosses_follows_them_in_both_directions(world: World, algorithm: str, qos: int) -> None:
    a, b = pair(world, algorithm, [])
    a.subscriber("#", "s1", 2)
    b.subscriber("#", "s2", 2)
    sessions = list(a.node.links.links["b"].open_sessions)
    publish(world, a, "plant/1", "x/1", qos=qos)
    follow(world, a, HQ)
    publish(world, a, "plant/2", "x/2", qos=qos)
    publish(world, b, "hq/plant/3", "plant/3", qos=qos)
    follow(world, a, {"deny": ["x/#"]}, ALL)
    publish(world, a, "plant/4", "x/4", qos=qos)
    publish(world, b, "hq/plant/5", "x/5", qos=qos)
    follow(world, a)
    publish(world, a, "x/6", qos=qos)
    publish(world, b, "x/7", qos=qos)
    assert [topic for topic, _, _ in injected(b)] == ["plant/1", "x/1", "hq/plant/2", "plant/4", "x/6"]
    assert [topic for topic, _, _ in injected(a)] == ["plant/3", "hq/plant/5", "x/7"]
    assert list(a.node.links.links["b"].open_sessions) == sessions
    assert a.node.counters["link_denied"] == 0  # b knows the rules


def test_interest_is_told_again_where_it_differs(world: World) -> None:
    a, b = pair(world, "sf", [{"allow": ["a/#", "b/#"]}])
    a.subscriber("a/1", "s1", 1)
    a.subscriber("b/1", "s2", 2)
    b.subscriber("#", "s3", 1)
    told = a.node.counters["inter_subscribes"]
    follow(world, a, {"allow": ["b/#", "c/#"]})
    assert dict(b.node.links.links["a"].interest) == {"b/1": 2}
    assert dict(a.node.links.links["b"].interest) == {"b/#": 1, "c/#": 1}
    assert a.node.counters["inter_subscribes"] == told
    assert a.node.counters["inter_unsubscribes"] == 1
    follow(world, a, HQ)
    a.subscriber("plant/x", "s4", 0)
    assert dict(b.node.links.links["a"].interest) == {"hq/plant/x": 0}
    follow(world, a)
    assert dict(b.node.links.links["a"].interest) == {"a/1": 1, "b/1": 2, "plant/x": 0}
    assert dict(a.node.links.links["b"].interest) == {"#": 1}
    assert set(a.node.links.links["b"].announced) == {"a/1", "b/1", "plant/x"}


def test_interest_passes_on_to_sites_behind(world: World) -> None:
    a, b = pair(world, "sf", [])
    c = Site(world, "c", "sf")
    a.node.links.add(Address("c", 2), False)
    world.run(2)
    b.subscriber("hq/plant/t", "s")
    assert dict(c.node.links.links["a"].interest) == {"hq/plant/t": 0}
    rules = [TopicRule.model_validate(HQ)]
    a.node.config.link.__dict__["neighbor_rules"] = [
        type("Rules", (), {"id": "b", "rules": rules})  # the section as far as it is looked at
    ]
    a.node.settings_changed()
    world.run(2)
    assert dict(c.node.links.links["a"].interest) == {"plant/t": 0}
    publish(world, c, "plant/t")
    assert [topic for topic, _, _ in injected(b)] == ["hq/plant/t"]


def test_retained_messages_that_may_cross_now_do_so_at_once(world: World) -> None:
    a, b = pair(world, "sf", [{"allow": ["a/#"]}])
    publish(world, a, "a/1", "b/1", retain=True)
    publish(world, b, "a/2", "b/2", retain=True)
    assert sorted(a.node.retained.values) == ["a/1", "a/2", "b/1"]
    follow(world, a, ALL)
    world.run(3)
    for site in (a, b):
        assert sorted(site.node.retained.values) == ["a/1", "a/2", "b/1", "b/2"]


def test_what_waits_for_an_absent_neighbour_is_judged_by_the_rules_of_then(world: World) -> None:
    a = Site(world, "a", "sf", link={"reconnect_min": 10.0}, spool=MemorySpool())
    b = Site(world, "b", "sf", spool=MemorySpool())
    a.node.links.add(Address("b", 2), False)
    world.run(2)
    b.subscriber("#", "s", 2)
    world.run(1)
    control = a.node.links.links["b"].control
    assert control is not None
    control.abort()
    world.run(0.1)
    assert a.links() != {"b": "active"}
    publish(world, a, "x/1", qos=1)
    follow(world, a, {"deny": ["x/#"]}, ALL)
    publish(world, a, "x/2", "y/1", qos=1)
    world.run(30)
    assert [topic for topic, _, _ in injected(b)] == ["y/1"]
    assert a.node.counters["link_dropped_rules"] == 1


def test_interest_that_other_rules_make_too_much_of_is_told_anew_and_bounded(world: World) -> None:
    a = Site(world, "a", "sf", link={"max_filters": 10})
    b = Site(world, "b", "sf")
    a.node.links.add(Address("b", 2), False)
    world.run(2)
    for number in range(8):
        b.subscriber(f"+/{number}/#", f"s{number}")
    world.run(1)
    assert len(a.node.links.links["b"].interest) == 8
    follow(world, a, {"allow": [f"{name}/#" for name in "klmnop"]})
    world.run(3)
    link = a.node.links.links["b"]
    assert link.in_cooperation
    assert len(link.received_interest.filters) <= 10
    assert a.node.counters["interest_over_limit"] > 0
    publish(world, a, "k/3/x")  # it is asked for everything then
    assert [topic for topic, _, _ in injected(b)] == ["k/3/x"]


def test_hits_are_counted_anew_for_other_rules_and_go_on_for_the_same(world: World) -> None:
    a, _ = pair(world, "pf", [{"deny": ["x"]}, ALL])
    publish(world, a, "y", "y")
    assert a.node.links.hits_of("link.rules", a.node.config.link.rules).outgoing == [0, 2, 0]
    follow(world, a, {"deny": ["x"]}, ALL)
    publish(world, a, "y")
    assert a.node.links.hits_of("link.rules", a.node.config.link.rules).outgoing == [0, 3, 0]
    follow(world, a, ALL)
    assert a.node.links.hits_of("link.rules", a.node.config.link.rules).outgoing == [0, 0]
