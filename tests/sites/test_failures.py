"""Brokers and links are killed and come back: everything works again, nothing arrives twice."""

from __future__ import annotations

import asyncio

import pytest

from ildm.mqtt import Version
from tests.sites.client import until
from tests.sites.conftest import Proxies, Sites, trees
from tests.sites.site import exchange, join, joined, settled

# broker ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "algorithm"),
    [
        ("mosquitto", "pf"),
        ("mosquitto", "sf"),
        ("mosquitto", "sg_tbps"),
        ("activemq", "pf"),
        ("activemq", "sf"),
        ("moquette", "pf"),
        ("moquette", "sf"),
        ("rabbitmq", "sf"),  # once: it takes its time to boot
    ],
)
async def test_a_killed_broker_comes_back(sites: Sites, kind: str, algorithm: str, topic_root: str) -> None:
    """Clients are told (3.1.1: code 3; MQTT 5: 0x88), the node stays up and goes on by itself."""
    broker = await sites.own_broker(kind)
    here = await sites.make(broker, algorithm)
    there = await sites.make("mosquitto", algorithm)
    await join(here, there)
    await exchange([here, there], topic_root, "before")
    client = await here.connect(keep_alive=0)
    await asyncio.to_thread(broker.kill)
    await client.wait_closed()
    await until(lambda: here.node.reach.down_reason is not None)
    for version, code in ((Version.V31, 3), (Version.V311, 3), (Version.V5, 0x88)):
        refused = await here.connect(version=version, accepted=False)
        assert refused.connack.reason_code == code
        await refused.wait_closed()
    status = here.server.admin.view.status()
    assert status["broker"]["connected"] is False
    assert status["broker"]["reason"]
    assert here.is_joined(there)  # the link does not suffer
    await exchange([there], topic_root, "alone")
    await asyncio.to_thread(broker.start)
    await until(lambda: all(sender.open for sender in here.node.injector.senders), "injection sessions")
    assert here.server.admin.view.status()["broker"]["connected"] is True
    await exchange([here, there], topic_root, "after")


async def test_messages_wait_for_the_far_broker(sites: Sites, algorithm: str, topic_root: str) -> None:
    """Those for a persistent session at a broker that keeps its sessions."""
    broker = await sites.own_broker("mosquitto", persistence=True)
    here = await sites.make("mosquitto", algorithm)
    there = await sites.make(broker, algorithm)
    await join(here, there)
    subscriber = await there.connect(topic_root, clean=False)
    await subscriber.subscribe((topic_root, 2))
    publisher = await here.connect()
    await settled(here, there)
    await subscriber.disconnect()
    await asyncio.to_thread(broker.stop)
    await until(lambda: there.node.reach.down_reason is not None)
    for qos in (1, 2):
        await publisher.publish_all(topic_root, [b"%d %d" % (qos, n) for n in range(20)], qos)
    await until(lambda: there.node.injector.queued_messages == 40)
    queues = (await there.shell("status"))["queues"]
    assert queues["injection"]["messages"] == 40
    assert queues["injection"]["bytes"] > 40
    assert (queues["links"], queues["dropped"]) == ({"messages": 0, "bytes": 0}, 0)
    await asyncio.to_thread(broker.start)
    await settled(here, there)
    back = await there.connect(topic_root, clean=False)
    assert back.connack.session_present
    got = [m.payload for m in await back.receive_all(40)]
    assert got == [b"%d %d" % (qos, n) for qos in (1, 2) for n in range(20)]
    assert back.waiting == 0


async def test_the_clients_of_a_dead_broker_do_not_stay_in_the_way(sites: Sites, topic_root: str) -> None:
    """Their interest goes with their sessions, and comes with their new subscriptions."""
    broker = await sites.own_broker("mosquitto")
    here, there = await sites.make("mosquitto", "sf"), await sites.make(broker, "sf")
    await join(here, there)
    client = await there.connect("same")
    await client.subscribe((topic_root, 1))
    await settled(here, there)
    assert here.link(there).interest == {topic_root: 1}
    await asyncio.to_thread(broker.kill)
    await client.wait_closed()
    await settled(here)
    await until(lambda: here.link(there).interest == {})
    await asyncio.to_thread(broker.start)
    client = await there.connect("same")
    await client.subscribe((topic_root, 1))
    await settled(here, there)
    assert here.link(there).interest == {topic_root: 1}


# link -----------------------------------------------------------------------------------------


