"""Priorities: alarms cross first, bulk crosses last and at a bounded rate, all the rest between."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from ildm.api import Link, NodeApi, PluginConfig, Route, TreeAlgorithm, Via
from ildm.mqtt import Property, Publish

ALARM, BULK = 7, -8


class Options(PluginConfig):
    """The keys beside ``name`` in the configuration file."""

    rate: float = Field(gt=0)
    """Messages below ``bulk/`` a second that may leave this site."""
    burst: int = Field(default=10, ge=1)
    """So many at once, after a pause."""
    waiting: int = Field(default=100, ge=0)
    """So many may wait for their turn, each with a timer (``limits.plugin_timers``)."""


class Priorities(TreeAlgorithm[Options]):
    """Every message goes to every site; what waits for a link goes in the order alarm, others, bulk.

    Bulk is limited by a token bucket where it enters the network, so a site pays for its own only. What is
    over the rate is delayed, in order (``bulk_delayed``), or dropped: when too many wait already or the node
    stops (``bulk_dropped``), or where it would be too late (``bulk_expired``). Subscribers at its own site
    get all of it. The publisher of a delayed or dropped message is told that it was sent.
    """

    def __init__(self, api: NodeApi, config: Options) -> None:
        super().__init__(api, config)
        self.empty = float("-inf")  # when the bucket was: it got ``rate`` tokens for each second since
        self.waiting = 0

    def route_message(self, message: Publish, source: Link | None, turn: int) -> Route:
        if message.topic.startswith("bulk/"):
            if source is None and not self._may_leave(message, turn):
                return ()
            return [Via(link, priority=BULK) for link in self.api.links]  # the source is passed over
        priority = ALARM if message.topic.startswith("alarm/") else 0
        return [Via(link, priority=priority) for link in self.api.links]

    def on_config_changed(self) -> None:
        """Other options hold from the next message on."""

    def on_ildm_stop(self) -> None:
        self.api.count("bulk_dropped", self.waiting)

    def _may_leave(self, message: Publish, turn: int) -> bool:
        """Whether it may at once; if not it is seen to."""
        now, rate = self.api.now(), self.config.rate
        empty = max(self.empty, now - self.config.burst / rate) + 1 / rate
        delay = round(empty - now, 6)
        expiry = message.properties.get(Property.MESSAGE_EXPIRY_INTERVAL)
        if delay > 0 and self.waiting >= self.config.waiting:
            self.api.count("bulk_dropped")
        elif expiry is not None and expiry <= delay:
            self.api.count("bulk_expired")
        else:
            self.empty = empty
            if delay <= 0:
                return True
            if expiry is not None:  # reduced by the time it waits (MQTT-3.3.2-6)
                left = {Property.MESSAGE_EXPIRY_INTERVAL: expiry - int(delay)}
                message = replace(message, properties={**message.properties, **left})
            self.waiting += 1
            self.api.count("bulk_delayed")
            self.api.call_later(delay, self._leave, message, turn)
        return False

    def _leave(self, message: Publish, turn: int) -> None:
        self.waiting -= 1
        for link in self.api.links:
            self.api.transfer(link, message, turn, BULK)
