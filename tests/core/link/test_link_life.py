"""Links over outages, restarts, removals and two nodes with one id: what is kept, what is forgotten."""

from __future__ import annotations

import itertools

import pytest

from ildm.api import Link, Role, Session
from ildm.config import Address
from ildm.core.link.control import ADVERTISEMENT, send_control
from ildm.core.link.handshake import Phase
from ildm.core.link.hello import METHOD, NONCE, Hello, Refusal
from ildm.core.link.session import LinkSession
from ildm.core.link.topology import Advertisement
from ildm.mqtt import Auth, ConnAck, Connect, Disconnect, Property, Publish, ReasonCode, Version
from ildm.testing.virtual.broker import Broker
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.driver import WorldDriver
from ildm.testing.virtual.node import make_node, plugin_specs
from ildm.testing.virtual.world import World
from ildm_algorithms.pf import PublicationFlooding
from tests.support.senders import send_message
from tests.support.site import Site, row, session_of


def publish(client: MiniClient, topics: list[str], qos: int) -> None:
    for i, topic in enumerate(topics):
        client.send(Publish(topic=topic, payload=b"x", qos=qos, packet_id=i + 1 if qos else None))


def break_off(session: LinkSession) -> None:
    """This end notices that the connection is gone, the other one does not."""
    transport = session.transport
    transport.cut = True  # type: ignore[union-attr]
    transport.closed = True  # type: ignore[union-attr]
    transport._lost(ConnectionError("reset"))  # type: ignore[union-attr]


# sessions of a link that come again ---------------------------------------------------------------


def test_a_session_dialed_again_resends_what_was_in_flight_on_the_one_it_follows(world: World) -> None:
    a, b = row(world, "ab", "pf", link={"sessions": 2})
    sender = a.node.links.links["b"].senders[1]
    session_of(a, "b", 1).transport.cut = True  # type: ignore[union-attr]
    send_message(sender, Publish(topic="t", payload=b"x", qos=1), 1, None)
    world.run(0.2)
    assert sender.inflight == 1
    break_off(session_of(b, "a", 1))  # b dials again before a has noticed
    world.run(5)
    assert sender.inflight == 0
    assert b.broker.topics() == ["t"]
    assert sorted(s.index for s in a.node.links.links["b"].open_sessions) == [0, 1]


def test_a_neighbour_that_has_forgotten_the_link_counts_its_identifiers_anew(world: World) -> None:
    """Else a message whose identifier is unreleased here would pass for one that was sent again."""
    a, b = row(world, "ab", "pf")
    publisher = b.client("p")
    inbound = a.node.links.links["b"].inbounds[0]
    publish(publisher, [f"old/{i}" for i in range(3)], 2)
    while len(inbound._unreleased) + inbound.unacknowledged < 3:
        world.run(0.0005)
    session_of(b, "a").transport.cut = True  # type: ignore[union-attr]
    b.node.links.remove("a:2")
    world.run(0.5)
    assert a.links() == {"b": "active"}  # it has not heard of that
    b.node.links.add(Address("a", 2), False)
    world.run(60)
    assert a.links() == {"b": "active"}
    publish(b.client("p2"), [f"new/{i}" for i in range(3)], 2)
    world.run(5)
    assert a.broker.topics() == [f"old/{i}" for i in range(3)] + [f"new/{i}" for i in range(3)]


def test_what_is_read_in_one_piece_with_the_end_of_a_session_is_ignored(world: World) -> None:
    a, b = row(world, "ab", "pf")
    session = session_of(a, "b")
    ends = Disconnect(reason_code=0x8B).encode(Version.V5)
    session.data_received(ends + Publish(topic="late", payload=b"x").encode(Version.V5))
    world.run(1)
    assert a.broker.topics() == []
    world.run(60)
    assert (a.links(), b.links()) == ({"b": "active"}, {"a": "active"})


@pytest.mark.parametrize("latency", [0.001, 0.05])
@pytest.mark.parametrize("ring", [True, False])
def test_the_queue_for_a_neighbour_that_crashed_is_kept_also_in_a_ring(
    world: World, ring: bool, latency: float
) -> None:
    world.latency = latency
    a, b, c = (Site(world, name, "pf") for name in "abc")
    for site, far in [(b, "a"), (c, "a"), *([(c, "b")] if ring else [])]:
        site.node.links.add(Address(far, 2), False)
        world.run(3)
    publisher = a.client("p")
    b.crash()
    world.run(1)
    topics = [f"t/{i}" for i in range(5)]
    publish(publisher, topics, 1)
    world.run(1)
    b.start(("a",))
    world.run(60)
    assert b.broker.topics() == topics
    assert c.broker.topics() == topics


