"""Topic aliases of one connection in one direction; they never leave it (MQTT-3.3.2-7 to -12)."""

from __future__ import annotations

from ildm.mqtt import LARGEST, PacketLimits, Property, ProtocolViolation, Publish, ReasonCode, Version, decode


class TopicAliases:
    """Alias -> topic, for aliases from 1 to the maximum which the receiver has granted."""

    __slots__ = ("_topics", "maximum", "missing")

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self.missing: frozenset[int] = frozenset()
        """Set by messages which the receiver has not got."""
        self._topics: dict[int, str] = {}

    def resolve(self, alias: int, topic: str) -> str:
        """The topic of a message with an alias; one that carries a topic sets the alias.

        Raises:
            ProtocolViolation: the alias was never set, or is above the maximum (MQTT-3.3.2-9).
        """
        if alias > self.maximum:
            raise ProtocolViolation(
                f"topic alias {alias} is above the maximum {self.maximum}",
                clause="MQTT-3.3.2-9",
                reason=ReasonCode.TOPIC_ALIAS_INVALID,
            )
        if topic:
            self._topics[alias] = topic
            return topic
        try:
            return self._topics[alias]
        except KeyError:
            raise ProtocolViolation(
                f"topic alias {alias} was not set",
                clause="MQTT-3.3.2-7",
                reason=ReasonCode.TOPIC_ALIAS_INVALID,
            ) from None

    def forget(self) -> None:
        """A message could not be read: what it has set is not known."""
        self._topics.clear()

    def made_known(self, packet: Publish, frame: bytes) -> bytes:
        """The frame of a message, with the topic of an alias that the receiver lacks. Raises: as resolve."""
        alias = int(packet.properties.get(Property.TOPIC_ALIAS, 0))
        if alias not in self.missing:
            return frame
        self.missing -= {alias}
        if packet.topic:
            return frame
        packet.topic = self.resolve(alias, "")
        return packet.encode(Version.V5)

    def spelled_out(self, frame: bytes, limits: PacketLimits = LARGEST) -> bytes:
        """The same MQTT 5 PUBLISH with its topic in full and without an alias. Raises: MqttError."""
        packet = decode(frame, Version.V5, limits)
        assert isinstance(packet, Publish)
        alias = packet.properties.pop(Property.TOPIC_ALIAS, None)
        if alias is None:
            return frame
        packet.topic = self.resolve(int(alias), packet.topic)
        return packet.encode(Version.V5)
