"""The ``mqtt5`` codec as oracle for version 5: each reads what the other writes, with equal fields."""

from __future__ import annotations

from typing import Any

import mqtt5
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ildm.mqtt import (
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Property,
    ReasonCode,
    Subscribe,
    Version,
    Will,
    decode,
)
from tests.mqtt.packet_strategies import packets_of, types

V5 = Version.V5

# Values that the other codec gives for an absent property.
DEFAULTS: dict[str, Any] = {
    "payload_format_indicator": 0,
    "will_delay_interval": 0,
    "request_problem_info": True,
    "request_response_info": False,
    "receive_max": 65_535,
    "topic_alias_max": 0,
    "max_qos": 2,
    "retain_available": True,
    "wildcard_subscription_available": True,
    "subscription_id_available": True,
    "shared_subscription_available": True,
}
NAMES = {
    Property.REQUEST_PROBLEM_INFORMATION: "request_problem_info",
    Property.REQUEST_RESPONSE_INFORMATION: "request_response_info",
    Property.RESPONSE_INFORMATION: "response_info",
    Property.ASSIGNED_CLIENT_IDENTIFIER: "assigned_client_id",
    Property.REASON_STRING: "reason_str",
    Property.RECEIVE_MAXIMUM: "receive_max",
    Property.TOPIC_ALIAS_MAXIMUM: "topic_alias_max",
    Property.MAXIMUM_QOS: "max_qos",
    Property.USER_PROPERTY: "user_properties",
    Property.MAXIMUM_PACKET_SIZE: "max_packet_size",
    Property.SUBSCRIPTION_IDENTIFIER_AVAILABLE: "subscription_id_available",
}
FIELDS = {
    "packet_id": "packet_id",
    "reason_code": "reason_code",
    "reason_codes": "reason_codes",
    "session_present": "session_present",
    "client_id": "client_id",
    "clean_start": "clean_start",
    "keep_alive": "keep_alive",
    "username": "username",
    "password": "password",
    "topic": "topic",
    "payload": "payload",
    "qos": "qos",
    "retain": "retain",
    "dup": "duplicate",
    "topic_filters": "patterns",
}


def _property_name(property: Property, packet: Packet | Will) -> str:
    if property is Property.SUBSCRIPTION_IDENTIFIER:
        return "subscription_id" if isinstance(packet, Subscribe) else "subscription_ids"
    return NAMES.get(property, property.name.lower())


def agree(ours: Packet | Will, theirs: Any) -> None:
    """Assert that both codecs understood the same, property by property."""
    for name, other in FIELDS.items():
        if hasattr(ours, name):
            assert getattr(theirs, other) == getattr(ours, name), name
    properties = getattr(ours, "properties", {})
    expected = {_property_name(property, ours): value for property, value in properties.items()}
    if "subscription_id" in expected:
        (expected["subscription_id"],) = expected["subscription_id"]
    for name, value in expected.items():
        assert getattr(theirs, name) == value, name
    for name in [*DEFAULTS, "user_properties", "subscription_ids", "subscription_id"]:
        if hasattr(theirs, name) and name not in expected:
            assert getattr(theirs, name) in ([], None, DEFAULTS.get(name)), name
    if isinstance(ours, Subscribe):
        assert [
            (each.pattern, each.max_qos, each.no_local, each.retain_as_published, each.retain_handling)
            for each in theirs.topic_filters
        ] == [
            (each.topic_filter, each.qos, each.no_local, each.retain_as_published, each.retain_handling)
            for each in ours.subscriptions
        ]
    if isinstance(ours, Connect):
        assert (ours.will is None) == (theirs.will is None)
        if ours.will is not None:
            agree(ours.will, theirs.will)


@pytest.mark.parametrize("type", types(V5), ids=lambda each: each.name)
@given(data=st.data())
@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow])
def test_both_directions(type: PacketType, data: st.DataObject) -> None:
    ours: Packet = data.draw(packets_of(type, V5))
    # Section 2.4 gives this reason code to DISCONNECT, section 3.14.2.1 and the other codec do not.
    assume(not (isinstance(ours, Disconnect) and ours.reason_code == ReasonCode.BAD_AUTHENTICATION_METHOD))
    frame = ours.encode(V5)
    theirs, length = mqtt5.read(memoryview(frame + b"\xc0\0"))
    assert length == len(frame)
    agree(ours, theirs)

    back = decode(theirs.write(), V5)
    assert back.type is type
    agree(back, theirs)
