"""Digests of retained messages, by which two nodes find those in which they differ."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator

from ildm.api.values import Stamp

BUCKETS = 256


class RetainedView:
    """Digests of retained values, one for each of 256 parts of their topics, kept as the values change.

    Args:
        wire: name of a topic on a link, None: it does not cross; always the same for the same topic. Without
            it all topics have their own names.
        topic_first: hash the topic before the stamp, not the stamp before the topic. Nodes that compare
            digests need the same order.
    """

    __slots__ = ("_digests", "_topic_first", "_topics", "_wire", "_wires")

    def __init__(self, wire: Callable[[str], str | None] | None = None, *, topic_first: bool = False) -> None:
        self._wire = wire
        self._topic_first = topic_first
        self._wires: dict[str, str] = {}
        self._digests = [0] * BUCKETS
        self._topics: list[dict[str, None]] = [{} for _ in range(BUCKETS)]

    def put(self, topic: str, stamp: Stamp | None) -> None:
        """There is something on a topic: a value with this stamp, or a deletion (None)."""
        wire = topic
        if self._wire is not None:
            name = self._wire(topic)
            if name is None:
                return
            self._wires[topic] = wire = name
        number = _bucket_of(wire)
        self._topics[number][topic] = None
        if stamp is not None:
            self._digests[number] ^= self._hash_of(wire, stamp)

    def remove(self, topic: str, stamp: Stamp | None) -> None:
        """What :meth:`put` entered is gone; without a stamp also a topic that is not here."""
        wire = topic if self._wire is None else self._wires.pop(topic, None)
        if wire is None:
            return
        number = _bucket_of(wire)
        self._topics[number].pop(topic, None)
        if stamp is not None:
            self._digests[number] ^= self._hash_of(wire, stamp)

    def _hash_of(self, topic: str, stamp: Stamp) -> int:
        """What a value adds to the digests."""
        text = f"{topic}\0{stamp.text()}" if self._topic_first else f"{stamp.text()}\0{topic}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")

    @property
    def digest(self) -> bytes:
        """Equal for two nodes exactly when they remember the same values (but for a chance of 2^-64)."""
        digest = 0
        for one in self._digests:
            digest ^= one
        return digest.to_bytes(8, "big")

    def buckets(self) -> bytes:
        """Digests of the values by hash of the name: :data:`BUCKETS` times 8 bytes."""
        return b"".join(one.to_bytes(8, "big") for one in self._digests)

    def topics(self) -> Iterator[str]:
        """All topics, in no order. Changes in between are no harm."""
        for bucket in self._topics:
            yield from list(bucket)

    def topics_that_differ(self, buckets: bytes) -> list[str]:
        """Topics, deleted ones too, of the parts in which another node has other digests.

        Args:
            buckets: what :meth:`buckets` answers there, of the same length.
        """
        own = self.buckets()
        return [
            topic
            for number, topics in enumerate(self._topics)
            if own[8 * number : 8 * number + 8] != buckets[8 * number : 8 * number + 8]
            for topic in topics
        ]


def _bucket_of(topic: str) -> int:
    return zlib.crc32(topic.encode()) % BUCKETS
