"""Neighbours that DNS names: found, linked, gone from DNS, and what waits for them meanwhile."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from ildm.config import Address, LookupConfig
from ildm.core.link.discovery import LEAVE_AFTER, MOST, TRANSITIONS, FoundEvent, FoundState
from ildm.mqtt import IldmError, Publish
from ildm.net.neighbors_view import neighbor_rows, refused_rows
from ildm.testing.virtual.world import World
from tests.support.site import Site

PEERS = LookupConfig(host="peers", port=2)
SECRET = "a secret of some length"
LINK = {"discover": [PEERS], "secret": SECRET, "discover_interval": 30}


class Names:
    """What DNS says, the same to all."""

    def __init__(self, world: World, *named: str) -> None:
        self.answer: list[Address] | BaseException = []
        self.asked = 0
        self.say(*named)
        world.names = self.names

    def say(self, *named: str) -> None:
        self.answer = [Address(name, 2) for name in named]

    def names(self, who: str, question: LookupConfig) -> list[Address] | BaseException:
        self.asked += 1
        return self.answer


def sites(world: World, names: str, **settings: Any) -> list[Site]:
    link = {**LINK, **settings.pop("link", {})}
    return [Site(world, name, "sf", secret=SECRET, link=link, **settings) for name in names]


def shown(site: Site) -> dict[str, tuple[str, bool]]:
    rows = neighbor_rows(site.node)
    return {str(row["address"]): (row["state"], row["found"]) for row in rows}


def found(site: Site) -> dict[str, str]:
    return {each.address.host: each.state.name for each in site.node.links.discovery.found.values()}


def test_the_table_says_what_happens_to_each_state() -> None:
    assert set(TRANSITIONS) == {(state, event) for state in FoundState for event in FoundEvent}


def test_nodes_of_one_name_find_each_other_and_say_nothing_of_themselves(world: World) -> None:
    Names(world, *"abcd")
    members = sites(world, "abcd")
    world.run(10)
    for site in members:
        far = {each.name for each in members} - {site.name}
        assert set(site.links()) == far
        assert all(link.connected for link in site.node.links.links.values())
        assert found(site)[site.name] == "OWN"
        assert f"{site.name}:2" not in shown(site)
        levels = {level for level, event, _ in site.driver.logged if event == "neighbour refused"}
        assert levels == {"debug"}
        assert refused_rows(site.node) == []
    subscriber = members[3].subscriber("t", qos=1)
    members[0].client("p").send(Publish(topic="t", payload=b"x", qos=1, packet_id=1))
    world.run(2)
    assert [packet.topic for packet in subscriber.got(Publish)] == ["t"]


def test_a_neighbour_found_later_is_linked_and_shown_as_found(world: World) -> None:
    names = Names(world)
    a, b = sites(world, "ab", link={"discover": [], "allow_without_secret": True})
    c = sites(world, "c")[0]
    world.run(1)
    assert shown(c) == {}
    names.say("a", "b", "c")
    world.run(40)
    assert shown(c) == {"a:2": ("active", True), "b:2": ("active", True)}
    assert [fields["address"] for fields in c.logged("neighbour found")] == ["a:2", "b:2", "c:2"]
    assert (a.links(), b.links()) == ({"c": "active"}, {"c": "active"})


def test_what_dns_forgets_stays_while_it_is_up_and_is_never_discarded(world: World) -> None:
    names = Names(world, "a", "b")
    a, b = sites(world, "ab")
    world.run(5)
    b.subscriber("t", qos=1, clean_start=False)
    world.run(1)
    names.say()
    world.run(LEAVE_AFTER + 60)
    assert (a.links(), b.links()) == ({"b": "active"}, {"a": "active"}), "no link ends for DNS"
    states = [*found(a).values(), *found(b).values()]
    assert states == ["LEAVING"], "the address of the one that has accepted has ended"
    b.kill()
    world.run(1)
    a.client("p").send(Publish(topic="t", payload=b"x", qos=1, packet_id=1))
    world.run(LEAVE_AFTER)
    assert found(a) == {}
    assert a.node.links.links["b"].queued == 1, "what waits for it stays until link.expiry"
    names.say("a", "b")
    b.start()
    world.run(60)
    assert a.node.links.links["b"].queued == 0
    assert b.broker.topics() == ["t"]


def test_an_address_of_another_node_by_now_discards_nothing(world: World) -> None:
    """The addresses of a headless service are given to whoever starts next."""
    names = Names(world, "b")
    (a,) = sites(world, "a")
    (b,) = sites(world, "b", link={"discover": [], "allow_without_secret": True})
    world.run(5)
    b.subscriber("t", qos=1, clean_start=False)
    b.kill()
    world.run(1)
    a.client("p").send(Publish(topic="t", payload=b"x", qos=1, packet_id=1))
    c = Site(world, "b", "sf", secret=SECRET, node_id="c", link={"allow_without_secret": True})
    world.run(40)
    assert c.links() == {"a": "active"}
    assert a.node.links.links["b"].queued == 1
    d = Site(world, "d", "sf", secret=SECRET, node_id="b", store=b.store, link={"allow_without_secret": True})
    names.say("b", "d")
    world.run(60)
    assert d.broker.topics() == ["t"]


def test_a_restart_keeps_what_waits_for_a_neighbour_that_dns_named(world: World) -> None:
    names = Names(world, "b")
    (a,) = sites(world, "a")
    (b,) = sites(world, "b", link={"discover": [], "allow_without_secret": True})
    world.run(5)
    b.subscriber("t", qos=1, clean_start=False)
    world.run(1)
    names.say()
    a.kill()
    b.kill()
    world.run(1)
    a.start()
    world.run(1)
    assert a.node.links.links["b"].state.name == "DOWN"
    assert list(shown(a).values()) == [("down", False)]


def test_no_answer_means_nothing(world: World) -> None:
    names = Names(world, "b")
    a, b = sites(world, "ab")
    world.run(5)
    names.answer = IldmError("the name server is away")
    world.run(3 * LEAVE_AFTER)
    assert found(a)["b"] in ("LINKED", "FOUND")
    assert a.node.counters["discover_failed"] > 40
    assert len(a.logged("discovery failed")) == 1, "once for each reason"
    names.say("b")
    world.run(60)
    assert len(a.logged("discovery works again")) == 1
    assert b.links() == {"a": "active"}


def test_a_resolver_that_hangs_is_asked_once(world: World) -> None:
    (a,) = sites(world, "a")
    asked: list[Any] = []
    a.driver.resolve = lambda question, done: asked.append(done)  # type: ignore[method-assign]
    world.run(200)
    waits = len(asked)
    world.run(200)
    assert (waits, len(asked)) == (1, 1)
    assert a.node.counters["discover_failed"] > 5
    asked[0]([Address("b", 2)])
    assert list(found(a)) == ["b"]


def test_questions_are_put_off_by_up_to_a_fifth(world: World) -> None:
    (a,) = sites(world, "a")
    times: list[float] = []

    def resolve(question: LookupConfig, done: Any) -> None:
        times.append(world.time)
        done([])

    a.driver.resolve = resolve  # type: ignore[method-assign]
    world.run(1000)
    pauses = [after - before for before, after in pairwise(times)]
    assert len(set(pauses)) > 20
    assert all(24 <= pause <= 36 for pause in pauses)


def test_there_is_a_bound_and_what_is_named_no_more_gives_way(world: World) -> None:
    names = Names(world)
    (a,) = sites(world, "a", link={"max_neighbors": 200, "discover_interval": 10})
    names.say(*(f"x{number}" for number in range(MOST + 10)))
    world.run(15)
    assert len(a.node.links.neighbors) == MOST
    assert a.node.counters["discover_refused"] >= 10
    assert len(a.logged("addresses found and not dialed")) == 1
    names.say("y1", "y2")
    world.run(15)
    assert {"y1", "y2"} <= set(found(a))
    assert len(found(a)) == MOST


def test_max_neighbors_bounds_what_is_found(world: World) -> None:
    names = Names(world)
    names.say("x1", "x2", "x3")
    (a,) = sites(world, "a", link={"max_neighbors": 2})
    world.run(5)
    assert list(found(a)) == ["x1", "x2"]
    assert a.node.counters["discover_refused"] == 1


def test_what_an_administrator_removes_is_not_found_again_before_dns_forgets_it(world: World) -> None:
    names = Names(world, "b")
    a, b = sites(world, "ab")
    b.node.config.link.__dict__["discover"] = []
    b.node.links.discovery.follow()
    world.run(5)
    a.node.links.remove("b:2")
    world.run(100)
    assert (found(a), a.links(), b.links()) == ({"b": "REMOVED"}, {}, {})
    names.say()
    world.run(LEAVE_AFTER + 60)
    assert found(a) == {}
    names.say("b")
    world.run(60)
    assert a.links() == {"b": "active"}


def test_what_an_administrator_adds_is_no_more_of_dns(world: World) -> None:
    names = Names(world, "b")
    (a,) = sites(world, "a")
    (b,) = sites(world, "b", link={"discover": [], "allow_without_secret": True})
    world.run(5)
    neighbor = a.node.links.add(Address("b", 2), True)
    assert (neighbor.found, neighbor.saved, found(a)) == (False, True, {})
    with pytest.raises(IldmError, match="already a neighbour"):
        a.node.links.add(Address("b", 2), True)
    names.say()
    world.run(2 * LEAVE_AFTER)
    assert shown(a) == {"b:2": ("active", False)}
    assert b.links() == {"a": "active"}


def test_other_questions_are_taken_up_at_once(world: World) -> None:
    world.names = lambda who, question: [Address(question.host or "", 2)]
    other = LookupConfig(host="c", port=2)
    (a,) = sites(world, "a", link={"discover": [LookupConfig(host="b", port=2)]})
    b, c = sites(world, "bc", link={"discover": [], "allow_without_secret": True})
    world.run(5)
    assert b.links() == {"a": "active"}
    a.node.config.link.__dict__["discover"] = [other]
    a.node.settings_changed()
    world.run(5)
    assert (b.links(), c.links()) == ({"a": "active"}, {"a": "active"}), "a link that is up stays"
    assert found(a) == {"b": "LEAVING", "c": "LINKED"}