# neighbours added and removed -----------------------------------------------------------------------


def test_a_neighbour_removed_while_it_is_dialed_is_not_connected(world: World) -> None:
    a, b = Site(world, "a", "pf"), Site(world, "b", "pf")
    a.node.links.add(Address("b", 2), False)
    assert a.node.links.remove("b:2") == (Address("b", 2), None)
    world.run(5)
    assert a.node.links.neighbors == {}
    assert a.links() == b.links() == {}


def test_a_neighbour_that_refuses_can_be_added_again_without_removing_it(world: World) -> None:
    a, b = row(world, "ab", "pf")
    a.node.links.remove("b")
    world.run(2)
    (neighbor,) = b.node.links.neighbors.values()
    assert neighbor.state == "refused"
    b.node.links.add(Address("a", 2), False)
    world.run(3)
    assert (a.links(), b.links()) == ({"b": "active"}, {"a": "active"})
    assert [n.state for n in b.node.links.neighbors.values()] == ["linked"]


@pytest.mark.parametrize(("at", "far"), [("a", "b"), ("b", "a")])
def test_a_link_added_from_both_sides_can_be_removed_by_the_address_at_either(
    world: World, at: str, far: str
) -> None:
    sites = {name: Site(world, name, "pf") for name in "ab"}
    world.run(1)
    for name, other in ("ab", "ba"):
        sites[name].node.links.add(Address(other, 2), False)
    world.run(5)
    assert sites[at].node.links.remove(f"{far}:2") == (Address(far, 2), far)
    world.run(60)
    assert sites["a"].links() == sites["b"].links() == {}
    (neighbor,) = sites[far].node.links.neighbors.values()
    assert (neighbor.state, neighbor.reason) == ("refused", "removed by the neighbour's administrator")
    sites[far].node.links.add(Address(at, 2), False)
    world.run(3)
    assert sites["a"].links() == {"b": "active"}


def test_a_removal_holds_also_against_a_dial_that_is_in_the_air(world: World) -> None:
    world.latency = 0.05
    a, b = Site(world, "a", "pf"), Site(world, "b", "pf")
    world.run(1)
    for site, far in ((a, "b"), (b, "a")):
        site.node.links.add(Address(far, 2), False)
    world.run(5)
    (neighbor,) = b.node.links.neighbors.values()
    assert neighbor.state == "duplicate"
    while neighbor.session is None or neighbor.session.phase is not Phase.DIALING:
        world.run(0.01)
    session = session_of(b, "a")
    a.node.links.remove("b:2")
    session.refusal = Refusal("removed", "removed", ReasonCode.ADMINISTRATIVE_ACTION)
    break_off(session)  # as it is once DISCONNECT has come
    world.run(60)
    assert a.links() == b.links() == {}
    assert neighbor.state == "refused"


def test_connections_from_outside_are_bounded_only_while_they_shake_hands(world: World) -> None:
    link = {"sessions": 8, "max_neighbors": 4}
    hub = Site(world, "hub", "pf", link=link)
    for name in ("x", "y", "z"):
        Site(world, name, "pf", link=link).node.links.add(Address("hub", 2), False)
    world.run(30)
    assert {n: len(one.open_sessions) for n, one in hub.node.links.links.items()} == dict.fromkeys("xyz", 8)
    strangers = [MiniClient(Version.V5) for _ in range(20)]
    for stranger in strangers:
        world.connect(Address("hub", 2), stranger)
    world.run(0.1)
    assert sum(not stranger.closed for stranger in strangers) == 16
    world.run(10)
    assert all(stranger.closed for stranger in strangers)


# the tree ---------------------------------------------------------------------------------------


def test_an_id_that_two_nodes_claim_makes_no_storm_of_advertisements(world: World) -> None:
    sites = []
    for name in "xbcyd":
        sites.append(Site(world, name, "pf", node_id="same" if name in "xy" else name))
        world.run(1)
    x, b, c, y, d = sites
    for one, other in ((b, x), (c, b), (c, y)):
        one.node.links.add(Address(other.name, 2), False)
        world.run(3)
    x.node.links.add(Address("d", 2), False)  # news in the name of one, to which the other objects
    world.run(2)
    received = {site.name: site.node.links.membership.topology.own.sequence for site in sites}
    world.run(20)
    for site in (x, y):
        grown = site.node.links.membership.topology.own.sequence - received[site.name]
        assert grown <= 2 * 20 + 2
    drivers = [site.node.driver for site in (x, y)]
    logged = [event for d in drivers if isinstance(d, WorldDriver) for _, event, _ in d.logged]
    assert "another node seems to have this node's id" in logged
    assert d.links() == {"same": "active"}


