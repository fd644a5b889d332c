"""Whole nodes of the core in virtual time: clients, brokers and links joined by pipes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from ildm.config import Address
from ildm.mqtt import (
    ConnAck,
    Connect,
    Disconnect,
    Property,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    Subscription,
    Unsubscribe,
    Version,
    Will,
)
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.makes import PLAIN
from ildm.testing.virtual.world import World
from tests.support.site import Site, row


def test_messages_cross_a_row_of_three(world: World, algorithm: str) -> None:
    a, b, c = row(world, "abc", algorithm)
    assert b.links() == {"a": "active", "c": "active"}
    subscribers = [site.subscriber("t/#") for site in (a, b, c)]
    publisher = a.client("pub")
    for i in range(3):
        publisher.send(Publish(topic=f"t/{i}", payload=b"x"))
    world.run(1)
    for subscriber in subscribers:
        assert subscriber.messages == [("t/0", b"x"), ("t/1", b"x"), ("t/2", b"x")]


def test_sf_sends_only_what_is_wanted(world: World) -> None:
    a, b, c = row(world, "abc", "sf")
    b.subscriber("t")
    publisher = a.client("pub")
    publisher.send(Publish(topic="t", payload=b"x"))
    publisher.send(Publish(topic="u", payload=b"x"))
    world.run(1)
    assert b.broker.topics() == ["t"]
    assert c.broker.topics() == []
    assert a.node.counters["transferred_out"] == 1


def test_inter_subscribing_waits_for_a_successful_suback(world: World) -> None:
    a, b = row(world, "ab", "sf")
    client = a.client("c")
    connection = a.broker.of("c")
    a.broker.takes = lambda *_: False  # the broker is silent
    client.send(Subscribe(packet_id=7, subscriptions=[Subscription(topic_filter=f) for f in ("x", "y")]))
    world.run(1)
    assert a.node.links.links["b"].announced == {}
    connection.send(SubAck(packet_id=7, reason_codes=[0x80, 1]))
    world.run(1)
    assert a.node.links.links["b"].announced == {"y": 1}
    assert b.node.links.links["a"].interest == {"y": 1}
    client.send(Unsubscribe(packet_id=8, topic_filters=["y"]))
    world.run(1)
    assert b.node.links.links["a"].interest == {"y": 1}  # not confirmed yet


def test_qos_is_the_smallest_of_message_interest_and_link(world: World) -> None:
    a, b = row(world, "ab", "sf", link={"qos": 1})
    b.subscriber("zero", "s0", 0)
    b.subscriber("two", "s2", 2)
    publisher = a.client("pub")
    ids = itertools.count(1)
    for topic in ("zero", "two"):
        for qos in (0, 1, 2):
            publisher.send(Publish(topic=topic, payload=b"x", qos=qos, packet_id=next(ids) if qos else None))
    world.run(1)
    injected = [(p.topic, p.qos) for client_id, p in b.broker.published if client_id.startswith("ildm")]
    assert sorted(injected) == [("two", 0), ("two", 1), ("two", 1), ("zero", 0), ("zero", 0), ("zero", 0)]


def test_retained_messages_cross_with_sf_although_nobody_wants_them(world: World) -> None:
    a, b = row(world, "ab", "sf")
    client = a.client("p")
    client.send(Publish(topic="state", payload=b"on", retain=True))
    client.send(Publish(topic="state", payload=b"", retain=True))
    world.run(1)
    injected = [(p.topic, p.payload, p.retain) for _, p in b.broker.published]
    assert injected == [("state", b"on", True), ("state", b"", True)]


def test_dollar_topics_never_cross(world: World, algorithm: str) -> None:
    a, b = row(world, "ab", algorithm)
    b.subscriber("#")
    publisher = a.client("pub")
    publisher.send(Publish(topic="$SYS/x", payload=b"x"))
    publisher.send(Publish(topic="$SYS/y", payload=b"x", qos=1, packet_id=1))
    publisher.send(Publish(topic="$SYS/z", payload=b"x", retain=True))
    world.run(1)
    assert b.broker.topics() == []
    a.subscriber("$SYS/#", "s")
    assert b.node.links.links["a"].interest == {}


def will(**fields: Any) -> Connect:
    return Connect(client_id="w", will=Will(topic="will", payload=b"gone", qos=0), **fields)


def test_a_will_crosses_once_when_the_client_is_gone(world: World, algorithm: str) -> None:
    a, b = row(world, "ab", algorithm)
    b.subscriber("will")
    client = a.client(connect=will())
    client.transport.abort()
    world.run(1)
    assert b.broker.topics() == ["will"]


def test_no_will_after_disconnect(world: World, algorithm: str) -> None:
    a, b = row(world, "ab", algorithm)
    b.subscriber("will")
    client = a.client(connect=will())
    client.send(Disconnect())
    world.run(1)
    client = a.client(connect=will(version=Version.V5))
    client.send(Disconnect(reason_code=0))
    world.run(1)
    assert b.broker.topics() == []
    client = a.client(connect=will(version=Version.V5))
    client.send(Disconnect(reason_code=4))
    world.run(1)
    assert b.broker.topics() == ["will"]


def test_a_will_crosses_when_the_broker_is_gone(world: World, algorithm: str) -> None:
    a, b = row(world, "ab", algorithm)
    b.subscriber("will")
    client = a.client(connect=will())
    a.broker.crash()
    world.run(1)
    assert client.closed
    assert b.broker.topics() == ["will"]


def test_no_will_of_a_client_the_broker_did_not_accept(world: World, algorithm: str) -> None:
    a, b = row(world, "ab", algorithm)
    b.subscriber("will")
    a.broker.refuse_with = 5
    client = a.client(connect=will())
    world.run(1)
    assert client.got(ConnAck)[0].reason_code == 5
    assert client.closed
    assert b.broker.topics() == []


def delayed(expiry: int, delay: int, clean: bool = True) -> Connect:
    properties = {Property.WILL_DELAY_INTERVAL: delay}
    return Connect(
        client_id="w",
        version=Version.V5,
        clean_start=clean,
        will=Will(topic="will", payload=b"gone", properties=properties),
        properties={Property.SESSION_EXPIRY_INTERVAL: expiry},
    )


@pytest.mark.parametrize(("expiry", "delay", "due"), [(100, 5, 5), (3, 60, 3), (0, 60, 0)])
def test_will_delay_and_session_expiry(world: World, expiry: int, delay: int, due: float) -> None:
    a, b = row(world, "ab", "pf")
    client = a.client(connect=delayed(expiry, delay))
    client.transport.abort()
    world.run(max(0, due - 0.5))
    if due:
        assert b.broker.topics() == []
    world.run(1)
    assert b.broker.topics() == ["will"]
    world.run(200)
    assert b.broker.topics() == ["will"]


def test_a_delayed_will_is_cancelled_by_coming_back_but_not_by_a_clean_start(world: World) -> None:
    a, b = row(world, "ab", "pf")
    a.client(connect=delayed(100, 10)).transport.abort()
    world.run(1)
    back = a.client(connect=delayed(100, 10, clean=False))
    world.run(60)
    assert b.broker.topics() == []
    back.transport.abort()
    world.run(1)
    a.client(connect=delayed(100, 10, clean=True))
    world.run(0.1)
    assert b.broker.topics() == ["will"]


def test_interest_of_a_persistent_session_outlives_its_connection_and_the_node(world: World) -> None:
    a, b = row(world, "ab", "sf")
    client = b.subscriber("t", "away", 1, clean_start=False)
    client.transport.abort()
    world.run(1)
    assert a.node.links.links["b"].interest == {"t": 1}
    b.crash()
    world.run(1)
    b.start(neighbors=("a",))
    world.run(3)
    assert a.node.links.links["b"].interest == {"t": 1}
    again = b.client("away", clean_start=False)
    world.run(1)
    assert a.node.links.links["b"].interest == {"t": 1}
    again.send(Disconnect())
    b.client("away", clean_start=True)  # ends the old session
    world.run(1)
    assert a.node.links.links["b"].interest == {}


def test_interest_goes_with_a_clean_session_and_with_one_the_broker_has_forgotten(world: World) -> None:
    """Only MQTT 5 is trusted to say that the broker has forgotten: ActiveMQ, for one, says so always."""
    a, b = row(world, "ab", "sf")
    client = b.subscriber("t", "c1")
    client.transport.abort()
    world.run(1)
    assert a.node.links.links["b"].interest == {}
    b.subscriber("u", "c2", clean_start=False).transport.abort()
    long = {Property.SESSION_EXPIRY_INTERVAL: 1000}
    b.subscriber("v", "c3", version=Version.V5, properties=long).transport.abort()
    world.run(1)
    assert a.node.links.links["b"].interest == {"u": 0, "v": 0}
    b.broker.sessions.clear()
    b.client("c2", clean_start=False)  # the broker answers both: no session present
    b.client("c3", clean_start=False, version=Version.V5, properties=long)
    world.run(1)
    assert a.node.links.links["b"].interest == {"u": 0}


def test_session_expiry_ends_the_interest(world: World) -> None:
    a, b = row(world, "ab", "sf")
    properties = {Property.SESSION_EXPIRY_INTERVAL: 10}
    client = b.subscriber("t", "c", 1, version=Version.V5, properties=properties)
    client.transport.abort()
    world.run(8)
    assert a.node.links.links["b"].interest == {"t": 1}
    world.run(3)
    assert a.node.links.links["b"].interest == {}


def test_takeover_keeps_the_interest_of_the_new_connection(world: World) -> None:
    a, b = row(world, "ab", "sf")
    old = b.subscriber("t", "same")
    b.subscriber("u", "same")
    old.transport.abort()  # the broker would close it
    world.run(1)
    assert a.node.links.links["b"].interest == {"u": 0}


def test_broker_down_is_said_in_the_clients_version(world: World) -> None:
    site = Site(world, "a", None)
    del world.listeners[Address("a", 3)]
    three, five = site.client("x"), site.client("y", version=Version.V5)
    assert three.got(ConnAck)[0].reason_code == 3
    assert five.got(ConnAck)[0].reason_code == 0x88
    assert three.closed
    assert five.closed
    world.listen(Address("a", 3), site.broker.connection)
    assert site.client("x").got(ConnAck)[0].reason_code == 0


def test_messages_before_connack_are_held_until_the_client_is_accepted(world: World, algorithm: str) -> None:
    a, b = row(world, "ab", algorithm)
    b.subscriber("t")
    client = MiniClient()
    world.connect(Address("a", 1), client)
    hello = Connect(client_id="fast").encode()
    client.transport.write(hello + Publish(topic="t", payload=b"x").encode(Version.V311))
    world.run(1)
    assert b.broker.topics() == ["t"]
    a.broker.refuse_with = 5
    client = MiniClient()
    world.connect(Address("a", 1), client)
    client.transport.write(hello + Publish(topic="t", payload=b"x").encode(Version.V311))
    world.run(1)
    assert b.broker.topics() == ["t"]


@pytest.mark.parametrize(
    ("version", "data", "reason"),
    [
        (Version.V5, b"\x30\xff\xff\xff\xff\x01", 0x81),
        (Version.V5, b"\x36\x05\x00\x01t\x00\x01", 0x81),
        (Version.V5, b"\x10\x02\x00\x00", 0x82),
        (Version.V5, b"\x80\x03\x00\x01\x00", 0x81),
        (Version.V5, b"\xa1\x03\x00\x01\x00", 0x81),
        (Version.V5, b"\x00\x00", 0x81),
        (Version.V5, b"\xd0\x00", 0x82),
        (Version.V5, b"\x82\x03\x00\x00\x00", 0x82),
        (Version.V5, b"\x30\xff\xff\xff\x7f", 0x95),
        (Version.V311, b"\x30\xff\xff\xff\xff\x01", None),
        (Version.V311, b"\xf0\x00", None),
    ],
)
def test_a_malformed_packet_closes_that_connection_only(
    world: World, version: Version, data: bytes, reason: int | None
) -> None:
    a, b = row(world, "ab", "pf")
    good, bad = a.client("good"), a.client("bad", version=version)
    before = Publish(topic="before", payload=b"x").encode(version)
    bad.transport.write(before + data)
    world.run(1)
    assert bad.closed
    ends = bad.got(Disconnect)
    assert [packet.reason_code for packet in ends] == ([] if reason is None else [reason])
    assert a.node.counters["malformed"] == 1
    assert b.broker.topics() == ["before"]
    good.send(Publish(topic="after", payload=b"x"))
    world.run(1)
    assert b.broker.topics() == ["before", "after"]


def test_no_connect_in_time(world: World) -> None:
    site = Site(world, "a", None)
    client = MiniClient()
    world.connect(Address("a", 1), client)
    world.run(9)
    assert not client.closed
    world.run(2)
    assert client.closed
    assert site.node.counters["connect_timeouts"] == 1


def test_connections_are_limited(world: World) -> None:
    site = Site(world, "a", None, limits={"clients": 2})
    clients = [site.client(str(i)) for i in range(3)]
    assert [client.closed for client in clients] == [False, False, True]
    clients[0].transport.abort()
    world.run(1)
    assert not site.client("again").closed


# links ----------------------------------------------------------------------------------------


def test_adding_from_both_sides_makes_one_link(world: World, algorithm: str) -> None:
    a, b = Site(world, "a", algorithm), Site(world, "b", algorithm)
    a.node.links.add(Address("b", 2), False)
    b.node.links.add(Address("a", 2), False)
    world.run(5)
    assert a.links() == {"b": "active"}
    assert b.links() == {"a": "active"}
    b.subscriber("t")
    a.client("pub").send(Publish(topic="t", payload=b"x"))
    world.run(1)
    assert b.broker.topics() == ["t"]
    states = {next(iter(s.node.links.neighbors.values())).state for s in (a, b)}
    assert states == {"linked", "duplicate"}


def test_a_cycle_is_kept_open_by_a_blocked_link_that_takes_over(world: World, algorithm: str) -> None:
    a, b, c = row(world, "abc", algorithm)
    a.node.links.add(Address("c", 2), False)
    world.run(2)
    assert a.links() == {"b": "active", "c": "not"}
    assert c.links() == {"b": "active", "a": "not"}
    assert a.node.links.links["c"].reason == "it would close a cycle"
    subscribers = {site.name: site.subscriber("t") for site in (a, b, c)}
    a.client("pub").send(Publish(topic="t", payload=b"1"))
    world.run(1)
    assert all(s.messages == [("t", b"1")] for s in subscribers.values())
    b.crash()
    world.run(3)
    assert a.links()["c"] == "active"
    a.client("pub2").send(Publish(topic="t", payload=b"2"))
    world.run(1)
    assert subscribers["c"].messages == [("t", b"1"), ("t", b"2")]


def test_three_links_made_at_once_form_no_cycle(world: World, algorithm: str) -> None:
    sites = {name: Site(world, name, algorithm) for name in "abcd"}
    for name, far in ("ab", "bc", "cd", "da", "ac"):
        sites[name].node.links.add(Address(far, 2), False)
    world.run(5)
    active = sum(state == "active" for site in sites.values() for state in site.links().values())
    assert active == 2 * 3
    for site in sites.values():
        site.subscriber("t")
    sites["a"].client("pub").send(Publish(topic="t", payload=b"x"))
    world.run(2)
    assert all(sites[name].broker.topics() == ["t"] for name in "bcd")


@pytest.mark.parametrize("secrets", [("one", "two"), ("one", None), (None, "two")])
def test_a_wrong_secret_is_refused_with_a_reason(
    world: World, secrets: tuple[str | None, str | None]
) -> None:
    a, b = (Site(world, n, "sf", secret=s) for n, s in zip("ab", secrets, strict=True))
    b.node.links.add(Address("a", 2), False)
    world.run(5)
    neighbor = next(iter(b.node.links.neighbors.values()))
    assert neighbor.state == "refused"
    assert "secret" in (neighbor.reason or "")
    assert a.links() == b.links() == {}


def test_the_right_secret_is_accepted(world: World) -> None:
    sites = row(world, "ab", "sf", secret="s3cret", link={"sessions": 3})
    assert sites[0].links() == {"b": "active"}
    assert len(sites[0].node.links.links["b"].open_sessions) == 3
    everything = b"".join(
        bytes(s.transport.written)
        for site in sites
        for link in site.node.links.links.values()
        for s in link.open_sessions
    )
    assert b"s3cret" not in everything


def test_another_algorithm_and_the_own_id_are_refused(world: World) -> None:
    Site(world, "a", "pf")
    b = Site(world, "b", "sf")
    b.node.links.add(Address("a", 2), False)
    b.node.links.add(Address("b", 2), False)
    world.run(3)
    reasons = {str(n.address): (n.state, n.reason) for n in b.node.links.neighbors.values()}
    assert reasons["a:2"] == ("refused", "a runs algorithm 'pf', b runs 'sf'")
    assert reasons["b:2"][0] == "refused"
    assert "own id" in (reasons["b:2"][1] or "")


def test_two_nodes_with_one_id_do_not_drive_each_other_out(world: World) -> None:
    a, b = row(world, "ab", "sf")
    twin = Site(world, "twin", "sf", node_id="b")
    twin.node.links.add(Address("a", 2), False)
    link = a.node.links.links["b"]
    world.run(120)
    assert a.node.links.links["b"] is link
    assert (a.links(), b.links(), twin.links()) == ({"b": "active"}, {"a": "active"}, {})
    (neighbor,) = twin.node.links.neighbors.values()
    assert neighbor.state == "refused"
    assert "another node that has the id 'b'" in str(neighbor.reason)


def test_a_removed_neighbour_stays_away_until_it_is_added_again(world: World) -> None:
    a, b = row(world, "ab", "sf")
    a.subscriber("t")
    a.node.links.remove("b")
    world.run(60)
    assert a.links() == b.links() == {}
    neighbor = next(iter(b.node.links.neighbors.values()))
    assert (neighbor.state, neighbor.reason) == ("refused", "removed by the neighbour's administrator")
    b.node.links.remove("a:2")
    b.node.links.add(Address("a", 2), False)
    world.run(3)
    assert a.links() == {"b": "active"}
    assert b.node.links.links["a"].interest == {"t": 0}


def test_an_outage_is_bridged_by_the_queue_and_interest_is_synchronised(world: World) -> None:
    a, b = row(world, "ab", "sf")
    kept, gone = b.subscriber("kept", "k", 1), b.subscriber("gone", "g", 1)
    publisher = a.client("pub")
    link = a.node.links.links["b"]
    for session in link.open_sessions:
        session.transport.cut = True  # type: ignore[union-attr]
    world.run(0.1)
    gone.transport.abort()
    b.subscriber("new", "n", 1)
    publisher.send(Publish(topic="kept", payload=b"x", qos=1, packet_id=1))
    world.run(1)
    assert b.broker.topics() == []
    world.run(60)  # both sides notice by the missing signs of life
    assert (a.links(), b.links()) == ({"b": "active"}, {"a": "active"})
    assert link.interest == {"kept": 1, "new": 1}
    assert b.broker.topics() == ["kept"]
    assert kept.messages == [("kept", b"x")]


def test_several_sessions_share_the_publishers_and_keep_their_order(world: World, algorithm: str) -> None:
    a, b = row(world, "ab", algorithm, link={"sessions": 4})
    subscriber = b.subscriber("#")
    publishers = [a.client(f"p{i}") for i in range(8)]
    for number in range(20):
        for i, publisher in enumerate(publishers):
            qos = i % 3
            publisher.send(
                Publish(topic=f"p{i}", payload=b"%d" % number, qos=qos, packet_id=number + 1 if qos else None)
            )
    world.run(5)
    for i in range(8):
        assert [p for t, p in subscriber.messages if t == f"p{i}"] == [b"%d" % n for n in range(20)]
    assert [sender.sent for sender in a.node.links.links["b"].senders] == [40] * 4


def test_a_will_goes_the_way_of_its_publisher(world: World) -> None:
    """On another session of the link it could overtake what was published before."""
    a, b = row(world, "ab", "pf", link={"sessions": 4})
    for number in range(6):
        will = Will(topic="t", payload=b"will", qos=0, retain=False)
        before = [sender.sent for sender in a.node.links.links["b"].senders]
        client = a.client(f"p{number}", will=will)
        for _ in range(3):
            client.send(Publish(topic="t", payload=b"x"))
        world.run(0.1)
        client.transport.abort()
        world.run(0.5)
        sent = [
            sender.sent - old for sender, old in zip(a.node.links.links["b"].senders, before, strict=True)
        ]
        assert sorted(sent) == [0, 0, 0, 4]
    assert [packet.payload for _, packet in b.broker.published] == [b"x", b"x", b"x", b"will"] * 6


def test_round_robin_by_message_spreads_one_publisher(world: World) -> None:
    a, b = row(world, "ab", "pf", link={"sessions": 4, "round_robin": "message"})
    publisher = a.client("p")
    publisher.transport.write(Publish(topic="t", payload=b"x").encode(Version.V311) * 20)
    for i in range(20):
        publisher.send(Publish(topic="t", payload=b"y", qos=1, packet_id=i + 1))
    world.run(2)
    assert [sender.sent for sender in a.node.links.links["b"].senders] == [10] * 4
    assert len(b.broker.topics()) == 40


def test_mqtt_5_properties_cross_and_an_alias_does_not(world: World, algorithm: str) -> None:
    a, b = row(world, "ab", algorithm)
    b.subscriber("t")
    publisher = a.client("pub", version=Version.V5)
    properties = {
        Property.PAYLOAD_FORMAT_INDICATOR: 1,
        Property.CONTENT_TYPE: "text",
        Property.RESPONSE_TOPIC: "answer",
        Property.CORRELATION_DATA: b"\x00\xff",
        Property.USER_PROPERTY: [("b", "1"), ("a", "2"), ("b", "3")],
    }
    publisher.send(Publish(topic="t", payload=b"1", properties={**properties, Property.TOPIC_ALIAS: 5}))
    publisher.send(Publish(topic="", payload=b"2", properties={Property.TOPIC_ALIAS: 5}))
    world.run(1)
    one, two = (p for client_id, p in b.broker.published if client_id.startswith("ildm"))
    assert one.properties == Publish(topic="t", properties=properties).properties
    assert (two.topic, two.payload, two.properties) == ("t", b"2", {})


def test_a_3_1_1_broker_gets_the_message_without_properties(world: World) -> None:
    a, b = row(world, "ab", "pf")
    b.crash()
    b.broker.make = PLAIN._replace(speaks_5=False)
    b.start(neighbors=("a",))
    world.run(5)
    publisher = a.client("pub", version=Version.V5)
    publisher.send(Publish(topic="t", payload=b"1", properties={Property.CONTENT_TYPE: "text"}))
    publisher.send(Publish(topic="t", payload=b"2"))
    world.run(1)
    assert [(p.payload, p.properties) for _, p in b.broker.published] == [(b"1", {}), (b"2", {})]
    assert b.node.counters["injection_properties_dropped"] == 1


def test_a_publisher_that_sends_again_is_not_transferred_twice(world: World) -> None:
    a, b = row(world, "ab", "pf")
    publisher = a.client("pub", clean_start=False)
    publisher.send(Publish(topic="t", payload=b"x", qos=2, packet_id=9))
    world.run(0.1)
    publisher.transport.abort()
    world.run(0.1)
    publisher = a.client("pub", clean_start=False)
    publisher.send(Publish(topic="t", payload=b"x", qos=2, packet_id=9, dup=True))
    world.run(1)
    assert b.broker.topics() == ["t"]


def test_drain_moves_clients_off_without_wills_and_flushes(world: World, algorithm: str) -> None:
    a, b = row(world, "ab", algorithm)
    b.subscriber("t", "s")
    five = a.client(connect=will(version=Version.V5))
    done: list[bool] = []
    a.client("pub").send(Publish(topic="t", payload=b"last", qos=1, packet_id=1))
    world.run(0.002)
    a.node.drain(lambda: done.append(True))
    world.run(5)
    assert done == [True]
    assert five.got(Disconnect)[0].reason_code == 0x8B
    assert five.closed
    assert b.broker.topics() == ["t"]
    refused = MiniClient()
    world.connect(Address("a", 1), refused)
    world.run(0.1)
    assert refused.closed


def test_drain_sends_the_will_of_a_client_that_has_ended_without_disconnect(
    world: World, algorithm: str
) -> None:
    """Its broker stands still and will publish it, too, once it sees the end."""
    a, b = row(world, "ab", algorithm)
    b.subscriber("will", "s")
    client = a.client(connect=will())
    a.broker.reads = False
    client.transport.write_eof()
    world.run(0.1)
    assert len(a.node.sessions) == 1
    done: list[bool] = []
    a.node.drain(lambda: done.append(True))
    world.run(20)
    assert done == [True]
    assert b.broker.topics() == ["will"]


def test_garbage_on_the_link_port_hurts_nobody(world: World) -> None:
    a, _ = row(world, "ab", "sf")
    for data in (
        b"\x00" * 100,
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x10\xff\xff\xff\xff",
        Connect(client_id="x").encode(),
    ):
        stranger = MiniClient(Version.V5)
        world.connect(Address("a", 2), stranger)
        stranger.transport.write(data)
        world.run(12)
        assert stranger.closed
    assert a.links() == {"b": "active"}
    assert a.node.counters["link_malformed"] >= 3


def test_the_nodes_own_session_with_the_broker_lasts(world: World) -> None:
    site = Site(world, "a", "sf")
    world.run(1)
    (connection,) = site.broker.connections
    world.run(300)
    assert site.broker.connections == [connection]
    assert [event for _, event, _ in site.node.driver.logged] == []


def test_puback_of_a_qos_1_client_is_the_brokers_own(world: World) -> None:
    site = Site(world, "a", "sf")
    client = site.client("c")
    client.send(Publish(topic="t", payload=b"x", qos=1, packet_id=77))
    world.run(0.1)
    assert client.got(PubAck) == [PubAck(packet_id=77)]
