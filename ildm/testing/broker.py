"""The local broker of a simulated node."""

from __future__ import annotations

from ildm.mqtt import FilterTable, Publish


class LocalBroker:
    """The local broker with its clients, as much of MQTT as an algorithm can notice."""

    __slots__ = ("filters", "retained")

    def __init__(self) -> None:
        self.filters: FilterTable[str] = FilterTable()
        """By client id."""
        self.retained: dict[str, Publish] = {}

    def publish(self, message: Publish) -> dict[str, int]:
        """Store a retained message; answers the clients that get it, with the QoS granted."""
        if message.retain:
            if message.payload:
                self.retained[message.topic] = message
            else:
                self.retained.pop(message.topic, None)  # MQTT-3.3.1-6
        return self.filters.match(message.topic)

    def inject(self, message: Publish) -> dict[str, int]:
        """The same for what the node publishes: messages of other nodes, and :meth:`NodeApi.inject`."""
        return self.publish(message)

    def maximum(self, topic_filter: str) -> int | None:
        """Highest QoS any client has of a filter; None if no client has it."""
        return max((qos for f, _, qos in self.filters if f == topic_filter), default=None)


class RecordingBroker(LocalBroker):
    """Keeps what the node publishes, for a test that has no subscribers.

    Attributes:
        injected: the messages, in order.
    """

    __slots__ = ("injected",)

    def __init__(self) -> None:
        super().__init__()
        self.injected: list[Publish] = []

    def inject(self, message: Publish) -> dict[str, int]:
        self.injected.append(message)
        return super().inject(message)
