"""Retained messages converge over real brokers, which lose their store or take QoS 2 at its release."""

from __future__ import annotations

import asyncio

import pytest

from tests.sites.client import Client, until
from tests.sites.conftest import Sites, trees
from tests.sites.site import Site, join, settled

TOPICS = 30


async def served(site: Site, topics: list[str]) -> dict[str, bytes]:
    """What the broker of a site has for a new subscriber of these topics."""
    client = (
        await site.connect() if site.broker.name == "moquette" else await Client.connect(site.broker.address)
    )
    await client.subscribe(*[(topic, 1) for topic in topics])
    await asyncio.sleep(0.1)  # nothing says that a topic has no retained message
    got = {m.topic: m.payload for m in [await client.receive() for _ in range(client.waiting)]}
    await client.disconnect()
    return got


async def comes_to(site: Site, topics: list[str], wanted: dict[str, bytes]) -> None:
    async with asyncio.timeout(120):
        while (got := await served(site, topics)) != wanted:
            assert set(got) <= set(topics)


@trees
@pytest.mark.parametrize("kind", ["mosquitto", "moquette", "activemq", "amqtt"])
async def test_a_broker_that_is_killed_and_has_lost_its_store_is_filled_again(
    sites: Sites, kind: str, algorithm: str, topic_root: str
) -> None:
    broker = await sites.own_broker(kind)
    here, there = await sites.make("mosquitto", algorithm), await sites.make(broker, algorithm)
    await join(here, there)
    topics = [f"{topic_root}/{n}" for n in range(TOPICS)]
    wanted = {topic: topic.encode() for topic in topics[1:]}
    publisher = await here.connect()
    for topic in topics:
        await publisher.publish(topic, topic.encode(), 1, retain=True)
    await publisher.publish(topics[0], b"", 1, retain=True)
    await settled(here, there)
    await comes_to(there, topics, wanted)
    await asyncio.to_thread(broker.kill)
    await until(lambda: not there.node.injector.connected)
    await asyncio.to_thread(broker.start)
    await comes_to(there, topics, wanted)
    if kind == "mosquitto":
        assert there.node.counters["retained_repaired"] >= TOPICS - 1
    for topic in topics:
        await publisher.publish(topic, b"", 1, retain=True)


@trees
async def test_what_waited_for_a_broker_does_not_overwrite_what_was_set_there_meanwhile(
    sites: Sites, algorithm: str, topic_root: str
) -> None:
    broker = await sites.own_broker("mosquitto")
    here, there = await sites.make("mosquitto", algorithm), await sites.make(broker, algorithm)
    await join(here, there)
    publisher = await here.connect()
    topics = [f"{topic_root}/{n}" for n in range(TOPICS)]
    await asyncio.to_thread(broker.kill)
    await until(lambda: there.node.reach.down_reason is not None)
    for topic in topics:
        await publisher.publish(topic, b"older", 1, retain=True)
    await until(lambda: there.node.injector.queued_messages == TOPICS)
    await asyncio.to_thread(broker.start)
    local = await there.connect()
    for topic in topics:
        await local.publish(topic, b"newer", 1, retain=True)
    await settled(here, there)
    for site in (here, there):
        await comes_to(site, topics, dict.fromkeys(topics, b"newer"))
    for topic in topics:
        await publisher.publish(topic, b"", 1, retain=True)


@trees
@pytest.mark.parametrize("kind", ["mosquitto", "activemq"])
@pytest.mark.parametrize("qos", [0, 1])
async def test_what_follows_a_message_of_qos_2_at_once_is_what_stays(
    sites: Sites, kind: str, algorithm: str, qos: int, topic_root: str
) -> None:
    here = await sites.make("mosquitto", algorithm)
    there = await sites.make(sites.shared_broker(kind, 1 if kind == "mosquitto" else 0), algorithm)
    await join(here, there)
    topics = [f"{topic_root}/{n}" for n in range(TOPICS)]
    publisher = await here.connect()
    for number, topic in enumerate(topics):
        await publisher.publish(topic, b"v1", 2, retain=True)
        await publisher.publish(topic, b"v2" if number % 3 else b"", qos, retain=True)
    await publisher.publish(f"{topic_root}/end", b"", 1)
    await settled(here, there)
    wanted = {topic: b"v2" for number, topic in enumerate(topics) if number % 3}
    assert await served(here, topics) == wanted
    assert await served(there, topics) == wanted
    assert there.node.counters["retained_repaired"] == 0, "it was right at once"
    for topic in topics:
        await publisher.publish(topic, b"", 1, retain=True)


@pytest.mark.parametrize("algorithm", ["sg_tbps"], indirect=True)
async def test_a_message_of_qos_2_that_nobody_wants_any_more_leaves_the_broker(
    sites: Sites, algorithm: str, topic_root: str
) -> None:
    """The node deletes it in its broker, at QoS 0 and perhaps in the middle of the handshake."""
    here, there = await sites.row(["mosquitto", "mosquitto"], algorithm)
    subscriber, publisher = await there.connect(), await here.connect()
    topics = [f"{topic_root}/{n}" for n in range(5)]
    await subscriber.subscribe(*[(topic, 2) for topic in topics])
    await settled(here, there)
    for topic in topics:
        await publisher.publish(topic, b"v1", 2, retain=True)
    assert {m.payload for m in await subscriber.receive_all(5)} == {b"v1"}
    await subscriber.unsubscribe(*topics)
    for topic in topics:
        await publisher.publish(topic, b"v2", 2, retain=True)
    await comes_to(there, topics, {})
    await comes_to(here, topics, dict.fromkeys(topics, b"v2"))
    for topic in topics:
        await publisher.publish(topic, b"", 1, retain=True)
