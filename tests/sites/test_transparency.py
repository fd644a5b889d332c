"""A client cannot tell the node from the broker: the same bytes come back, in each version of MQTT."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from ildm.mqtt import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Framer,
    Packet,
    PacketType,
    PingReq,
    PingResp,
    Property,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Subscribe,
    Subscription,
    Unsubscribe,
    Version,
    Will,
)
from tests.sites.client import Client, until, within
from tests.sites.conftest import Sites
from tests.sites.site import Site

Step = tuple[bytes, int | None]
"""Bytes to send, and how many packets to await then (None: the end of the connection)."""
NO_LIMIT = {"packet_size": 1 << 30}
"""No packet is so large (2.1.4): the node has nothing to add to a CONNACK of MQTT 5 (3.2.2.3.6)."""
VERSIONS = pytest.mark.parametrize("version", list(Version), ids=str)


async def play(address: tuple[str, int], steps: Sequence[Step]) -> list[bytes]:
    """What comes back for each step: its packets' bytes."""
    reader, writer = await asyncio.open_connection(*address)
    framer = Framer(1 << 28)
    waiting: list[bytes] = []
    answers = []
    for data, count in steps:
        writer.write(data)
        while count is None or len(waiting) < count:
            chunk = await within(reader.read(65536), f"the answer to {data[:40]!r}")
            if not chunk:
                break
            waiting += framer.feed(chunk)
        if count is None:
            answers.append(b"".join(waiting))
            break
        assert len(waiting) == count, waiting
        answers.append(b"".join(suback_first(waiting)))
        waiting = []
    writer.close()
    return answers


def suback_first(frames: list[bytes]) -> list[bytes]:
    """A SUBACK before the PUBLISH just before it: it may wait until the session is saved (MQTT 5, 3.8.4)."""
    ordered = list(frames)
    for place in range(1, len(ordered)):
        before, frame = ordered[place - 1 : place + 1]
        if frame[0] >> 4 == PacketType.SUBACK and before[0] >> 4 == PacketType.PUBLISH:
            ordered[place - 1 : place + 1] = [frame, before]
    return ordered


def exchange(version: Version, topic: str) -> list[Step]:
    """A client that talks to itself in every way."""
    five = version is Version.V5

    def packet(value: Packet) -> bytes:
        return value.encode(version)

    connect = Connect(
        client_id=topic[:20],
        version=version,
        keep_alive=30,
        will=Will(topic=f"{topic}/will", payload=b"will", qos=1, retain=False),
        properties={Property.SESSION_EXPIRY_INTERVAL: 10, Property.RECEIVE_MAXIMUM: 20} if five else {},
    )
    properties = {Property.USER_PROPERTY: [("k", "v")], Property.CONTENT_TYPE: "x"} if five else {}
    wanted = [
        Subscription(topic_filter=f"{topic}/{name}", qos=qos) for qos, name in enumerate(("a", "b/#", "+/c"))
    ]
    steps: list[Step] = [
        (packet(connect), 1),
        (packet(PingReq()), 1),
        (packet(Subscribe(packet_id=10, subscriptions=wanted)), 1),
        (packet(Publish(topic=f"{topic}/a", payload=b"zero")), 1),
        (
            packet(Publish(topic=f"{topic}/b/x", payload=b"one", qos=1, packet_id=11, properties=properties)),
            2,
        ),
        (packet(PubAck(packet_id=1)), 0),
        (packet(Publish(topic=f"{topic}/x/c", payload=b"two", qos=2, packet_id=12)), 1),
        (packet(PubRel(packet_id=12)), 2),
        (packet(PubRec(packet_id=2)), 1),
        (packet(PubComp(packet_id=2)) + packet(PingReq()), 1),
        # sent again with DUP after it is complete: a new message
        (packet(Publish(topic=f"{topic}/b", payload=bytes(3000), qos=1, packet_id=13, dup=True)), 2),
        (packet(PubAck(packet_id=3)), 0),
        (packet(Publish(topic=f"{topic}/a", payload=b"kept", retain=True)), 1),
        (packet(Subscribe(packet_id=14, subscriptions=[Subscription(topic_filter=f"{topic}/a")])), 2),
        (packet(Unsubscribe(packet_id=15, topic_filters=[f"{topic}/b/#", f"{topic}/none"])), 1),
        (packet(Publish(topic=f"{topic}/b", payload=b"unheard", qos=1, packet_id=16)), 1),
        (packet(Publish(topic=f"{topic}/a", payload=b"", retain=True)), 1),
        (packet(PingReq()) * 3, 3),
        (packet(Disconnect()), None),
    ]
    return steps


