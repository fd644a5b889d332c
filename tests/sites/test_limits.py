"""Sizes, refusals by the far broker, and bounded memory: what one party does hurts nobody else."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from ildm.mqtt import Property, Publish, Version
from tests.sites.client import until
from tests.sites.conftest import Proxies, Sites, makes, trees
from tests.sites.site import Site, join, settled

MEGABYTE = 1_000_000


def resident() -> int:
    """Resident memory of this process, and so of its nodes and clients, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


# sizes ----------------------------------------------------------------------------------------


@makes("mosquitto", "rabbitmq", "activemq", "moquette")
async def test_large_payloads_cross(sites: Sites, kind: str, algorithm: str, topic_root: str) -> None:
    here = await sites.make("mosquitto", algorithm)
    there = await sites.make(sites.shared_broker(kind, 1 if kind == "mosquitto" else 0), algorithm)
    await join(here, there)
    subscriber = await there.connect()
    await subscriber.subscribe((topic_root, 1))
    await settled(here, there)
    publisher = await here.connect()
    for qos in (0, 1):
        payload = os.urandom(MEGABYTE)
        await publisher.publish(topic_root, payload, qos)
        assert (await subscriber.receive()).payload == payload


async def test_one_byte_more_than_the_limit(sites: Sites, algorithm: str, topic_root: str) -> None:
    """The configured maximum crosses; the next size is refused with 0x95, and only that client notices."""
    limit = MEGABYTE
    here = await sites.make("mosquitto", algorithm, limits={"packet_size": limit})
    there = await sites.make(sites.shared_broker("mosquitto", 1), algorithm)
    await join(here, there)
    subscriber = await there.connect()
    await subscriber.subscribe((topic_root, 1))
    bystander = await here.connect()
    await settled(here, there)
    five, older = await here.connect(version=Version.V5), await here.connect()
    overhead = (
        len(Publish(topic=topic_root, payload=bytes(limit), qos=1, packet_id=1).encode(Version.V311)) - limit
    )
    await older.publish(topic_root, bytes(limit - overhead), 1)
    assert len((await subscriber.receive()).payload) == limit - overhead
    await five.publish(topic_root, bytes(limit - overhead - 1), 1)
    assert len((await subscriber.receive()).payload) == limit - overhead - 1
    older.send(Publish(topic=topic_root, payload=bytes(limit - overhead + 1), qos=1, packet_id=9))
    five.send(Publish(topic=topic_root, payload=bytes(limit - overhead), qos=1, packet_id=9))
    await older.wait_closed()
    await five.wait_closed()
    assert five.end is not None
    assert five.end.reason_code == 0x95
    await bystander.publish(topic_root, b"end", 1)
    assert await subscriber.receive_until(b"end") == []
    assert here.node.counters["malformed"] == 2


async def test_long_topics(sites: Sites, algorithm: str, topic_root: str) -> None:
    """Up to 65,535 bytes (MQTT-1.5.4, 4.7.3-3)."""
    both = await sites.row(["mosquitto", "mosquitto"], algorithm)
    topic = f"{topic_root}/".ljust(65_535, "x")
    subscriber = await both[1].connect()
    await subscriber.subscribe((topic, 1))
    await settled(*both)
    publisher = await both[0].connect()
    for qos in range(2):
        await publisher.publish(topic, b"m", qos)
        message = await subscriber.receive()
        assert (message.topic, message.payload) == (topic, b"m")


@makes("mosquitto", "activemq", "moquette")
async def test_unusual_characters_in_topics(sites: Sites, kind: str, algorithm: str, topic_root: str) -> None:
    """U+FEFF (MQTT-1.5.4-3), code points beyond the first plane, unassigned ones, spaces, empty levels."""
    here = await sites.make("mosquitto", algorithm)
    there = await sites.make(sites.shared_broker(kind, 1 if kind == "mosquitto" else 0), algorithm)
    await join(here, there)
    # ActiveMQ cuts spaces at the end of a topic off
    names = ["\ufeffmark", "\U0001f986", "\u0378", " a b", "/x//y", "Ünï/cödé", "e\u0301", "\u00e9"]
    subscriber = await there.connect()
    for name in names:
        await subscriber.subscribe((f"{topic_root}/{name}", 1))
    await settled(here, there)
    publisher = await here.connect()
    for qos in range(2):
        for name in names:
            await publisher.publish(f"{topic_root}/{name}", name.encode(), qos)
        for _ in names:
            message = await subscriber.receive()
            assert message.topic == f"{topic_root}/{message.payload.decode()}"
    assert subscriber.waiting == 0


