"""What a broker of a world keeps of a client, whether it is connected or not."""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING

from ildm.mqtt import Property, Publish, PubRel, Subscription, topic_matches

if TYPE_CHECKING:
    from ildm.testing.virtual.broker import Connection

WINDOW = 20
"""Messages of QoS 1 and 2 under way to a client that names no receive maximum."""
KEPT = (
    Property.PAYLOAD_FORMAT_INDICATOR,
    Property.CONTENT_TYPE,
    Property.RESPONSE_TOPIC,
    Property.CORRELATION_DATA,
    Property.USER_PROPERTY,
    Property.MESSAGE_EXPIRY_INTERVAL,
)
"""Properties of a message that its subscribers get, too."""


class OnItsWay:
    """A message of QoS 1 or 2 that a session has not acknowledged."""

    __slots__ = ("message", "recorded")

    def __init__(self, message: Publish) -> None:
        self.message = message
        self.recorded = False
        """PUBREC has come."""


class Session:
    """What the broker keeps of a client."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.lasts = False
        """It outlives its connection."""
        self.filters: dict[str, Subscription] = {}
        self.connection: Connection | None = None
        self.waiting: deque[Publish] = deque()
        self.under_way: dict[int, OnItsWay] = {}
        self.unreleased: dict[int, Publish] = {}
        """What came at QoS 2 and was not released."""
        self._ids = itertools.cycle(range(1, 65536))

    def matches(self, topic: str) -> Subscription | None:
        """The subscription of the highest QoS that wants a topic."""
        found = [one for each, one in self.filters.items() if each == topic or topic_matches(each, topic)]
        return max(found, key=lambda one: one.qos, default=None)

    def push(self, message: Publish, qos: int, retain: bool) -> None:
        """A message for this client; of QoS 0 only while it reads."""
        qos = min(qos, message.qos)
        properties = {name: message.properties[name] for name in KEPT if name in message.properties}
        copy = Publish(
            topic=message.topic, payload=message.payload, qos=qos, retain=retain, properties=properties
        )
        if qos:
            self.waiting.append(copy)
            self.advance()
        elif self.connection is not None and self.connection.writable:
            self.connection.put(copy)

    def advance(self) -> None:
        """Send what waits, as far as the window goes."""
        connection = self.connection
        if connection is None:
            return
        while self.waiting and len(self.under_way) < connection.window:
            message = self.waiting.popleft()
            message.packet_id = next(each for each in self._ids if each not in self.under_way)
            self.under_way[message.packet_id] = OnItsWay(message)
            connection.put(message)

    def resume(self) -> None:
        """A connection is there: what was under way goes again (MQTT-4.4.0-1), then what waits."""
        connection = self.connection
        assert connection is not None
        for packet_id, one in self.under_way.items():
            if one.recorded:
                connection.put(PubRel(packet_id=packet_id))
            else:
                one.message.dup = True
                connection.put(one.message)
        self.advance()