@VERSIONS
@pytest.mark.parametrize("algorithm", [None, "pf", "sf", "sg_tbps"])
async def test_an_exchange_gives_the_same_bytes(
    sites: Sites, version: Version, algorithm: str | None, topic_root: str
) -> None:
    site = await sites.make("mosquitto", algorithm, limits=NO_LIMIT)
    steps = exchange(version, topic_root)
    direct = await play(site.broker.address, steps)
    through = await play(site.address, steps)
    assert through == direct
    # all at once, as far as the client need not wait for an identifier of the broker's
    together: list[Step] = [(b"".join(data for data, _ in steps[:3]), 3), *steps[3:]]
    assert await play(site.address, together) == [b"".join(direct[:3]), *direct[3:]]
    # byte by byte
    chopped = [(data[i : i + 1], 0) for data, _ in steps[:2] for i in range(len(data))]
    assert await play(site.address, [*chopped, (b"", 2), *steps[2:]]) == [
        *[b""] * len(chopped),
        b"".join(direct[:2]),
        *direct[2:],
    ]


@VERSIONS
async def test_a_persistent_session_gives_the_same_bytes(
    sites: Sites, version: Version, topic_root: str
) -> None:
    """Session present, the message kept, its retransmission with DUP (MQTT-4.4.0-1)."""
    site = await sites.make("mosquitto", "sf", limits=NO_LIMIT)
    properties = {Property.SESSION_EXPIRY_INTERVAL: 60} if version is Version.V5 else {}
    connect = Connect(client_id=topic_root[:20], version=version, clean_start=False, properties=properties)
    subscribe = Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter=topic_root, qos=1)])
    message = Publish(topic=topic_root, payload=b"x", qos=1, packet_id=2)
    end = Connect(client_id=topic_root[:20], version=version)
    outcomes = []
    for address in (site.broker.address, site.address):
        first = await play(
            address, [(connect.encode(), 1), (subscribe.encode(version), 1), (message.encode(version), 2)]
        )
        second = await play(
            address,
            [
                (connect.encode(), 2),
                (PubAck(packet_id=1).encode(version), 0),
                (b"\xc0\0", 1),
                (b"\xe0\0", None),
            ],
        )
        last = await play(address, [(end.encode(), 1), (b"\xe0\0", None)])
        outcomes.append((first, second, last))
    assert outcomes[0] == outcomes[1]
    assert outcomes[1][1][0][-1:] == b"x"


@pytest.mark.parametrize(
    "options",
    [
        ["max_keepalive 12", "max_packet_size 3000", "max_inflight_messages 5"],
        ["retain_available false", "max_qos 1", "max_topic_alias 3"],
        ["allow_anonymous false"],
    ],
    ids=["sizes", "features", "refused"],
)
@pytest.mark.parametrize("version", [Version.V311, Version.V5], ids=str)
async def test_connack_is_the_brokers_own(sites: Sites, options: list[str], version: Version) -> None:
    """Capabilities (3.2.2.3) and refusals; an assigned client identifier differs each time, by its nature.

    What a node with a limit of its own adds to it: tests/core/local/test_announced_limits.py.
    """
    broker = await sites.own_broker("mosquitto", extra=options)
    site = sites.prepare(broker, None, limits=NO_LIMIT)
    await site.start()
    connect = Connect(client_id="capable", version=version, keep_alive=60).encode()
    refused = "allow_anonymous false" in options
    steps: list[Step] = [(connect, None if refused else 1)]
    assert await play(site.address, steps) == await play(broker.address, steps)
    if version is Version.V5 and not refused:
        client = await site.connect("", version=version)
        assert client.connack.properties[Property.ASSIGNED_CLIENT_IDENTIFIER]