# refused by the far broker ----------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_an_injection_denied_by_access_rules(sites: Sites, qos: int, topic_root: str) -> None:
    """Counted, shown in the status, and nothing stalls (3.4.2.1, 0x87)."""
    broker = await sites.own_broker("mosquitto", acl=f"topic readwrite {topic_root}/open/#\n")
    here, there = await sites.make("mosquitto", "pf"), await sites.make(broker, "pf")
    await join(here, there)
    subscriber = await there.connect()
    await subscriber.subscribe((f"{topic_root}/open/#", 2))
    publisher = await here.connect()
    numbers = [b"%d" % n for n in range(50)]
    for start in range(0, 50, 10):
        await publisher.publish_all(f"{topic_root}/closed", numbers[:30], qos)
        await publisher.publish_all(f"{topic_root}/open/x", numbers[start : start + 10], qos)
    assert [m.payload for m in await subscriber.receive_all(50)] == numbers
    await settled(here, there)
    assert there.node.injector.senders[0].inflight == 0
    if qos:  # nobody is told about QoS 0
        status = there.server.admin.view.status()
        assert status["counters"]["injection_refused"] == 150
        assert "0x87" in status["broker"]["reason"]


# bounded memory -------------------------------------------------------------------------------


async def test_a_subscriber_who_does_not_read(sites: Sites, algorithm: str, topic_root: str) -> None:
    """60 MB for one who takes nothing: reading from its broker session stops, the others go on."""
    both = await sites.row(["mosquitto", "mosquitto"], algorithm)
    here, there = both
    sleeper, reader = await there.connect("sleeper"), await there.connect()
    for client in (sleeper, reader):
        await client.subscribe(topic_root)
    await settled(*both)
    sleeper.transport.pause_reading()
    publisher = await here.connect()
    payload = bytes(20_000)
    before = resident()
    for _ in range(30):
        for _ in range(100):
            await publisher.publish(topic_root, payload)
        for _ in range(100):
            assert len((await reader.receive()).payload) == 20_000
        reader.received.clear()
    session = next(s for s in there.node.sessions if s.client_id == "sleeper")
    assert session.paired is not None
    assert session.paired.paused
    assert session.transport is not None
    waiting = session.transport.get_write_buffer_size()  # type: ignore[attr-defined]
    assert waiting <= there.config.limits.write_buffer + 2 * 256 * 1024
    assert resident() - before < 40_000_000
    # and when it reads again it gets what its broker has kept for it
    sleeper.transport.resume_reading()
    assert len((await sleeper.receive()).payload) == 20_000
    await until(lambda: session.paired is None or not session.paired.paused)


async def test_a_publisher_is_slowed_down_by_its_broker(sites: Sites, topic_root: str) -> None:
    """A broker that does not read stops the client: nothing piles up in the node."""
    connections: list[asyncio.StreamWriter] = []

    async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        await reader.readexactly(2)
        writer.write(b"\x20\x02\x00\x00")  # and from then on it reads no more

    server = await asyncio.start_server(broker, "127.0.0.1", 0, limit=1024)
    site = sites.prepare(
        sites.shared_broker("mosquitto"), None, broker_address=server.sockets[0].getsockname()[:2]
    )
    await site.start()
    publisher = await site.connect()
    frame = Publish(topic=topic_root, payload=bytes(50_000)).encode(Version.V311)
    before = resident()
    session = next(iter(site.node.sessions))
    for _ in range(2000):
        publisher.send(frame)
        if session.paused:
            break
        await asyncio.sleep(0)
    assert session.paused
    assert resident() - before < 40_000_000
    publisher.drop()
    for writer in connections:
        writer.transport.abort()
    await until(lambda: not site.node.sessions)
    server.close()


@trees
@pytest.mark.parametrize("overflow", ["drop", "block"])
async def test_a_far_site_that_is_down(
    sites: Sites, proxies: Proxies, algorithm: str, overflow: str, topic_root: str
) -> None:
    """Without a spool: the queue of the link is bounded, what is dropped is counted, and local clients go
    on."""
    options = {
        "link": {"overflow": overflow, "queue_messages": 1000, "queue_bytes": 1 << 20},
        "spool": {"mode": "off"},
    }
    here = await sites.make("mosquitto", algorithm, **options)
    there = await sites.make(sites.shared_broker("mosquitto", 1), algorithm, **options)
    proxy = await proxies.join(here, there)
    far, near = await there.connect(), await here.connect()
    for client in (far, near):
        await client.subscribe((topic_root, 1))
    await settled(here, there)
    publisher = await here.connect()
    proxy.cut()
    await until(lambda: not here.link(there).connected)
    before = resident()
    if overflow == "drop":
        sent = 5000
        for start in range(0, sent, 100):
            await publisher.publish_all(topic_root, [b"%05d" % n * 200 for n in range(start, start + 100)], 1)
        assert len(await near.receive_all(sent)) == sent
    else:
        # the publisher waits for its acknowledgements when the queue is full; others at its site do not
        payloads = [b"%05d" % n * 200 for n in range(3000)]
        under_way = asyncio.create_task(publisher.publish_all(topic_root, payloads, 1))
        await until(lambda: any(session.acks.holds for session in here.node.sessions))
        assert not under_way.done()
        other = await here.connect()
        await other.subscribe((f"{topic_root}local", 1))
    row = here.server.admin.view.neighbors()[0]
    assert row["queued_bytes"] <= 2 * (1 << 20)
    assert row["queued_messages"] <= 2 * 1000
    assert resident() - before < 40_000_000
    proxy.mend()
    if overflow == "drop":
        dropped = row["dropped"]
        assert dropped == here.node.counters["link_dropped_overflow_qos1"] > 0
        got = [m.payload for m in await far.receive_all(sent - dropped)]
        # the newest are kept
        assert got == [b"%05d" % n * 200 for n in range(dropped, sent)]
    else:
        await under_way
        assert [m.payload for m in await far.receive_all(3000)] == payloads
        assert here.node.counters["link_dropped_overflow_qos1"] == 0
    await settled(here, there)
    assert far.waiting == 0


