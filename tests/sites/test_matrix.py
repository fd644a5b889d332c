"""Clients on two nodes before any two makes of broker, with each algorithm, both ways."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from ildm.mqtt import PingReq, PingResp, Publish, Version, Will
from tests.sites.client import Client
from tests.sites.conftest import Sites
from tests.sites.overlay import OVERLAYS
from tests.sites.site import Site, settled
from tests.support.brokers import broker_pairs

KINDS = ("mosquitto", "rabbitmq", "activemq", "moquette")
PAIRS = broker_pairs(KINDS, same=True)
MIXED = [("mosquitto", kind) for kind in KINDS[1:]]
OVERLAY_PAIRS = {"sg_tbps": [("mosquitto", "mosquitto"), *MIXED], "atm_tbps": MIXED, "stla": MIXED}
"""Overlays with each make before Mosquitto, both ways: what a broker does to messages that are injected is no
matter of the algorithm, and test_overlay.py has all makes in one overlay."""
pairs = pytest.mark.parametrize(
    ("algorithm", "kinds"),
    [(algorithm, pair) for algorithm in ("pf", "sf") for pair in PAIRS]
    + [(algorithm, pair) for algorithm in OVERLAYS for pair in OVERLAY_PAIRS[algorithm]],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
    indirect=["algorithm"],
)

Pair = tuple[str, str]


def versions(site: Site) -> list[Version]:
    return [Version(level) for level in sorted(site.broker.versions)]


def best(site: Site) -> Version:
    return versions(site)[-1]


async def subscriber(site: Site, topic_filter: str, qos: int) -> Client:
    """A client whose subscription is granted as far as the broker goes."""
    client = await site.connect(version=best(site))
    assert await client.subscribe((topic_filter, qos)) == [min(qos, site.broker.max_qos)]
    # RabbitMQ looks for retained messages after its SUBACK: one that came meanwhile would be sent twice
    client.send(PingReq())
    await client.packet(PingResp)
    return client


def by_qos(messages: list[Publish]) -> dict[int, list[bytes]]:
    """Payloads, which begin with the QoS they were published with, in order of arrival."""
    return {qos: [m.payload for m in messages if m.payload.startswith(b"%d " % qos)] for qos in range(3)}


@pairs
async def test_each_message_arrives_once_in_order_everywhere(
    sites: Sites, kinds: Pair, algorithm: str, topic_root: str
) -> None:
    """QoS 0, 1 and 2, from both sites at once, over two sessions per link; every publisher listens, too."""
    both = await sites.row(list(kinds), algorithm, link={"sessions": 2})
    listeners = [await subscriber(site, f"{topic_root}/+", 2) for site in both]
    publishers = [await subscriber(site, f"{topic_root}/+", 2) for site in both]
    await settled(*both)
    count = 30
    await asyncio.gather(
        *(
            publisher.publish_all(f"{topic_root}/{i}", [b"%d %d" % (qos, n) for n in range(count)], qos, 10)
            for i, publisher in enumerate(publishers)
            for qos in range(3)
        )
    )
    for i, publisher in enumerate(publishers):
        await publisher.publish(f"{topic_root}/end{i}", b"end", 1)
    await settled(*both)
    for client, site in zip(listeners + publishers, both * 2, strict=True):
        got = await client.receive_all(2 * 3 * count + 2)
        for i in range(2):
            messages = [m for m in got if m.topic == f"{topic_root}/{i}"]
            assert by_qos(messages) == {q: [b"%d %d" % (q, n) for n in range(count)] for q in range(3)}
            assert {(m.payload[:1], m.qos) for m in messages} == {
                (b"%d" % qos, min(qos, site.broker.max_qos)) for qos in range(3)
            }
        assert Counter(m.topic for m in got if m.payload == b"end") == {
            f"{topic_root}/end0": 1,
            f"{topic_root}/end1": 1,
        }
    if algorithm not in OVERLAYS:
        assert [site.node.counters["transferred_out"] for site in both] == [3 * count + 1] * 2
    assert [client.waiting for client in listeners + publishers] == [0] * 4


@pairs
async def test_retained_messages(sites: Sites, kinds: Pair, algorithm: str, topic_root: str) -> None:
    """Set, overwritten, deleted; the flag is cleared on live delivery (MQTT-3.3.1-5 to -9)."""
    both = await sites.row(list(kinds), algorithm)
    for here, there in (both, both[::-1]):
        topic = f"{topic_root}/{here.name}"
        publisher = await here.connect()
        live = await subscriber(there, topic, 1)
        await settled(*both)
        for value in (b"old", b"new"):
            await publisher.publish(topic, value, 1, retain=True)
        assert [(m.payload, m.retain) for m in await live.receive_all(2)] == [
            (b"old", False),
            (b"new", False),
        ]
        await settled(*both)
        for site in both:
            late = await subscriber(site, topic, 1)
            message = await late.receive()
            # Moquette sends retained messages without the flag
            assert (message.payload, message.retain) == (b"new", site.broker.name != "moquette")
            await late.disconnect()
        await publisher.publish(topic, b"", 1, retain=True)
        assert (await live.receive()).payload == b""
        await settled(*both)
        late_clients = [await subscriber(site, topic, 1) for site in both]
        await settled(*both)
        await publisher.publish(topic, b"end", 1)
        for late in late_clients:
            assert await late.receive_until(b"end") == []


@pairs
async def test_a_retained_message_is_there_although_nobody_wanted_it(
    sites: Sites, kinds: Pair, algorithm: str, topic_root: str
) -> None:
    both = await sites.row(list(kinds), algorithm)
    for here, there in (both, both[::-1]):
        topic = f"{topic_root}/{here.name}"
        publisher = await here.connect()
        await publisher.publish(topic, b"on", 1, retain=True)
        await settled(*both)
        late = await subscriber(there, topic, 1)
        assert (await late.receive()).payload == b"on"
        await publisher.publish(topic, b"", 1, retain=True)


@pairs
async def test_a_will_is_seen_once_at_both_sites(
    sites: Sites, kinds: Pair, algorithm: str, topic_root: str
) -> None:
    """Sent when the connection breaks (MQTT-3.1.2-8), not after DISCONNECT (MQTT-3.1.2-10)."""
    both = await sites.row(list(kinds), algorithm)
    listeners = [await subscriber(site, f"{topic_root}/#", 1) for site in both]
    await settled(*both)
    for here in both:
        leaver = await here.connect(will=Will(topic=f"{topic_root}/left", payload=b"left", qos=1))
        await leaver.disconnect()
        gone = Will(topic=f"{topic_root}/gone", payload=here.name.encode(), qos=1)
        (await here.connect(will=gone)).drop()
        for listener in listeners:
            message = await listener.receive()
            assert (message.topic, message.payload) == (f"{topic_root}/gone", here.name.encode())
        await (await here.connect()).publish(f"{topic_root}/end", b"end", 1)
        for listener in listeners:
            assert await listener.receive_until(b"end") == []


@pairs
async def test_a_persistent_session_gets_what_was_published_meanwhile(
    sites: Sites, kinds: Pair, algorithm: str, topic_root: str
) -> None:
    """The far site's messages, too (thesis 5.3.3), each once."""
    both = await sites.row(list(kinds), algorithm)
    for here, there in (both, both[::-1]):
        topic = f"{topic_root}/{here.name}"
        away = await there.connect(f"{topic_root}{there.name}", clean=False)
        await away.subscribe((topic, 1))
        await away.disconnect()
        await settled(*both)
        publisher = await here.connect()
        await publisher.publish_all(topic, [b"%d" % n for n in range(10)], 1)
        await settled(*both)
        back = await there.connect(f"{topic_root}{there.name}", clean=False)
        assert [m.payload for m in await back.receive_all(10)] == [b"%d" % n for n in range(10)]
        # ActiveMQ says "no session" in CONNACK although there is one: a client has to subscribe again
        await back.subscribe((topic, 1))
        await settled(*both)
        await publisher.publish(topic, b"end", 1)
        assert await back.receive_until(b"end") == []
        await back.unsubscribe(topic)
        await back.disconnect()
        await (await there.connect(f"{topic_root}{there.name}")).disconnect()