@trees
@pytest.mark.parametrize("sessions", [1, 4])
async def test_qos_1_and_2_arrive_once_over_a_link_that_is_cut(
    sites: Sites, proxies: Proxies, algorithm: str, sessions: int, topic_root: str
) -> None:
    """Cut again and again while numbered messages are published: none lost, none twice, all in order."""
    link = {"sessions": sessions, "inflight": 20}
    here = await sites.make("mosquitto", algorithm, link=link)
    there = await sites.make(sites.shared_broker("mosquitto", 1), algorithm, link=link)
    proxy = await proxies.join(here, there)
    subscriber = await there.connect(version=Version.V5)
    await subscriber.subscribe((f"{topic_root}/+", 2))
    await settled(here, there)
    publishers = [await here.connect() for _ in range(4)]
    count = 250

    async def publish(number: int, qos: int) -> None:
        await publishers[number].publish_all(
            f"{topic_root}/{number}", [b"%d" % n for n in range(count)], qos, 10
        )

    under_way = asyncio.gather(*(publish(number, 1 + number % 2) for number in range(4)))
    cuts = 0
    while cuts < 5 or not under_way.done():
        wanted = min(subscriber.waiting + 150, 4 * count)
        await until(lambda wanted=wanted: subscriber.waiting >= wanted)  # type: ignore[misc]
        proxy.cut()
        cuts += 1
        await until(lambda: not here.link(there).connected)
        proxy.mend()
        await joined(here, there)
    await under_way
    got = await subscriber.receive_all(4 * count)
    for number in range(4):
        payloads = [m.payload for m in got if m.topic == f"{topic_root}/{number}"]
        assert payloads == [b"%d" % n for n in range(count)]
    await publishers[0].publish(f"{topic_root}/end", b"end", 1)
    assert await subscriber.receive_until(b"end") == []
    await exchange([here, there], topic_root, "after")


@trees
async def test_messages_published_while_the_link_is_cut_arrive_once(
    sites: Sites, proxies: Proxies, algorithm: str, topic_root: str
) -> None:
    """All QoS, from both sides; interest that changed meanwhile is synchronised."""
    here, there = await sites.make("mosquitto", algorithm), await sites.make("activemq", algorithm)
    proxy = await proxies.join(here, there)
    both = (here, there)
    clients = [await site.connect() for site in both]
    for client in clients:
        await client.subscribe((f"{topic_root}/+", 2))
    gone = await there.connect()
    await gone.subscribe(f"{topic_root}gone")
    await settled(*both)
    proxy.cut()
    await until(lambda: not here.link(there).connected and not there.link(here).connected)
    row = here.server.admin.view.neighbors()[0]
    assert (row["state"], bool(row["reason"])) == ("down", True)
    await gone.disconnect()
    for site, client in zip(both, clients, strict=True):
        for qos in range(3):
            await client.publish(f"{topic_root}/{qos}", site.name.encode(), qos)
    late = await there.connect()
    await late.subscribe(f"{topic_root}late")
    proxy.mend()
    await joined(*both)
    await settled(*both)
    for client in clients:
        got = sorted((m.topic, m.payload) for m in await client.receive_all(6))
        assert got == sorted((f"{topic_root}/{q}", site.name.encode()) for q in range(3) for site in both)
    if algorithm == "sf":
        assert here.link(there).interest == {f"{topic_root}/+": 2, f"{topic_root}late": 0}
    await clients[0].publish(f"{topic_root}late", b"late")
    assert (await late.receive()).payload == b"late"
    await exchange(list(both), topic_root, "after")
    assert [client.waiting for client in clients] == [0, 0]


@trees
async def test_a_link_that_loses_every_packet_is_noticed(
    sites: Sites, proxies: Proxies, algorithm: str, topic_root: str
) -> None:
    """No FIN, no RST: only the missing signs of life tell (PINGREQ and PINGRESP of the link)."""
    here, there = await sites.make("mosquitto", algorithm), await sites.make("moquette", algorithm)
    proxy = await proxies.join(here, there)
    subscriber = await there.connect()
    await subscriber.subscribe((topic_root, 1))
    publisher = await here.connect()
    await settled(here, there)
    proxy.hold()
    await publisher.publish(topic_root, b"1", 1)
    await until(lambda: not here.link(there).connected and not there.link(here).connected, "the time-out")
    proxy.cut()
    proxy.release()
    proxy.mend()
    await joined(here, there)
    await publisher.publish(topic_root, b"2", 1)
    assert [m.payload for m in await subscriber.receive_all(2)] == [b"1", b"2"]
    await exchange([here, there], topic_root, "after")
    assert subscriber.waiting == 0


@trees
async def test_a_transit_node_is_cut_off_and_comes_back(
    sites: Sites, proxies: Proxies, algorithm: str, topic_root: str
) -> None:
    first, middle, last = [
        await sites.make(kind, algorithm) for kind in ("mosquitto", "rabbitmq", "activemq")
    ]
    await join(first, middle)
    proxy = await proxies.join(middle, last)
    await exchange([first, middle, last], topic_root, "before")
    proxy.cut()
    await until(lambda: not middle.link(last).connected)
    await exchange([first, middle], topic_root, "apart")
    proxy.mend()
    await joined(middle, last)
    await exchange([first, middle, last], topic_root, "after")