@trees
async def test_a_far_site_that_is_down_gets_all_of_it_from_the_disk(
    sites: Sites, proxies: Proxies, algorithm: str, topic_root: str
) -> None:
    """With a spool little of what waits is in memory, nothing is dropped, and nobody waits."""
    options = {"link": {"queue_messages": 1000, "queue_bytes": 1 << 20}, "spool": {"page_bytes": 1 << 18}}
    here = await sites.make("mosquitto", algorithm, **options)
    there = await sites.make(sites.shared_broker("mosquitto", 1), algorithm, **options)
    proxy = await proxies.join(here, there)
    far = await there.connect()
    await far.subscribe((topic_root, 1))
    await settled(here, there)
    publisher = await here.connect()
    proxy.cut()
    await until(lambda: not here.link(there).connected)
    payloads = [b"%05d" % n * 2000 for n in range(5000)]
    before = resident()
    for start in range(0, len(payloads), 100):
        await publisher.publish_all(topic_root, payloads[start : start + 100], 1)
    assert here.server.admin.view.neighbors()[0]["queued_messages"] == len(payloads)
    assert resident() - before < 25_000_000
    proxy.mend()
    assert [m.payload for m in await far.receive_all(len(payloads))] == payloads
    await settled(here, there)
    assert far.waiting == 0


@trees
async def test_a_far_site_that_does_not_read(
    sites: Sites, proxies: Proxies, algorithm: str, topic_root: str
) -> None:
    """A path that takes nothing any more fills the queue of that link and no other."""
    link = {"queue_bytes": 1 << 20, "keep_alive": 60}
    here, there, third = [
        await sites.make(sites.shared_broker("mosquitto", i), algorithm, link=link) for i in range(3)
    ]
    proxy = await proxies.join(here, there)
    await join(here, third)
    listeners: list[tuple[Site, int]] = [(here, 0), (third, 0)]
    clients = [await site.connect() for site, _ in listeners]
    stuck = await there.connect()
    for client in (*clients, stuck):
        await client.subscribe(topic_root)
    await settled(here, there, third)
    proxy.hold()
    publisher = await here.connect()
    before = resident()
    for number in range(40):
        for _ in range(50):
            await publisher.publish(topic_root, b"%02d" % number + bytes(20_000))
        for client in clients:
            await client.receive_all(50)
            client.received.clear()
    assert here.link(there).queued_bytes <= 1 << 20
    assert here.node.counters["link_dropped_overflow_qos0"] > 0
    assert here.link(third).dropped == 0
    assert resident() - before < 60_000_000
    proxy.release()
    await publisher.publish(topic_root, b"end")
    for client in (*clients, stuck):
        await client.receive_until(b"end")


async def test_a_maximum_packet_size_of_the_far_broker(sites: Sites, topic_root: str) -> None:
    """What the broker announces binds the injection sessions (MQTT-3.2.2-15); the rest goes on."""
    broker = await sites.own_broker("mosquitto", extra=["max_packet_size 5000"])
    here, there = await sites.make("mosquitto", "pf"), await sites.make(broker, "pf")
    await join(here, there)
    subscriber = await there.connect(version=Version.V5)
    assert subscriber.connack.properties[Property.MAXIMUM_PACKET_SIZE] == 5000
    await subscriber.subscribe((topic_root, 1))
    publisher = await here.connect()
    for qos in range(3):
        await publisher.publish(topic_root, bytes(6000), qos)
        await publisher.publish(topic_root, bytes(4000), qos)
    # at QoS 2 as well: a broker may release a message at PUBREL, after a QoS 1 message that was sent later
    await publisher.publish(topic_root, b"end", 2)
    assert [len(m.payload) for m in await subscriber.receive_until(b"end")] == [4000] * 3
    assert there.node.counters["injection_dropped_too_large"] == 3
