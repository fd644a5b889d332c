"""Retained messages that a node has got as answers or repetitions, so that it knows them when they come as
messages. Deletions that a node received, where there was nothing to delete, are remembered as well."""

from __future__ import annotations

from ildm.api import Stamp
from ildm.mqtt import Publish

__all__ = ["Fetched"]

MOST = 10_000
"""Remembered at a time, of both. What is forgotten may come to subscribers a second time, or come back though
it was deleted."""


class Fetched:
    """The stamps of those that came last. A value that has been replaced since is among them."""

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._stamps: dict[tuple[str, Stamp], None] = {}
        self._deletions: dict[str, Stamp] = {}

    def add(self, message: Publish) -> None:
        """It goes to the local broker."""
        stamp = Stamp.of(message)
        if stamp is not None:
            self._stamps[message.topic, stamp] = None
            if len(self._stamps) > self.most:
                del self._stamps[next(iter(self._stamps))]

    def __contains__(self, message: Publish) -> bool:
        stamp = Stamp.of(message)
        return stamp is not None and (message.topic, stamp) in self._stamps

    def add_deletion(self, message: Publish) -> None:
        """It does not go to the local broker, which has nothing on the topic."""
        stamp = Stamp.of(message)
        before = self._deletions.pop(message.topic, None)
        if stamp is not None:
            self._deletions[message.topic] = stamp if before is None else max(before, stamp)
            if len(self._deletions) > self.most:
                del self._deletions[next(iter(self._deletions))]

    def is_deleted(self, message: Publish) -> bool:
        """Whether such a deletion is newer than a message."""
        deletion, stamp = self._deletions.get(message.topic), Stamp.of(message)
        return deletion is not None and stamp is not None and stamp < deletion
