"""Bounds of what one packet may hold, which the receiver hands in."""

from __future__ import annotations

import pytest

from ildm.mqtt import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    MalformedPacket,
    OverLimit,
    Packet,
    PacketLimits,
    Property,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Version,
    Will,
    decode,
)

LIMITS = PacketLimits(properties=3, properties_bytes=100, filters=2)
METHOD = {Property.AUTHENTICATION_METHOD: "m"}


def packets(properties: dict[Property, object], filters: int = 1) -> list[Packet]:
    """A packet of every kind with these properties and so many filters or reason codes."""
    names = [f"f{i}" for i in range(filters)]
    return [
        Connect(client_id="c", version=Version.V5, properties=properties),
        Connect(client_id="c", version=Version.V5, will=Will(topic="t", properties=properties)),
        ConnAck(properties=properties),
        Publish(topic="t", properties=properties),
        PubAck(packet_id=1, properties=properties),
        Subscribe(
            packet_id=1, subscriptions=[Subscription(topic_filter=n) for n in names], properties=properties
        ),
        SubAck(packet_id=1, reason_codes=[0] * filters, properties=properties),
        Unsubscribe(packet_id=1, topic_filters=names, properties=properties),
        UnsubAck(packet_id=1, reason_codes=[0] * filters, properties=properties),
        Disconnect(properties=properties),
        Auth(reason_code=0x18, properties={**METHOD, **properties}),
    ]


@pytest.mark.parametrize("index", range(len(packets({}))))
def test_more_properties_than_allowed_are_refused_in_every_packet(index: int) -> None:
    for count, size in ((3, 1), (1, 80)):
        packet = packets({Property.USER_PROPERTY: [("k", "v" * size)] * count})[index]
        assert decode(packet.encode(Version.V5), Version.V5, LIMITS) == packet
    for count, size in ((4, 1), (1, 100)):
        packet = packets({Property.USER_PROPERTY: [("k", "v" * size)] * count})[index]
        with pytest.raises(OverLimit, match=r"MQTT-4\.13\.2"):
            decode(packet.encode(Version.V5), Version.V5, LIMITS)


@pytest.mark.parametrize("version", list(Version))
def test_more_filters_than_allowed_are_refused(version: Version) -> None:
    for filters, fits in ((2, True), (3, False)):
        for packet in packets({}, filters)[5:9]:
            if isinstance(packet, UnsubAck) and version is not Version.V5:
                continue
            frame = packet.encode(version)
            if fits:
                assert decode(frame, version, LIMITS) == packet
            else:
                with pytest.raises(OverLimit):
                    decode(frame, version, LIMITS)


def test_what_comes_after_the_bound_is_not_read() -> None:
    """What is wrong behind it would be found by reading it."""
    message = Publish(topic="t", properties={Property.USER_PROPERTY: [("k", "v")] * 5})
    wrong = message.encode(Version.V5)[:-1] + b"\0"
    with pytest.raises(MalformedPacket):
        decode(wrong, Version.V5)
    with pytest.raises(OverLimit):
        decode(wrong, Version.V5, LIMITS)
    request = Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter="a")] * 4).encode(Version.V311)
    with pytest.raises(OverLimit):
        decode(request[:-1] + b"\xff", Version.V311, LIMITS)


def test_subscription_identifiers_are_counted_too() -> None:
    message = Publish(topic="t", properties={Property.SUBSCRIPTION_IDENTIFIER: [1, 2, 3, 4]})
    with pytest.raises(OverLimit):
        decode(message.encode(Version.V5), Version.V5, LIMITS)
