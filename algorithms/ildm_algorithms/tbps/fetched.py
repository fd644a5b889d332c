"""Retained messages that a node has got as answers or repetitions, so that it knows them when they come as
messages."""

from __future__ import annotations

from ildm.api import Stamp
from ildm.mqtt import Publish

__all__ = ["Fetched"]

MOST = 10_000
"""Remembered at a time; one of those that are forgotten may come to subscribers a second time."""


class Fetched:
    """The stamps of those that came last. A value that has been replaced since is among them."""

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._stamps: dict[tuple[str, Stamp], None] = {}

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
