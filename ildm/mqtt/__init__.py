"""MQTT 3.1, 3.1.1 and 5 without sockets: bytes in, packets out, and back.

Framing (``Framer``), packets (``decode``, ``encode`` of each class, ``create_message``), a lazy view for
the data path (``PublishView``), topic names and filters. Nothing here knows time, chance, tasks or logs.
"""

from ildm.mqtt.connect import CANNOT_SERVE, ConnAck, Connect, Will, connack_code
from ildm.mqtt.constants import ConnectReturnCode, PacketType, Property, ReasonCode, Version
from ildm.mqtt.control import Auth, Disconnect, PingReq, PingResp
from ildm.mqtt.covering import CoveringSet, Delta
from ildm.mqtt.errors import (
    EncodeError,
    IldmError,
    LocalError,
    MalformedPacket,
    MqttError,
    OverLimit,
    PacketTooLarge,
    ProtocolViolation,
    UnsupportedVersion,
)
from ildm.mqtt.filter_table import FilterTable
from ildm.mqtt.framing import (
    CLIENT_FIRST_BYTE,
    SERVER_FIRST_BYTE,
    Framer,
    check_first_byte,
    decode_varint,
    encode_varint,
    frame_bounds,
    frame_length,
)
from ildm.mqtt.limits import LARGEST, PacketLimits
from ildm.mqtt.packets import Packet, create_message, decode
from ildm.mqtt.properties import Properties, decode_properties, encode_properties
from ildm.mqtt.publish import PubAck, PubComp, Publish, PublishView, PubRec, PubRel, encoded_size, plain_topic
from ildm.mqtt.subscribe import SubAck, Subscribe, Subscription, UnsubAck, Unsubscribe
from ildm.mqtt.topics import covers, highest_qos, intersection, intersects, split_shared, topic_matches
from ildm.mqtt.validate import validate_topic_filter, validate_topic_name

__all__ = [
    "CANNOT_SERVE",
    "CLIENT_FIRST_BYTE",
    "LARGEST",
    "SERVER_FIRST_BYTE",
    "Auth",
    "ConnAck",
    "Connect",
    "ConnectReturnCode",
    "CoveringSet",
    "Delta",
    "Disconnect",
    "EncodeError",
    "FilterTable",
    "Framer",
    "IldmError",
    "LocalError",
    "MalformedPacket",
    "MqttError",
    "OverLimit",
    "Packet",
    "PacketLimits",
    "PacketTooLarge",
    "PacketType",
    "PingReq",
    "PingResp",
    "Properties",
    "Property",
    "ProtocolViolation",
    "PubAck",
    "PubComp",
    "PubRec",
    "PubRel",
    "Publish",
    "PublishView",
    "ReasonCode",
    "SubAck",
    "Subscribe",
    "Subscription",
    "UnsubAck",
    "Unsubscribe",
    "UnsupportedVersion",
    "Version",
    "Will",
    "check_first_byte",
    "connack_code",
    "covers",
    "create_message",
    "decode",
    "decode_properties",
    "decode_varint",
    "encode_properties",
    "encode_varint",
    "encoded_size",
    "frame_bounds",
    "frame_length",
    "highest_qos",
    "intersection",
    "intersects",
    "plain_topic",
    "split_shared",
    "topic_matches",
    "validate_topic_filter",
    "validate_topic_name",
]