@pytest.mark.parametrize(
    ("version", "data"),
    [
        (Version.V311, b"\x30\xff\xff\xff\xff\x01"),  # remaining length of five bytes
        (Version.V311, b"\x36\x05\x00\x01t\x00\x01"),  # QoS 3
        (Version.V311, b"\x32\x05\x00\x01t\x00\x00"),  # packet identifier 0
        (Version.V311, b"\x30\x05\x00\x03a/#"),  # wildcard in a topic name
        (Version.V311, b"\x30\x05\x00\x03a\x00b"),  # U+0000
        (Version.V311, b"\x80\x06\x00\x01\x00\x01t\x00"),  # reserved flags of SUBSCRIBE
        (Version.V311, b"\x82\x02\x00\x01"),  # SUBSCRIBE without a filter
        (Version.V311, b"\x82\x06\x00\x01\x00\x01t\x03"),  # subscription with QoS 3
        (Version.V311, b"\x82\x08\x00\x01\x00\x03a#b\x00"),  # filter against the rules
        (Version.V311, b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01c"),  # a second CONNECT
        (Version.V311, b"\xf0\x00"),  # a type that 3.1.1 does not have
        (Version.V5, b"\x36\x06\x00\x01t\x00\x01\x00"),
        (Version.V5, b"\x32\x06\x00\x01t\x00\x00\x00"),
        (Version.V5, b"\x30\x08\x00\x01t\x04\x01\x00\x01\x00"),  # a property twice
        (Version.V5, b"\x30\x06\x00\x01t\x02\x7e\x00"),  # an unknown property
        (Version.V5, b"\x30\x03\x00\x00\x00"),  # neither topic nor alias
        (Version.V5, b"\x82\x03\x00\x01\x00"),  # SUBSCRIBE without a filter
    ],
)
async def test_a_malformed_packet_ends_the_connection_as_it_would_at_the_broker(
    sites: Sites, version: Version, data: bytes
) -> None:
    """MQTT-4.13: in MQTT 5 a DISCONNECT with a reason may come first, and never anything else."""
    site = await sites.make("mosquitto", "sf")
    bystander = await site.connect()
    for address in (site.broker.address, site.address):
        client = await Client.connect(address, version=version)
        start = len(client.received)
        client.send(data)
        await client.wait_closed()
        said = bytes(client.received[start:])
        if version is Version.V5:
            assert said == b"" or (client.end is not None and client.end.reason_code >= 0x80)
        else:
            assert said == b""
    # what is published is for the broker to judge
    assert site.node.counters["malformed"] + site.node.counters["transfer_dropped_unusable"] == 1
    bystander.send(PingReq())
    await bystander.packet(PingResp)
    assert not bystander.closed.is_set()


# a scripted broker ----------------------------------------------------------------------------


async def test_enhanced_authentication(sites: Sites) -> None:
    """AUTH goes both ways, before CONNACK (4.12) and when the client authenticates again (4.12.1)."""
    method = {Property.AUTHENTICATION_METHOD: "rounds"}
    heard: list[Packet] = []

    class Broker(Client):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self.version = Version.V5

        def _packet(self, packet: Packet) -> None:
            heard.append(packet)
            match packet:
                case Connect():
                    self.send(
                        Auth(reason_code=0x18, properties={**method, Property.AUTHENTICATION_DATA: b"1"})
                    )
                case Auth(reason_code=0x18) if len(heard) == 2:
                    self.send(
                        Auth(reason_code=0x18, properties={**method, Property.AUTHENTICATION_DATA: b"2"})
                    )
                case Auth(reason_code=0x18) if len(heard) == 3:
                    self.send(ConnAck(session_present=False, reason_code=0, properties=dict(method)))
                case Auth(reason_code=0x19):
                    self.send(Auth(reason_code=0, properties=dict(method)))
                case Disconnect():
                    self.transport.close()

    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Broker(Version.V5, True), "127.0.0.1", 0)
    site: Site = sites.prepare(
        sites.shared_broker("mosquitto"),
        None,
        broker_address=server.sockets[0].getsockname()[:2],
        limits=NO_LIMIT,
    )
    await site.start()
    client = await Client.open(site.address, Version.V5)
    client.send(
        Connect(client_id="c", version=Version.V5, properties={**method, Property.AUTHENTICATION_DATA: b"0"})
    )
    for number in (b"1", b"2"):
        challenge = await client.packet(Auth)
        assert challenge.properties[Property.AUTHENTICATION_DATA] == number
        client.send(Auth(reason_code=0x18, properties={**method, Property.AUTHENTICATION_DATA: number}))
    assert (await client.packet(ConnAck)).properties == method
    client.send(Auth(reason_code=0x19, properties=dict(method)))
    assert (await client.packet(Auth)).reason_code == 0
    await client.disconnect()
    await until(lambda: len(heard) == 5)
    assert [type(packet) for packet in heard] == [Connect, Auth, Auth, Auth, Disconnect]
    server.close()


async def test_a_disconnect_of_the_broker_reaches_the_client(sites: Sites) -> None:
    """With its reason and properties; the connection ends after it (MQTT-3.14.4-1)."""
    end = Disconnect(
        reason_code=0x8E,
        properties={Property.REASON_STRING: "taken over", Property.USER_PROPERTY: [("a", "b")]},
    )

    class Broker(Client):
        def _packet(self, packet: Packet) -> None:
            if isinstance(packet, Connect):
                self.send(ConnAck(session_present=False, reason_code=0))
                self.send(Publish(topic="last", payload=b"word"))
                self.send(end)
                self.transport.close()

    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Broker(Version.V5, True), "127.0.0.1", 0)
    site: Site = sites.prepare(
        sites.shared_broker("mosquitto"), None, broker_address=server.sockets[0].getsockname()[:2]
    )
    await site.start()
    client = await site.connect(version=Version.V5)
    assert (await client.receive()).payload == b"word"
    await client.wait_closed()
    assert client.end == end
    server.close()
