"""paho-mqtt as oracle: what it sends is read here, what is sent from here it reads (3.1, 3.1.1, 5)."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties
from paho.mqtt.subscribeoptions import SubscribeOptions

from ildm.mqtt import (
    ConnAck,
    Connect,
    Disconnect,
    Framer,
    Packet,
    PingReq,
    PingResp,
    Property,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Version,
    Will,
    decode,
)

V31, V311, V5 = Version.V31, Version.V311, Version.V5


class _Wired(paho.Client):
    """A client whose connection is one end of a socket pair."""

    end: socket.socket

    def _create_socket(self) -> socket.socket:
        return self.end


class Bench:
    """A paho client and what it has sent."""

    def __init__(self, version: Version, **options: Any) -> None:
        self.version = version
        self.client = _Wired(
            CallbackAPIVersion.VERSION2,
            client_id="oracle",
            protocol=paho.MQTTProtocolVersion(version),
            **options,
        )
        self.client.end, self._own = socket.socketpair()
        self._own.setblocking(False)
        self._framer = Framer()
        self._closed = False

    def sent(self) -> list[Packet]:
        """The packets the client has written since the last call."""
        try:
            data = self._own.recv(1 << 20)
        except BlockingIOError:
            return []
        return [decode(frame, self.version) for frame in self._framer.feed(data)]

    def send(self, *packets: Packet) -> None:
        """Let the client read packets from here."""
        self._own.sendall(b"".join(packet.encode(self.version) for packet in packets))
        for _ in packets:
            self.client.loop_read()

    def connect(self, **options: Any) -> Connect:
        self.client.connect("localhost", keepalive=17, **options)
        (packet,) = self.sent()
        assert isinstance(packet, Connect)
        return packet

    def close(self) -> None:
        # the client closes its own end when it disconnects
        self.client.end.close()
        self._own.close()


@pytest.fixture
def bench() -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(version: Version, **options: Any) -> Bench:
        made.append(Bench(version, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def paho_properties(packet: int, **values: Any) -> PahoProperties:
    properties = PahoProperties(packet)
    for name, value in values.items():
        setattr(properties, name, value)
    return properties


@pytest.mark.parametrize("version", Version)
def test_connect(bench: Callable[..., Bench], version: Version) -> None:
    options = {} if version is V5 else {"clean_session": False}
    wire = bench(version, **options)
    wire.client.username_pw_set("user é", "secret")
    wire.client.will_set("will/topic", b"\0gone", qos=2, retain=True)
    if version is V5:
        options = {"clean_start": False}
    else:
        options = {}
    assert wire.connect(**options) == Connect(
        client_id="oracle",
        version=version,
        clean_start=False,
        keep_alive=17,
        username="user é",
        password=b"secret",
        will=Will(topic="will/topic", payload=b"\0gone", qos=2, retain=True),
    )


def test_connect_properties(bench: Callable[..., Bench]) -> None:
    wire = bench(V5)
    wire.client.will_set(
        "w",
        "text",
        properties=paho_properties(
            PacketTypes.WILLMESSAGE,
            WillDelayInterval=9,
            PayloadFormatIndicator=1,
            MessageExpiryInterval=8,
            ContentType="type",
            ResponseTopic="r/t",
            CorrelationData=b"\xff",
            UserProperty=("k", "v"),
        ),
    )
    packet = wire.connect(
        clean_start=True,
        properties=paho_properties(
            PacketTypes.CONNECT,
            SessionExpiryInterval=7,
            ReceiveMaximum=6,
            MaximumPacketSize=5,
            TopicAliasMaximum=4,
            RequestResponseInformation=1,
            RequestProblemInformation=0,
            UserProperty=[("a", "b"), ("a", "c")],
            AuthenticationMethod="m",
            AuthenticationData=b"d",
        ),
    )
    assert packet.clean_start
    assert packet.properties == {
        Property.SESSION_EXPIRY_INTERVAL: 7,
        Property.RECEIVE_MAXIMUM: 6,
        Property.MAXIMUM_PACKET_SIZE: 5,
        Property.TOPIC_ALIAS_MAXIMUM: 4,
        Property.REQUEST_RESPONSE_INFORMATION: 1,
        Property.REQUEST_PROBLEM_INFORMATION: 0,
        Property.USER_PROPERTY: [("a", "b"), ("a", "c")],
        Property.AUTHENTICATION_METHOD: "m",
        Property.AUTHENTICATION_DATA: b"d",
    }
    assert packet.will is not None
    assert packet.will.properties == {
        Property.WILL_DELAY_INTERVAL: 9,
        Property.PAYLOAD_FORMAT_INDICATOR: 1,
        Property.MESSAGE_EXPIRY_INTERVAL: 8,
        Property.CONTENT_TYPE: "type",
        Property.RESPONSE_TOPIC: "r/t",
        Property.CORRELATION_DATA: b"\xff",
        Property.USER_PROPERTY: [("k", "v")],
    }


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_client_publishes(bench: Callable[..., Bench], version: Version, qos: int) -> None:
    wire = bench(version)
    wire.connect()
    wire.send(ConnAck())
    properties: dict[Property, Any] = {}
    given = None
    if version is V5:
        properties = {Property.CONTENT_TYPE: "t", Property.USER_PROPERTY: [("a", "b"), ("a", "a")]}
        given = paho_properties(PacketTypes.PUBLISH, ContentType="t", UserProperty=[("a", "b"), ("a", "a")])
    for payload in (b"", b"x" * 300):
        info = wire.client.publish("a/é", payload, qos=qos, retain=qos == 1, properties=given)
        (packet,) = wire.sent()
        assert packet == Publish(
            topic="a/é",
            payload=payload,
            qos=qos,
            retain=qos == 1,
            packet_id=info.mid if qos else None,
            properties=properties,
        )
        if qos == 1:
            wire.send(PubAck(packet_id=info.mid))
        elif qos == 2:
            wire.send(PubRec(packet_id=info.mid))
            assert wire.sent() == [PubRel(packet_id=info.mid)]
            wire.send(PubComp(packet_id=info.mid))
        assert info.is_published()


@pytest.mark.parametrize("version", Version)
def test_subscribe_and_unsubscribe(bench: Callable[..., Bench], version: Version) -> None:
    wire = bench(version)
    wire.connect()
    wire.send(ConnAck())
    granted: list[list[int]] = []
    wire.client.on_subscribe = lambda _c, _u, _m, codes, _p: granted.append([code.value for code in codes])
    left: list[int] = []
    wire.client.on_unsubscribe = lambda _c, _u, mid, _codes, _p: left.append(mid)

    if version is V5:
        asked: Any = [("a/+", SubscribeOptions(2, True, True, 2)), ("$share/g/#", SubscribeOptions(1))]
        expected = [
            Subscription(
                topic_filter="a/+", qos=2, no_local=True, retain_as_published=True, retain_handling=2
            ),
            Subscription(topic_filter="$share/g/#", qos=1),
        ]
        given = paho_properties(PacketTypes.SUBSCRIBE, SubscriptionIdentifier=300, UserProperty=("k", "v"))
        properties: dict[Property, Any] = {
            Property.SUBSCRIPTION_IDENTIFIER: [300],
            Property.USER_PROPERTY: [("k", "v")],
        }
        _, mid = wire.client.subscribe(asked, properties=given)
    else:
        expected = [Subscription(topic_filter="a/+", qos=2), Subscription(topic_filter="#", qos=1)]
        properties = {}
        _, mid = wire.client.subscribe([("a/+", 2), ("#", 1)])
    assert mid is not None
    assert wire.sent() == [Subscribe(packet_id=mid, subscriptions=expected, properties=properties)]
    wire.send(SubAck(packet_id=mid, reason_codes=[2, 0x80]))
    assert granted == [[2, 0x80]]

    _, mid = wire.client.unsubscribe(["a/+", "#"])
    assert mid is not None
    assert wire.sent() == [Unsubscribe(packet_id=mid, topic_filters=["a/+", "#"])]
    wire.send(UnsubAck(packet_id=mid, reason_codes=[0, 0x11] if version is V5 else []))
    assert left == [mid]


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_client_receives(bench: Callable[..., Bench], version: Version, qos: int) -> None:
    wire = bench(version)
    wire.connect()
    heard: list[paho.MQTTMessage] = []
    wire.client.on_message = lambda _c, _u, message: heard.append(message)
    properties: dict[Property, Any] = {}
    if version is V5:
        properties = {
            Property.PAYLOAD_FORMAT_INDICATOR: 1,
            Property.MESSAGE_EXPIRY_INTERVAL: 70_000,
            Property.RESPONSE_TOPIC: "r",
            Property.CORRELATION_DATA: b"\0\1",
            Property.SUBSCRIPTION_IDENTIFIER: [1, 200_000],
            Property.USER_PROPERTY: [("a", "1"), ("a", "2")],
        }
    publish = Publish(
        topic="x/é",
        payload=b"p" * 200,
        qos=qos,
        retain=True,
        packet_id=513 if qos else None,
        properties=properties,
    )
    wire.send(ConnAck(), publish)
    if qos == 2:
        assert wire.sent() == [PubRec(packet_id=513)]
        wire.send(PubRel(packet_id=513))
        assert wire.sent() == [PubComp(packet_id=513)]
    elif qos == 1:
        assert wire.sent() == [PubAck(packet_id=513)]
    (message,) = heard
    assert (message.topic, message.payload, message.qos, message.retain) == ("x/é", b"p" * 200, qos, True)
    if version is V5:
        assert message.properties is not None
        assert message.properties.json() == {
            "PayloadFormatIndicator": 1,
            "MessageExpiryInterval": 70_000,
            "ResponseTopic": "r",
            "CorrelationData": "0001",
            "SubscriptionIdentifier": [1, 200_000],
            "UserProperty": [("a", "1"), ("a", "2")],
        }


@pytest.mark.parametrize(
    ("version", "reason_code", "shown"),
    [(V311, 0, 0), (V311, 5, 135), (V31, 3, 136), (V5, 0, 0), (V5, 0x97, 0x97)],
)
def test_client_reads_connack(
    bench: Callable[..., Bench], version: Version, reason_code: int, shown: int
) -> None:
    wire = bench(version)
    wire.connect()
    answers: list[tuple[bool, int]] = []
    wire.client.on_connect = lambda _c, _u, flags, code, _p: answers.append(
        (flags.session_present, code.value)
    )
    present = version is not V31 and reason_code == 0
    wire.send(ConnAck(session_present=present, reason_code=reason_code))
    assert answers == [(present, shown)]


def test_client_reads_properties_of_connack_and_disconnect(bench: Callable[..., Bench]) -> None:
    wire = bench(V5)
    wire.connect()
    seen: list[Any] = []
    wire.client.on_connect = lambda _c, _u, _f, _r, properties: seen.append(properties.json())
    wire.client.on_disconnect = lambda _c, _u, _f, code, properties: seen.append(
        (code.value, properties.json())
    )
    wire.send(
        ConnAck(properties={Property.ASSIGNED_CLIENT_IDENTIFIER: "id", Property.SERVER_KEEP_ALIVE: 9}),
        Disconnect(reason_code=0x9C, properties={Property.SERVER_REFERENCE: "there"}),
    )
    assert seen == [
        {"AssignedClientIdentifier": "id", "ServerKeepAlive": 9},
        (0x9C, {"ServerReference": "there"}),
    ]


@pytest.mark.parametrize("version", Version)
def test_ping_and_disconnect(bench: Callable[..., Bench], version: Version) -> None:
    wire = bench(version)
    wire.connect()
    wire.send(ConnAck())
    wire.client._send_pingreq()
    assert wire.sent() == [PingReq()]
    wire.send(PingResp())
    wire.client.disconnect()
    assert wire.sent() == [Disconnect()]
