"""Hostile peers over real sockets: processes before Mosquitto, one of them hangs, and clients that misbehave.

The promise: whatever one client or one neighbour sends or does not read, a node serves all others.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ildm.mqtt import Connect, Property, Publish, Subscribe, Subscription, Version
from tests.hostile.bounds import OBJECT
from tests.sites.client import Client, until, within
from tests.sites.process import ProcessSite
from tests.support.brokers import Fleet

SUBSCRIBERS = 4
SUBSCRIPTIONS = 17_500
LINK = {"queue_messages": 4000, "queue_bytes": 4 << 20, "inflight_bytes": 1 << 20, "keep_alive": 5}
LIMITS = {"subscriptions_per_client": 20_000, "write_buffer": 64 << 10, "packet_size": 1 << 20}
ALLOWED = (
    3 * 2 * (LINK["queue_bytes"] + LINK["inflight_bytes"])  # two links, the node's own session
    + 12 * (LIMITS["packet_size"] + 4 * LIMITS["write_buffer"])  # clients
    + (3 * 2 * LINK["queue_messages"] + 3 * LIMITS["subscriptions_per_client"]) * OBJECT
)
"""Bytes a node may grow by, as configured: its own clients' filters, and those of two neighbours."""


class Star:
    """A site in the middle, one that works and one whose node is going to hang; an innocent pair."""

    def __init__(self, here: ProcessSite, there: ProcessSite, stuck: ProcessSite) -> None:
        self.here, self.there, self.stuck = here, there, stuck
        self.near: Client
        self.far: Client
        self.publisher: Client
        self.round_trips = 0

    async def start(self, topic: str) -> None:
        await asyncio.gather(*(site.start() for site in (self.here, self.there, self.stuck)))
        await until_joined(self.here, 2)
        self.topic = f"{topic}/innocent"
        self.near, self.far = await self.here.connect(), await self.there.connect()
        self.publisher = await self.here.connect()
        for client in (self.near, self.far):
            await client.subscribe((self.topic, 1))
        await self.first_round_trip()

    async def first_round_trip(self) -> None:
        """Interest may still be on its way."""
        while not self.far.waiting:
            await self.publisher.publish(self.topic, b"first", 1)
            await asyncio.sleep(0.02)
        await self.publisher.publish(self.topic, b"begin", 1)
        for client in (self.near, self.far):
            await client.receive_until(b"begin")

    async def round_trip(self) -> None:
        """An innocent message is acknowledged, and reaches both subscribers."""
        self.round_trips += 1
        payload = b"%d" % self.round_trips
        assert await self.publisher.publish(self.topic, payload, 1) == 0
        for client in (self.near, self.far):
            assert (await client.receive()).payload == payload

    async def meanwhile(self, hostile: asyncio.Task[None]) -> None:
        """Round trips without end while something else goes on, and some after it."""
        while not hostile.done():
            await self.round_trip()
        await hostile
        for _ in range(20):
            await self.round_trip()

    async def stop(self) -> None:
        for site in (self.here, self.there, self.stuck):
            if site.process is not None and site.process.returncode is None:
                await site.kill()


async def until_joined(site: ProcessSite, links: int) -> None:
    async def poll() -> None:
        while True:
            rows = await site.neighbors()
            if sum(row["state"] == "active" for row in rows) == links:
                return
            await asyncio.sleep(0.02)

    await within(poll(), "links")


@pytest.fixture(params=["pf", "sf"])
async def star(
    request: pytest.FixtureRequest, fleet: Fleet, tmp_path: Path, topic_root: str
) -> AsyncIterator[Star]:
    name = f"h{tmp_path.name[-5:]}"
    there, stuck = (
        ProcessSite(
            fleet.shared("mosquitto", index),
            tmp_path / end,
            request.param,
            name + end,
            link=LINK,
            limits=LIMITS,
        )
        for index, end in ((1, "there"), (2, "stuck"))
    )
    neighbors = [f"{host}:{port}" for host, port in (there.link_address, stuck.link_address)]
    here = ProcessSite(
        fleet.shared("mosquitto", 0),
        tmp_path / "here",
        request.param,
        name + "here",
        link={**LINK, "neighbors": neighbors},
        limits=LIMITS,
    )
    star = Star(here, there, stuck)
    try:
        await star.start(topic_root)
        yield star
    finally:
        await star.stop()


