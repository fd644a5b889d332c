"""What an acceptor tells its administrator of dialers that it has refused."""

from __future__ import annotations

from ildm.config import Address
from ildm.core.link.hello import Hello
from ildm.core.link.turned_away import LASTS, MOST, TEXT, TurnedAwayDialer
from ildm.mqtt import Connect, Property, Version
from ildm.net.neighbors_view import refused_rows
from ildm.testing.virtual.client import MiniClient
from ildm.testing.virtual.world import World
from tests.support.site import Site, row

SECRET = "a secret of some length"


def refused(site: Site) -> list[tuple[str, str, str]]:
    return [(one.node_id, one.kind, one.reason) for one in site.node.links.turned_away.lately()]


def dial(dialer: Site, acceptor: Site) -> None:
    dialer.node.links.add(Address(acceptor.name, 2), False)


def introduce(world: World, hello: Hello, local: str = "far", **changed: str) -> None:
    """Somebody says that it is a node."""
    stranger = MiniClient(Version.V5)
    world.connect(Address("a", 2), stranger, local=local)
    said = [(name, changed.get(name, value)) for name, value in hello.properties()]
    properties = {Property.USER_PROPERTY: said}
    stranger.send(Connect(client_id=f"{hello.node}/0", version=Version.V5, properties=properties))
    world.run(0.1)


def test_another_secret(world: World) -> None:
    a, b = Site(world, "a", "pf", secret=SECRET), Site(world, "b", "pf", secret=f"{SECRET}2")
    dial(b, a)
    world.run(5)
    assert refused(a) == [("b", "secret", "wrong link secret")]
    assert refused(b) == []
    (one,) = refused_rows(a.node)
    assert one["count"] > 1
    assert one["since"] < one["last"] <= a.node.driver.wall()
    assert one["address"] == a.node.links.turned_away.lately()[0].host != ""


def test_no_secret(world: World) -> None:
    a, b = Site(world, "a", "pf", secret=SECRET), Site(world, "b", "pf")
    dial(b, a)
    world.run(5)
    assert refused(a) == [("b", "secret", "a link secret is required")]


def test_its_own_id(world: World) -> None:
    a, b = Site(world, "a", "pf"), Site(world, "b", "pf", node_id="a")
    dial(b, a)
    world.run(5)
    assert refused(a) == [("a", "own-id", "the neighbour has this node's own id 'a'")]


def test_another_algorithm(world: World) -> None:
    a, b = Site(world, "a", "pf"), Site(world, "b", "sf")
    dial(b, a)
    world.run(5)
    assert refused(a) == [("b", "algorithm", "a runs algorithm 'pf', b runs 'sf'")]


def test_no_place(world: World) -> None:
    a, _ = row(world, "ab", "pf", link={"max_neighbors": 1})
    dial(Site(world, "c", "pf"), a)
    world.run(5)
    assert refused(a) == [("c", "limit", "too many neighbours (link.max_neighbors)")]


def test_a_copied_id(world: World) -> None:
    a, _ = row(world, "ax", "pf")
    dial(Site(world, "y", "pf", node_id="x"), a)
    world.run(30)
    ((node_id, kind, reason),) = refused(a)
    assert (node_id, kind) == ("x", "copied-id")
    assert "one of the two needs another id" in reason


def test_another_version(world: World) -> None:
    site = Site(world, "a", "pf")
    introduce(world, Hello("b", 1, "pf", 1, 0, "t"), protocol="77-77")
    ((node_id, kind, reason),) = refused(site)
    assert (node_id, kind) == ("b", "version")
    assert reason == "a speaks versions 2 to 3 of the link protocol, b speaks version 77"


def test_what_is_no_node(world: World) -> None:
    site = Site(world, "a", "pf")
    client = MiniClient(Version.V311)
    world.connect(Address("a", 2), client)
    client.send(Connect(client_id="sensor"))
    world.run(1)
    ((node_id, kind, reason),) = refused(site)
    assert (node_id, kind) == ("", "malformed")
    assert "not a node of ILDM" in reason


def test_links_that_are_there_twice_are_no_fault(world: World) -> None:
    a, b = row(world, "ab", "pf")
    dial(a, b)
    world.run(30)
    assert a.links() == {"b": "active"}
    assert refused(a) == refused(b) == []


def test_who_is_accepted_later_is_listed_no_longer(world: World) -> None:
    a, b = Site(world, "a", "pf", secret=SECRET), Site(world, "b", "pf", secret="another of some length")
    dial(b, a)
    world.run(5)
    assert refused(a)
    b.kill()
    b.settings["secret"] = SECRET
    b.start(("a",))
    world.run(40)
    assert a.links() == {"b": "active"}
    assert refused(a) == []


def test_it_is_bounded_and_one_host_displaces_no_others(world: World) -> None:
    site = Site(world, "a", "pf")
    kept = site.node.links.turned_away
    introduce(world, Hello("b", 1, "sf", 1, 0, "t"), local="honest")
    honest = kept.lately()[0].host
    for number in range(3 * MOST):
        introduce(world, Hello(f"n{number}", 1, "x" * 5000, 1, 0, "t"), local="evil")
    found = kept.lately()
    assert len(found) == MOST
    assert found[0].node_id == f"n{3 * MOST - 1}"
    assert found[-1].host == honest
    assert max(len(one.reason) for one in found) <= TEXT + 3
    assert site.node.counters["link_refusals_forgotten"] == 2 * MOST + 1


def test_it_ends_after_a_day(world: World) -> None:
    site = Site(world, "a", "pf")
    introduce(world, Hello("b", 1, "sf", 1, 0, "t"))
    world.run(LASTS / 2)
    introduce(world, Hello("b", 1, "sf", 1, 0, "t"))
    world.run(LASTS - 10)
    (one,) = site.node.links.turned_away.lately()
    assert isinstance(one, TurnedAwayDialer)
    assert one.count == 2
    world.run(20)
    assert site.node.links.turned_away.lately() == []
