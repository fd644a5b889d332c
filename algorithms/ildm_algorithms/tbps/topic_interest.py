"""Which messages that have come local clients want, by the bytes of their topics.

A topic that has been read and matched once need not be again until the filters of local clients change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ildm.mqtt import IldmError, Publish, Version, decode, plain_topic

if TYPE_CHECKING:
    from ildm.mqtt import FilterTable

__all__ = ["LONGEST", "TopicInterest", "TopicInterests"]

LONGEST = 512
"""Bytes of a topic that is remembered at most."""


class TopicInterest(NamedTuple):
    """What local clients want of a topic."""

    topic: str
    qos: int | None
    """The highest they want; None: nothing."""


class TopicInterests:
    """At most ``most`` topics, the one asked about first making room."""

    def __init__(self, interest: FilterTable[None], most: int, count: Callable[[str], None]) -> None:
        self._interest = interest
        self._most = most
        self._count = count
        self._generation = interest.generation
        self._topics: dict[bytes, TopicInterest] = {}

    def __len__(self) -> int:
        return len(self._topics)

    def of(self, frame: bytes) -> TopicInterest | None:
        """About the topic of a PUBLISH of MQTT 5, as its publisher has encoded it; None: it must be read.

        So are those with flags or properties, and those of a higher QoS than is subscribed to.

        Raises:
            IldmError: it is none, or one without a topic.
        """
        topic = plain_topic(frame)
        if topic is None:
            return None
        if self._generation != self._interest.generation:
            self._generation = self._interest.generation
            self._topics.clear()
        found = self._topics.get(topic) or self._read(topic, frame)
        return None if found.qos == 0 and frame[0] & 6 else found

    def _read(self, topic: bytes, frame: bytes) -> TopicInterest:
        message = decode(frame, Version.V5)
        if not isinstance(message, Publish) or not message.topic:
            raise IldmError("a message that is no PUBLISH with a topic")
        found = TopicInterest(message.topic, self._interest.match(message.topic).get(None))
        if len(topic) <= LONGEST:
            if len(self._topics) >= self._most:
                del self._topics[next(iter(self._topics))]
                self._count("wishes_displaced")
            self._topics[topic] = found
        return found
