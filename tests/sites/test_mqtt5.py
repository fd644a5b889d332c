"""MQTT 5 over two sites: properties, expiry, aliases, subscription options, shared subscriptions."""

from __future__ import annotations

import asyncio

import pytest

from ildm.mqtt import Properties, Property, Publish, Subscription, Version
from tests.sites.client import Client, until
from tests.sites.conftest import Proxies, Sites, every_algorithm, makes, trees
from tests.sites.overlay import OVERLAYS
from tests.sites.site import Choice, Site, join, settled

V5 = Version.V5
EXPIRY = Property.MESSAGE_EXPIRY_INTERVAL
ALL: Properties = {
    Property.PAYLOAD_FORMAT_INDICATOR: 1,
    Property.CONTENT_TYPE: "text/plain; charset=utf-8",
    Property.RESPONSE_TOPIC: "answer/to/this",
    Property.CORRELATION_DATA: bytes(range(256)),
    Property.USER_PROPERTY: [("b", "1"), ("a", "2"), ("b", "3"), ("", ""), ("b", "1")],
}


@pytest.fixture
async def both(sites: Sites, algorithm: str) -> list[Site]:
    return await sites.row(["mosquitto", "mosquitto"], algorithm)


async def clients(both: list[Site]) -> tuple[Client, Client]:
    """One at each site."""
    one, other = [await site.connect(version=V5) for site in both]
    return one, other


@every_algorithm
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_properties_are_the_same_bytes_at_both_sites(
    both: list[Site], qos: int, topic_root: str
) -> None:
    """MQTT-3.3.2-4, -15 to -20; the order of user properties is kept (MQTT-3.3.2-18)."""
    near, far = await clients(both)
    for client in (near, far):
        await client.subscribe((topic_root, qos))
    await settled(*both)
    publisher = await both[0].connect(version=V5)
    before = [len(client.received) for client in (near, far)]
    await publisher.publish(topic_root, b"payload", qos, properties=ALL)
    one, other = await near.receive(), await far.receive()
    assert one == other
    assert one.properties == ALL
    raw = [bytes(c.received[start:]) for c, start in zip((near, far), before, strict=True)]
    assert raw[1].startswith(one.encode(V5))
    assert raw[0][: len(one.encode(V5))] == raw[1][: len(one.encode(V5))]


async def test_properties_are_dropped_and_counted_before_an_older_broker(
    sites: Sites, algorithm: str, topic_root: str
) -> None:
    row = await sites.row(["mosquitto", "activemq", "mosquitto"], algorithm)
    listeners = [await site.connect() for site in row[1:]]
    for listener in listeners:
        await listener.subscribe((topic_root, 1))
    five = await row[2].connect(version=V5)
    await five.subscribe((topic_root, 1))
    await settled(*row)
    publisher = await row[0].connect(version=V5)
    await publisher.publish(topic_root, b"payload", 1, properties=ALL)
    for listener in listeners:
        message = await listener.receive()
        assert (message.topic, message.payload, message.qos) == (topic_root, b"payload", 1)
    # the site behind it gets them all the same
    assert (await five.receive()).properties == ALL
    await settled(*row)
    dropped = [site.node.counters["injection_properties_dropped"] for site in row]
    assert dropped == [0, 1, 0]
    older = await row[1].connect()
    await older.publish(topic_root, b"plain", 1)
    assert (await five.receive()).properties == {}


@trees
async def test_message_expiry_is_counted_down_while_the_link_is_down(
    sites: Sites, proxies: Proxies, algorithm: str, topic_root: str
) -> None:
    """MQTT-3.3.2-6: what has expired never arrives, the rest with less left."""
    here = await sites.make("mosquitto", algorithm)
    there = await sites.make(sites.shared_broker("mosquitto", 1), algorithm)
    proxy = await proxies.join(here, there)
    subscriber = await there.connect(version=V5)
    await subscriber.subscribe((f"{topic_root}/+", 1))
    await settled(here, there)
    publisher = await here.connect(version=V5)
    proxy.cut()
    await until(lambda: not here.link(there).connected)
    for name, seconds in (("short", 1), ("long", 60)):
        for qos in (0, 1):
            await publisher.publish(f"{topic_root}/{name}", b"%d" % qos, qos, properties={EXPIRY: seconds})
    await publisher.publish(f"{topic_root}/ever", b"x", 1)
    await asyncio.sleep(2.1)  # what is tested is that time passes
    proxy.mend()
    got = await subscriber.receive_all(3)
    assert [(m.topic.rpartition("/")[2], m.payload) for m in got] == [
        ("long", b"0"),
        ("long", b"1"),
        ("ever", b"x"),
    ]
    assert [m.properties.get(EXPIRY, 99) in (57, 58, 59) for m in got] == [True, True, False]
    assert EXPIRY not in got[2].properties
    await settled(here, there)
    assert here.node.counters["link_dropped_expired"] == 2
    assert subscriber.waiting == 0


