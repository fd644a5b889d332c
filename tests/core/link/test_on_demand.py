"""Links made on demand, in virtual time: data of an algorithm from any node to any other."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.api import Peer, SendResult
from ildm.config import Address, ConfigError
from ildm.core.broker.same_broker import PREFIX
from ildm.mqtt import Connect, Property, Publish, Subscribe, Subscription, Version, Will
from ildm.testing.virtual.world import World
from tests.support.talkers import Site, sites

# sending ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sessions", [1, 3])
def test_three_nodes_send_to_each_other_without_being_neighbours(world: World, sessions: int) -> None:
    three = sites(world, "abc", link={"sessions": sessions})
    for number in range(20):
        for one in three:
            for other in three:
                if one is not other:
                    assert one.send(other, f"{number}", turn=number % 2)
        world.run(0.0007)
    world.run(1)
    for one in three:
        assert set(one.links().values()) == {"on demand"}
        assert all(len(link.open_sessions) == sessions for link in one.node.links.cooperation.active)
        for other in three:
            if one is not other:
                heard = [int(text) for text in one.heard(other.name)]
                assert sorted(heard) == list(range(20))
                for turn in (0, 1):
                    assert [n for n in heard if n % 2 == turn] == list(range(turn, 20, 2))
        assert one.talker.unreachable == []
        assert one.talker.senders == {other.peer() for other in three if other is not one}
        assert {turn for _, turn in one.talker.turns} == set(range(min(2, sessions)))


@pytest.mark.parametrize("latency", [0.0001, 0.001, 0.03])
@pytest.mark.parametrize("sessions", [1, 2])
@pytest.mark.parametrize("step", range(16))
def test_dialing_each_other_at_the_same_time_makes_one_link_and_loses_nothing(
    world: World, latency: float, sessions: int, step: int
) -> None:
    world.latency = latency
    a, b = sites(world, "ab", link={"sessions": sessions})
    first, second = (a, b) if step % 2 else (b, a)
    assert first.send(second, "1")
    world.run(latency * step / 4)
    assert second.send(first, "2")
    assert first.send(second, "3")
    world.run(2)
    assert second.heard() == ["1", "3"]
    assert first.heard() == ["2"]
    for site, far in ((a, "b"), (b, "a")):
        assert site.links() == {far: "on demand"}
        assert site.talker.unreachable == []
        assert site.talker.links == [("up", far, False)]
        assert site.demand.waiting == {}
        assert len(site.node.links.links[far].open_sessions) == sessions
    assert a.node.links.links["b"].dialed != b.node.links.links["a"].dialed


def test_each_node_knows_where_the_other_is_reached(world: World) -> None:
    a, b = sites(world, "ab")
    assert (a.talker.api.peer, b.talker.api.peer) == (Peer("a", "a:2"), Peer("b", "b:2"))
    a.send(b, "x")
    world.run(1)
    (there,), (here,) = a.talker.api.links, b.talker.api.links
    assert (there.peer, here.peer) == (Peer("b", "b:2"), Peer("a", "a:2"))
    assert (there.dialed, here.dialed) == (True, False)
    assert (there.introducer, here.introducer) == (False, False)


def test_data_of_any_bytes_and_of_no_bytes(world: World) -> None:
    a, b = sites(world, "ab")
    for data in (b"", bytes(range(256)) * 300, b"\x30\x00"):
        assert a.talker.api.send(b.peer(), data, 0)
    world.run(1)
    assert [data for _, data in b.talker.heard] == [b"", bytes(range(256)) * 300, b"\x30\x00"]
    assert b.broker.published == []


def test_what_cannot_be_sent_is_refused_and_counted(world: World) -> None:
    (a,) = sites(world, "a", link={"packet_size": 2000})
    assert a.send(a, "to itself") is SendResult.SELF
    assert a.talker.api.send(Peer("b", "b:2"), bytes(2000)) is SendResult.TOO_LARGE
    assert a.node.counters["algorithm_dropped_not_sendable"] == 2
    assert a.demand.waiting == {}


def test_the_queue_of_a_node_that_is_being_dialed_is_bounded(world: World) -> None:
    world.latency = 0.05
    a, b = sites(world, "ab", link={"queue_messages": 5})
    assert [a.send(b, str(n)) for n in range(8)] == [SendResult.OK] * 5 + [SendResult.FULL] * 3
    assert a.node.counters["algorithm_dropped_full"] == 3
    assert a.talker.writable == []
    world.run(1)
    assert b.heard() == list("01234")
    assert a.talker.writable == ["b"]


def test_the_bytes_of_the_queue_are_bounded_too(world: World) -> None:
    a, b = sites(world, "ab", link={"queue_bytes": 2048})
    assert [a.send(b, "x" * 900) for _ in range(3)] == [SendResult.OK] * 2 + [SendResult.FULL]
    world.run(1)
    assert len(b.heard()) == 2


def test_the_queue_of_a_link_that_does_not_take_more_is_bounded(world: World) -> None:
    a, b = sites(world, "ab", link={"queue_messages": 5})
    a.send(b, "first")
    world.run(1)
    (sender,) = a.node.links.links["b"].senders
    sender.wire.set_flowing(False)
    assert [a.send(b, str(n)) for n in range(8)] == [SendResult.OK] * 5 + [SendResult.FULL] * 3
    world.run(1)
    assert a.talker.writable == []
    sender.wire.set_flowing(True)
    world.run(1)
    assert b.heard() == ["first", *"01234"]
    assert a.talker.writable == ["b"]


# what goes wrong ------------------------------------------------------------------------------------


def test_a_node_that_is_not_there(world: World) -> None:
    (a,) = sites(world, "a")
    for _ in range(3):
        assert a.talker.api.send(Peer("x", "x:2"), b"1")
        assert a.talker.unreachable == []  # not from within send
        world.run(1)
        assert a.talker.unreachable == ["x: refused"]
        a.talker.unreachable.clear()
    assert a.node.counters["algorithm_dropped_unreachable"] == 3
    assert a.lines().count("node unreachable: x:2: connection refused") == 1


def test_what_comes_while_a_dial_is_under_way_gets_one_of_its_own(world: World) -> None:
    """The node may be back by then, which the dial under way does not notice."""
    a, b = sites(world, "ab")
    path = ("a", Address("b", 2))
    timeout = a.node.config.link.connect_timeout
    world.barred.add(path)
    a.send(b, "1")
    world.run(timeout / 2)
    a.send(b, "2")
    world.barred.discard(path)
    world.run(timeout / 2 + 0.1)
    assert a.talker.unreachable == ["b: no answer"]
    world.run(2 * a.node.config.link.reconnect_max)
    assert b.heard() == ["2"]
    assert a.node.counters["algorithm_dropped_unreachable"] == 1
    assert a.node.links.on_demand is not None
    assert a.node.links.on_demand.waiting_bytes == 0


def test_an_address_that_is_none(world: World) -> None:
    (a,) = sites(world, "a")
    assert a.talker.api.send(Peer("x", "nonsense"), b"1")
    world.run(1)
    assert a.talker.unreachable == ["x: no address"]
    assert any("HOST:PORT" in line for line in a.lines())


def test_another_node_than_the_one_asked_for(world: World) -> None:
    a, b = sites(world, "ab")
    assert a.talker.api.send(b.peer()._replace(node_id="c"), b"for c")
    world.run(1)
    assert a.talker.unreachable == ["c: other node"]
    assert b.heard() == []
    assert a.links() == b.links() == {}
    assert any("b answers at this address, not c" in line for line in a.lines())


def test_another_node_than_the_one_asked_for_with_which_there_is_a_link(world: World) -> None:
    a, b = sites(world, "ab")
    a.send(b, "x")
    world.run(1)
    a.talker.api.send(b.peer()._replace(node_id="c"), b"for c")
    world.run(1)
    assert a.talker.unreachable == ["c: other node"]
    assert a.links() == {"b": "on demand"}
    assert b.heard() == ["x"]


@pytest.mark.parametrize(
    ("secrets", "told"), [(("one", "two"), "wrong link secret"), ((None, "two"), "secret")]
)
def test_a_wrong_secret(world: World, secrets: tuple[str | None, str], told: str) -> None:
    a, b = (Site(world, name, secret=secret) for name, secret in zip("ab", secrets, strict=True))
    a.send(b, "x")
    world.run(1)
    assert a.talker.unreachable == ["b: rejected"]
    assert b.heard() == []
    assert any(told in line for line in a.lines())


def test_the_right_secret(world: World) -> None:
    a, b = (Site(world, name, secret="same") for name in "ab")
    a.send(b, "x")
    world.run(1)
    assert b.heard() == ["x"]


class Other(Site):
    algorithm_name = "other"


def test_another_algorithm(world: World) -> None:
    a, b = Site(world, "a"), Other(world, "b")
    a.send(b, "x")
    world.run(1)
    assert a.talker.unreachable == ["b: rejected"]
    assert b.heard() == []


def test_a_crash_is_reported_at_once_and_the_node_can_come_back(world: World) -> None:
    a, b = sites(world, "ab")
    a.send(b, "1")
    world.run(1)
    b.crash()
    world.run(0.1)
    assert a.talker.unreachable == ["b: lost"]
    assert a.talker.links == [("up", "b", False), ("down", "b", False)]
    assert a.node.links.links == {}
    b = Site(world, "b")
    world.run(1)
    a.send(b, "2")
    world.run(1)
    assert b.heard() == ["2"]


def test_a_stopped_node_is_reported_too(world: World) -> None:
    a, b = sites(world, "ab")
    a.send(b, "1")
    world.run(1)
    ended: list[bool] = []
    b.node.drain(lambda: ended.append(True))
    world.run(1)
    assert ended
    assert a.talker.unreachable == ["b: lost"]


def test_a_silent_neighbour_is_given_up_and_what_waited_is_counted(world: World) -> None:
    a, b = sites(world, "ab", link={"keep_alive": 1})
    a.send(b, "1")
    world.run(1)
    (session,) = a.node.links.links["b"].open_sessions
    session.transport.cut = True  # type: ignore[union-attr]
    a.node.links.links["b"].senders[0].wire.set_flowing(False)
    a.send(b, "lost")
    world.run(10)
    assert a.talker.unreachable == ["b: no answer"]
    assert a.node.counters["link_dropped_lost_qos0"] == 1
    a.send(b, "2")
    world.run(1)
    assert b.heard() == ["1", "2"]


def test_the_loss_of_a_configured_neighbour_is_reported_at_once_and_it_is_dialed_again(world: World) -> None:
    b = Site(world, "b")
    a = Site(world, "a", neighbors=("b",))
    world.run(1)
    assert a.links() == {"b": "configured"}
    b.crash()
    world.run(0.1)
    assert a.talker.unreachable == ["b: lost"]
    assert a.links() == {}
    Site(world, "b")
    world.run(2)
    assert a.links() == {"b": "configured"}
    assert a.talker.links == [("up", "b", True), ("down", "b", True), ("up", "b", True)]


def test_a_neighbour_that_connects_anew_before_its_loss_was_noticed(world: World) -> None:
    a, b = sites(world, "ab", link={"keep_alive": 1})
    b.send(a, "1")
    world.run(1)
    (session,) = a.node.links.links["b"].open_sessions
    session.transport.cut = True  # type: ignore[union-attr]
    session.last_heard -= 1.5  # the keep-alive is overdue, but not given up yet
    b.crash()
    b = Site(world, "b")
    b.send(a, "2")
    world.run(3)
    assert a.heard() == ["1", "2"]
    assert a.talker.unreachable == ["b: lost"]
    assert a.links() == {"b": "on demand"}


# idle links -----------------------------------------------------------------------------------------


def test_an_unused_link_is_closed_without_a_fuss(world: World) -> None:
    a, b = sites(world, "ab", link={"idle": 4})
    a.send(b, "1")
    for _ in range(6):
        world.run(2)
        b.send(a, "again")
    assert a.links() == {"b": "on demand"}
    world.run(8)
    for site in (a, b):
        assert site.links() == {}
        assert site.node.links.links == {}
        assert site.talker.unreachable == []
        assert [event for event, _, _ in site.talker.links] == ["up", "down"]
        assert not any("warning" in line for line in site.lines())
    a.send(b, "2")
    world.run(1)
    assert b.heard() == ["1", "2"]


def test_a_configured_link_stays_however_idle(world: World) -> None:
    b = Site(world, "b", link={"idle": 1})
    a = Site(world, "a", link={"idle": 1}, neighbors=("b",))
    world.run(30)
    assert a.links() == {"b": "configured"}
    assert b.links() == {"a": "configured"}
    assert [event for event, _, _ in a.talker.links] == ["up"]


@pytest.mark.parametrize("after", [0.0, 0.01, 0.02, 0.03, 0.04, 0.05])
@pytest.mark.parametrize("sender", ["a", "b"])
def test_nothing_is_lost_that_is_sent_while_a_link_is_closed(world: World, after: float, sender: str) -> None:
    world.latency = 0.01
    a, b = sites(world, "ab", link={"idle": 4})
    a.send(b, "1")
    world.run(1)
    here, there = (a, b) if sender == "a" else (b, a)
    heard = len(there.heard())
    a.demand._close(a.node.links.links["b"])
    world.run(after)
    assert here.send(there, "2")
    assert here.send(there, "3")
    world.run(2)
    assert there.heard()[heard:] == ["2", "3"]
    assert a.talker.unreachable == b.talker.unreachable == []


def test_both_sides_close_at_once(world: World) -> None:
    a, b = sites(world, "ab")
    a.send(b, "1")
    world.run(1)
    a.demand._close(a.node.links.links["b"])
    b.demand._close(b.node.links.links["a"])
    a.send(b, "2")
    b.send(a, "3")
    world.run(2)
    assert (a.heard(), b.heard()) == (["3"], ["1", "2"])
    assert a.talker.unreachable == b.talker.unreachable == []


def test_what_the_other_side_has_queued_goes_out_before_the_end(world: World) -> None:
    a, b = sites(world, "ab")
    a.send(b, "1")
    world.run(1)
    sender = b.node.links.links["a"].senders[0]
    sender.wire.set_flowing(False)
    b.send(a, "2")
    a.demand._close(a.node.links.links["b"])
    world.run(0.5)
    assert a.heard() == []
    sender.wire.set_flowing(True)
    world.run(1)
    assert a.heard() == ["2"]
    assert a.links() == {}


def test_the_number_of_links_on_demand_is_bounded(world: World) -> None:
    hub = Site(world, "hub", link={"max_links": 2})
    others = sites(world, "abcd")
    for other in others:
        assert hub.send(other, "x")
        world.run(1)
    assert set(hub.links()) == {"c", "d"}
    assert [other.heard() for other in others] == [["x"]] * 4
    hub.send(others[2], "again")
    for other in others[:2]:
        other.send(hub, "y")
        world.run(1)
    assert set(hub.links()) == {"a", "b"}
    assert sorted(hub.heard()) == ["y", "y"]
    assert hub.talker.unreachable == []


def test_more_dials_at_once_than_links_are_allowed(world: World) -> None:
    (hub,) = sites(world, "h", link={"max_links": 2})
    answers = [hub.talker.api.send(Peer(name, f"{name}:2"), b"x") for name in "abcd"]
    assert answers == [SendResult.OK] * 2 + [SendResult.FULL] * 2
    assert hub.node.counters["algorithm_dropped_full"] == 2


def test_links_on_demand_take_no_place_of_neighbours(world: World) -> None:
    hub = Site(world, "hub", link={"max_neighbors": 1})
    others = sites(world, "abc")
    for other in others:
        other.send(hub, "x")
    world.run(1)
    assert len(hub.heard()) == 3
    late = Site(world, "late", neighbors=("hub",))
    refused = Site(world, "refused", neighbors=("hub",))
    world.run(2)
    assert late.links() == {"hub": "configured"}
    assert refused.links() == {}


# neighbours and links on demand ---------------------------------------------------------------------


def test_a_link_made_on_demand_becomes_that_of_a_neighbour_named_later(world: World) -> None:
    a, b = sites(world, "ab", link={"idle": 4})
    b.send(a, "x")
    world.run(1)
    a.node.links.add(Address("b", 2), False)
    world.run(20)
    assert a.links() == {"b": "configured"}
    assert b.links() == {"a": "configured"}  # it has heard that the far configuration wants the link
    assert a.talker.links == [("up", "b", False), ("up", "b", True)]
    (link,) = a.talker.api.links
    assert link.introducer


def test_both_sides_name_each_other(world: World) -> None:
    a = Site(world, "a", neighbors=("b",))
    b = Site(world, "b", neighbors=("a",))
    world.run(5)
    for site in (a, b):
        (link,) = site.talker.api.links
        assert link.introducer


def test_a_removed_neighbour_is_no_failure(world: World) -> None:
    b = Site(world, "b")
    a = Site(world, "a", neighbors=("b",))
    world.run(1)
    b.node.links.remove("a")
    world.run(1)
    assert a.links() == b.links() == {}
    assert a.talker.unreachable == b.talker.unreachable == []


def test_no_topology_is_told_and_nothing_is_blocked(world: World) -> None:
    three = [Site(world, name, neighbors=far) for name, far in (("a", ("b",)), ("b", ("c",)), ("c", ("a",)))]
    world.run(3)
    for site in three:
        assert set(site.links().values()) == {"configured"}
        assert len(site.links()) == 2

        assert site.node.state.status == "running"


def test_a_stopping_node_waits_until_its_algorithm_has_taken_leave(world: World) -> None:
    a, b = sites(world, "ab")
    a.talker.leaving_until = world.time + 3
    ended: list[float] = []
    a.node.drain(lambda: ended.append(world.time))
    began = world.time
    world.run(2)
    assert ended == []
    a.send(b, "good-bye")
    world.run(2)
    assert 3 <= ended[0] - began < 3.2
    assert b.heard() == ["good-bye"]


# where a node is reached ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("link", "text"),
    [
        ({"listen": None, "advertise": None}, "link.listen: algorithm talker needs an address"),
        (
            {"listen": "0.0.0.0:1885", "advertise": None, "allow_without_secret": True},
            "link.advertise: algorithm talker needs it where link.listen is 0.0.0.0:1885",
        ),
        ({"listen": None, "advertise": "[::]:1"}, "link.advertise: [::]:1 is no address"),
    ],
)
def test_a_node_nobody_can_reach_is_an_error_of_the_configuration(
    world: World, link: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Site(world, "a", link=link)
    assert str(caught.value).startswith(text)


def test_the_address_is_that_listened_on_unless_another_is_advertised(world: World) -> None:
    a = Site(world, "a", link={"listen": "127.0.0.1:7", "advertise": None})
    assert a.talker.api.peer == Peer("a", "127.0.0.1:7")
    b = Site(world, "b", link={"listen": "127.0.0.1:7", "advertise": "far.example:9"})
    assert b.talker.api.peer == Peer("b", "far.example:9")
    c = Site(world, "c", link={"listen": "127.0.0.1:0", "advertise": None})
    c.node.links.listening_at(4711)
    assert c.talker.api.peer == Peer("c", "127.0.0.1:4711")


# messages -------------------------------------------------------------------------------------------


def test_every_publish_of_a_client_goes_to_the_algorithm_whole(world: World) -> None:
    (a,) = sites(world, "a")
    client = a.client(connect=Connect(client_id="p", version=Version.V5))
    for number in range(3):
        client.send(Publish(topic="run", payload=str(number).encode()))
    client.send(Publish(topic="one", payload=b"1", qos=1, packet_id=1))
    users = [("k", "v")]
    client.send(
        Publish(
            topic="two",
            payload=b"2",
            qos=2,
            packet_id=2,
            properties={Property.USER_PROPERTY: users, Property.MESSAGE_EXPIRY_INTERVAL: 9},
        )
    )
    client.send(Publish(topic="$own", payload=b"x"))
    world.run(1)
    assert [(m.topic, m.payload, m.qos) for m, _ in a.talker.published] == [
        ("run", b"0", 0),
        ("run", b"1", 0),
        ("run", b"2", 0),
        ("one", b"1", 1),
        ("two", b"2", 2),
    ]
    last = a.talker.published[-1][0]
    assert last.properties == {Property.USER_PROPERTY: users, Property.MESSAGE_EXPIRY_INTERVAL: 9}
    assert len({turn for _, turn in a.talker.published}) == 1
    assert [packet.topic for name, packet in a.broker.published if name == "p"] == [
        "run", "run", "run", "one", "two", "$own",
    ]  # fmt: skip
    assert a.node.counters["published"] == 5


def test_two_publishers_have_turns_of_their_own(world: World) -> None:
    (a,) = sites(world, "a")
    clients = [a.client(connect=Connect(client_id=name)) for name in "pq"]
    for _ in range(2):
        for client in clients:
            client.send(Publish(topic=client.packets[0].__class__.__name__, payload=b""))
    world.run(1)
    turns = [turn for _, turn in a.talker.published]
    assert turns[0] == turns[2] != turns[1] == turns[3]


def test_a_will_goes_to_the_algorithm(world: World) -> None:
    (a,) = sites(world, "a")
    client = a.client(connect=Connect(client_id="p", will=Will(topic="gone", payload=b"w", qos=1)))
    client.transport.abort()
    world.run(1)
    assert [(m.topic, m.payload, m.qos) for m, _ in a.talker.published] == [("gone", b"w", 1)]


def test_a_retained_message_is_stamped_and_the_newest_wins(world: World) -> None:
    a, b = sites(world, "ab")
    for site in (a, b):
        client = site.client(connect=Connect(client_id="p"))
        client.send(Publish(topic="t/1", payload=site.name.encode(), retain=True))
        world.run(1)
    (older, _), (newer, _) = a.talker.published[0], b.talker.published[0]
    assert older.retain
    assert newer.retain
    b.talker.api.inject(older)
    world.run(1)
    assert [(p.payload, p.retain) for name, p in b.broker.published if name != "p"] == [(b"a", False)]
    a.talker.api.inject(newer)
    a.talker.api.inject(newer)  # the very one it has by now
    world.run(1)
    injected = [p for name, p in a.broker.published if name != "p"]
    assert [(p.payload, p.retain) for p in injected] == [(b"b", True)]
    assert not injected[0].properties
    assert newer.properties  # the plugin's own is left as it was
    (held,) = a.talker.api.retained("t/+")
    assert held.payload == b"b"
    assert dict(held.properties[Property.USER_PROPERTY])["ildm-retained"].endswith(":b:sync")
    assert a.node.counters["retained_old_news"] == 1
    assert a.node.counters["transferred_in"] == 1


def test_what_is_remembered_can_be_asked_for_and_forgotten(world: World) -> None:
    (a,) = sites(world, "a")
    client = a.client(connect=Connect(client_id="p", version=Version.V5))
    expiry = {Property.MESSAGE_EXPIRY_INTERVAL: 100}
    for topic, payload, properties in (("t/1", b"1", {}), ("t/2", b"", {}), ("u", b"3", expiry)):
        client.send(Publish(topic=topic, payload=payload, retain=True, properties=dict(properties)))
    world.run(10)
    api = a.talker.api
    assert [(m.topic, m.payload) for m in api.retained("t/#")] == [("t/1", b"1"), ("t/2", b"")]
    (expiring,) = api.retained("u")
    assert expiring.properties[Property.MESSAGE_EXPIRY_INTERVAL] in (90, 91)
    assert api.retained("nothing") == []
    api.inject(Publish(topic="t/1", payload=b"", retain=True))
    assert [m.topic for m in api.retained("+/+")] == ["t/2"]
    world.run(100)
    assert api.retained("u") == []


def test_the_expiry_of_an_injected_message_counts_down_while_it_waits(world: World) -> None:
    (a,) = sites(world, "a")
    (sender,) = a.node.injector.senders
    sender.wire.set_flowing(False)
    for seconds in (5, 50):
        properties = {Property.MESSAGE_EXPIRY_INTERVAL: seconds}
        a.talker.api.inject(Publish(topic=f"t/{seconds}", payload=b"x", properties=properties))
    world.run(10)
    sender.wire.set_flowing(True)
    world.run(1)
    injected = [p for _, p in a.broker.published]
    assert [p.topic for p in injected] == ["t/50"]
    assert injected[0].properties[Property.MESSAGE_EXPIRY_INTERVAL] in (40, 41)


def test_data_between_algorithms_is_nothing_a_client_sees(world: World) -> None:
    a, b = sites(world, "ab")
    client = b.client(connect=Connect(client_id="s"))
    subscriptions = [Subscription(topic_filter=f, qos=0) for f in ("#", "$ildm/#")]
    client.send(Subscribe(packet_id=1, subscriptions=subscriptions))
    a.send(b, "x")
    world.run(1)
    assert b.heard() == ["x"]
    assert all(topic.startswith(PREFIX) for topic, _ in client.messages)
