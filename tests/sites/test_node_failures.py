"""A node in a process of its own is killed and started again: all works as before, nothing comes twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ildm.config import Address
from tests.sites.client import Client, until
from tests.sites.conftest import Sites, trees
from tests.sites.overlay import quick
from tests.sites.process import ProcessSite
from tests.sites.site import Site, rested
from tests.support.brokers import Fleet


@pytest.fixture
async def far(tmp_path: Path, fleet: Fleet, algorithm: str) -> AsyncIterator[ProcessSite]:
    """A site whose node is a process; not started."""
    name = f"far{tmp_path.name[-6:]}"
    site = ProcessSite(fleet.shared("mosquitto", 1), tmp_path / "far", quick(algorithm), name)
    yield site
    if site.process is not None and site.process.returncode is None:
        await site.kill()


def link_up(here: Site, far: ProcessSite) -> bool:
    link = here.node.links.links.get(far.name)
    return link is not None and link.connected


async def far_joined(here: Site, far: ProcessSite) -> None:
    def up() -> bool:
        link = here.node.links.links.get(far.name)
        return (
            link is not None
            and link.connected
            and link.ready_there
            and link in here.node.links.cooperation.active
        )

    await until(up, "the link with the process")


async def exchange_with(here: Site, far: ProcessSite, topic: str, round_: str) -> None:
    clients = [await here.connect(), await far.connect()]
    for client in clients:
        await client.subscribe((f"{topic}/{round_}", 1))
    await flooded(here, far, clients, f"{topic}/{round_}")
    for number, client in enumerate(clients):
        await client.publish_all(f"{topic}/{round_}", [b"%d-%d" % (number, n) for n in range(10)], 1)
    for client in clients:
        got = [m.payload for m in await client.receive_all(20)]
        assert sorted(got) == sorted(b"%d-%d" % (c, n) for c in range(2) for n in range(10))
    for client in clients:
        await client.publish(f"{topic}/{round_}", b"end", 1)
    for client in clients:
        assert [m.payload for m in await client.receive_all(2)] == [b"end", b"end"]
        assert client.waiting == 0
        await client.disconnect()


async def flooded(here: Site, far: ProcessSite, clients: list[Client], topic: str) -> None:
    """Wait until both nodes know that the other wants the topic."""
    if here.has_overlay:
        await rested(far, one=(here.name, far.name))
    if here.node.algorithm_name != "sf":
        return
    await until(lambda: topic in here.node.links.links[far.name].interest, "interest of the process")
    while True:
        rows = await far.neighbors()
        if any(row["node_id"] == here.name and row["interest"] for row in rows):
            return
        await asyncio.sleep(0.01)


async def test_a_killed_node_comes_back(
    sites: Sites, far: ProcessSite, algorithm: str, topic_root: str
) -> None:
    here = await sites.make("mosquitto", quick(algorithm))
    await far.start()
    here.node.links.add(Address(*far.link_address), False)
    await far_joined(here, far)
    await exchange_with(here, far, topic_root, "before")
    local = await here.connect()
    await local.subscribe((topic_root, 1))
    remote = await far.connect()
    for round_ in ("one", "two"):
        await far.kill()
        await remote.wait_closed()
        await until(lambda: not link_up(here, far))
        await local.publish(topic_root, round_.encode(), 1)  # local work goes on
        assert (await local.receive()).payload == round_.encode()
        await far.start()
        await far_joined(here, far)
        await exchange_with(here, far, topic_root, round_)
        remote = await far.connect()
    assert local.waiting == 0
    assert await far.stop() == 0


@trees
async def test_a_persistent_session_outlives_the_kill_of_its_node(
    sites: Sites, far: ProcessSite, algorithm: str, topic_root: str
) -> None:
    """Messages of the time when neither client nor node were there arrive in order (thesis 5.3.3).

    One that the killed node had just injected may come again (MQTT-4.3.2).
    """
    here = await sites.make("mosquitto", algorithm)
    await far.start()
    here.node.links.add(Address(*far.link_address), False)
    await far_joined(here, far)
    away = await far.connect(topic_root, clean=False)
    await away.subscribe((topic_root, 1))
    await away.disconnect()
    if algorithm == "sf":
        await until(lambda: here.node.links.links[far.name].interest == {topic_root: 1})
    publisher = await here.connect()
    await publisher.publish(topic_root, b"away", 1)
    await until(lambda: here.node.links.idle)
    await until(lambda: far.saved_filters(topic_root) == {topic_root: 1}, "the saved session")
    await far.kill()
    await until(lambda: not link_up(here, far))
    await publisher.publish(topic_root, b"dead", 1)
    await far.start()
    await far_joined(here, far)
    if algorithm == "sf":
        await until(lambda: here.node.links.links[far.name].interest == {topic_root: 1})
    await publisher.publish(topic_root, b"back", 1)
    await until(lambda: here.node.links.idle)
    back = await far.connect(topic_root, clean=False)
    assert back.connack.session_present
    came = [message.payload for message in await back.receive_until(b"back")]
    assert list(dict.fromkeys(came)) == [b"away", b"dead"]
    if algorithm == "sf":
        assert here.node.links.links[far.name].interest == {topic_root: 1}
    await publisher.publish(topic_root, b"end", 1)
    assert await back.receive_until(b"end") == []
    await back.unsubscribe(topic_root)


@trees
async def test_a_thousand_messages_at_qos_1_over_the_kill_of_the_far_node(
    sites: Sites, far: ProcessSite, algorithm: str, topic_root: str
) -> None:
    """At least once (MQTT-4.3.2), first deliveries in order (MQTT-4.6.0-5).

    The broker is quick here: a node has nothing left that it has acknowledged and not handed on.
    """
    here = await sites.make("mosquitto", algorithm)
    await far.start()
    here.node.links.add(Address(*far.link_address), False)
    await far_joined(here, far)
    # straight at the broker, which outlives the node; the node knows the interest by a client of its own
    subscriber = await Client.connect(far.broker.address)
    await subscriber.subscribe((topic_root, 1))
    keeper = await far.connect(f"{topic_root}k", clean=False)
    await keeper.subscribe((topic_root, 1))
    await until(lambda: far.saved_filters(f"{topic_root}k") == {topic_root: 1}, "the saved session")
    if algorithm == "sf":
        await until(lambda: here.node.links.links[far.name].interest == {topic_root: 1})
    publisher = await here.connect()
    payloads = [b"%d" % n for n in range(1000)]
    under_way = asyncio.create_task(publisher.publish_all(topic_root, payloads, 1, 50))
    await until(lambda: subscriber.waiting > 300)
    await far.kill()
    await under_way
    await far.start()
    await far_joined(here, far)
    await publisher.publish(topic_root, b"end", 1)
    got = [m.payload for m in await subscriber.receive_until(b"end")]
    firsts = list(dict.fromkeys(got))
    assert firsts == sorted(firsts, key=int)
    assert len(firsts) == 1000
    await keeper.wait_closed()
