"""How many filters with an expression each local client has."""

from __future__ import annotations

from collections import OrderedDict

from ildm.mqtt import split_shared

__all__ = ["Holders"]

AWAY = 10_000
"""Clients without a connection whose filters are still counted; the one away for longest makes room."""


class Holders:
    """Counts the filters of each client, from their SUBSCRIBE on: the broker's answer would come too late.

    Equal filters count for each client that holds them. A client is named by a key of the caller.
    """

    def __init__(self) -> None:
        self._held: dict[str, dict[str, None]] = {}
        """Client -> its filters, with the share if they have one."""
        self._holders: dict[str, dict[tuple[str, str], None]] = {}
        """Filter without its share -> (client, filter)."""
        self._away: OrderedDict[str, None] = OrderedDict()

    def count(self, client: str) -> int:
        """Filters of a client."""
        return len(self._held.get(client, ()))

    def hold(self, client: str, topic_filter: str, most: int) -> bool:
        """Count a filter of a connected client; False: it would be more than ``most``, and is not counted."""
        self._away.pop(client, None)
        held = self._held.get(client, {})
        if topic_filter in held:
            return True
        if len(held) >= most:
            return False
        self._held[client] = held
        held[topic_filter] = None
        self._holders.setdefault(split_shared(topic_filter)[1], {})[client, topic_filter] = None
        return True

    def release(self, client: str, topic_filter: str) -> None:
        """A client has unsubscribed; a filter that was not counted is ignored."""
        held = self._held.get(client)
        if held is None or topic_filter not in held:
            return
        del held[topic_filter]
        if not held:
            del self._held[client]
            self._away.pop(client, None)
        plain = split_shared(topic_filter)[1]
        holders = self._holders[plain]
        del holders[client, topic_filter]
        if not holders:
            del self._holders[plain]

    def unsubscribed(self, plain: str) -> None:
        """No client has a filter any more, with a share or without."""
        for client, topic_filter in list(self._holders.get(plain, ())):
            self.release(client, topic_filter)

    def ended(self, client: str) -> None:
        """The session of a client has ended."""
        for topic_filter in list(self._held.get(client, ())):
            self.release(client, topic_filter)

    def away(self, client: str) -> None:
        """A client's connection has ended, its session has not."""
        if client not in self._held:
            return
        self._away[client] = None
        self._away.move_to_end(client)
        if len(self._away) > AWAY:
            self.ended(next(iter(self._away)))
