"""Wills over two sites: every case is seen by subscribers at both of them exactly once, or never."""

from __future__ import annotations

import asyncio

import pytest

from ildm.mqtt import ConnAck, Connect, Packet, Properties, Property, Publish, Version, Will
from tests.sites.client import Client, until
from tests.sites.conftest import Sites, every_algorithm, trees
from tests.sites.site import Site, join, settled
from tests.support.ports import LOOPBACK

DELAY, EXPIRY = Property.WILL_DELAY_INTERVAL, Property.SESSION_EXPIRY_INTERVAL


class Watch:
    """Two sites and a subscriber at each."""

    def __init__(self, both: list[Site], listeners: list[Client], topic: str) -> None:
        self.both = both
        self.here, self.there = both
        self.listeners = listeners
        self.topic = topic

    def will(self, name: str = "will", properties: Properties | None = None, **fields: object) -> Will:
        fields.setdefault("qos", 1)
        return Will(
            topic=f"{self.topic}/{name}",
            payload=name.encode(),
            properties=properties or {},
            **fields,  # type: ignore[arg-type]
        )

    async def next(self) -> list[Publish]:
        """The next message at each site."""
        return [await listener.receive() for listener in self.listeners]

    async def nothing_more(self) -> None:
        """No other message has come before one that is published now."""
        publisher = await self.here.connect()
        await publisher.publish(f"{self.topic}/end", b"end", 1)
        for listener in self.listeners:
            assert await listener.receive_until(b"end") == []
        await publisher.disconnect()


@pytest.fixture
async def watch(sites: Sites, algorithm: str, topic_root: str) -> Watch:
    both = await sites.row(["mosquitto", "mosquitto"], algorithm)
    listeners = [await site.connect(version=Version.V5) for site in both]
    for listener in listeners:
        await listener.subscribe((f"{topic_root}/#", 2))
    await settled(*both)
    return Watch(both, listeners, topic_root)


async def test_keep_alive_expiry_of_a_silent_client(watch: Watch) -> None:
    """The broker closes the connection; the node sends no PINGREQ in the client's place (MQTT-3.1.2-22)."""
    silent = await watch.here.connect(will=watch.will(), keep_alive=1)
    assert [m.payload for m in await watch.next()] == [b"will", b"will"]
    await silent.wait_closed()
    await watch.nothing_more()


async def test_normal_and_abnormal_disconnect_of_version_5(watch: Watch) -> None:
    """0x00 discards the will (MQTT-3.14.4-3), 0x04 asks for it (3.14.2.1)."""
    for reason, name in ((0x00, "left"), (0x04, "asked")):
        client = await watch.here.connect(version=Version.V5, will=watch.will(name))
        await client.disconnect(reason)
    assert [m.payload for m in await watch.next()] == [b"asked", b"asked"]
    await watch.nothing_more()


async def test_a_client_that_breaks_the_protocol(watch: Watch) -> None:
    """It is closed without its DISCONNECT, so the will is due (MQTT-3.1.2-8)."""
    client = await watch.here.connect(will=watch.will())
    client.send(b"\x36\x05\x00\x01t\x00\x01")  # QoS 3
    await client.wait_closed()
    assert [m.payload for m in await watch.next()] == [b"will", b"will"]
    await watch.nothing_more()


@every_algorithm
async def test_properties_and_retain_of_a_will(watch: Watch) -> None:
    properties: Properties = {
        Property.CONTENT_TYPE: "text/plain",
        Property.RESPONSE_TOPIC: "answer",
        Property.CORRELATION_DATA: b"\x00\x01",
        Property.PAYLOAD_FORMAT_INDICATOR: 1,
        Property.USER_PROPERTY: [("b", "1"), ("a", "2")],
    }
    will = watch.will(properties=properties, retain=True, qos=2)
    (await watch.here.connect(version=Version.V5, will=will)).drop()
    near, far = await watch.next()
    assert near == far
    assert near.properties == properties
    await settled(*watch.both)
    late = await watch.there.connect()
    await late.subscribe((will.topic, 2))
    message = await late.receive()
    assert (message.payload, message.retain, message.qos) == (b"will", True, 2)
    await late.publish(will.topic, b"", 1, retain=True)
    await watch.next()
    await watch.nothing_more()


@every_algorithm
async def test_the_delay_passes(watch: Watch) -> None:
    """First comes what has no delay, then the shorter one (MQTT-3.1.3-9 and 3.1.3.2.2)."""
    for name, delay in (("slow", 2), ("quick", 1), ("none", 0)):
        will = watch.will(name, {DELAY: delay})
        client = await watch.here.connect(version=Version.V5, will=will, properties={EXPIRY: 60})
        client.drop()
    assert [[m.payload for m in await watch.next()] for _ in range(3)] == [
        [b"none", b"none"],
        [b"quick", b"quick"],
        [b"slow", b"slow"],
    ]
    await watch.nothing_more()


