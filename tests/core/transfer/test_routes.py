"""Where messages go: what of the algorithm's answers is remembered, and what rules of links leave of them."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.api import Link, Route
from ildm.core.transfer.routes import MAX_CACHED_TOPIC, Routes, decode_topic
from ildm.mqtt import MqttError, Publish
from ildm.testing.virtual.world import World
from ildm_algorithms.pf import PublicationFlooding
from tests.support.site import Site, row

ODD = (b"", b"a/#", b"a/+/b", b"\xff", b"a\0b")
"""What is no topic name."""


class Asked(PublicationFlooding):
    """Remembers what it was asked."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.asked: list[tuple[str, bool, str | None]] = []

    def route(self, topic: str, retain: bool, source: Link | None) -> Route:
        self.asked.append((topic, retain, None if source is None else source.node_id))
        return super().route(topic, retain, source)


class AskedEach(PublicationFlooding):
    """Decides on each message, by its payload and turn, and changes what it is given."""

    turns: tuple[int, ...] = ()

    def route_message(self, message: Publish, source: Link | None, turn: int) -> Route:
        self.turns = (*self.turns, turn)
        wanted, message.payload = message.payload, b"changed"
        return [(link, 2) for link in self.api.links if link.node_id.encode() == wanted]


def middle(world: World, algorithm: Any = Asked, **settings: Any) -> tuple[Site, Any]:
    """The site between two others, and its algorithm, which was not asked anything."""
    site = row(world, "abc", algorithm, **settings)[1]
    asked = site.node.dispatch.algorithm
    if isinstance(asked, Asked):
        asked.asked.clear()
    site.node.router.routes.invalidate()
    return site, asked


def routes_of(site: Site) -> Routes:
    return site.node.router.routes


def names(route: Any) -> list[str]:
    return sorted(link.node_id for link, _, _ in route)


def test_the_algorithm_is_asked_once_for_each_topic_and_source(world: World) -> None:
    b, algorithm = middle(world)
    routes, source = routes_of(b), b.node.links.links["a"]
    for _ in range(3):
        assert names(routes.route(b"t", False)) == ["a", "c"]
        assert names(routes.route(b"t", False, source)) == ["c"]
    assert algorithm.asked == [("t", False, None), ("t", False, "a")]


def test_a_retained_message_is_asked_about_each_time(world: World) -> None:
    b, algorithm = middle(world)
    for _ in range(2):
        assert names(routes_of(b).route(b"t", True)) == ["a", "c"]
    assert algorithm.asked == [("t", True, None)] * 2
    assert not routes_of(b).local


def test_equal_answers_are_one_object(world: World) -> None:
    """So that the gathering sees by identity what goes the same way."""
    b, _ = middle(world)
    assert routes_of(b).route(b"t", False) is routes_of(b).route(b"u", False)


def test_what_is_remembered_is_bounded(world: World) -> None:
    b, _ = middle(world, limits={"route_cache": 2})
    routes, flushes = routes_of(b), b.node.counters["route_cache_flushes"]
    for topic in (b"1", b"2"):
        routes.route(topic, False)
    assert (set(routes.local), b.node.counters["route_cache_flushes"]) == ({b"1", b"2"}, flushes)
    routes.route(b"3", False)
    assert (set(routes.local), b.node.counters["route_cache_flushes"]) == ({b"3"}, flushes + 1)


@pytest.mark.parametrize(("size", "kept"), [(MAX_CACHED_TOPIC, True), (MAX_CACHED_TOPIC + 1, False)])
def test_a_long_topic_is_not_remembered(world: World, size: int, kept: bool) -> None:
    b, _ = middle(world)
    assert names(routes_of(b).route(b"x" * size, False)) == ["a", "c"]
    assert bool(routes_of(b).local) is kept


def test_all_is_asked_again_once_the_answer_may_have_changed(world: World) -> None:
    """A cache that somebody holds is emptied, not replaced."""
    b, algorithm = middle(world)
    routes, source = routes_of(b), b.node.links.links["a"]
    held = routes.cache_of(source)
    routes.route(b"t", False, source)
    assert set(held) == {b"t"}
    routes.invalidate()
    assert not held
    routes.route(b"t", False, source)
    assert set(held) == {b"t"}
    assert algorithm.asked == [("t", False, "a")] * 2


def test_a_neighbour_that_has_gone_is_forgotten(world: World) -> None:
    b, _ = middle(world)
    routes, source = routes_of(b), b.node.links.links["a"]
    held = routes.cache_of(source)
    assert routes.cache_of(source) is held
    routes.forget(source)
    routes.forget(source)
    assert routes.cache_of(source) is not held


def test_what_is_reserved_for_the_broker_goes_nowhere(world: World) -> None:
    b, algorithm = middle(world)
    routes = routes_of(b)
    assert routes.route(b"$SYS/x", False) == routes.route(b"$SYS/x", True) == ()
    assert routes.reroute(b"$SYS/x", False) == ()
    assert routes.reroute_message(Publish(topic="$SYS/x")) == ()
    assert algorithm.asked == []


def test_an_algorithm_that_wants_to_see_each_message_gets_a_copy(world: World) -> None:
    b, algorithm = middle(world, AskedEach)
    routes = routes_of(b)
    for turn, wanted in enumerate("aca"):
        message = Publish(topic="t", payload=wanted.encode())
        assert names(routes.route_message(message, None, turn)) == [wanted]
        assert message.payload == wanted.encode()
    assert routes.route_message(Publish(topic="$SYS/x", payload=b"a"), None, 3) == ()
    assert algorithm.turns == (0, 1, 2)
    assert not routes.local


@pytest.mark.parametrize("topic", ODD)
def test_what_is_no_topic_name_is_refused_and_not_remembered(world: World, topic: bytes) -> None:
    b, algorithm = middle(world)
    with pytest.raises(MqttError):
        routes_of(b).find(topic, None)
    with pytest.raises(MqttError):
        decode_topic(topic)
    assert not routes_of(b).local
    assert algorithm.asked == []


def test_rules_of_a_link_leave_their_part_of_a_route(world: World) -> None:
    rules = [{"deny": ["secret/#"]}, {"allow": ["low/#"], "qos": 1}, {"allow": ["#"]}]
    b, _ = middle(world, link={"rules": rules})
    routes = routes_of(b)
    assert routes.route(b"secret/1", False) == ()
    assert {qos for _, qos, _ in routes.route(b"low/1", False)} == {1}
    assert {qos for _, qos, _ in routes.route(b"other", False)} == {2}
    assert names(routes.route(b"low/1", False)) == ["a", "c"]


def test_what_rules_refuse_counts_as_a_hit_of_the_rule(world: World) -> None:
    b, _ = middle(world, link={"rules": [{"deny": ["secret/#"]}, {"allow": ["#"]}]})
    rules = b.node.links.links["a"].rules
    assert rules is not None
    before = list(rules.hits.outgoing)
    routes_of(b).route(b"secret/1", False)
    routes_of(b).route(b"open", False)
    assert list(rules.hits.outgoing) != before


def test_classes_of_a_link_rank_what_goes_over_it(world: World) -> None:
    classes = [{"topics": ["alarm/#"], "priority": 5}]
    b, _ = middle(world, link={"classes": classes})
    alarm, other = (routes_of(b).route(topic, False) for topic in (b"alarm/1", b"other"))
    assert {priority & 15 for _, _, priority in alarm} == {5}
    assert all(priority >= 16 for _, _, priority in alarm)
    assert {priority for _, _, priority in other} == {0}
