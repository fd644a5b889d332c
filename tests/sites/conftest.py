"""Fixtures for tests over sites with real brokers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.sites.overlay import OVERLAYS
from tests.sites.proxy import Proxy
from tests.sites.site import Choice, Site, join, joined, stop_all
from tests.support.brokers import Broker, Fleet


class Sites:
    """Makes sites before brokers, joins them, and stops them at the end of the test."""

    def __init__(self, fleet: Fleet, own: Fleet, directory: Path) -> None:
        self._fleet = fleet
        self._own = own
        self._directory = directory
        self._prefix = f"n{uuid.uuid4().hex[:8]}"
        self.all: list[Site] = []

    def shared_broker(self, kind: str, index: int = 0) -> Broker:
        return self._fleet.shared(kind, index)

    async def own_broker(self, kind: str, **options: Any) -> Broker:
        """A broker which only this test uses, and may kill."""
        return await asyncio.to_thread(self._own.start, kind, **options)

    def upcoming(self, count: int) -> list[str]:
        """The names of the sites that are made next."""
        return [f"{self._prefix}-{len(self.all) + number}" for number in range(1, count + 1)]

    def prepare(self, broker: Broker, algorithm: Choice, /, **options: Any) -> Site:
        """A site that is not started yet."""
        [name] = self.upcoming(1)
        site = Site(broker, self._directory / name, algorithm, name, **options)
        self.all.append(site)
        return site

    async def make(self, broker: Broker | str, algorithm: Choice, /, **options: Any) -> Site:
        """Start a node; a name stands for the shared broker of that make."""
        if isinstance(broker, str):
            broker = self.shared_broker(broker)
        site = self.prepare(broker, algorithm, **options)
        await site.start()
        return site

    async def row(self, kinds: list[str], algorithm: Choice, **options: Any) -> list[Site]:
        """Sites before shared brokers, each linked to the one before."""
        used: dict[str, int] = {}
        sites: list[Site] = []
        for kind in kinds:
            index = used.get(kind, 0)
            used[kind] = index + 1
            sites.append(await self.make(self.shared_broker(kind, index), algorithm, **options))
            if len(sites) > 1:
                await join(sites[-1], sites[-2])
        return sites


class Proxies:
    """Links through a proxy that a test can cut."""

    def __init__(self) -> None:
        self.all: list[Proxy] = []

    async def join(self, one: Site, other: Site) -> Proxy:
        """`one` dials `other` through the proxy."""
        proxy = Proxy(other.link_address)
        await proxy.start()
        self.all.append(proxy)
        one.add(other, proxy.address)
        await joined(one, other)
        return proxy


@pytest.fixture
async def proxies() -> AsyncIterator[Proxies]:
    proxies = Proxies()
    yield proxies
    for proxy in proxies.all:
        await proxy.close()


@pytest.fixture
async def sites(fleet: Fleet, tmp_path: Path) -> AsyncIterator[Sites]:
    own = Fleet(tmp_path / "brokers")
    sites = Sites(fleet, own, tmp_path)
    try:
        yield sites
        await stop_all(sites.all)
    finally:
        own.close()


@pytest.fixture(params=["pf", "sf", "sg_tbps"])
def algorithm(request: pytest.FixtureRequest) -> str:
    return str(request.param)


trees = pytest.mark.parametrize("algorithm", ["pf", "sf"], indirect=True)
"""For what is true of links in a tree: each has a queue that outlives its connection, and carries a
message once. Overlays have their own tests of it in test_overlay*.py."""
every_algorithm = pytest.mark.parametrize("algorithm", ["pf", "sf", *OVERLAYS], indirect=True)
"""For what crosses in one piece, or is kept for later: most tests have SG-TBPS stand for all overlays."""


def makes(*kinds: str) -> pytest.MarkDecorator:
    """Each algorithm before brokers of these makes (`kind`), the overlay before the first alone.

    What a broker does to injected messages is no matter of the algorithm.
    """
    pairs = [(name, kind) for kind in kinds for name in ("pf", "sf", "sg_tbps")]
    chosen = [(name, kind) for name, kind in pairs if name != "sg_tbps" or kind == kinds[0]]
    return pytest.mark.parametrize(("algorithm", "kind"), chosen, indirect=["algorithm"])