def test_a_link_joins_only_when_news_of_the_topology_have_come_to_rest(world: World) -> None:
    a, b = (Site(world, name, "pf", link={"settle": 1}) for name in "ab")
    b.node.links.add(Address("a", 2), False)
    numbers = itertools.count(1)

    def news() -> None:
        advertisement = Advertisement("far", 1, next(numbers), {})
        for link in b.node.links.links.values():
            send_control(link, ADVERTISEMENT, advertisement.encode())

    world.run(0.2)
    for _ in range(8):
        news()
        world.run(0.5)
    assert a.links() == {"b": "not"}
    world.run(1.1)
    assert a.links() == {"b": "active"}


def test_a_link_joins_some_time_even_if_news_never_rest(world: World) -> None:
    a, b = (Site(world, name, "pf", link={"settle": 1}) for name in "ab")
    b.node.links.add(Address("a", 2), False)
    world.run(0.2)
    for number in range(60):
        advertisement = Advertisement("far", 1, number, {}).encode()
        send_control(b.node.links.links["a"], ADVERTISEMENT, advertisement)
        world.run(0.5)
    assert a.links() == {"b": "active"}


@pytest.mark.parametrize("latency", [0.001, 0.02, 0.05, 0.1])
def test_a_ring_made_at_once_duplicates_nothing_while_news_take_less_than_the_settling_time(
    world: World, latency: float
) -> None:
    world.latency = latency
    sites = [Site(world, f"n{i}", "pf") for i in range(5)]
    publishers = [site.client("p", Connect(client_id="p")) for site in sites]
    world.run(3)
    for site, far in zip(sites, sites[1:] + sites[:1], strict=True):
        site.node.links.add(Address(far.name, 2), False)
    for number in range(60):
        publish(publishers[0], [f"t/{number}"], 0)
        world.run(0.1)
    world.run(5)
    assert sites[0].broker.topics() == []
    for site in sites[1:]:
        topics = site.broker.topics()
        assert len(topics) == len(set(topics)) > 20
        assert topics[-1] == "t/59"


def test_news_that_come_together_are_considered_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = row(world, "ab", "pf")
    topology = a.node.links.membership.topology
    computed: list[int] = []
    compute = topology.behind

    def behind() -> dict[str, set[str]]:
        computed.append(topology.nodes)
        return compute()

    monkeypatch.setattr(topology, "behind", behind)
    for i in range(50):
        links = {"b" if i == 0 else f"n{i - 1}": i + 1}
        advertisement = Advertisement(f"n{i}", 1, 1, links).encode()
        send_control(b.node.links.links["a"], ADVERTISEMENT, advertisement)
    world.run(1)
    assert computed == [52]


def test_an_advertisement_nested_without_end_only_breaks_its_connection(world: World) -> None:
    a, b = row(world, "ab", "pf")
    send_control(b.node.links.links["a"], ADVERTISEMENT, b"[" * 100_000)
    world.run(0.1)
    assert a.node.counters["link_malformed"] == 1
    world.run(60)
    assert (a.links(), b.links()) == ({"b": "active"}, {"a": "active"})


def test_a_message_never_goes_back_over_the_link_it_came_from(world: World) -> None:
    class Everywhere(PublicationFlooding):
        def route(self, topic: str, retain: bool, source: Link | None) -> list[tuple[Link, int]]:
            return [(link, 2) for link in self.api.links]

    nodes = {}
    brokers = {name: Broker() for name in "ab"}
    for name, broker in brokers.items():
        world.listen(Address(name, 3), broker.connection)
        nodes[name] = make_node(world, name, plugin_specs("everywhere", Everywhere))
        nodes[name].start({})
    nodes["b"].links.add(Address("a", 2), False)
    world.run(3)
    client = MiniClient()
    world.connect(Address("a", 1), client)
    client.send(Connect(client_id="p"))
    world.run(0.1)
    publish(client, ["t/0"], 0)
    publish(client, ["t/1"], 1)
    world.run(5)
    assert brokers["b"].topics() == ["t/0", "t/1"]
    assert brokers["a"].topics() == []