async def test_coming_back_in_time_cancels_the_will(watch: Watch) -> None:
    """MQTT-3.1.3-9: the will of one that stays away, with a longer delay, shows that the time has passed."""
    for client_id, delay in (("back", 1), ("away", 3)):
        will = watch.will(client_id, {DELAY: delay})
        client = await watch.here.connect(
            watch.topic + client_id, version=Version.V5, clean=False, will=will, properties={EXPIRY: 60}
        )
        client.drop()
    back = await watch.here.connect(
        watch.topic + "back", version=Version.V5, clean=False, properties={EXPIRY: 60}
    )
    assert back.connack.session_present
    assert [m.payload for m in await watch.next()] == [b"away", b"away"]
    await back.disconnect(properties={EXPIRY: 0})
    await watch.nothing_more()


async def test_the_session_ends_before_the_delay(watch: Watch) -> None:
    """The will is due when the session ends, if that is earlier (3.1.3.2.2)."""
    client = await watch.here.connect(
        version=Version.V5, will=watch.will(properties={DELAY: 600}), properties={EXPIRY: 1}
    )
    client.drop()
    assert [m.payload for m in await watch.next()] == [b"will", b"will"]
    await watch.nothing_more()


async def test_takeover_of_a_session_with_a_will(watch: Watch) -> None:
    """Without a delay the older connection's will is published (3.1.4-3), at both sites once."""
    for version in (Version.V311, Version.V5):
        old = await watch.here.connect(f"{watch.topic}x{version}", version=version, will=watch.will())
        new = await watch.here.connect(f"{watch.topic}x{version}", version=version)
        await old.wait_closed()
        assert [m.payload for m in await watch.next()] == [b"will", b"will"]
        await new.disconnect()
    await watch.nothing_more()


@every_algorithm
async def test_the_broker_is_gone(sites: Sites, algorithm: str, topic_root: str) -> None:
    """Nobody but the node can publish the will then (thesis 5.3.3); the far site sees it once."""
    broker = await sites.own_broker("mosquitto")
    here, there = await sites.make(broker, algorithm), await sites.make("mosquitto", algorithm)
    await join(here, there)
    listener = await there.connect()
    await listener.subscribe((f"{topic_root}/#", 1))
    await settled(here, there)
    will = Will(topic=f"{topic_root}/will", payload=b"will", qos=1)
    client = await here.connect(will=will)
    await asyncio.to_thread(broker.kill)
    await client.wait_closed()
    assert (await listener.receive()).payload == b"will"
    await asyncio.to_thread(broker.start)
    await until(lambda: all(sender.open for sender in here.node.injector.senders))
    publisher = await here.connect()
    await publisher.publish(f"{topic_root}/end", b"end", 1)
    assert await listener.receive_until(b"end") == []


async def test_a_node_that_stops_in_order_fires_no_will(watch: Watch) -> None:
    """Clients are moved off with a DISCONNECT in their name; version 5 is told 0x8B."""
    old = await watch.here.connect(will=watch.will("old"))
    new = await watch.here.connect(version=Version.V5, will=watch.will("new"))
    await watch.here.stop()
    await old.wait_closed()
    await new.wait_closed()
    assert new.end is not None
    assert new.end.reason_code == 0x8B
    publisher = await watch.there.connect()
    await publisher.publish(f"{watch.topic}/end", b"end", 1)
    assert await watch.listeners[1].receive_until(b"end") == []


@trees
@pytest.mark.parametrize(("delay", "clean", "due"), [(0, False, True), (60, True, True), (60, False, False)])
@pytest.mark.parametrize("connack_first", [False, True], ids=["close-first", "connack-first"])
async def test_takeover_and_will_delay(
    sites: Sites, algorithm: str, delay: int, clean: bool, due: bool, connack_first: bool, topic_root: str
) -> None:
    """Who goes on with the session in time cancels a delayed will (MQTT-3.1.3-9).

    In whatever order the broker closes the older connection and accepts the newer one.
    """
    older: list[Client] = []

    class Broker(Client):
        def _packet(self, packet: Packet) -> None:
            if not isinstance(packet, Connect):
                return
            self.version = packet.version
            if not packet.client_id.startswith("x"):
                self.send(ConnAck())
                return
            if older and not connack_first:
                older[0].transport.close()
            self.send(ConnAck(session_present=bool(older) and not packet.clean_start))
            if older and connack_first:
                older[0].transport.close()
            older.append(self)

    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Broker(Version.V5, True), LOOPBACK, 0)
    here = sites.prepare(
        sites.shared_broker("mosquitto"), algorithm, broker_address=server.sockets[0].getsockname()[:2]
    )
    await here.start()
    there = await sites.make("mosquitto", algorithm)
    await join(here, there)
    listener = await there.connect()
    await listener.subscribe((f"{topic_root}/#", 0))
    await settled(here, there)
    will = Will(topic=f"{topic_root}/will", payload=b"will", properties={DELAY: delay})
    first = await here.connect("x", version=Version.V5, clean=False, will=will, properties={EXPIRY: 100})
    await here.connect("x", version=Version.V5, clean=clean, properties={EXPIRY: 100})
    await first.wait_closed()
    await until(lambda: len(here.node.sessions) == 1)
    await (await here.connect("publisher")).publish(f"{topic_root}/end", b"end")
    assert [m.payload for m in await listener.receive_until(b"end")] == ([b"will"] if due else [])
    server.close()
