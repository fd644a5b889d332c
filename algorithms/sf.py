"""Subscription flooding (thesis 5.3.2): sites tell each other what they want, and get only that."""

from __future__ import annotations

from collections.abc import Mapping

from ildm.api import Algorithm, Link, NodeApi, PluginConfig, Route
from ildm.mqtt import CoveringSet, Delta, FilterTable


class SubscriptionFlooding(Algorithm):
    """Towards each neighbour stands what all *others* want: local clients and the other neighbours.

    Of that interest only the filters which no other filter covers are inter-subscribed to, each with
    the highest QoS of those it covers. A source is a link, or None for the local clients.
    """

    def __init__(self, api: NodeApi, config: PluginConfig) -> None:
        super().__init__(api, config)
        self.towards: dict[Link, CoveringSet[Link | None]] = {}
        self.wanted: FilterTable[Link] = FilterTable()
        """What each neighbour has inter-subscribed to against this node."""

    def on_interest_changed(self, source: Link | None, changes: Mapping[str, int | None]) -> None:
        """Inter-subscribe to the difference, after a successful SUBACK or a neighbour's wish."""
        if source is not None:
            for topic_filter, qos in changes.items():
                if qos is None:
                    self.wanted.remove(topic_filter, source)
                else:
                    self.wanted.add(topic_filter, source, qos)
        for link, interest in self.towards.items():
            if link is not source:
                _tell(link, interest.update(source, changes))

    def on_link_up(self, link: Link) -> None:
        """Synchronise: the new neighbour is told everything wanted on this side (thesis Fig. 5.7)."""
        interest = self.towards[link] = CoveringSet()
        _tell(link, interest.update(None, self.api.local_interest))
        for other in self.towards:
            if other is not link:
                _tell(link, interest.update(other, other.interest))

    def on_link_down(self, link: Link) -> None:
        """The others need no longer send what only this neighbour wanted."""
        del self.towards[link]
        self.wanted.remove_key(link)
        for other, interest in self.towards.items():
            _tell(other, interest.remove_source(link))

    def route(self, topic: str, retain: bool, source: Link | None) -> Route:
        """To the neighbours that want it; a retained message to all, for subscribers to come (5.3.3)."""
        if retain:
            return [(link, 2) for link in self.api.links if link is not source]
        return [(link, qos) for link, qos in self.wanted.match(topic).items() if link is not source]


def _tell(link: Link, delta: Delta) -> None:
    link.inter_subscribe(delta.subscribe)  # first, so that nothing is missed between the two
    link.inter_unsubscribe(delta.unsubscribe)
