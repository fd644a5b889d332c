"""What neighbours, and those who only say that they are, can do to a node's links."""

from __future__ import annotations

import pytest

from ildm.config import Address
from ildm.core.link.control import ADVERTISEMENT, send_control
from ildm.core.link.hello import Hello
from ildm.core.link.topology import Advertisement
from ildm.mqtt import ConnAck, Connect, PingReq, Property, Version
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.world import World
from tests.support.site import Site, row


def logged(site: Site) -> list[str]:
    return [event for _, event, _ in site.driver.logged]


# addresses --------------------------------------------------------------------------------------


def test_removing_a_second_address_of_a_neighbour_leaves_the_link_alone(world: World) -> None:
    a, b = Site(world, "a", "pf"), Site(world, "b", "pf")
    world.listen(Address("alias", 2), world.listeners[Address("b", 2)])
    a.node.links.add(Address("b", 2), False)
    world.run(3)
    a.node.links.add(Address("alias", 2), False)
    world.run(3)
    assert [n.state for n in a.node.links.neighbors.values()] == ["linked", "duplicate"]
    link = a.node.links.links["b"]
    assert a.node.links.remove("alias:2") == (Address("alias", 2), None)
    world.run(3)
    assert a.node.links.links["b"] is link
    assert (a.links(), b.links()) == ({"b": "active"}, {"a": "active"})
    assert a.node.counters["link_sessions_lost"] == 0


def test_removing_a_neighbour_by_its_id_removes_all_its_addresses(world: World) -> None:
    a, b = Site(world, "a", "pf"), Site(world, "b", "pf")
    world.listen(Address("alias", 2), world.listeners[Address("b", 2)])
    for name in ("b", "alias"):
        a.node.links.add(Address(name, 2), False)
        world.run(3)
    a.node.links.remove("b")
    world.run(30)
    assert a.node.links.neighbors == {}
    assert a.links() == b.links() == {}


# who speaks for whom -----------------------------------------------------------------------------


def forge(site: Site, over: str, node: str, links: dict[str, int], boot: int = 1 << 50) -> None:
    """A member says something in another node's name."""
    advertisement = Advertisement(node, boot, 1 << 50, links)
    send_control(site.node.links.links[over], ADVERTISEMENT, advertisement.encode())


def test_what_a_member_says_in_the_name_of_a_neighbour_is_not_believed(world: World) -> None:
    """A ring of four with one blocked link; d says that b has no links any more, which would unblock it."""
    a, b, c, d = sites = row(world, "abcd", "pf")
    d.node.links.add(Address("a", 2), False)
    world.run(5)
    assert a.links() == {"b": "active", "d": "not"}
    forge(d, "a", "b", {})
    forge(d, "c", "b", {})
    for _ in range(100):
        world.run(0.1)
        assert a.links() == {"b": "active", "d": "not"}
        assert b.links() == {"a": "active", "c": "active"}
    assert a.node.counters["advertisements_second_hand"] == 1
    assert a.node.counters["advertisements_disputed"] == 1
    assert [site.node.counters["link_malformed"] for site in sites] == [0] * 4
    assert c.links() == {"b": "active", "d": "active"}


def test_a_neighbour_whose_end_nobody_has_noticed_is_taken_for_what_others_say(world: World) -> None:
    """It has begun another life and says nothing over the old connection."""
    a, b, c = row(world, "abc", "pf")
    c.node.links.add(Address("a", 2), False)
    Site(world, "d", "pf").node.links.add(Address("c", 2), False)
    world.run(5)
    assert a.links()["c"] == "not"
    b.kill(silent=True)
    b.start(("d",))
    world.run(8)
    assert a.links()["c"] == "active"


@pytest.mark.parametrize("boot", [1, 1 << 52, (1 << 53) - 1])
def test_words_in_a_nodes_own_name_do_not_unsettle_it(world: World, boot: int) -> None:
    a, b = row(world, "ab", "pf")
    forge(b, "a", "a", {"ghost": 1}, boot)
    world.run(5)
    assert (a.links(), b.links()) == ({"b": "active"}, {"a": "active"})
    c = Site(world, "c", "pf")
    c.node.links.add(Address("a", 2), False)
    world.run(5)
    assert a.links() == {"b": "active", "c": "active"}
    assert a.node.counters["link_malformed"] == b.node.counters["link_malformed"] == 0


def test_a_copied_id_in_a_row_is_named_at_every_node(world: World) -> None:
    x, a, b = (Site(world, name, "pf") for name in "xab")
    world.run(1)
    y = Site(world, "y", "pf", node_id="x")
    for site, far in ((x, "a"), (a, "b"), (b, "y")):
        site.node.links.add(Address(far, 2), False)
    world.run(30)
    assert [event for site in (x, y) for event in set(logged(site)) if "id" in event] == [
        "another node seems to have this node's id"
    ] * 2
    for site in (a, b):
        assert "two nodes seem to have the same id" in logged(site)