# handshake ----------------------------------------------------------------------------------------


def test_the_acceptor_proves_the_secret_only_to_one_who_has(world: World) -> None:
    """Else anybody could collect a proof and try guesses of the secret on it."""
    site = Site(world, "a", "pf", secret="s3cret")
    hello = Hello("b", 1, "pf", 1, 0, "token").properties()
    stranger = MiniClient(Version.V5)
    world.connect(Address("a", 2), stranger)
    properties = {
        Property.AUTHENTICATION_METHOD: METHOD,
        Property.AUTHENTICATION_DATA: b"n" * NONCE,
        Property.USER_PROPERTY: hello,
    }
    stranger.send(Connect(client_id="b/0", version=Version.V5, properties=properties))
    world.run(0.1)
    (challenge,) = stranger.packets
    assert isinstance(challenge, Auth)
    assert len(challenge.properties[Property.AUTHENTICATION_DATA]) == NONCE  # and nothing but that
    answer = {Property.AUTHENTICATION_METHOD: METHOD, Property.AUTHENTICATION_DATA: b"g" * 32}
    stranger.send(Auth(reason_code=0x18, properties=answer))
    world.run(0.1)
    (refusal,) = stranger.got(ConnAck)
    assert refusal.reason_code == 0x87
    assert Property.AUTHENTICATION_DATA not in refusal.properties
    assert stranger.closed
    assert site.links() == {}


def test_plugins_hear_only_of_the_end_of_link_sessions_whose_beginning_they_heard_of(world: World) -> None:
    heard: list[tuple[str, Session]] = []

    class Listening(PublicationFlooding):
        def on_session_established(self, session: Session) -> None:
            if session.role is Role.LINK:
                heard.append(("established", session))

        def on_session_closed(self, session: Session) -> None:
            if session.role is Role.LINK:
                heard.append(("closed", session))

    node = make_node(world, "a", plugin_specs("pf", Listening), secret="s3cret")
    node.start({})
    stranger = MiniClient(Version.V5)
    world.connect(Address("a", 2), stranger)
    world.run(20)
    wrong, right = Site(world, "b", "pf", secret="wrong"), Site(world, "c", "pf", secret="s3cret")
    for site in (wrong, right):
        site.node.links.add(Address("a", 2), False)
    world.run(3)
    right.node.links.remove("a:2")
    world.run(3)
    assert stranger.closed
    assert [event for event, _ in heard] == ["established", "closed"]
    assert heard[0][1] is heard[1][1]


def test_what_a_neighbour_says_when_it_leaves_is_not_counted_by_its_words(world: World) -> None:
    """Counters are named by this node alone, or a neighbour could make any number of them."""
    a, _ = row(world, "ab", "pf")
    session = session_of(a, "b")
    session.transport.cut = True  # type: ignore[union-attr]
    send_message(a.node.links.links["b"].senders[0], Publish(topic="t", payload=b"x", qos=1), 1)
    world.run(0.2)
    said = Disconnect(
        reason_code=ReasonCode.ADMINISTRATIVE_ACTION, properties={Property.REASON_STRING: "any text"}
    )
    session.data_received(said.encode(Version.V5))
    world.run(1)
    dropped = {name: n for name, n in a.node.counters.items() if name.startswith("link_dropped_")}
    assert dropped == {"link_dropped_removed_qos1": 1}


def test_when_one_neighbour_is_back_others_are_not_left_to_their_long_pauses(world: World) -> None:
    """Nodes that were cut off, or restarted, together come back together."""
    a, b, c = (Site(world, name, "pf") for name in "abc")
    for far in "bc":
        a.node.links.add(Address(far, 2), False)
    world.run(5)
    for site in (b, c):
        site.kill()
    world.run(300)
    c.start()
    b.start(("a",))
    assert world.run_until(lambda: a.links() == {"b": "active", "c": "active"}, 2)
    assert a.node.links.neighbors[Address("c", 2)].state == "linked"


def test_one_that_comes_and_goes_does_not_put_off_the_dialing_of_others(world: World) -> None:
    a, b, c = (Site(world, name, "pf") for name in "abc")
    a.node.links.add(Address("c", 2), False)
    b.node.links.add(Address("a", 2), False)
    world.run(5)
    c.kill()
    world.run(300)
    c.start()
    for _ in range(40):
        for session in list(a.node.links.links["b"].open_sessions):
            session.abort()
        world.run(0.3)
    assert a.links()["c"] == "active"
