"""The local broker of a simulated node."""

from __future__ import annotations

from ildm.mqtt import FilterTable, Publish, split_shared


class LocalBroker:
    """The local broker with its clients, as much of MQTT as an algorithm can notice."""

    __slots__ = ("filters", "groups", "retained")

    def __init__(self) -> None:
        self.filters: FilterTable[str] = FilterTable()
        """By client id, or by the whole filter of a shared subscription."""
        self.groups: dict[str, dict[str, int]] = {}
        """Shared subscriptions, with their members in the order of their turns."""
        self.retained: dict[str, Publish] = {}

    def publish(self, message: Publish) -> dict[str, int]:
        """Store a retained message; answers the clients that get it, with the QoS granted."""
        if message.retain:
            if message.payload:
                self.retained[message.topic] = message
            else:
                self.retained.pop(message.topic, None)  # MQTT-3.3.1-6
        found = self.filters.match(message.topic)
        return self._shared_out(found) if self.groups else found

    def inject(self, message: Publish) -> dict[str, int]:
        """The same for what the node publishes: messages of other nodes, and :meth:`NodeApi.inject`."""
        return self.publish(message)

    def subscribe(self, topic_filter: str, qos: int, client: str) -> str:
        """Grant a subscription; answers the filter, of a shared subscription that behind the group."""
        group, plain = split_shared(topic_filter)
        if group is None:
            self.filters.add(topic_filter, client, qos)
            return topic_filter
        members = self.groups.setdefault(topic_filter, {})
        members[client] = qos
        self.filters.add(plain, topic_filter, max(members.values()))
        return plain

    def unsubscribe(self, topic_filter: str, client: str) -> str | None:
        """The same for a filter that is taken back; None: the client had none such."""
        group, plain = split_shared(topic_filter)
        if group is None:
            return topic_filter if self.filters.remove(topic_filter, client) else None
        members = self.groups.get(topic_filter, {})
        if members.pop(client, None) is None:
            return None
        if members:
            self.filters.add(plain, topic_filter, max(members.values()))
        else:
            del self.groups[topic_filter]
            self.filters.remove(plain, topic_filter)
        return plain

    def subscriptions(self, client: str) -> list[str]:
        """The filters of a client."""
        shared = [topic_filter for topic_filter, members in self.groups.items() if client in members]
        return [*self.filters.filters(client), *shared]

    def maximum(self, topic_filter: str) -> int | None:
        """Highest QoS any client has of a filter; None if no client has it."""
        return max((qos for f, _, qos in self.filters if f == topic_filter), default=None)

    def _shared_out(self, found: dict[str, int]) -> dict[str, int]:
        """One member of each group in its place; they take turns."""
        receivers: dict[str, int] = {}
        for key, qos in found.items():
            members = self.groups.get(key)
            if members is None:
                receivers[key] = max(qos, receivers.get(key, 0))
                continue
            client, granted = next(iter(members.items()))
            del members[client]
            members[client] = granted
            receivers[client] = max(granted, receivers.get(client, 0))
        return receivers


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