@pytest.mark.parametrize("acceptor_dials", [True, False])
def test_a_copied_id_at_one_neighbour_is_named(world: World, acceptor_dials: bool) -> None:
    a, x = row(world, "ax", "pf")
    y = Site(world, "y", "pf", node_id="x")
    dialer, far = (a, "y") if acceptor_dials else (y, "a")
    dialer.node.links.add(Address(far, 2), False)
    world.run(30)
    assert a.links() == {"x": "active"}
    assert x.links() == {"a": "active"}
    neighbor = dialer.node.links.neighbors[Address(far, 2)]
    assert neighbor.state == "refused"
    assert "another node that has the id 'x'" in str(neighbor.reason)
    assert a.node.counters["node_ids_copied"] > 0


def test_a_neighbour_that_comes_again_while_its_old_connection_is_dead_is_no_copy(world: World) -> None:
    a, x = Site(world, "a", "pf"), Site(world, "x", "pf")
    a.node.links.add(Address("x", 2), False)
    world.run(3)
    x.kill(silent=True)
    x.start(("a",))
    world.run(40)
    assert (a.links(), x.links()) == ({"x": "active"}, {"a": "active"})
    assert a.node.counters["node_ids_copied"] == 0


# handshakes ---------------------------------------------------------------------------------------


def test_both_versions_of_the_link_protocol_are_named_on_both_sides(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(world, "a", "pf", secret="a secret of some length")
    said = [
        (name, {"ildm": "77", "protocol": "77-78"}.get(name, value))
        for name, value in Hello("b", 1, "pf", 1, 0, "t").properties()
    ]
    stranger = MiniClient(Version.V5)
    world.connect(Address("a", 2), stranger)
    properties = {Property.USER_PROPERTY: said}
    stranger.send(Connect(client_id="b/0", version=Version.V5, properties=properties))
    world.run(0.1)
    (refusal,) = stranger.got(ConnAck)
    text = "a speaks versions 2 to 3 of the link protocol, b speaks versions 77 to 78"
    assert refusal.reason_code == 0x84
    assert refusal.properties[Property.REASON_STRING] == text
    driver = site.driver
    assert [fields["reason"] for _, event, fields in driver.logged if event == "neighbour refused"] == [text]


def test_strangers_that_only_connect_do_not_keep_a_neighbour_out(world: World) -> None:
    a, b = row(world, "ab", "pf", link={"max_neighbors": 4, "connect_timeout": 60})
    strangers: list[MiniClient] = []
    for i in range(40):
        strangers.append(MiniClient(Version.V5))
        world.connect(Address("a", 2), strangers[-1], local="evil" if i % 4 else f"host{i}")
    world.run(1)
    assert sum(not stranger.closed for stranger in strangers) == 16
    for session in b.node.links.links["a"].open_sessions:
        session.abort()
    world.run(3)
    assert (a.links(), b.links()) == ({"b": "active"}, {"a": "active"})
    assert a.node.counters["link_connections_refused"] > 20


# who does not read --------------------------------------------------------------------------------


def test_answers_that_nobody_reads_are_bounded(world: World) -> None:
    a, b = row(
        world, "ab", "pf", link={"control_bytes": 10_000, "inflight_bytes": 10_000, "keep_alive": 1000}
    )
    near, far = a.node.links.links["b"].control, b.node.links.links["a"].control
    assert near is not None
    assert far is not None
    assert far.transport is not None
    far.transport.pause_reading()
    pings = PingReq().encode(Version.V5) * 10_000
    for _ in range(200):
        far.transport.write(pings)
        world.run(0.01)
        if near.sender is None:
            break
    else:
        pytest.fail("the session goes on")
    assert a.node.counters["link_sessions_unread"] == 1


@pytest.mark.parametrize("level", [4, 5, 9])
def test_a_connect_on_a_link_ends_its_session_with_the_reason(world: World, level: int) -> None:
    a, b = row(world, "ab", "pf")
    (session,) = b.node.links.links["a"].open_sessions
    packet = Connect(client_id="again", version=Version.V5, clean_start=True, keep_alive=9).encode(Version.V5)
    session.write(packet.replace(b"MQTT\x05", b"MQTT" + bytes((level,))))
    world.run(0.1)
    assert a.node.counters["link_malformed"] == 1
    assert "CONNECT on a link" in str(b.node.links.links["a"].reason)
    world.run(5)
    assert (a.links(), b.links()) == ({"b": "active"}, {"a": "active"})