@pairs
async def test_every_version_reaches_every_version(
    sites: Sites, kinds: Pair, algorithm: str, topic_root: str
) -> None:
    both = await sites.row(list(kinds), algorithm)
    clients = [
        (site, version, await site.connect(version=version)) for site in both for version in versions(site)
    ]
    for _, _, client in clients:
        await client.subscribe((f"{topic_root}/+", 1))
    await settled(*both)
    sent = {f"{topic_root}/{site.name}-{version}" for site, version, _ in clients}
    for site, version, client in clients:
        await client.publish(f"{topic_root}/{site.name}-{version}", b"x", 1)
    for _, _, client in clients:
        got = await client.receive_all(len(sent))
        assert {m.topic for m in got} == sent
    for _, _, client in clients:
        await client.unsubscribe(f"{topic_root}/+")
        assert client.waiting == 0


@pairs
async def test_unsubscribing_at_one_site_leaves_the_other(
    sites: Sites, kinds: Pair, algorithm: str, topic_root: str
) -> None:
    both = await sites.row(list(kinds), algorithm)
    one, other = [await subscriber(site, f"{topic_root}/+", 1) for site in both]
    publisher = await both[0].connect()
    await settled(*both)
    await publisher.publish(f"{topic_root}/a", b"1", 1)
    for client in (one, other):
        assert (await client.receive()).payload == b"1"
    await other.unsubscribe(f"{topic_root}/+")
    await settled(*both)
    await publisher.publish(f"{topic_root}/a", b"2", 1)
    assert (await one.receive()).payload == b"2"
    await settled(*both)  # the far broker has it, too
    await other.subscribe((f"{topic_root}/+", 1))
    await settled(*both)
    await publisher.publish(f"{topic_root}/a", b"3", 1)
    assert (await one.receive()).payload == b"3"
    assert (await other.receive()).payload == b"3"
