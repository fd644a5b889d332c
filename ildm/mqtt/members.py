"""Members of enumerations, by name, for what runs with each connection or packet.

To look up ``Version.V5`` takes about 700 instructions before Python 3.12, compiled or not, as the class of an
enumeration has a ``__getattr__``; to load a constant of a compiled module takes three.
"""

from __future__ import annotations

from typing import Final

from ildm.mqtt.constants import PacketType, Property, Version

V31: Final = Version.V31
V311: Final = Version.V311
V5: Final = Version.V5

CONNECT: Final = PacketType.CONNECT
CONNACK: Final = PacketType.CONNACK
PUBLISH: Final = PacketType.PUBLISH
PUBACK: Final = PacketType.PUBACK
PUBREC: Final = PacketType.PUBREC
PUBREL: Final = PacketType.PUBREL
PUBCOMP: Final = PacketType.PUBCOMP
SUBSCRIBE: Final = PacketType.SUBSCRIBE
SUBACK: Final = PacketType.SUBACK
UNSUBSCRIBE: Final = PacketType.UNSUBSCRIBE
UNSUBACK: Final = PacketType.UNSUBACK
PINGRESP: Final = PacketType.PINGRESP
DISCONNECT: Final = PacketType.DISCONNECT
AUTH: Final = PacketType.AUTH
PACKET_TYPES: Final[tuple[PacketType | None, ...]] = (None, *PacketType)
"""By the upper half of the first byte: to ask the enumeration takes 4,000 instructions."""

ASSIGNED_CLIENT_IDENTIFIER: Final = Property.ASSIGNED_CLIENT_IDENTIFIER
AUTHENTICATION_DATA: Final = Property.AUTHENTICATION_DATA
AUTHENTICATION_METHOD: Final = Property.AUTHENTICATION_METHOD
MAXIMUM_PACKET_SIZE: Final = Property.MAXIMUM_PACKET_SIZE
REASON_STRING: Final = Property.REASON_STRING
RECEIVE_MAXIMUM: Final = Property.RECEIVE_MAXIMUM
REQUEST_PROBLEM_INFORMATION: Final = Property.REQUEST_PROBLEM_INFORMATION
SERVER_KEEP_ALIVE: Final = Property.SERVER_KEEP_ALIVE
SESSION_EXPIRY_INTERVAL: Final = Property.SESSION_EXPIRY_INTERVAL
SUBSCRIPTION_IDENTIFIER: Final = Property.SUBSCRIPTION_IDENTIFIER
TOPIC_ALIAS: Final = Property.TOPIC_ALIAS
TOPIC_ALIAS_MAXIMUM: Final = Property.TOPIC_ALIAS_MAXIMUM
WILL_DELAY_INTERVAL: Final = Property.WILL_DELAY_INTERVAL
