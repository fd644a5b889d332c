"""The embedded amqtt broker bears clients that come while others subscribe."""

from __future__ import annotations

import asyncio

from tests.sites.client import Client
from tests.sites.conftest import Sites

TOPICS = 30
CLIENTS = 30
FILTERS = 300


async def test_clients_connect_while_another_one_subscribes(sites: Sites, topic_root: str) -> None:
    broker = await sites.own_broker("amqtt")
    subscriber = await Client.connect(broker.address)
    topics = [f"{topic_root}/{n}" for n in range(TOPICS)]
    for topic in topics:
        await subscriber.publish(topic, b"retained", 1, retain=True)
    await subscriber.subscribe(*[(topic, 1) for topic in topics])

    async def subscribe() -> None:
        for number in range(FILTERS):
            await subscriber.subscribe((f"{topic_root}/other/{number}", 0))

    subscribing = asyncio.create_task(subscribe())
    for _ in range(CLIENTS):
        client = await Client.connect(broker.address)
        await client.subscribe((f"{topic_root}/none", 1))
        await client.disconnect()
    await subscribing
    await subscriber.disconnect()
