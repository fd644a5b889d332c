"""With a spool, what waited for a link that left the tree goes by the new path: once into each broker, in
whatever life, and with little of it in memory."""

from __future__ import annotations

import pytest

from ildm.core.transfer.rerouting import REST
from ildm.testing.virtual.store import MemoryStore
from ildm.testing.virtual.world import World
from tests.support.memory_spool import MemorySpool
from tests.support.spooled_rings import cut, payloads, publish, ring


@pytest.mark.parametrize("algorithm", ["pf", "sf"])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("killed", [False, True])
def test_what_waited_goes_by_the_spare_link_and_comes_once(algorithm: str, qos: int, killed: bool) -> None:
    world = World()
    a, b, c, d = ring(world, "abcd", algorithm)
    for site in (b, c, d):
        site.subscriber("#", qos=qos)
    world.run(2)
    publisher = a.client("p")
    publish(publisher, 0, 50, qos)
    cut(world, a, b)
    for first in range(50, 1000, 50):
        publish(publisher, first, 50, qos)
    if killed:
        a.kill()
        assert isinstance(a.spool, MemorySpool)
        a.spool = a.spool.next_life()
        a.store = a.store.copy()
        a.start()
    world.run(120)
    for site in (b, c, d):
        assert sorted(payloads(site)) == list(range(1000))
        assert not any("_dropped" in name and n for name, n in site.node.counters.items())
    assert a.node.custody is not None
    assert a.node.custody.report().messages == 0
    assert a.node.counters["link_rerouted"] > 900


@pytest.mark.parametrize(("new_state", "qos"), [(True, 2), (True, 1), (False, 2)])
def test_a_node_without_state_counts_what_its_earlier_life_may_have_had(new_state: bool, qos: int) -> None:
    world = World()
    a, b, _, d = ring(world, "abcd")
    d.kill()
    d.store, d.spool = MemoryStore(), MemorySpool()
    d.start(("a", "c"), new_state=new_state)
    world.run(10)
    publisher = a.client("p")
    cut(world, a, b)
    publish(publisher, 0, 50, qos)
    world.run(120)
    assert payloads(d) == list(range(50))
    counters = d.node.counters
    unsure = counters["link_again"] if new_state and qos == 2 else 0
    assert (counters["link_again_unsure"], counters["link_again"] > 0) == (unsure, True)


def test_what_finds_no_path_is_dropped_with_the_link_in_the_end_and_counted() -> None:
    world = World()
    a, b, c = ring(world, "abc", link={"expiry": 20})
    publisher = a.client("p")
    c.node.links.cooperation.offer = lambda link: None  # type: ignore[method-assign]
    cut(world, a, b)
    publish(publisher, 0, 500, 1)
    world.run(60 + 5 * REST)
    assert a.node.custody is not None
    assert a.node.custody.report().messages == 0
    dropped = {name: n for name, n in a.node.counters.items() if "_dropped" in name and n}
    assert sum(dropped.values()) == 500
    assert all(name.startswith("link_dropped_neighbor_expired_") for name in dropped)
