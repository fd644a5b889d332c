"""A node started again goes on with the neighbours it had: messages wait for them from the first one on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ildm.config import Address
from ildm.core.tables import COOPERATION, INTEREST
from ildm.mqtt import Publish
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.world import VirtualTimer, World
from tests.support.memory_spool import MemorySpool
from tests.support.site import Site, row


def publish(client: MiniClient, topics: list[str], qos: int = 1) -> None:
    for i, topic in enumerate(topics):
        client.send(Publish(topic=topic, payload=b"x", qos=qos, packet_id=i + 1 if qos else None))


def spool(kept: bool) -> MemorySpool | None:
    return MemorySpool() if kept else None


def killed(site: Site) -> None:
    """The process ends at once; what it had saved by then is what the next one finds."""
    site.store = site.store.copy()
    site.kill()


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("near_dials", [True, False])
def test_what_is_published_before_the_links_are_up_is_not_lost(
    world: World, algorithm: str, near_dials: bool, qos: int
) -> None:
    a, b = Site(world, "a", algorithm), Site(world, "b", algorithm)
    dialer, other = (a, b) if near_dials else (b, a)
    dialer.node.links.add(Address(other.name, 2), False)
    b.subscriber("t/#", qos=2)
    world.run(3)
    killed(a)
    world.run(20)  # the far side has tried some times by then and waits long
    a.start(("b",) if near_dials else ())
    topics = [f"t/{i}" for i in range(50)]
    client = a.client("p")
    publish(client, topics, qos)
    world.run(0.01)
    assert b.broker.topics() == []
    world.run(60)
    assert a.links() == {"b": "active"}
    assert b.broker.topics() == topics


def test_interest_of_the_neighbour_is_that_of_before_until_it_is_back(world: World) -> None:
    a, b = row(world, "ab", "sf")
    b.subscriber("t/#", qos=1)
    subscriber = b.subscriber("gone", "g")
    world.run(1)
    killed(a)
    subscriber.transport.abort()
    world.run(1)
    b.subscriber("new", "n")
    a.start()
    assert a.node.links.links["b"].interest == {"t/#": 1, "gone": 0}
    publish(a.client("p"), ["t/1", "gone", "other"])
    world.run(60)
    assert a.node.links.links["b"].interest == {"t/#": 1, "new": 0}
    assert b.broker.topics() == ["t/1", "gone"]
    assert set(a.store.rows(INTEREST)) == {("b", "t/#"), ("b", "new")}


def test_a_row_restarted_from_one_end_to_the_other_loses_nothing(world: World, algorithm: str) -> None:
    sites = row(world, "abc", algorithm)
    a, _, c = sites
    c.subscriber("t/#", qos=1)
    world.run(1)
    topics: list[str] = []
    for turn, site in enumerate(sites):
        killed(site)
        world.run(0.5)
        site.start(tuple(far for far in ("ab"[:turn] and ["a", "b"][turn - 1 : turn])))
        topics.append(f"t/{turn}")
        publish(a.client(f"p{turn}"), topics[-1:])
        world.run(60)
    assert [topic for topic in c.broker.topics() if topic in topics] == topics


def test_both_ends_restarted_at_once(world: World, algorithm: str) -> None:
    a, b = row(world, "ab", algorithm)
    b.subscriber("t/#", connect=None, qos=1)
    world.run(1)
    killed(a)
    killed(b)
    world.run(1)
    a.start()
    publish(a.client("p"), ["t/1"])
    world.run(5)
    b.start(("a",))
    world.run(30)
    assert b.broker.topics() == ["t/1"]


def test_who_is_not_back_in_time_is_given_up_with_a_word(world: World) -> None:
    a, b = row(world, "ab", "pf", link={"expiry": 30})
    killed(a)
    b.kill()
    a.start()
    publish(a.client("p"), ["t/1", "t/2", "t/3"])
    world.run(31)
    assert a.node.counters["links_expired"] == 1
    assert a.node.counters["link_dropped_neighbor_expired_qos1"] == 3
    (fields,) = [fields for _, event, fields in a.driver.logged if event == "neighbour given up"]
    assert (fields["neighbor"], fields["messages"]) == ("b", 3)
    publish(a.client("q"), ["t/4"])
    world.run(1)
    assert a.node.counters["link_dropped_neighbor_expired_qos1"] == 4
    a.node.links.remove("b")
    publish(a.client("r"), ["t/5"])
    world.run(1)
    assert a.node.links.links == {}
    assert a.node.counters["link_dropped_neighbor_expired_qos1"] == 4
    assert a.store.rows(COOPERATION) == {}


@pytest.mark.parametrize("away", [6 * 60, 6 * 86_400])
def test_an_outage_within_the_default_bounds_loses_nothing(world: World, algorithm: str, away: int) -> None:
    a, b = row(world, "ab", algorithm, link={"keep_alive": 3600, "reconnect_max": 3600})
    b.subscriber("t/#", connect=None, qos=2)
    world.run(1)
    killed(b)
    publisher = a.client("p")
    publish(publisher, ["t/1", "t/2"])
    world.run(away)
    publisher = a.client("q")
    publish(publisher, ["t/3", "t/4"], qos=2)
    world.run(1)
    b.start(("a",))
    world.run(60)
    assert sorted(b.broker.topics()) == ["t/1", "t/2", "t/3", "t/4"]
    assert not any("_dropped_" in name and count for name, count in a.node.counters.items())


@pytest.mark.parametrize("spooled", [True, False])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_message_for_a_neighbour_that_is_away_too_long_is_counted_until_it_is_back(
    world: World, algorithm: str, qos: int, spooled: bool
) -> None:
    a, b = (Site(world, name, algorithm, spool=spool(spooled), link={"expiry": 30}) for name in "ab")
    b.node.links.add(Address("a", 2), False)
    world.run(3)
    b.subscriber("t/#", connect=None, qos=2)
    world.run(1)
    killed(b)
    publish(a.client("p"), ["t/1", "t/2"], qos)
    world.run(40)
    publish(a.client("q"), ["t/3", "t/4", "t/5"], qos)
    publish(a.client("r"), ["t/5", "t/5"], qos)
    world.run(1)
    assert a.node.counters[f"link_dropped_neighbor_expired_qos{qos}"] == 7
    if a.node.custody is not None:
        assert a.node.custody.report().messages == 0
    b.start(("a",))
    world.run(60)
    b.subscriber("t/#", "again", qos=2)
    publish(a.client("s"), ["t/6"], qos)
    world.run(5)
    assert b.broker.topics() == ["t/6"]
    assert a.node.counters[f"link_dropped_neighbor_expired_qos{qos}"] == 7


def test_who_was_away_too_long_with_a_handshake_begun_begins_anew(world: World, algorithm: str) -> None:
    """The neighbour lives, and must not take new messages for those that were under way."""
    a, b = row(world, "ab", algorithm, link={"expiry": 30})
    b.subscriber("t/#", connect=None, qos=2)
    world.run(1)
    world.barred.add(("b", Address("a", 2)))
    for session in list(a.node.links.links["b"].open_sessions):
        assert session.transport is not None
        session.transport.cut = True  # type: ignore[attr-defined]
    publish(a.client("p"), ["t/1", "t/2"], 2)
    world.run(100)
    assert a.node.counters["link_dropped_neighbor_expired_qos2"] == 2
    world.barred.clear()
    world.run(60)
    publish(a.client("q"), ["t/3", "t/4"], 2)
    world.run(5)
    assert b.broker.topics()[-2:] == ["t/3", "t/4"]
    assert a.node.counters["link_dropped_neighbor_expired_qos2"] == 2


def test_who_is_given_up_makes_room_for_another_neighbour(world: World) -> None:
    b = Site(world, "b", "sf", link={"expiry": 30, "max_neighbors": 1})
    a = Site(world, "a", "sf")
    a.node.links.add(Address("b", 2), False)
    world.run(3)
    a.kill()
    world.run(40)
    assert list(b.links()) == ["a"]
    c = Site(world, "c", "sf")
    c.node.links.add(Address("b", 2), False)
    world.run(10)
    assert b.links() == {"c": "active"}


def test_neighbours_that_the_configuration_names_no_more_are_forgotten(world: World) -> None:
    a, b = row(world, "ab", "sf")
    a.subscriber("t")
    world.run(1)
    killed(b)
    b.start(())
    assert b.node.links.links == {}
    assert b.store.rows(COOPERATION) == b.store.rows(INTEREST) == {}


def test_removed_neighbours_are_forgotten(world: World) -> None:
    a, b = row(world, "ab", "sf")
    a.subscriber("t")
    world.run(1)
    a.node.links.remove("b")
    world.run(1)
    assert a.store.rows(COOPERATION) == b.store.rows(COOPERATION) == {}
    assert b.store.rows(INTEREST) == {}


def test_neighbours_of_another_algorithm_are_forgotten(world: World) -> None:
    a, _ = row(world, "ab", "sf")
    killed(a)
    a.algorithm = "pf"
    a.start()
    assert a.node.links.links == {}
    assert a.store.rows(COOPERATION) == {}


def test_a_blocked_link_is_not_remembered(world: World) -> None:
    sites = row(world, "abc", "pf")
    sites[2].node.links.add(Address("a", 2), False)
    world.run(5)
    kept = [{node for (node,) in site.store.rows(COOPERATION)} for site in sites]
    assert kept == [{"b"}, {"a", "c"}, {"b"}]


def test_rows_that_make_no_sense_are_set_aside(world: World) -> None:
    a, _ = row(world, "ab", "sf")
    a.store.rows(COOPERATION)["x",] = (1, 5000, "sf", "", "", 0)  # type: ignore[index]
    a.store.rows(INTEREST)["b", "t"] = (7,)  # type: ignore[index]
    a.store.rows(INTEREST)["nobody", "t"] = (1,)  # type: ignore[index]
    killed(a)
    a.start()
    assert list(a.node.links.links) == ["b"]
    assert [(key, reason) for _, key, reason in a.store.damaged] == [
        (("x",), "no link can be so"),
        (("b", "t"), "QoS 7"),
    ]
    assert a.store.rows(INTEREST) == {}


def test_another_node_at_the_address_takes_the_place_of_the_one_that_was_there(world: World) -> None:
    b = Site(world, "b", "pf")
    a = Site(world, "a", "pf", node_id="old")
    b.node.links.add(Address("a", 2), False)
    world.run(3)
    a.kill()
    Site(world, "a", "pf", node_id="new")
    world.run(60)
    assert b.links() == {"new": "active"}


def test_a_link_that_breaks_again_and_again_leaves_no_timers_behind(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = row(world, "ab", "sf")
    expiry = b.node.config.link.expiry
    waiting = []
    call_later = b.node.driver.call_later

    def watched(delay: float, callback: Callable[..., None], *args: object) -> VirtualTimer:
        timer = call_later(delay, callback, *args)
        if delay == expiry:
            waiting.append(timer)
        return timer

    monkeypatch.setattr(b.node.driver, "call_later", watched)
    for _ in range(5):
        killed(a)
        world.run(2)
        assert sum(not timer.cancelled for timer in waiting) == 1
        a.start()
        world.run(20)
        assert b.links() == {"a": "active"}
    assert len(waiting) >= 5
    assert all(timer.cancelled for timer in waiting)


def test_the_log_says_whenever_a_link_carries_messages_again(world: World) -> None:
    """Whoever reads "link down", at this node or at its neighbour, finds below that it is over."""

    def said(site: Site) -> list[str]:
        return [event for _, event, _ in site.driver.logged if event.startswith(("link active", "link down"))]

    a, b = row(world, "ab", "sf")
    assert said(a) == said(b) == ["link active"]
    killed(a)
    world.run(2)
    a.start()
    world.run(20)
    assert said(a) == ["link active again"]
    assert said(b) == ["link active", "link down", "link active again"]
