"""Nodes are given another link secret one after the other, while links break and come again."""

from __future__ import annotations

import pytest

from ildm.core.link.manager import FORMER_SECRET
from ildm.testing.virtual.world import World
from tests.support.site import Site, row

OLD, NEW = "the secret of before", "the secret from now on"


@pytest.fixture
def sites() -> tuple[World, Site, Site]:
    """The second one dials the first."""
    world = World()
    a, b = row(world, "ab", "sf", secret=OLD, link={"reconnect_min": 0.5, "reconnect_max": 2.0})
    assert linked(a, b)
    return world, a, b


def linked(*sites: Site) -> bool:
    return all("active" in site.links().values() for site in sites)


def sessions_of(site: Site) -> list[object]:
    return [session for link in site.node.links.links.values() for session in link.open_sessions]


def broken(world: World, site: Site) -> None:
    """Its links are made anew, as far as that can be."""
    for link in site.node.links.links.values():
        for session in list(link.open_sessions):
            session.abort()
    world.run(15)


@pytest.mark.parametrize("first", [0, 1])
def test_links_stay_and_come_again_whoever_has_it_first(sites: tuple[World, Site, Site], first: int) -> None:
    world, *both = sites
    before = [sessions_of(site) for site in both]
    both[first].node.links.change_secret(NEW)
    world.run(5)
    assert [sessions_of(site) for site in both] == before
    broken(world, both[0])
    assert linked(*both)
    both[1 - first].node.links.change_secret(NEW)
    broken(world, both[0])
    assert linked(*both)
    world.run(FORMER_SECRET)
    broken(world, both[0])
    assert linked(*both)


@pytest.mark.parametrize("first", [0, 1])
def test_the_former_one_is_good_for_no_longer(sites: tuple[World, Site, Site], first: int) -> None:
    world, *both = sites
    both[first].node.links.change_secret(NEW)
    world.run(FORMER_SECRET + 1)
    assert linked(*both), "nobody ends a link that is there"
    broken(world, both[0])
    assert not linked(*both)
    both[1 - first].node.links.change_secret(NEW)
    world.run(15)
    assert linked(*both)


def test_the_same_again_does_not_make_the_former_one_last(sites: tuple[World, Site, Site]) -> None:
    world, a, b = sites
    a.node.links.change_secret(NEW)
    world.run(FORMER_SECRET / 2)
    a.node.links.change_secret(NEW)
    world.run(FORMER_SECRET / 2 + 1)
    broken(world, a)
    assert not linked(a, b)