def memory(site: ProcessSite) -> int:
    """Resident bytes of the node's process."""
    assert site.process is not None
    pages = int(Path(f"/proc/{site.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def connected(star: Star, client_id: str | None = None, version: Version = Version.V311) -> Client:
    return await star.here.connect(client_id, version=version, keep_alive=0)


async def burst_of_subscriptions(star: Star) -> None:
    """Clients send a SUBSCRIBE for each of more filters than there are packet identifiers on a link."""
    clients = [await connected(star) for _ in range(SUBSCRIBERS)]
    for number, client in enumerate(clients):
        for start in range(0, SUBSCRIPTIONS, 500):
            wanted = [
                Subscription(topic_filter=f"{star.topic}/{number}/{n}") for n in range(start, start + 500)
            ]
            packets = [
                Subscribe(packet_id=start + n + 1, subscriptions=[one]) for n, one in enumerate(wanted)
            ]
            client.send(b"".join(packet.encode(Version.V311) for packet in packets))
            await asyncio.sleep(0)  # the innocent of this process have their turn, too
    for client in clients:
        await client.publish(f"{star.topic}/end", b"", 1)  # all of it was read
        await client.disconnect()


async def never_reads(star: Star) -> None:
    """Asks for everything, and reads nothing; another publishes much."""
    client = await connected(star)
    await client.subscribe(f"{star.topic}/flood/#")
    client.transport.pause_reading()
    await flood(star)
    client.drop()


async def flood(star: Star) -> None:
    """More of QoS 0 than a queue takes, which makes room for QoS 1 and 2; of these as many as fit in."""
    for qos, count in ((0, 20_000), (1, 1000), (2, 500)):
        client = await connected(star)
        for start in range(0, count, 500):
            packets = [
                Publish(
                    topic=f"{star.topic}/flood/{n % 50}",
                    payload=b"x" * 200,
                    qos=qos,
                    packet_id=n + 1 if qos else None,
                )
                for n in range(start, start + 500)
            ]
            client.send(b"".join(packet.encode(Version.V311) for packet in packets))
            await asyncio.sleep(0.001)
        await client.publish(f"{star.topic}/end", b"", 1)  # all of it was read
        client.drop()


async def many_properties(star: Star) -> None:
    """As many as a packet takes."""
    client = await connected(star, version=Version.V5)
    properties = {Property.USER_PROPERTY: [("", "")] * 150_000}
    data = Publish(topic=f"{star.topic}/p", properties=properties).encode(Version.V5)
    for _ in range(20):
        client.send(data)
        await asyncio.sleep(0)
    await until(lambda: client.closed.is_set() or not client.transport.get_write_buffer_size())
    client.drop()


async def storm(star: Star) -> None:
    """Connections one after the other, half of them without waiting for the answer."""
    for number in range(300):
        client = await Client.open(star.here.address)
        client.send(Connect(client_id=f"storm{number % 20}"))
        if number % 2:
            client.drop()
        elif number % 10 == 0:
            await until(lambda client=client: client.closed.is_set() or client.received)  # type: ignore[misc]


ACTS = (burst_of_subscriptions, never_reads, flood, many_properties, storm)


async def test_the_innocent_are_served_before_a_neighbour_that_hangs_and_hostile_clients(star: Star) -> None:
    before = memory(star.here), memory(star.there)
    star.stuck.pause()
    for act in ACTS:
        await star.meanwhile(asyncio.create_task(act(star)))
        grown = [
            now - then for now, then in zip((memory(star.here), memory(star.there)), before, strict=True)
        ]
        assert max(grown) <= ALLOWED, f"{act.__name__}: {grown} of {ALLOWED} bytes"
    star.stuck.go_on()
    for _ in range(20):
        await star.round_trip()
