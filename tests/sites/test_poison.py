"""Messages on which a real broker closes the node's connection, as MQTT 3.1.1 has it say nothing else."""

from __future__ import annotations

import asyncio

import pytest

from tests.sites.client import until
from tests.sites.conftest import Sites
from tests.sites.site import join, settled


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_message_too_large_for_the_far_broker(sites: Sites, qos: int, topic_root: str) -> None:
    """Its bound is in its configuration, and in 3.1.1 it cannot tell."""
    broker = await sites.own_broker("mosquitto", extra=["max_packet_size 8000"])
    here = await sites.make("mosquitto", "pf")
    there = sites.prepare(broker, "pf")
    speaks = there.config.broker.model_copy(update={"protocol": "3.1.1"})
    there.config = there.config.model_copy(update={"broker": speaks})
    await there.start()
    await join(here, there)
    subscriber = await there.connect()
    await subscriber.subscribe((topic_root, 1))
    publisher = await here.connect()
    await settled(here, there)
    small = [b"%d" % n for n in range(30)]
    await publisher.publish_all(topic_root, [*small[:15], bytes(20_000), *small[15:]], qos)
    await until(lambda: there.node.counters["injection_dropped_poison"] == 1, "the message is found")
    got: list[bytes] = []
    while len(set(got)) < len(small):
        got.append((await subscriber.receive()).payload)
    assert list(dict.fromkeys(got)) == small
    await settled(here, there)
    assert here.node.links.idle  # it was acknowledged: it is not sent again
    await asyncio.to_thread(broker.stop)