async def test_message_expiry_is_counted_down_while_the_far_broker_is_down(
    sites: Sites, algorithm: str, topic_root: str
) -> None:
    broker = await sites.own_broker("mosquitto", persistence=True)
    here, there = await sites.make("mosquitto", algorithm), await sites.make(broker, algorithm)
    await join(here, there)
    away = await there.connect(
        topic_root, version=V5, clean=False, properties={Property.SESSION_EXPIRY_INTERVAL: 600}
    )
    await away.subscribe((f"{topic_root}/+", 1))
    await settled(here, there)
    await away.disconnect()
    await asyncio.to_thread(broker.stop)
    await until(lambda: there.node.reach.down_reason is not None)
    publisher = await here.connect(version=V5)
    for name, seconds in (("short", 1), ("long", 60)):
        await publisher.publish(f"{topic_root}/{name}", b"x", 1, properties={EXPIRY: seconds})
    await until(lambda: there.node.injector.queued_messages == 2)
    await asyncio.sleep(1.1)  # what is tested is that time passes
    await asyncio.to_thread(broker.start)
    await settled(here, there)
    back = await there.connect(
        topic_root, version=V5, clean=False, properties={Property.SESSION_EXPIRY_INTERVAL: 600}
    )
    message = await back.receive()
    assert message.topic == f"{topic_root}/long"
    assert 50 <= message.properties[EXPIRY] <= 59
    assert there.node.counters["injection_dropped_expired"] == 1
    assert back.waiting == 0


async def test_a_topic_alias_stays_on_its_connection(both: list[Site], topic_root: str) -> None:
    """MQTT-3.3.2-7 to -12: set before anybody listens, used, set anew, at every QoS."""
    publisher, far = await clients(both)
    assert publisher.connack.properties[Property.TOPIC_ALIAS_MAXIMUM] >= 2
    near = await both[0].connect(version=V5)
    alias: Properties = {Property.TOPIC_ALIAS: 1}
    await publisher.publish(f"{topic_root}/a", b"early", 1, properties=alias)
    await settled(*both)  # it may be on its way to the far site
    for client in (near, far):
        await client.subscribe((f"{topic_root}/+", 2))
    await settled(*both)
    for qos in range(3):
        await publisher.publish("", b"%d" % qos, qos, properties=alias)
    await publisher.publish(f"{topic_root}/b", b"anew", 1, properties=alias)
    publisher.send(Publish(topic="", payload=b"last", properties=alias))
    for client in (near, far):
        got = await client.receive_all(5)
        by_topic = {t: [m.payload for m in got if m.topic == f"{topic_root}/{t}"] for t in "ab"}
        assert sorted(by_topic["a"]) == [b"0", b"1", b"2"]
        assert sorted(by_topic["b"]) == [b"anew", b"last"]
        assert all(Property.TOPIC_ALIAS not in m.properties for m in got)


async def test_an_alias_beyond_the_brokers_maximum_hurts_only_its_client(
    both: list[Site], topic_root: str
) -> None:
    publisher, far = await clients(both)
    other = await both[0].connect()
    await far.subscribe((topic_root, 1))
    await settled(*both)
    publisher.send(Publish(topic="", payload=b"x", properties={Property.TOPIC_ALIAS: 9}))
    await publisher.wait_closed()
    assert publisher.end is not None
    await other.publish(topic_root, b"end", 1)
    assert await far.receive_until(b"end") == []


async def test_a_subscription_identifier_comes_to_its_subscriber(both: list[Site], topic_root: str) -> None:
    """MQTT-3.3.4-3 to -6: each gets its own, and nobody another's."""
    near, far = await clients(both)
    plain = await both[1].connect(version=V5)
    identifier = Property.SUBSCRIPTION_IDENTIFIER
    await near.subscribe((topic_root, 1), properties={identifier: [7]})
    await far.subscribe((topic_root, 1), properties={identifier: [300]})
    await plain.subscribe((topic_root, 1))
    await settled(*both)
    for site in both:
        await (await site.connect()).publish(topic_root, b"m", 1)
    for client, expected in ((near, [7]), (far, [300]), (plain, None)):
        got = await client.receive_all(2)
        assert [m.properties.get(identifier) for m in got] == [expected] * 2


