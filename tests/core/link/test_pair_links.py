"""A neighbour that is a pair: its later owner takes the link over, an earlier one is refused."""

from __future__ import annotations

import pytest

from ildm.config import Address
from ildm.core.link.hello import Hello
from ildm.mqtt import Property, ProtocolViolation
from ildm.testing.virtual.world import World
from tests.support.site import Site

SOON = 1.0
"""Seconds; twelve is what a link takes to notice by itself that its neighbour is silent."""


def pair_of(world: World, algorithm: str = "sf", *, later: int = 2) -> tuple[Site, Site, Site]:
    """A site, its neighbour x, and the member of x that is to follow; the link with x is up."""
    a = Site(world, "a", algorithm)
    x = Site(world, "x", algorithm, epoch=1)
    x.node.links.add(Address("a", 2), False)
    world.run(5)
    assert a.links() == {"x": "active"}
    y = Site(world, "y", algorithm, node_id="x", epoch=later)
    return a, x, y


@pytest.mark.parametrize("algorithm", ["sf", "pf"])
@pytest.mark.parametrize("dials", ["member", "neighbour"])
def test_a_later_owner_takes_the_link_over_at_once(world: World, algorithm: str, dials: str) -> None:
    a, x, y = pair_of(world, algorithm)
    x.kill(silent=True)
    link = a.node.links.links["x"]
    dialer, far = (y, "a") if dials == "member" else (a, "y")
    dialer.node.links.add(Address(far, 2), False)
    world.run(SOON)
    assert link is a.node.links.links["x"]
    assert link.connected
    assert link.epoch == 2
    assert a.node.counters["pair_followed"] == 1
    assert a.node.counters["links_refused_duplicate"] == 0
    world.run(3)
    assert a.links() == {"x": "active"}
    assert y.links() == {"a": "active"}


def test_a_link_that_the_neighbour_has_dialed_is_taken_over_too(world: World) -> None:
    a = Site(world, "a", "sf")
    x = Site(world, "x", "sf", epoch=1)
    a.node.links.add(Address("x", 2), False)
    world.run(5)
    x.kill(silent=True)
    y = Site(world, "y", "sf", node_id="x", epoch=9)
    y.node.links.add(Address("a", 2), False)
    world.run(SOON)
    assert a.node.links.links["x"].epoch == 9
    world.run(3)
    assert y.links() == {"a": "active"}


@pytest.mark.parametrize("dials", ["member", "neighbour"])
def test_an_earlier_owner_is_refused_and_hears_why(world: World, dials: str) -> None:
    a, x, y = pair_of(world, later=1)
    x.kill()
    z = Site(world, "z", "sf", node_id="x", epoch=2)
    z.node.links.add(Address("a", 2), False)
    world.run(5)
    assert a.links() == {"x": "active"}
    dialer, far = (y, "a") if dials == "member" else (a, "y")
    dialer.node.links.add(Address(far, 2), False)
    world.run(5)
    neighbor = dialer.node.links.neighbors[Address(far, 2)]
    assert neighbor.state == "refused"
    assert neighbor.reason == "another member of x owns the site by now"
    assert dialer.node.counters["pair_deposed"] >= 1
    assert a.node.links.links["x"].epoch == 2
    assert z.links() == {"a": "active"}
    assert y.links() == {}


def test_an_earlier_owner_is_refused_while_the_later_one_is_away(world: World) -> None:
    a, x, y = pair_of(world)
    x.kill()
    y.node.links.add(Address("a", 2), False)
    world.run(5)
    y.kill()
    world.run(1)
    old = Site(world, "o", "sf", node_id="x", epoch=1)
    old.node.links.add(Address("a", 2), False)
    world.run(5)
    assert old.links() == {}
    assert a.node.counters["links_refused_deposed"] >= 1


def test_a_node_that_is_in_no_pair_is_not_driven_away(world: World) -> None:
    a = Site(world, "a", "sf")
    x = Site(world, "x", "sf")
    x.node.links.add(Address("a", 2), False)
    world.run(5)
    y = Site(world, "y", "sf", node_id="x", epoch=5)
    y.node.links.add(Address("a", 2), False)
    world.run(30)
    assert x.links() == {"a": "active"}
    assert a.node.links.links["x"].epoch == 0
    assert a.node.counters["node_ids_copied"] > 0


def test_an_address_that_nobody_answered_at_is_tried_when_the_owner_goes(world: World) -> None:
    """Both addresses are named; the second member listens only once it owns the site."""
    a = Site(world, "a", "sf", link={"reconnect_min": 0.2, "reconnect_max": 300.0})
    x = Site(world, "x", "sf", epoch=1)
    for name in ("x", "y"):
        a.node.links.add(Address(name, 2), False)
    world.run(1000)
    assert a.node.links.neighbors[Address("y", 2)].state == "down"
    x.kill()
    y = Site(world, "y", "sf", node_id="x", epoch=2)
    world.run(2)
    assert a.node.links.neighbors[Address("y", 2)].state == "linked"
    world.run(3)
    assert y.links() == {"a": "active"}


HELLO = Hello("a", 1, "sf", 1, 0, "t", epoch=5)


def test_the_epoch_is_said_and_bounded() -> None:
    def said(hello: Hello, **changed: str) -> Hello:
        properties = {**dict(hello.properties()), **changed}
        return Hello.parse({Property.USER_PROPERTY: list(properties.items())})

    assert said(HELLO).epoch == 5
    assert dict(Hello("a", 1, "sf", 1, 0, "t").properties())["epoch"] == "0"
    for wrong in ("-1", str(1 << 32), "x"):
        with pytest.raises(ProtocolViolation):
            said(HELLO, epoch=wrong)


def test_an_epoch_that_no_proof_covers_is_not_heard() -> None:
    """Of link protocol 2 the proof covers only the nonces."""
    assert Hello.parse({Property.USER_PROPERTY: HELLO.properties()}, protocol=2).epoch == 0
