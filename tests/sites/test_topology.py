"""Links added from both sides, removed under load, and a ring of them."""

from __future__ import annotations

import asyncio
from socket import IPPROTO_TCP, TCP_NOTSENT_LOWAT

import pytest

from ildm.core.link.manager import Neighbor
from ildm.mqtt import Publish
from tests.sites.client import Client, until
from tests.sites.conftest import Sites, trees
from tests.sites.site import Site, exchange, join, joined, settled


@trees
@pytest.mark.parametrize("sessions", [1, 3])
async def test_both_sides_add_each_other_at_once(
    sites: Sites, algorithm: str, sessions: int, topic_root: str
) -> None:
    """One link comes of it, again and again."""
    link = {"sessions": sessions}
    here = await sites.make("mosquitto", algorithm, link=link)
    there = await sites.make(sites.shared_broker("mosquitto", 1), algorithm, link=link)
    for round_ in range(8):
        here.add(there)
        there.add(here)
        await joined(here, there)
        await exchange([here, there], topic_root, str(round_))
        for one, other in ((here, there), (there, here)):
            one.node.links.remove(str(other.link_address))
        await until(lambda: not here.node.links.links and not there.node.links.links)


@trees
async def test_a_neighbor_that_was_removed_under_load_stays_away(
    sites: Sites, algorithm: str, topic_root: str
) -> None:
    """The side that dials learns that it was removed, however much it is sending at the time."""
    here = await sites.make("mosquitto", algorithm, link={"sessions": 2})
    there = await sites.make(sites.shared_broker("mosquitto", 1), algorithm, link={"sessions": 2})
    clients = [await site.connect() for site in (here, there)]
    for client in clients:
        await client.subscribe(topic_root)
    for _ in range(8):
        await join(here, there)
        await settled(here, there)
        neighbor = here.node.links.neighbors[there.link_address]
        crossed = here.transferred_to(there) + 300

        async def flood(client: Client, neighbor: Neighbor = neighbor) -> None:
            while neighbor.state == "linked":
                for _ in range(20):
                    client.send(Publish(topic=topic_root, payload=bytes(2000)))
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            for client in clients:
                group.create_task(flood(client))
            await until(lambda least=crossed: here.transferred_to(there) > least)  # type: ignore[misc]
            there.node.links.remove(here.name)
            await until(lambda each=neighbor: each.state == "refused")  # type: ignore[misc]
        assert neighbor.reason == "removed by the neighbour's administrator"
        assert not here.node.links.links
        assert not there.node.links.links
        here.node.links.remove(str(there.link_address))


@trees
async def test_a_ring_has_one_blocked_link_that_takes_over(
    sites: Sites, algorithm: str, topic_root: str
) -> None:
    """A message comes to each site once; when a node of the ring goes, the others stay together (PF, SF)."""
    kinds = [("mosquitto", 0), ("mosquitto", 1), ("activemq", 0), ("moquette", 0)]
    ring = [await sites.make(sites.shared_broker(*kind), algorithm) for kind in kinds]
    for one, other in zip(ring, ring[1:] + ring[:1], strict=True):
        one.add(other)

    def is_tree(nodes: list[Site]) -> bool:
        names = {site.name for site in nodes}
        links = [
            (site, link) for site in nodes for link in site.node.links.links.values() if link.node_id in names
        ]
        active = [link for _, link in links if link.in_cooperation and link.ready_here and link.ready_there]
        return len(active) == 2 * (len(nodes) - 1) and all(
            link.reason == "it would close a cycle"
            for _, link in links
            if link not in active and link.connected
        )

    await until(lambda: is_tree(ring), "the tree")
    await exchange(ring, topic_root, "ring")
    await ring[1].stop()
    rest = [ring[0], ring[2], ring[3]]
    await until(lambda: is_tree(rest), "the tree without one")
    await exchange(rest, topic_root, "rest")
    await ring[1].start()
    ring[1].add(ring[2])
    await until(lambda: is_tree(ring) and sum(len(s.node.links.links) for s in ring) == 8, "the tree again")
    await exchange(ring, topic_root, "again")


async def test_what_the_system_takes_for_a_link_is_bounded_at_both_ends(sites: Sites) -> None:
    """Also of the sessions that the other side has dialed; without the option it is the system's affair."""

    def bounds(site: Site, neighbor: Site) -> list[int]:
        found = []
        for session in site.link(neighbor).open_sessions:
            assert session.transport is not None
            connection = session.transport.get_extra_info("socket")
            found.append(connection.getsockopt(IPPROTO_TCP, TCP_NOTSENT_LOWAT))
        return found

    bounded = {"sessions": 2, "unsent_bytes": 65536}
    here = await sites.make("mosquitto", "pf", link=bounded)
    there = await sites.make(sites.shared_broker("mosquitto", 1), "pf", link=bounded)
    free = await sites.make(sites.shared_broker("mosquitto", 2), "pf", link={"sessions": 2})
    for site in (there, free):
        await join(site, here)
    assert bounds(there, here) == bounds(here, there) == bounds(here, free) == [65536] * 2
    assert 65536 not in bounds(free, here)
