"""Sites are upgraded one after the other amid traffic, and one goes back: nothing is lost or comes twice."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ildm.config import Address
from ildm.core.link.versions import PROTOCOLS
from ildm.mqtt import Publish
from tests.sites.client import Client, within
from tests.sites.overlay import quick
from tests.sites.proxy import Proxy
from tests.skew.releases import RELEASE, THIS, Release, SkewSite, unpacked
from tests.support.brokers import Fleet

NAMES = ("a", "b", "c")
NEXT_TO = {"a": {"b"}, "b": {"a", "c"}, "c": {"b"}}
ORDER = ("a", "c", "b")
"""In which sites are upgraded: the one in the middle is at last an older one between two newer ones."""
LEAST = 25
"""Messages that each publisher has sent before a node is killed, and again once it is back."""
PAUSE = 0.01
"""Seconds from one message of a publisher to its next: the machine has more to do than to relay."""
SECRET = "a secret of all the sites"


@pytest.fixture(scope="session")
def former(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return unpacked(tmp_path_factory.mktemp(f"ildm-{RELEASE}"))


@pytest.fixture
async def proxies() -> AsyncIterator[list[Proxy]]:
    """Those that the site in the middle dials through."""
    made: list[Proxy] = []
    yield made
    for proxy in made:
        await proxy.close()


@pytest.fixture(params=["sf", "pf", "sg_tbps"])
async def sites(
    request: pytest.FixtureRequest, fleet: Fleet, tmp_path: Path, former: Release, proxies: list[Proxy]
) -> AsyncIterator[dict[str, SkewSite]]:
    """In a row, the one in the middle dials both through a proxy; all of the last release."""
    made: dict[str, SkewSite] = {}
    for number, name in enumerate(("a", "c", "b")):
        link = {"secret": SECRET}
        if name == "b":
            link["neighbors"] = [str(Address(*proxy.address)) for proxy in proxies]  # type: ignore[assignment]
        broker = fleet.shared("mosquitto", number)
        made[name] = site = SkewSite(
            broker, tmp_path / name, quick(request.param), name, link=link, spool={"mode": "process"}
        )
        if name != "b":
            proxies.append(Proxy(site.link_address))
            await proxies[-1].start()
    try:
        await asyncio.gather(*(site.start_as(former) for site in made.values()))
        yield made
    finally:
        for site in made.values():
            if site.process is not None and site.process.returncode is None:
                await site.kill()


class Local:
    """The clients of one site: one publishes without a pause, one has subscribed to everything."""

    def __init__(self, site: SkewSite, topic: str) -> None:
        self.site = site
        self.topic = topic
        self.sent: list[bytes] = []
        self.got: Counter[bytes] = Counter()
        self.subscriber: Client
        self._unreleased: set[int] = set()
        """Packet ids that the client before had answered when its node was killed."""
        self._publishing: asyncio.Task[None] | None = None
        self._stop = False

    async def arrive(self) -> None:
        self.subscriber = await self.site.connect(f"{self.topic}-{self.site.name}", clean=False)
        await self.subscriber.subscribe((f"{self.topic}/#", 2))

    def publish(self) -> None:
        self._stop = False
        self._publishing = asyncio.create_task(self._publish())

    async def _publish(self) -> None:
        client = await self.site.connect()
        while not self._stop:
            payload = b"%s %d" % (self.site.name.encode(), len(self.sent))
            await client.publish(f"{self.topic}/{self.site.name}", payload, 2)
            self.sent.append(payload)
            await asyncio.sleep(PAUSE)
        await client.disconnect()

    async def pause(self) -> None:
        """All that was published is acknowledged when this returns."""
        self._stop = True
        if self._publishing is not None:
            await self._publishing
            self._publishing = None

    async def leave(self) -> None:
        """The broker keeps what comes for the subscriber from now on."""
        await self.pause()
        await self.subscriber.disconnect()
        await self.take()
        self._unreleased = set(self.subscriber.unacknowledged)

    async def take(self) -> None:
        """Count what has come."""
        while self.subscriber.waiting:
            self._count(await self.subscriber.receive())

    def _count(self, message: Publish) -> None:
        """A broker may send again what the killed node had not passed on the answer to; a client knows it."""
        if message.dup and message.packet_id in self._unreleased:
            self._unreleased.remove(message.packet_id)
        else:
            self.got[message.payload] += 1

    async def has(self, wanted: set[bytes]) -> None:
        while not wanted <= self.got.keys():
            self._count(await self.subscriber.receive())


async def further(locals_: list[Local]) -> None:
    """Each of them has published some more."""
    before = [len(each.sent) for each in locals_]

    async def grown() -> None:
        for each, count in zip(locals_, before, strict=True):
            while len(each.sent) < count + LEAST:  # noqa: ASYNC110 - a message more is no event
                await asyncio.sleep(0.01)

    await within(grown(), "messages that are acknowledged")


async def linked(sites: dict[str, SkewSite]) -> None:
    """Both ends of each link say that it is part of the cooperation."""

    async def all_of_them() -> None:
        for name, site in sites.items():
            while not NEXT_TO[name] <= (await active(site)).keys():  # noqa: ASYNC110 - another process tells
                await asyncio.sleep(0.05)

    await within(all_of_them(), "links")


async def active(site: SkewSite) -> dict[str, dict[str, Any]]:
    """Neighbours by node id, those alone that a link of this site is active to."""
    return {row["node_id"]: row for row in await site.neighbors() if row["state"] == "active"}


async def all_know_all(locals_: list[Local]) -> None:
    """Interest has spread: what each publishes arrives at all."""
    for place, each in enumerate(locals_):
        client = await each.site.connect()
        missing = list(locals_)
        while missing:
            await client.publish(f"{each.topic}/probe", b"probe %d" % place, 2)
            await asyncio.sleep(0.1)
            for other in missing:
                await other.take()
            missing = [other for other in missing if not other.got[b"probe %d" % place]]
        await client.disconnect()


async def test_sites_are_upgraded_amid_traffic_and_one_goes_back(
    sites: dict[str, SkewSite], former: Release, topic_root: str, proxies: list[Proxy]
) -> None:
    """After each upgrade the links to the middle, which are of two releases by then, are cut as well."""
    await linked(sites)
    clients = {name: Local(sites[name], topic_root) for name in NAMES}
    for each in clients.values():
        await each.arrive()
    await all_know_all(list(clients.values()))
    for name in ORDER:
        others = [each for at, each in clients.items() if at != name]
        for each in clients.values():
            each.publish()
        await further(list(clients.values()))
        await clients[name].leave()
        await sites[name].kill()
        await sites[name].start_as(THIS)
        await clients[name].arrive()
        await linked(sites)
        older = ORDER[ORDER.index(name) + 1 :]
        for other, row in (await active(sites[name])).items():
            spoken = (None, 2) if other in older else (THIS.version, PROTOCOLS.high)
            assert (row["release"], row["protocol"]) == spoken
        for proxy in proxies:
            proxy.cut()
        await further(others)
        for proxy in proxies:
            proxy.mend()
        await linked(sites)
        await further(others)
        for each in others:
            await each.pause()
    await clients["a"].leave()
    await sites["a"].kill()  # a site goes back, with what the newer release has left on its disk
    await sites["a"].start_as(former)
    await clients["a"].arrive()
    await linked(sites)
    for each in clients.values():
        each.publish()
    await further(list(clients.values()))
    for each in clients.values():
        await each.pause()
    sent = {payload for each in clients.values() for payload in each.sent}
    for each in clients.values():
        await within(each.has(sent), f"all that was sent, at {each.site.name}")
    for place, each in enumerate(clients.values()):  # behind all that came before
        client = await each.site.connect()
        await client.publish(f"{topic_root}/end", b"end %d" % place, 2)
        await client.disconnect()
    ends = {b"end %d" % place for place in range(len(clients))}
    for each in clients.values():
        await within(each.has(ends), f"the ends, at {each.site.name}")
        twice = [payload for payload in sent if each.got[payload] > 1]
        assert twice == []
    for site in sites.values():
        counters = (await site.status())["counters"]
        wrong = {"link_malformed", "link_unknown_control", "link_internal_errors", "internal_errors"}
        assert wrong.isdisjoint(name for name, count in counters.items() if count)


async def test_the_former_release_refuses_a_later_state_file_with_a_word(
    fleet: Fleet, tmp_path: Path, former: Release
) -> None:
    """And leaves it as it is, so that nothing in it is lost."""
    site = SkewSite(fleet.shared("mosquitto", 0), tmp_path / "a", "sf", "a")
    await site.start_as(THIS)
    await site.stop()
    file = tmp_path / "a" / "state" / "state.sqlite"
    with contextlib.closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE meta SET value = '99' WHERE key = 'version'")
    before = file.read_bytes()
    with pytest.raises(AssertionError):
        await site.start_as(former)
    assert "is of version 99, this node knows 2: run the node that wrote it" in site.log()
    assert file.read_bytes() == before