async def test_no_local(both: list[Site], topic_root: str) -> None:
    """MQTT-3.8.3-3: nothing comes back, also not by way of the far site."""
    near, far = await clients(both)
    await near.subscribe(Subscription(topic_filter=topic_root, qos=1, no_local=True))
    await far.subscribe(Subscription(topic_filter=topic_root, qos=1, no_local=True))
    await settled(*both)
    await near.publish(topic_root, b"near", 1)
    await far.publish(topic_root, b"far", 1)
    assert [m.payload for m in await near.receive_all(1)] == [b"far"]
    assert [m.payload for m in await far.receive_all(1)] == [b"near"]
    # Each has gone to the other site by now: the end from there comes behind what would have come back.
    for site in both:
        await (await site.connect()).publish(topic_root, b"end", 1)
    for client in (near, far):
        assert [m.payload for m in await client.receive_all(2)] == [b"end", b"end"]


async def test_retain_as_published(both: list[Site], topic_root: str) -> None:
    """MQTT-3.3.1-12, -13."""
    cleared, kept = await both[1].connect(version=V5), await both[1].connect(version=V5)
    await cleared.subscribe(Subscription(topic_filter=topic_root, qos=1))
    await kept.subscribe(Subscription(topic_filter=topic_root, qos=1, retain_as_published=True))
    await settled(*both)
    publisher = await both[0].connect()
    await publisher.publish(topic_root, b"1", 1, retain=True)
    await publisher.publish(topic_root, b"2", 1)
    await publisher.publish(topic_root, b"", 1, retain=True)
    assert [m.retain for m in await cleared.receive_all(3)] == [False, False, False]
    assert [m.retain for m in await kept.receive_all(3)] == [True, False, True]


async def test_retain_handling(both: list[Site], topic_root: str) -> None:
    """MQTT-3.3.1-9 to -11: 0 always, 1 only for a new subscription, 2 never."""
    publisher, far = await clients(both)
    if both[1].has_overlay:
        # The first subscriber of a site makes the node fetch what is retained elsewhere, and to this one it
        # is a live message, whatever it has asked for: it does not tell those that are older from new ones.
        await (await both[1].connect()).subscribe((topic_root, 1))
    await publisher.publish(topic_root, b"state", 1, retain=True)
    await settled(*both)
    got = []
    for handling in (2, 1, 1, 0, 2):
        await far.subscribe(Subscription(topic_filter=topic_root, qos=1, retain_handling=handling))
        await settled(*both)
        await publisher.publish(topic_root, b"end", 1)
        got.append(len(await far.receive_until(b"end")))
        if handling == 2:
            await far.unsubscribe(topic_root)
            await settled(*both)
    assert got == [0, 1, 0, 1, 0]
    await publisher.publish(topic_root, b"", 1, retain=True)


async def test_shared_subscriptions_have_one_receiver_in_each_site(both: list[Site], topic_root: str) -> None:
    """MQTT-4.8.2 holds at each broker by itself: one member per site, never two, never none."""
    members = [[await site.connect(version=V5) for _ in range(2)] for site in both]
    for site_members in members:
        for member in site_members:
            await member.subscribe((f"$share/group/{topic_root}", 1))
    await settled(*both)
    for number, site in enumerate(both):
        publisher = await site.connect()
        await publisher.publish_all(topic_root, [b"%d-%d" % (number, n) for n in range(20)], 1)
    expected = sorted(b"%d-%d" % (number, n) for number in range(2) for n in range(20))
    await settled(*both)
    for site_members in members:
        await until(lambda group=site_members: sum(m.waiting for m in group) >= 40)  # type: ignore[misc]
        got = [(await member.receive()).payload for member in site_members for _ in range(member.waiting)]
        assert sorted(got) == expected


@makes("mosquitto", "rabbitmq", "activemq", "moquette")
async def test_overlapping_filters_get_what_their_broker_gives_locally(
    sites: Sites, kind: str, algorithm: str, topic_root: str
) -> None:
    """MQTT-3.3.4-2 leaves the number of copies to the broker."""
    here = await sites.make("mosquitto", algorithm)
    there = await sites.make(sites.shared_broker(kind, 1 if kind == "mosquitto" else 0), algorithm)
    await join(here, there)
    subscriber = await there.connect()
    await subscriber.subscribe((f"{topic_root}/#", 1), (f"{topic_root}/+", 0), (f"{topic_root}/a", 1))
    await settled(here, there)
    copies = []
    for number, site in enumerate((there, here)):
        publisher = await site.connect()
        await publisher.publish(f"{topic_root}/a", b"m", 1)
        await settled(here, there)
        await publisher.publish(f"{topic_root}/end/end", b"end%d" % number, 1)
        before = await subscriber.receive_until(b"end%d" % number)
        copies.append(sorted((m.payload, m.qos) for m in before))
    assert copies[0] == copies[1]
    assert len(copies[0]) >= 1


