"""Two linked nodes before one broker: each hears the other there, and the link is refused."""

from __future__ import annotations

from typing import Any

import pytest

from ildm.api import SendResult
from ildm.config import Address
from ildm.core.broker.same_broker import ATTEMPTS, BATCH, CHECKED_AFTER, PREFIX, number_in, topic_of
from ildm.mqtt import Connect, PingReq, Publish, Subscribe, Unsubscribe
from ildm.testing.virtual.broker import Broker, Connection
from ildm.testing.virtual.makes import PLAIN
from ildm.testing.virtual.world import World
from tests.support.site import Site
from tests.support.talkers import Site as TalkerSite

REASON = (
    "a and b have the same broker (broker.address), so each message would come twice: "
    "linked nodes need a broker each"
)
NOT_NOTICED = "a neighbour before the same broker is not noticed"


class Heard(Broker):
    """Keeps what nodes subscribe to find each other."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted: list[str] = []
        self.left: list[str] = []
        self.takes = self._note

    def _note(self, _: Connection, packet: Any) -> bool:
        if isinstance(packet, Subscribe):
            topics = [each.topic_filter for each in packet.subscriptions]
            self.wanted += [each for each in topics if each.startswith(PREFIX)]
        elif isinstance(packet, Unsubscribe):
            self.left += [each for each in packet.topic_filters if each.startswith(PREFIX)]
        return True


def two(world: World, algorithm: str, broker: Broker | None = None, **settings: Any) -> list[Site]:
    """Two nodes that are not linked, before one broker."""
    sites = [Site(world, name, algorithm, **settings) for name in "ab"]
    for site in sites:
        site.use(broker or sites[0].broker)
    return sites


def link(a: Site, b: Site) -> None:
    b.node.links.add(Address(a.name, 2), False)


def logged(site: Site, event: str) -> list[tuple[str, dict[str, object]]]:
    return [(level, fields) for level, found, fields in site.driver.logged if found == event]


def connected(site: Site) -> int:
    """How often a link of the site has been connected."""
    return len(logged(site, "link connected"))


def assert_refused(a: Site, b: Site) -> None:
    """At both ends, with the reason; ``b`` dials."""
    for site, other in ((a, b), (b, a)):
        assert site.node.injector.same_broker.shared_with == [other.name]
        assert "active" not in site.links().values()
    neighbor = b.node.links.neighbors[Address(a.name, 2)]
    assert (neighbor.state, neighbor.reason) == ("refused", REASON)
    assert a.node.counters["links_refused_same-broker"] >= 1
    assert any(fields["reason"] == REASON for _, fields in logged(a, "neighbour refused"))
    assert any(fields["reason"] == REASON for _, fields in logged(b, "neighbour refuses"))


@pytest.mark.parametrize("latency", [0.0002, 0.001, 0.02])
def test_it_is_refused_at_both_ends_before_anything_has_crossed(
    world: World, algorithm: str, latency: float
) -> None:
    world.latency = latency
    a, b = two(world, algorithm)
    world.run(2)
    publisher = a.client("pub")
    publisher.send(Publish(topic="state", payload=b"kept", retain=True))
    subscribers = [a.subscriber("#", "s1"), b.subscriber("#", "s2")]
    link(a, b)
    for number in range(100):
        publisher.send(Publish(topic="t", payload=b"%d" % number))
        world.run(0.05)
    world.run(1)
    assert_refused(a, b)
    for subscriber in subscribers:
        assert subscriber.messages == [("state", b"kept"), *(("t", b"%d" % n) for n in range(100))]
    assert a.node.counters["transferred_out"] == b.node.counters["transferred_out"] == 0


def test_it_stays_refused_in_the_handshake_with_growing_pauses(world: World, algorithm: str) -> None:
    a, b = two(world, algorithm)
    world.run(2)
    link(a, b)
    world.run(600)
    assert_refused(a, b)
    assert connected(a) == connected(b) == 1
    assert a.node.counters["links_refused_same-broker"] < 50


@pytest.mark.parametrize("sessions", [1, 3])
def test_both_dial_each_other(world: World, algorithm: str, sessions: int) -> None:
    a, b = two(world, algorithm, link={"sessions": sessions})
    world.run(2)
    link(a, b)
    link(b, a)
    world.run(100)
    assert_refused(a, b)
    assert_refused(b, a)
    assert connected(a) + connected(b) <= 4


def test_nodes_that_start_together(world: World, algorithm: str) -> None:
    """The link may be there before the brokers are."""
    a, b = two(world, algorithm)
    link(a, b)
    world.run(60)
    assert_refused(a, b)
    assert connected(a) <= 2


@pytest.mark.parametrize("late", ["a", "b", "ab"])
def test_a_broker_that_comes_after_the_link(world: World, algorithm: str, late: str) -> None:
    """A link waits for no broker; it is refused when the later one of both comes."""
    a, b = two(world, algorithm)
    for name in late:
        del world.listeners[Address(name, 3)]
    link(a, b)
    world.run(5)
    assert b.links() == {"a": "active"}
    for name in late:
        world.listen(Address(name, 3), a.broker.connection)
    world.run(60)
    assert_refused(a, b)


@pytest.mark.parametrize("speaks_5", [True, False])
def test_after_a_restart_of_the_broker_it_is_found_again(
    world: World, algorithm: str, speaks_5: bool
) -> None:
    a, b = two(world, algorithm)
    a.broker.make = PLAIN._replace(speaks_5=speaks_5)
    world.run(5)
    link(a, b)
    world.run(20)
    a.broker.crash(keeps=False)
    world.run(60)
    assert_refused(a, b)
    assert connected(a) <= 3


def test_a_broker_that_moves_ends_it_and_brings_it_back(world: World, algorithm: str) -> None:
    a, b = two(world, algorithm)
    world.run(2)
    link(a, b)
    world.run(20)
    assert_refused(a, b)

    other = Broker()
    world.listen(Address("elsewhere", 3), other.connection)
    b.node.brokers.replace([Address("elsewhere", 3)])
    world.run(40)
    assert (a.links(), b.links()) == ({"b": "active"}, {"a": "active"})
    assert b.node.injector.same_broker.shared_with == []
    a.client("pub").send(Publish(topic="t", payload=b"x", retain=True))
    world.run(1)
    assert other.topics() == ["t"]

    b.node.brokers.replace([Address("b", 3)])
    world.run(40)
    assert not b.node.links.links.get("a") or not b.node.links.links["a"].connected
    assert a.node.injector.same_broker.shared_with == ["b"]
    assert b.node.injector.same_broker.shared_with == ["a"]
    assert b.node.links.neighbors[Address("a", 2)].reason == REASON


def test_a_node_that_is_restarted_elsewhere_is_linked(world: World, algorithm: str) -> None:
    a, b = two(world, algorithm)
    world.run(2)
    link(a, b)
    world.run(20)
    b.kill()
    b.use(Broker())
    b.start(("a",))
    world.run(5)
    assert (a.links(), b.links()) == ({"b": "active"}, {"a": "active"})


def test_what_was_kept_in_an_outage_waits_for_a_broker_of_its_own(world: World) -> None:
    """The link keeps what is for the neighbour, as for one that is away, and nothing of it comes twice."""
    a, b = Site(world, "a", "pf"), Site(world, "b", "pf")
    link(a, b)
    world.run(5)
    own = b.broker
    b.node.brokers.replace([Address("a", 3)])
    world.run(5)
    assert a.links() == {"b": "not"}
    subscriber = a.subscriber("t")
    a.client("pub").send(Publish(topic="t", payload=b"x", qos=1, packet_id=1))
    world.run(20)
    assert subscriber.messages == [("t", b"x")]
    b.node.brokers.replace([Address("b", 3)])
    world.run(40)
    assert own.topics() == ["t"]
    assert subscriber.messages == [("t", b"x")]


@pytest.mark.parametrize("both", [True, False])
def test_an_account_that_may_not_listen(world: World, algorithm: str, both: bool) -> None:
    """At one end the other one hears nevertheless; at both nothing is refused, and each says so once."""
    a, b = two(world, algorithm)

    def through(connection: Connection, packet: Any) -> bool:
        """Each account has rules of its own at the broker of both."""
        if isinstance(packet, Publish):
            a.broker.take(packet, connection)
            a.broker.flush()
        return True

    b.use(Broker())
    b.broker.takes = through
    b.broker.denies = lambda topic_filter: topic_filter.startswith(PREFIX)
    if both:
        a.broker.denies = b.broker.denies
    world.run(2)
    link(a, b)
    world.run(30)
    for site in (a, b):
        denied = both or site is b
        assert (site.node.injector.same_broker.unheard is not None) is denied
    if not both:
        assert_refused(a, b)
        return
    assert (a.links(), b.links()) == ({"b": "active"}, {"a": "active"})
    a.broker.crash()
    b.broker.crash()
    world.run(30)
    for site in (a, b):
        [(level, fields)] = logged(site, NOT_NOTICED)
        assert level == "info"
        assert PREFIX in str(fields["reason"])


def test_a_broker_that_delivers_nothing_there(world: World, algorithm: str) -> None:
    a, b = two(world, algorithm)
    a.broker.gives = lambda _, packet: not (isinstance(packet, Publish) and packet.topic.startswith("$"))
    world.run(10)
    assert logged(a, NOT_NOTICED) == []  # it matters to nobody yet
    link(a, b)
    world.run(10)
    assert (a.links(), b.links()) == ({"b": "active"}, {"a": "active"})
    assert len(logged(a, NOT_NOTICED)) == len(logged(b, NOT_NOTICED)) == 1


def test_a_broker_that_hangs_up_on_it_is_not_tried_for_ever(world: World, algorithm: str) -> None:
    a, b = Site(world, "a", algorithm), Site(world, "b", algorithm)
    tried = 0

    def hangs_up(packet: Any) -> bool:
        nonlocal tried
        asks = isinstance(packet, Subscribe) and packet.subscriptions[0].topic_filter.startswith(PREFIX)
        tried += asks
        return asks

    b.broker.hangs_up_on = hangs_up
    link(a, b)
    world.run(600)
    assert tried == ATTEMPTS
    assert b.node.injector.same_broker.unheard is not None
    assert b.links() == {"a": "active"}
    b.broker.crash()  # it may have other rules now
    world.run(600)
    assert tried == 2 * ATTEMPTS


def test_a_broker_that_is_silent_is_dialed_anew(world: World, algorithm: str) -> None:
    a, b = two(world, algorithm)
    for site in (a, b):
        site.use(Broker())
    link(a, b)
    world.run(5)
    session = b.node.injector.same_broker.session
    assert session is not None
    connection = b.broker.of("ildm-b-same")
    b.broker.takes = lambda _, packet: not (isinstance(packet, PingReq) and connection.received[-1] is packet)
    world.run(3 * b.node.config.broker.keep_alive)
    again = b.node.injector.same_broker.session
    assert again is not None
    assert again is not session
    assert again.accepted


def test_nodes_with_brokers_of_their_own_are_told_once(world: World, algorithm: str) -> None:
    """Each link costs a subscription and a message; one that comes again between known nodes no message."""
    a, b = Site(world, "a", algorithm), Site(world, "b", algorithm)
    a.use(Heard())
    b.use(Heard())
    world.run(5)
    link(a, b)
    world.run(CHECKED_AFTER + 5)
    for _ in range(5):
        control = b.node.links.links["a"].control
        assert control is not None
        control.abort()
        world.run(5)
        assert b.links() == {"a": "active"}
    for site in (a, b):
        broker = site.broker
        assert isinstance(broker, Heard)
        [echo, told] = broker.probes  # its own, and the neighbour's
        assert echo[1] in broker.wanted
        assert told[1] not in broker.wanted
        assert len(broker.wanted) == 7
        assert len(broker.left) == 5
        session = site.node.injector.same_broker.session
        assert session is not None
        assert len(session._subscribed) == 2
        assert len(site.node.injector.same_broker._links) == 1
    b.broker.crash()
    world.run(10)
    assert isinstance(b.broker, Heard)
    assert len(b.broker.probes) == 4  # whatever has come back may be another one


def test_many_links_are_asked_for_together(world: World) -> None:
    settings = {"max_neighbors": 2 * BATCH}
    hub = Site(world, "hub", "pf", link=settings)
    hub.use(Heard())
    far = [Site(world, f"n{number}", "pf") for number in range(BATCH + 20)]
    for site in far:
        link(hub, site)
    world.run(20)
    broker = hub.broker
    assert isinstance(broker, Heard)
    broker.wanted.clear()
    broker.probes.clear()
    connection = broker.of("ildm-hub-same")
    connection.transport.abort()
    world.run(20)
    connection = broker.of("ildm-hub-same")
    sizes = [len(each.subscriptions) for each in connection.received if isinstance(each, Subscribe)]
    assert sizes == [BATCH, 21]
    assert len(broker.probes) == len(far) + 1
    assert set(hub.links().values()) == {"active"}


def test_a_client_that_repeats_all_it_reads_there_harms_no_link(world: World, algorithm: str) -> None:
    a, b = Site(world, "a", algorithm), Site(world, "b", algorithm)
    world.run(5)
    spies = [site.subscriber("$ildm/#", "spy") for site in (a, b)]
    link(a, b)
    world.run(5)
    for spy in spies:
        assert spy.messages
        for topic, payload in list(spy.messages):
            spy.send(Publish(topic=topic, payload=payload))
    world.run(5)
    assert (a.links(), b.links()) == ({"b": "active"}, {"a": "active"})
    assert a.node.injector.same_broker.shared_with == b.node.injector.same_broker.shared_with == []


def test_nothing_of_it_crosses_a_link_or_is_kept(world: World, algorithm: str) -> None:
    a, b = Site(world, "a", algorithm), Site(world, "b", algorithm)
    subscriber = b.subscriber("#")
    link(a, b)
    world.run(20)
    a.client("c").send(Publish(topic=PREFIX + "x", payload=b"x", qos=1, packet_id=1, retain=True))
    world.run(5)
    assert subscriber.messages == []
    assert a.node.counters["transferred_out"] == 0


def test_nodes_with_a_third_one_between_them_are_not_noticed(world: World, algorithm: str) -> None:
    """Only neighbours listen for each other: said in the documents."""
    a, c = two(world, algorithm)
    b = Site(world, "middle", algorithm)
    link(a, b)
    c.node.links.add(Address("middle", 2), False)
    world.run(20)
    assert b.links() == {"a": "active", "b": "active"}
    assert b.node.injector.same_broker.shared_with == []


def test_a_third_neighbour_keeps_its_link(world: World, algorithm: str) -> None:
    a, b = two(world, algorithm)
    c = Site(world, "c", algorithm)
    world.run(2)
    link(a, c)
    link(a, b)
    world.run(30)
    assert a.links() == {"c": "active"}
    assert a.node.injector.same_broker.shared_with == ["b"]


def test_an_address_beside_the_first_of_the_same_node_is_refused_as_well(
    world: World, algorithm: str
) -> None:
    a, b = two(world, algorithm)
    listener = world.listeners[Address("a", 2)]
    world.listen(Address("also-a", 2), listener)
    world.run(2)
    link(a, b)
    b.node.links.add(Address("also-a", 2), False)
    world.run(60)
    assert_refused(a, b)
    assert b.node.links.neighbors[Address("also-a", 2)].reason == REASON
    assert connected(a) == 1


def test_clients_do_not_wait_for_it_at_the_start(world: World) -> None:
    a, b = two(world, "sf")
    world.run(5)
    link(a, b)
    world.run(5)
    b.kill()
    b.start(("a",))
    world.run(3)
    assert b.node.links.start_gate.waiting_for == []


@pytest.mark.parametrize("protocol", ["3.1.1", "5"])
def test_links_on_demand_are_refused_too(world: World, protocol: str) -> None:
    broker = {"protocol": protocol}
    a, b = (TalkerSite(world, name, broker={"address": f"{name}:3", **broker}) for name in "ab")
    world.listen(Address("b", 3), a.broker.connection)
    world.run(2)
    assert a.send(b, "1") is SendResult.OK
    world.run(5)
    assert a.links() == b.links() == {}
    assert a.node.injector.same_broker.shared_with == ["b"]
    assert b.node.injector.same_broker.shared_with == ["a"]
    for _ in range(20):
        a.send(b, "more")
        world.run(1)
    assert b.heard("a") in ([], ["1"])
    assert "b: rejected" in a.talker.unreachable
    assert [up for up, _, _ in a.talker.links].count("up") <= 1


def test_it_is_no_own_session_that_a_client_may_take_over(world: World) -> None:
    a, b = Site(world, "a", "pf"), Site(world, "b", "pf")
    link(a, b)
    world.run(2)
    a.client("ildm-a-same")
    world.run(2)
    assert not [each for each in a.node.sessions if each.client_id == "ildm-a-same"]
    assert [each.client_id for each in a.broker.connections].count("ildm-a-same") == 1


@pytest.mark.parametrize("name", ["pf", None])
def test_a_node_without_neighbours_has_no_such_session(world: World, name: str | None) -> None:
    a = Site(world, "a", name)
    world.run(5)
    assert "ildm-a-same" not in [each.client_id for each in a.broker.connections]


def test_it_ends_with_the_node(world: World) -> None:
    a = Site(world, "a", "pf")
    link(a, Site(world, "b", "pf"))
    world.run(5)
    assert "ildm-a-same" in [each.client_id for each in a.broker.connections]
    ended: list[bool] = []
    a.node.drain(lambda: ended.append(True))
    world.run(60)
    assert ended == [True]
    assert a.broker.connections == []


def test_topics_of_a_link_differ_at_its_ends_and_tell_nothing() -> None:
    topics = {topic_of(token, node) for token in ("0a", "0b") for node in ("a", "b")}
    assert len(topics) == 4
    assert all(topic.startswith(PREFIX) and topic.isascii() for topic in topics)
    assert topic_of("0a", "ä/#+") not in topics


@pytest.mark.parametrize(
    ("text", "number"),
    [("7", 7), ("", 0), ("-1", 0), ("x", 0), ("1" * 10, 0), ("²", 0), ("999999999", 999999999)],
)
def test_what_a_neighbour_says_of_its_connection(text: str, number: int) -> None:
    assert number_in(text) == number


def test_a_client_of_the_listening_kind_greets_as_the_account(world: World) -> None:
    a = Site(world, "a", "pf", broker={"address": "a:3", "username": "node"})
    link(a, Site(world, "b", "pf"))
    world.run(2)
    connection = a.broker.of("ildm-a-same")
    [connect] = [each for each in connection.received if isinstance(each, Connect)]
    assert (connect.username, connect.clean_start) == ("node", True)
