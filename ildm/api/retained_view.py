"""Digests of what a node remembers of retained messages: of all, or as far as it may cross a link."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator

from ildm.api.values import Stamp

BUCKETS = 256


class RetainedView:
    """Digests of values, by the names that topics have on a link, kept as these change.

    Args:
        wire: the name of a topic there, None: it does not cross; always the same for the same topic. Without
            it all topics have their own names.
    """

    __slots__ = ("_digests", "_topics", "_wire", "_wires")

    def __init__(self, wire: Callable[[str], str | None] | None = None) -> None:
        self._wire = wire
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
            self._digests[number] ^= _hash_of(wire, stamp)

    def remove(self, topic: str, stamp: Stamp | None) -> None:
        """The same is no more."""
        wire = topic if self._wire is None else self._wires.pop(topic, None)
        if wire is None:
            return
        number = _bucket_of(wire)
        del self._topics[number][topic]
        if stamp is not None:
            self._digests[number] ^= _hash_of(wire, stamp)

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
        """Topics, deleted ones too, among which those are that another node, with these digests, has not
        got as this one has."""
        own = self.buckets()
        return [
            topic
            for number, topics in enumerate(self._topics)
            if own[8 * number : 8 * number + 8] != buckets[8 * number : 8 * number + 8]
            for topic in topics
        ]


def _bucket_of(topic: str) -> int:
    return zlib.crc32(topic.encode()) % BUCKETS


def _hash_of(topic: str, stamp: Stamp) -> int:
    """What a value adds to the digests."""
    text = f"{stamp.text()}\0{topic}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