async def test_receive_maximum_of_the_subscriber(both: list[Site], topic_root: str) -> None:
    """MQTT-3.3.4-9: never more than it said are under way, and in the end it has them all."""
    slow = await both[1].connect(version=V5, properties={Property.RECEIVE_MAXIMUM: 1}, acknowledge=False)
    await slow.subscribe((topic_root, 2))
    await settled(*both)
    publisher = await both[0].connect()
    numbers = [b"%d" % n for n in range(50)]
    await publisher.publish_all(topic_root, numbers, 1)
    await settled(*both)
    got = []
    for _ in numbers:
        message = await slow.receive()
        got.append(message.payload)
        slow.answer(message)
    assert got == numbers
    assert slow.max_unacknowledged == 1


async def test_maximum_packet_size_of_the_subscriber(both: list[Site], topic_root: str) -> None:
    """MQTT-3.1.2-24, -25: what is too large for one is left out for that one alone."""
    small = await both[1].connect(version=V5, properties={Property.MAXIMUM_PACKET_SIZE: 200})
    large = await both[1].connect(version=V5)
    for client in (small, large):
        await client.subscribe((topic_root, 1))
    await settled(*both)
    publisher = await both[0].connect()
    await publisher.publish(topic_root, bytes(500), 1)
    await publisher.publish(topic_root, b"end", 1)
    assert [len(m.payload) for m in await large.receive_all(2)] == [500, 3]
    assert await small.receive_until(b"end") == []


async def test_dollar_topics_stay_at_their_site(both: list[Site], topic_root: str) -> None:
    """MQTT-4.7.2-1: not matched by leading wildcards, and not sent to the far site."""
    near, far = await clients(both)
    await far.subscribe(("#", 0), ("+/x", 0), ("$SYS/broker/uptime", 0), (f"$own{topic_root}", 1))
    await near.subscribe((f"$own{topic_root}", 1))
    await settled(*both)
    before = both[0].transferred_to(both[1])
    publisher = await both[0].connect()
    for topic in (f"$own{topic_root}", "$other/x"):
        await publisher.publish(topic, b"m", 1)
        await publisher.publish(topic, b"m", 1, retain=True)
    assert [m.payload for m in await near.receive_all(2)] == [b"m", b"m"]
    await publisher.publish(topic_root, b"end", 1)
    crossed = [m for m in await far.receive_until(b"end") if not m.topic.startswith("$SYS/")]
    assert [m for m in crossed if m.topic.startswith(("$", topic_root))] == []
    if not both[0].has_overlay:  # its link carries more than messages
        assert both[0].transferred_to(both[1]) == before + 1
    await publisher.publish(f"$own{topic_root}", b"", 1, retain=True)
    await publisher.publish("$other/x", b"", 1, retain=True)


async def test_capabilities_of_the_far_broker_bind_the_injection(sites: Sites, topic_root: str) -> None:
    """Maximum QoS (MQTT-3.2.2-11), no retained messages (MQTT-3.2.2-14), receive maximum (MQTT-3.3.4-7)."""
    broker = await sites.own_broker(
        "mosquitto", extra=["retain_available false", "max_qos 1", "max_inflight_messages 3"]
    )
    here, there = await sites.make("mosquitto", "pf"), await sites.make(broker, "pf")
    await join(here, there)
    subscriber = await there.connect(version=V5)
    await subscriber.subscribe((topic_root, 1))
    publisher = await here.connect()
    assert there.node.injector.senders[0]._window.size == 3
    await publisher.publish(topic_root, b"kept", 2, retain=True)
    numbers = [b"%d" % n for n in range(100)]
    await publisher.publish_all(topic_root, numbers, 2)
    got = await subscriber.receive_all(101)
    assert [m.payload for m in got] == [b"kept", *numbers]
    assert {m.qos for m in got} == {1}
    assert there.node.counters["injection_retain_dropped"] == 1
    assert there.node.reach.down_reason is None
    await publisher.publish(topic_root, b"", 1, retain=True)


@every_algorithm
@pytest.mark.parametrize("link_qos", [0, 1, 2])
async def test_the_smallest_qos_of_publication_subscription_and_link(
    sites: Sites, algorithm: str, link_qos: int, topic_root: str
) -> None:
    """MQTT-3.8.4-8, with the link as the third: all nine pairs."""
    choice: Choice = {"name": algorithm, "qos": link_qos} if algorithm in OVERLAYS else algorithm
    both = await sites.row(["mosquitto", "mosquitto"], choice, link={"qos": link_qos})
    subscribers = []
    for qos in range(3):
        subscriber = await both[1].connect()
        await subscriber.subscribe((f"{topic_root}/{qos}", qos))
        subscribers.append(subscriber)
    await settled(*both)
    publisher = await both[0].connect()
    for wanted in range(3):
        for qos in range(3):
            await publisher.publish(f"{topic_root}/{wanted}", b"%d" % qos, qos)
    for wanted, subscriber in enumerate(subscribers):
        got = {(m.payload, m.qos) for m in await subscriber.receive_all(3)}
        assert got == {(b"%d" % qos, min(qos, wanted, link_qos)) for qos in range(3)}
