"""A broker with several addresses: when it is gone, the node and its clients go to the next."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest

from ildm.mqtt import Version
from tests.sites.client import until
from tests.sites.conftest import Sites, every_algorithm
from tests.sites.site import Choice, Site, exchange, join, settled
from tests.support.brokers import Broker


async def pair(sites: Sites) -> list[Broker]:
    return [await sites.own_broker("mosquitto"), await sites.own_broker("mosquitto")]


async def before(
    sites: Sites,
    brokers: list[Broker],
    algorithm: Choice,
    broker: dict[str, Any] | None = None,
    **changes: Any,
) -> Site:
    """A site that knows the addresses of all these brokers."""
    addresses = {"addresses": [text(each) for each in brokers]}
    return await sites.make(brokers[0], algorithm, broker={**(broker or {}), **addresses}, **changes)


def text(broker: Broker) -> str:
    return "{}:{}".format(*broker.address)


def in_use(site: Site) -> tuple[str, int]:
    """The address that the node shows, and how often that has changed."""
    broker = site.server.admin.view.status()["broker"]
    return broker["address"], broker["failovers"]


@every_algorithm
async def test_the_clients_of_a_dead_broker_are_served_by_the_next(
    sites: Sites, algorithm: str, topic_root: str
) -> None:
    brokers = await pair(sites)
    here = await before(sites, brokers, algorithm)
    there = await sites.make("mosquitto", algorithm)
    await join(here, there)
    await exchange([here, there], topic_root, "first")
    client = await here.connect()
    assert in_use(here) == (text(brokers[0]), 0)
    await asyncio.to_thread(brokers[0].kill)
    await client.wait_closed()
    for version in Version:  # not even the first one who comes is sent away
        again = await here.connect(version=version)
        assert again.connack.reason_code == 0
        await again.disconnect()
    await until(lambda: here.node.injector.connected, "the node's own session at the second broker")
    assert in_use(here) == (text(brokers[1]), 1)
    assert here.node.counters["broker_failovers"] == 1
    failover = [
        row for row in here.server.driver.history.rows() if row["event"].startswith("broker failover")
    ]
    assert [(row["fields"]["before"], row["fields"]["broker"]) for row in failover] == [
        (text(brokers[0]), text(brokers[1]))
    ]
    await exchange([here, there], topic_root, "second")
    await asyncio.to_thread(brokers[0].start)
    await exchange([here, there], topic_root, "first is back")
    assert in_use(here) == (text(brokers[1]), 1)  # all stay where they are
    await asyncio.to_thread(brokers[1].kill)
    await until(lambda: in_use(here) == (text(brokers[0]), 2), "the first broker again")
    await until(lambda: here.node.injector.connected, "the node's own session at the first broker")
    await exchange([here, there], topic_root, "first again")


@pytest.mark.parametrize(("sessions", "protocol"), [(1, "auto"), (3, "5")])
async def test_what_comes_while_all_are_down_is_there_when_one_is_back(
    sites: Sites, sessions: int, protocol: str, topic_root: str
) -> None:
    """QoS 1 and 2 wait; retained messages are given to the broker that has never had them."""
    brokers = await pair(sites)
    here = await before(sites, brokers, "sf", {"protocol": protocol}, link={"sessions": sessions})
    there = await sites.make("mosquitto", "sf", link={"sessions": sessions})
    await join(here, there)
    subscriber = await here.connect(f"{topic_root}-keeps", clean=False)
    await subscriber.subscribe((f"{topic_root}/#", 2))
    await settled(here, there)
    await subscriber.disconnect()  # its interest stays
    for broker in reversed(brokers):  # the node never gets to the second one
        await asyncio.to_thread(broker.kill)
    await until(lambda: not here.node.injector.connected)
    refused = await here.connect(version=Version.V5, accepted=False)
    assert refused.connack.reason_code == 0x88
    publisher = await there.connect()
    for qos in (1, 2):
        await publisher.publish(f"{topic_root}/{qos}", b"kept", qos, retain=True)
    await until(lambda: here.node.injector.queued_messages == 2)
    assert here.node.counters["broker_failovers"] == 0
    tries = len([row for row in here.server.driver.history.rows() if row["event"] == "broker unavailable"])
    assert tries <= 4  # each address is named once for each reason
    await asyncio.to_thread(brokers[1].start)
    await until(lambda: here.node.injector.idle and here.node.injector.connected, "the messages injected")
    assert in_use(here) == (text(brokers[1]), 1)
    later = await here.connect()
    await later.subscribe((f"{topic_root}/#", 2))
    got = sorted((m.topic, m.payload) for m in await later.receive_all(2))
    assert got == [(f"{topic_root}/{qos}", b"kept") for qos in (1, 2)]


async def test_a_relay_without_an_algorithm_goes_to_the_next_as_well(sites: Sites, topic_root: str) -> None:
    """Also when somebody asks whether it is ready, before any client comes."""
    brokers = await pair(sites)
    here = await before(sites, brokers, None)
    await asyncio.to_thread(brokers[0].kill)
    problems: list[list[str]] = []
    here.server.admin.view.problems(problems.append)
    await until(lambda: problems == [[]])
    client = await here.connect()
    await client.subscribe((topic_root, 1))
    await client.publish(topic_root, b"hello", 1)
    assert (await client.receive()).payload == b"hello"
    assert in_use(here) == (text(brokers[1]), 1)


async def test_a_node_that_restarts_knows_where_its_own_sessions_were(sites: Sites, topic_root: str) -> None:
    """It begins with the first address, where nothing is known of what is under way at the second."""
    brokers = [await sites.own_broker("mosquitto", persistence=True) for _ in range(2)]
    here = await before(sites, brokers, "sf")
    there = await sites.make("mosquitto", "sf")
    await join(here, there)
    await asyncio.to_thread(brokers[0].kill)
    await until(lambda: in_use(here)[1] == 1 and here.node.injector.connected, "the second broker")
    await here.stop()
    await asyncio.to_thread(brokers[0].start)
    await here.start()
    assert in_use(here) == (text(brokers[0]), 0)
    await join(here, there)
    await exchange([here, there], topic_root, "after")


async def test_a_broker_that_hangs_is_left_and_so_are_its_clients(sites: Sites, topic_root: str) -> None:
    """Its connections stay, and new ones get no answer: whoever is there still is sent away."""
    brokers = await pair(sites)
    here = await before(
        sites,
        brokers,
        "sf",
        broker={"connect_timeout": 0.2, "connack_timeout": 0.2, "keep_alive": 1},
    )
    stays = await here.connect(keep_alive=0)
    await stays.subscribe((topic_root, 1))
    for pid in brokers[0].pids():
        os.kill(pid, signal.SIGSTOP)
    try:
        await stays.wait_closed()
        assert in_use(here) == (text(brokers[1]), 1)
        await until(lambda: here.node.injector.connected)
        await exchange([here], topic_root, "second")
    finally:
        for pid in brokers[0].pids():
            os.kill(pid, signal.SIGCONT)
