"""What sites that were dead, hung or cut off have missed arrives when they are back, over real brokers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ildm.config import Address
from tests.sites.client import until
from tests.sites.conftest import Sites
from tests.sites.overlay import QUICK, chains, rows_of
from tests.sites.process import ProcessSite
from tests.sites.proxy import Proxy
from tests.sites.site import Site, join, joined, rested, settled
from tests.support.brokers import Fleet
from tests.support.ports import LOOPBACK, free_port

SHORT: dict[str, Any] = {"name": "sg_tbps", **QUICK, "overlay": {**QUICK["overlay"], "cast_deadline": 1.0}}
"""Casts end long before those who were away are back."""


@pytest.fixture
async def far(tmp_path: Path, fleet: Fleet) -> AsyncIterator[ProcessSite]:
    site = ProcessSite(fleet.shared("mosquitto", 5), tmp_path / "far", SHORT, "far")
    yield site
    if site.process is not None and site.process.returncode is None:
        site.go_on()
        await site.kill()


async def three(sites: Sites, far: ProcessSite) -> list[Site]:
    """Three sites, and a process that is in their overlay."""
    made = [await sites.make(sites.shared_broker("mosquitto", index), SHORT) for index in range(3)]
    for site in made[1:]:
        await join(site, made[0])
    await far.start()
    made[0].node.links.add(Address(*far.link_address), False)
    await rested(far, one=[*(site.name for site in made), far.name])
    return made


async def numbers(made: list[Site], topic: str, first: int, count: int) -> None:
    """A client of each site publishes numbers, some time apart."""
    clients = [await site.connect() for site in made]
    for number in range(first, first + count):
        for site, client in zip(made, clients, strict=True):
            await client.publish(topic, f"{site.name} {number}".encode(), 1)


@pytest.mark.parametrize("others", [False, True], ids=["alone", "others"])
async def test_a_killed_site_with_a_persistent_subscriber_loses_nothing(
    sites: Sites, far: ProcessSite, others: bool, topic_root: str
) -> None:
    """For longer than a cast lasts; if nobody else subscribes the publishers are suspended meanwhile."""
    made = await three(sites, far)
    away = await far.connect(topic_root[:20], clean=False)
    await away.subscribe((f"{topic_root}/#", 1))
    if others:
        await (await made[1].connect()).subscribe((f"{topic_root}/#", 1))
    await rested(far)
    await numbers(made, f"{topic_root}/data", 0, 5)
    before = {m.payload for m in await away.receive_all(15)}
    await until(lambda: far.saved_filters(topic_root[:20]) == {f"{topic_root}/#": 1}, "the saved session")
    await until(lambda: far.saved_rows("plugin_state") > 0, "the saved time")
    await far.kill()
    await until(lambda: all(site.counter("suspected") for site in made))
    await rested()
    await numbers(made, f"{topic_root}/data", 5, 20)
    await asyncio.gather(*(numbers([site], f"{topic_root}/new", 25, 20) for site in made))
    await rested()
    await far.start()
    await rested(far, one=[*(site.name for site in made), far.name])
    back = await far.connect(topic_root[:20], clean=False)
    wanted = {f"{site.name} {number}".encode() for site in made for number in range(5, 45)}
    got = [m.payload for m in await back.receive_all(1)]
    while not wanted <= set(got):
        got.append((await back.receive()).payload)
    assert set(got) - before == wanted


async def test_a_hung_site_loses_nothing(sites: Sites, far: ProcessSite, topic_root: str) -> None:
    """SIGSTOP for longer than a cast lasts."""
    made = await three(sites, far)
    remote = await far.connect()
    await remote.subscribe((topic_root, 1))
    await rested(far)
    await numbers(made, topic_root, 0, 5)
    await remote.receive_all(15)
    far.pause()
    await until(lambda: all(site.counter("suspected") for site in made))
    await numbers(made, topic_root, 5, 20)
    await rested()
    far.go_on()
    wanted = {f"{site.name} {number}".encode() for site in made for number in range(5, 25)}
    got = Counter(m.payload for m in await remote.receive_all(len(wanted)))
    assert set(got) == wanted
    assert set(got.values()) == {1}


async def test_what_was_published_in_a_partition_arrives_when_it_heals(sites: Sites, topic_root: str) -> None:
    """Three sites, each for itself for longer than a cast lasts; all messages arrive everywhere, once."""
    proxies: list[Proxy] = []
    made: list[Site] = []
    try:
        for index in range(3):
            port = free_port()
            proxy = Proxy((LOOPBACK, port))
            await proxy.start()
            proxies.append(proxy)
            advertise = f"{proxy.address[0]}:{proxy.address[1]}"
            link = {"listen": f"{LOOPBACK}:{port}", "advertise": advertise}
            made.append(await sites.make(sites.shared_broker("mosquitto", index), SHORT, link=link))
        for site in made[1:]:
            site.add(made[0], proxies[0].address)
            await joined(site, made[0])
        clients = [await site.connect() for site in made]
        for client in clients:
            await client.subscribe((topic_root, 1))
        await settled(*made)
        await numbers(made, topic_root, 0, 5)
        for client in clients:
            await client.receive_all(15)
        for proxy in proxies:
            proxy.cut()
        await until(lambda: len(chains(rows_of(site.overlay() for site in made))) == 3)
        await rested()
        await numbers(made, topic_root, 5, 20)
        for client in clients:
            await client.receive_all(20)
            assert client.waiting == 0
        for proxy in proxies:
            proxy.mend()
        for site, client in zip(made, clients, strict=True):
            others = [other.name for other in made if other is not site]
            got = [m.payload for m in await client.receive_all(40)]
            assert sorted(got) == sorted(
                f"{name} {number}".encode() for name in others for number in range(5, 25)
            )
        await rested(one=[site.name for site in made], whole=True)
        assert [client.waiting for client in clients] == [0, 0, 0]
    finally:
        for proxy in proxies:
            await proxy.close()
