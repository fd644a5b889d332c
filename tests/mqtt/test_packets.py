"""Packets of every type and version: there and back, what must not be built, the message generator."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ildm.mqtt import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    EncodeError,
    IldmError,
    Packet,
    PacketType,
    PingReq,
    Property,
    PubAck,
    Publish,
    PublishView,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Version,
    Will,
    create_message,
    decode,
)
from ildm.mqtt.wire import put_frame
from tests.mqtt.packet_strategies import VERSIONS, packets_of, publishes, types

V31, V311, V5 = Version.V31, Version.V311, Version.V5


@pytest.mark.parametrize(
    ("type", "version"),
    [(type, version) for version in VERSIONS for type in types(version)],
    ids=lambda each: each.name,
)
@given(data=st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_round_trip(type: PacketType, version: Version, data: st.DataObject) -> None:
    packet: Packet = data.draw(packets_of(type, version))
    assert packet.type is type
    assert decode(packet.encode(version), version) == packet


@given(st.sampled_from(VERSIONS).flatmap(lambda v: st.tuples(st.just(v), publishes(v))))
def test_view_agrees_with_decode(given_: tuple[Version, Publish]) -> None:
    version, packet = given_
    frame = packet.encode(version)
    view = PublishView(frame, version)
    assert view.frame is frame
    assert view.first == frame[0]
    assert view.payload == packet.payload
    assert view.properties == packet.properties
    assert view.topic_bytes == packet.topic.encode()
    assert view.topic == packet.topic
    assert (view.qos, view.retain, view.dup) == (packet.qos, packet.retain, packet.dup)
    assert view.packet_id == packet.packet_id
    assert view.payload == packet.payload
    if version is not V5:
        assert view.properties_bytes == b""
    else:
        assert frame.endswith(view.properties_bytes + packet.payload)
        assert bool(view.properties_bytes) == bool(packet.properties)


KNOWN_BYTES: list[tuple[Packet, Version, str]] = [
    (Connect(client_id="c", keep_alive=10), V311, "10 0d 0004 4d515454 04 02 000a 0001 63"),
    (Connect(client_id="c", version=V31), V31, "10 0f 0006 4d5149736470 03 02 003c 0001 63"),
    (Connect(client_id="c", version=V31, bridge=True), V31, "10 0f 0006 4d5149736470 83 02 003c 0001 63"),
    (Connect(client_id="", version=V5, clean_start=False), V5, "10 0d 0004 4d515454 05 00 003c 00 0000"),
    (
        Connect(
            client_id="c",
            username="u",
            password=b"p",
            will=Will(topic="w", payload=b"x", qos=2, retain=True),
        ),
        V311,
        "10 19 0004 4d515454 04 f6 003c 0001 63 0001 77 0001 78 0001 75 0001 70",
    ),
    (ConnAck(session_present=True), V311, "20 02 01 00"),
    (ConnAck(reason_code=0x87), V5, "20 03 00 87 00"),
    (Publish(topic="a/b", payload=b"hi"), V311, "30 07 0003 612f62 6869"),
    (
        Publish(topic="a", qos=2, dup=True, retain=True, packet_id=258),
        V5,
        "3d 06 0001 61 0102 00",
    ),
    (
        Publish(topic="", properties={Property.TOPIC_ALIAS: 7}),
        V5,
        "30 06 0000 03 230007",
    ),
    (PubAck(packet_id=1), V5, "40 02 0001"),
    (PubAck(packet_id=1, reason_code=0x10), V5, "40 03 0001 10"),
    (PubRel(packet_id=1, properties={Property.REASON_STRING: "r"}), V5, "62 08 0001 00 04 1f0001 72"),
    (
        Subscribe(packet_id=10, subscriptions=[Subscription(topic_filter="a/#", qos=1)]),
        V311,
        "82 08 000a 0003 612f23 01",
    ),
    (
        Subscribe(
            packet_id=10,
            subscriptions=[
                Subscription(
                    topic_filter="+",
                    qos=2,
                    no_local=True,
                    retain_as_published=True,
                    retain_handling=2,
                )
            ],
            properties={Property.SUBSCRIPTION_IDENTIFIER: [321]},
        ),
        V5,
        "82 0a 000a 03 0bc102 0001 2b 2e",
    ),
    (SubAck(packet_id=10, reason_codes=[0, 2, 0x80]), V311, "90 05 000a 000280"),
    (Unsubscribe(packet_id=10, topic_filters=["a"]), V5, "a2 06 000a 00 0001 61"),
    (UnsubAck(packet_id=10), V311, "b0 02 000a"),
    (UnsubAck(packet_id=10, reason_codes=[0x11]), V5, "b0 04 000a 00 11"),
    (PingReq(), V311, "c0 00"),
    (Disconnect(), V5, "e0 00"),
    (Disconnect(reason_code=4), V5, "e0 01 04"),
    (Disconnect(properties={Property.SESSION_EXPIRY_INTERVAL: 5}), V5, "e0 07 00 05 1100000005"),
    (Auth(reason_code=0x18, properties={Property.AUTHENTICATION_METHOD: "m"}), V5, "f0 06 18 04 150001 6d"),
]


@pytest.mark.parametrize(("packet", "version", "wire"), KNOWN_BYTES, ids=[each[2] for each in KNOWN_BYTES])
def test_known_bytes(packet: Packet, version: Version, wire: str) -> None:
    raw = bytes.fromhex(wire)
    assert packet.encode(version) == raw
    assert decode(raw, version) == packet


LENIENT: list[tuple[str, Version, Packet]] = [
    # MQTT 3.1, 3.1: a flag without its field, when the packet ends there
    ("10 0f 0006 4d5149736470 03 c2 003c 0001 63", V31, Connect(client_id="c", version=V31)),
    (
        "10 12 0006 4d5149736470 03 c2 003c 0001 63 0001 75",
        V31,
        Connect(client_id="c", version=V31, username="u"),
    ),
    # ... and the bit that 3.1.1 reserves is only unused
    ("10 0f 0006 4d5149736470 03 03 003c 0001 63", V31, Connect(client_id="c", version=V31)),
    # a client identifier of more than 23 characters
    (
        "10 26 0006 4d5149736470 03 02 003c 0018 " + "61" * 24,
        V31,
        Connect(client_id="a" * 24, version=V31),
    ),
    # MQTT 3.1, 2.1: DUP on what is sent again; 3.2: an unused byte
    ("6a 02 0001", V31, PubRel(packet_id=1)),
    ("aa 05 0001 0001 61", V31, Unsubscribe(packet_id=1, topic_filters=["a"])),
    ("20 02 ff 00", V31, ConnAck()),
    # a remaining length that could be shorter, which only MQTT 5 forbids
    ("c0 80 00", V311, PingReq()),
    # no shared subscriptions in 3.1.1: a filter like any other
    ("a2 0b 0001 0007 24736861 72652f", V311, Unsubscribe(packet_id=1, topic_filters=["$share/"])),
    # properties and reason code left out (MQTT 5, 3.4.2.1, 3.14.2.1)
    ("40 04 0001 00 00", V5, PubAck(packet_id=1)),
    ("e0 02 00 00", V5, Disconnect()),
    # U+FEFF anywhere is itself (MQTT-1.5.4-3), non-characters pass
    ("30 08 0006 efbbbf efbfbf", V311, Publish(topic="\ufeff\uffff")),
]


@pytest.mark.parametrize(("wire", "version", "packet"), LENIENT)
def test_unusual_but_allowed(wire: str, version: Version, packet: Packet) -> None:
    assert decode(bytes.fromhex(wire), version) == packet


def test_connect_states_its_own_version() -> None:
    packet = Connect(client_id="x", version=V5)
    assert packet.encode() == packet.encode(V5)
    for version in VERSIONS:
        assert decode(packet.encode(), version) == packet
    with pytest.raises(EncodeError):
        packet.encode(V311)


def _subscribe(**options: Any) -> Subscribe:
    return Subscribe(packet_id=1, subscriptions=[Subscription(**{"topic_filter": "a", **options})])


REASON = {Property.REASON_STRING: "r"}
UNBUILDABLE: list[tuple[Packet, Version, str]] = [
    (Publish(topic="a/+"), V311, "MQTT-3.3.2-2"),
    (Publish(topic=""), V311, "MQTT-3.3.2.1"),
    (Publish(topic=""), V5, "MQTT-3.3.2.1"),
    (Publish(topic="a\0"), V311, "MQTT-1.5.4-2"),
    (Publish(topic="\ud800"), V311, "MQTT-1.5.4-1"),
    (Publish(topic="a" * 65_536), V311, "MQTT-1.5.4"),
    (Publish(topic="a", qos=3, packet_id=1), V311, "MQTT-3.3.1-4"),
    (Publish(topic="a", qos=1), V311, "MQTT-2.2.1-3"),
    (Publish(topic="a", qos=1, packet_id=0), V311, "MQTT-2.2.1-3"),
    (Publish(topic="a", qos=1, packet_id=65_536), V311, "MQTT-2.2.1-3"),
    (Publish(topic="a", packet_id=1), V311, "MQTT-2.2.1-2"),
    (Publish(topic="a", dup=True), V311, "MQTT-3.3.1-2"),
    (Publish(topic="a", properties={Property.CONTENT_TYPE: "t"}), V311, ""),
    (Publish(topic="a", properties=REASON), V5, "MQTT-2.2.2.2"),
    (Publish(topic="a", properties={Property.TOPIC_ALIAS: 0}), V5, ""),
    (Publish(topic="a", properties={Property.RESPONSE_TOPIC: "#"}), V5, "MQTT-3.3.2-2"),
    (Publish(topic="a", properties={Property.CONTENT_TYPE: b"t"}), V5, ""),
    (Publish(topic="a", properties={Property.CORRELATION_DATA: "t"}), V5, ""),
    (Publish(topic="a", properties={Property.MESSAGE_EXPIRY_INTERVAL: 2**32}), V5, ""),
    (Publish(topic="a", properties={Property.MESSAGE_EXPIRY_INTERVAL: 1.5}), V5, ""),
    (Publish(topic="a", properties={Property.USER_PROPERTY: ["ab", "c"]}), V5, ""),
    (Publish(topic="a", properties={Property.SUBSCRIPTION_IDENTIFIER: 5}), V5, ""),
    (Connect(client_id="", clean_start=False), V311, "MQTT-3.1.3-7 (3.1.1)"),
    (Connect(client_id="", version=V31), V31, "MQTT-3.1.3-7 (3.1.1)"),
    (Connect(client_id="a", password=b"p"), V311, "MQTT-3.1.2-22 (3.1.1)"),
    (Connect(client_id="a", keep_alive=65_536), V311, ""),
    (Connect(client_id="a", version=V5, bridge=True), V5, ""),
    (Connect(client_id="a", will=Will(topic="w", qos=3)), V311, "MQTT-3.1.2-12"),
    (Connect(client_id="a", will=Will(topic="#")), V311, "MQTT-3.3.2-2"),
    (Connect(client_id="a", will=Will(topic="w", payload=bytes(65_536))), V311, "MQTT-1.5.6"),
    (Connect(client_id="a", will=Will(topic="w", properties={Property.CONTENT_TYPE: "t"})), V311, ""),
    (Connect(client_id="a", properties={Property.RECEIVE_MAXIMUM: 1}), V311, ""),
    (
        Connect(client_id="a", version=V5, properties={Property.AUTHENTICATION_DATA: b""}),
        V5,
        "MQTT-3.1.2.11.10",
    ),
    (Connect(client_id="a", version=V5, properties={Property.WILL_DELAY_INTERVAL: 1}), V5, "MQTT-2.2.2.2"),
    (ConnAck(session_present=True, reason_code=0x80), V5, "MQTT-3.2.2-6"),
    (ConnAck(session_present=True), V31, ""),
    (ConnAck(reason_code=1), V5, "MQTT-3.2.2-8"),
    (ConnAck(reason_code=6), V311, "MQTT-3.2.2.3 (3.1.1)"),
    (PubAck(packet_id=1, reason_code=0x10), V311, ""),
    (PubAck(packet_id=1, reason_code=0x92), V5, "MQTT-3.4.2-1"),
    (PubAck(packet_id=1, properties=REASON), V311, ""),
    (Subscribe(packet_id=1, subscriptions=[]), V5, "MQTT-3.8.3-2"),
    (_subscribe(topic_filter="a/#/b"), V5, "MQTT-4.7.1-1"),
    (_subscribe(topic_filter=""), V5, "MQTT-4.7.3-1"),
    (_subscribe(topic_filter="$share/g"), V5, "MQTT-4.8.2-2"),
    (_subscribe(topic_filter="$share/g/a", no_local=True), V5, "MQTT-3.8.3-4"),
    (_subscribe(qos=3), V5, "MQTT-3.8.3.1"),
    (_subscribe(retain_handling=3), V5, "MQTT-3.8.3.1"),
    (_subscribe(no_local=True), V311, ""),
    (
        Subscribe(
            packet_id=1,
            subscriptions=[Subscription(topic_filter="a")],
            properties={Property.SUBSCRIPTION_IDENTIFIER: [1, 2]},
        ),
        V5,
        "MQTT-3.8.2.1",
    ),
    (SubAck(packet_id=1, reason_codes=[]), V5, "MQTT-3.8.4-6"),
    (SubAck(packet_id=1, reason_codes=[0x87]), V311, "MQTT-3.9.3-2 (3.1.1)"),
    (SubAck(packet_id=1, reason_codes=[3]), V5, "MQTT-3.9.3-2"),
    (Unsubscribe(packet_id=1, topic_filters=[]), V5, "MQTT-3.10.3-2"),
    (Unsubscribe(packet_id=0, topic_filters=["a"]), V5, "MQTT-2.2.1-3"),
    (UnsubAck(packet_id=1), V5, "MQTT-3.11.3-1"),
    (UnsubAck(packet_id=1, reason_codes=[1]), V5, "MQTT-3.11.3-2"),
    (UnsubAck(packet_id=1, reason_codes=[0]), V311, ""),
    (Disconnect(reason_code=0x82), V311, ""),
    (Disconnect(reason_code=0x10), V5, "MQTT-3.14.2-1"),
    (Auth(), V5, "MQTT-3.15.2.2.2"),
    (Auth(properties={Property.AUTHENTICATION_METHOD: "m"}), V311, "MQTT-2.1.2"),
    (Auth(reason_code=1, properties={Property.AUTHENTICATION_METHOD: "m"}), V5, "MQTT-3.15.2-1"),
]


@pytest.mark.parametrize(("packet", "version", "clause"), UNBUILDABLE)
def test_what_the_standard_forbids_is_not_built(packet: Packet, version: Version, clause: str) -> None:
    with pytest.raises(EncodeError) as caught:
        packet.encode(version)
    assert caught.value.clause == clause
    assert isinstance(caught.value, IldmError)
    assert isinstance(caught.value, ValueError)


def test_packet_larger_than_mqtt_allows() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return 268_435_455

    with pytest.raises(EncodeError) as caught:
        Publish(topic="a", payload=Huge()).encode(V311)
    assert caught.value.clause == "MQTT-2.1.4"

    with pytest.raises(EncodeError) as caught:
        put_frame(0x90, bytes(268_435_456))
    assert caught.value.clause == "MQTT-2.1.4"


@pytest.mark.parametrize(
    ("type", "version"),
    [(type, version) for version in VERSIONS for type in types(version)],
    ids=lambda each: each.name,
)
@given(data=st.data())
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
def test_message_generator_makes_every_type(type: PacketType, version: Version, data: st.DataObject) -> None:
    packet = data.draw(packets_of(type, version))
    params = {each.name: getattr(packet, each.name) for each in fields(packet) if each.name != "version"}
    assert create_message(type, version, **params) == packet.encode(version)


def test_message_generator_takes_mappings() -> None:
    raw = create_message(PacketType.CONNECT, V5, client_id="c", will={"topic": "w", "qos": 1})
    assert decode(raw, V5) == Connect(client_id="c", version=V5, will=Will(topic="w", qos=1))
    raw = create_message(PacketType.SUBSCRIBE, V311, packet_id=1, subscriptions=[{"topic_filter": "a"}])
    assert decode(raw, V311) == _subscribe()


def test_message_generator_names_the_clause() -> None:
    with pytest.raises(EncodeError) as caught:
        create_message(PacketType.PUBLISH, V5, topic="a/#")
    assert caught.value.clause == "MQTT-3.3.2-2"


@pytest.mark.parametrize(
    ("type", "params", "named"),
    [
        (PacketType.PUBLISH, {"topic": "a", "colour": 1}, "colour"),
        (PacketType.PUBLISH, {"payload": b""}, "topic"),
        (PacketType.PINGREQ, {"packet_id": 1}, "packet_id"),
        (PacketType.CONNECT, {"client_id": "c", "will": {"subject": "w"}}, "subject"),
        (PacketType.SUBSCRIBE, {"packet_id": 1, "subscriptions": [{"filter": "a"}]}, "filter"),
        (PacketType.SUBSCRIBE, {"packet_id": 1, "subscriptions": ["a"]}, "Subscribe"),
        (PacketType.SUBSCRIBE, {"packet_id": 1, "subscriptions": 5}, "Subscribe"),
        (PacketType.PUBLISH, {"topic": 5}, "Publish"),
        (PacketType.PUBLISH, {"topic": "a", "payload": "text"}, "Publish"),
        (PacketType.SUBACK, {"packet_id": "1", "reason_codes": [0]}, "SubAck"),
        (0, {}, "0"),
    ],
)
def test_message_generator_refuses_by_name(type: PacketType, params: dict[str, Any], named: str) -> None:
    with pytest.raises(EncodeError, match=named):
        create_message(type, V5, **params)
