"""Batches of several topics whose neighbour is lost, or whose receivers are behind another link by now."""

from __future__ import annotations

import pytest

from ildm.testing.virtual.world import World
from tests.support import rings
from tests.support.memory_spool import reborn, spool
from tests.support.mixed import chunk, injected, mixed_shares, numbers, publish, send
from tests.support.site import Site, row
from tests.support.spooled_rings import cut, ring

WINDOW = {"inflight": 7}
"""Of a batch some messages are acknowledged, some under way, and some wait."""


def dropped(site: Site) -> dict[str, int]:
    return {name: count for name, count in site.node.counters.items() if "_dropped" in name and count}


@pytest.mark.parametrize("algorithm", ["pf", "sf"])
@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_left_of_batches_goes_by_the_spare_link_and_comes_once(
    world: World, algorithm: str, killed: bool, qos: int
) -> None:
    a, b, c, d = ring(world, "abcd", algorithm, link=WINDOW)
    for site in (b, c, d):
        site.subscriber("#", qos=qos)
    world.run(2)
    publisher = a.client("p")
    send(publisher, 0, 20, qos=qos)
    publisher.transport.write(chunk(20, 20, qos=qos)[0])
    world.run_until(lambda: len(injected(b)) > 30, 1)
    cut(world, a, b)
    for first in range(40, 200, 20):
        publish(publisher, first, 20, qos=qos)
    batches = mixed_shares(a, "link/b/0")
    assert any(0 < left < count for count, left in batches)
    assert sum(left for _, left in batches) > 100
    if killed:
        reborn(a)
    world.run(120)
    for site in (b, c, d):
        assert sorted(numbers(site)) == list(range(200))
        assert dropped(site) == {}
    assert spool(a).bytes == 0
    assert a.node.counters["link_rerouted"] > 100


def test_a_tree_that_changes_parts_a_batch_by_where_its_topics_are_wanted(world: World) -> None:
    """What waits for a neighbour that is down is for nodes behind it as well, which are reached otherwise."""
    a, b, c, d = ring(world, "abcd", "sf", link=WINDOW)
    for site in (b, c, d):
        site.subscriber(f"{site.name}/#", qos=1)
    world.run(2)
    publisher = a.client("p")
    b.kill()
    for first in range(0, 120, 20):
        send(publisher, first, 20, "bcd")
    assert mixed_shares(a, "link/b/0")[0] == (20, 20)
    world.run(30)
    assert numbers(b) == []
    b.spool = spool(b).next_life()
    b.start(("a",))
    world.run(60)
    for place, site in enumerate((b, c, d)):
        assert len(set(numbers(site))) == len(numbers(site))
        assert {number for number in numbers(site) if number % 3 == place} == set(range(place, 120, 3))
    assert spool(a).bytes == 0
    assert [dropped(site) for site in (a, b, c, d)] == [{}, {}, {}, {}]


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("algorithm", ["pf", "sf"])
def test_a_neighbour_that_is_gone_keeps_nothing_from_those_behind_it(
    world: World, algorithm: str, again: bool, silent: bool, qos: int
) -> None:
    """Nobody knows whether it comes back. ``again``: the node that has the messages is killed meanwhile."""
    a, b, c, d = ring(world, "abcd", algorithm, link=WINDOW)
    for site in (b, c, d):
        site.subscriber("#", qos=qos)
    world.run(2)
    publisher = a.client("p")
    b.kill(silent)
    for first in range(0, 120, 20):
        send(publisher, first, 20, qos=qos)
    assert mixed_shares(a, "link/b/0")
    if again:
        reborn(a)
    world.run(60)
    for site in (c, d):
        assert sorted(numbers(site)) == list(range(120))
    assert dropped(a) == {}
    b.spool = spool(b).next_life()
    b.start(("a",))
    world.run(60)
    assert sorted(numbers(b)) == list(range(120))
    for site in (c, d):
        assert sorted(numbers(site)) == list(range(120))
    assert spool(a).bytes == 0


@pytest.mark.parametrize("dark", [True, False])
@pytest.mark.parametrize("algorithm", ["pf", "sf"])
def test_without_a_spool_batches_go_by_the_spare_link_too(world: World, algorithm: str, dark: bool) -> None:
    sites = rings.ring(world, "abcd", algorithm, link=WINDOW)
    for site in sites:
        site.subscriber("#", qos=1)
    world.run(2)
    publisher = sites[0].client("p")
    send(publisher, 0, 20)
    cut(world, sites[0], sites[1])
    if not dark:
        rings.cut(sites[0], sites[1], dark)
    for first in range(20, 200, 20):
        publisher.transport.write(chunk(first, 20)[0])
        world.run(0.05)
    world.run(120)
    for site in sites[1:]:
        assert set(numbers(site)) == set(range(200))
    for site in sites:
        assert dropped(site) == {}
        assert site.node.links.idle


def test_a_neighbour_that_is_removed_takes_what_was_left_of_a_batch_with_it_counted(world: World) -> None:
    a, b = row(world, "ab", "pf", link=WINDOW)
    publisher = a.client("p")
    send(publisher, 0, 20)
    cut(world, a, b)
    for first in range(20, 200, 20):
        send(publisher, first, 20)
    a.node.links.remove("b")
    assert sum(dropped(a).values()) == 200 - len(set(numbers(b)))
    assert a.node.links.idle
