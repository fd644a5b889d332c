"""Subscription flooding (thesis 5.3.2): sites tell each other what they want, and get only that."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from ildm.api import Link, NodeApi, PluginConfig, Route, Timer, TreeAlgorithm
from ildm.mqtt import CoveringSet, Delta, FilterTable

MANY = 100
"""A filter that covers at least so many announced ones is not withdrawn at once."""
LONGEST = 16
"""So many times ``linger`` one waits at most that comes and goes again and again."""
REMEMBERED = 1000
MOST_NODES = 4096
"""Of the trie that are looked at for one topic, some milliseconds; more, and it goes to everybody."""


class SfConfig(PluginConfig):
    """Options: the keys beside ``name`` in the configuration file."""

    linger: float = Field(default=10.0, ge=0, le=3600)
    """Seconds for which a filter that covers many others stays announced."""


class SubscriptionFlooding(TreeAlgorithm[SfConfig]):
    """Towards each neighbour stands what all *others* want: local clients and the other neighbours.

    Of that interest only the filters which no other filter covers are inter-subscribed to, each with
    the highest QoS of those it covers. A source is a link, or None for the local clients.

    A filter such as ``#`` that covers many stays announced for a while when nobody wants it any more, and
    longer each time it comes back soon: one client that subscribes to it and leaves, over and over, would
    else make every node exchange all filters each time. Meanwhile a neighbour sends what nobody wants.
    """

    def __init__(self, api: NodeApi, config: SfConfig) -> None:
        super().__init__(api, config)
        self._lingering: dict[tuple[Link | None, str], Timer] = {}
        self._pauses: dict[str, tuple[float, float]] = {}  # filter withdrawn -> after which pause, and when
        self.towards: dict[Link, CoveringSet[Link | None]] = {}
        self._going_on: set[Link] = set()
        self.interest: FilterTable[Link] = FilterTable()
        """What each neighbour has inter-subscribed to against this node."""

    def on_interest_changed(self, source: Link | None, changes: Mapping[str, int | None]) -> None:
        """Inter-subscribe to the difference, after a successful SUBACK or a neighbour's request."""
        if source is not None:
            for topic_filter, qos in changes.items():
                if qos is None:
                    self.interest.remove(topic_filter, source)
                else:
                    self.interest.add(topic_filter, source, qos)
        changes = {f: qos for f, qos in changes.items() if not self._lingers(source, f, qos)}
        for link, interest in self.towards.items():
            if link is not source:
                self._tell(link, interest.update(source, changes))

    def _lingers(self, source: Link | None, topic_filter: str, qos: int | None) -> bool:
        """Whether the filter of a source that has unsubscribed stays announced for the time being."""
        key = source, topic_filter
        timer = self._lingering.pop(key, None)
        if timer is not None:
            timer.cancel()
        if qos is not None or not self.config.linger:
            return False
        covered = (i.covered_by(topic_filter) for link, i in self.towards.items() if link is not source)
        if timer is None and max(covered, default=0) < MANY:
            return False
        pause, over = self._pauses.get(topic_filter, (0.0, 0.0))
        soon = pause and self.api.now() < over + 2 * LONGEST * self.config.linger
        pause = min(2 * pause, LONGEST * self.config.linger) if soon else self.config.linger
        self.api.count("filters_kept_announced")
        self._lingering[key] = self.api.call_later(pause, self._withdraw, source, topic_filter, pause)
        return True

    def _withdraw(self, source: Link | None, topic_filter: str, pause: float) -> None:
        del self._lingering[source, topic_filter]
        self._pauses.pop(topic_filter, None)
        if len(self._pauses) >= REMEMBERED:
            del self._pauses[next(iter(self._pauses))]
        self._pauses[topic_filter] = pause, self.api.now()
        for link in list(self.towards):
            if link is not source:  # one at a time, as each may take long
                self.api.call_later(0, self._withdraw_from, link, source, topic_filter)

    def _withdraw_from(self, link: Link, source: Link | None, topic_filter: str) -> None:
        interest = self.towards.get(link)
        if interest is not None and not self._wants(source, topic_filter):
            self._tell(link, interest.update(source, {topic_filter: None}))

    def _wants(self, source: Link | None, topic_filter: str) -> bool:
        filters = self.api.local_interest if source is None else source.interest
        return topic_filter in filters or (source, topic_filter) in self._lingering

    def on_link_up(self, link: Link) -> None:
        """Synchronise: the new neighbour receives all interest of this side (thesis Fig. 5.7)."""
        interest = self.towards[link] = CoveringSet()
        self._tell(link, interest.update(None, self.api.local_interest))
        for other in self.towards:
            if other is not link:
                self._tell(link, interest.update(other, other.interest))

    def on_link_down(self, link: Link) -> None:
        """The others need no longer send what only this neighbour subscribed to."""
        del self.towards[link]
        self._going_on.discard(link)
        self.interest.remove_key(link)
        for key in [key for key in self._lingering if key[0] is link]:
            self._lingering.pop(key).cancel()
        for other, interest in self.towards.items():
            self._tell(other, interest.remove_source(link))

    def route(self, topic: str, retain: bool, source: Link | None) -> Route:
        """To the neighbours that want it; a retained message to all, for subscribers to come (5.3.3)."""
        if retain:
            return [(link, 2) for link in self.api.links if link is not source]
        matched = self.interest.match_within(topic, MOST_NODES)
        if matched is None:
            self.api.count("routed_to_all")
            return [(link, 2) for link in self.api.links if link is not source]
        return [(link, qos) for link, qos in matched.items() if link is not source]

    def reroute(self, topic: str, retain: bool, source: Link | None) -> Route:
        """To all neighbours: what those behind them want may not be known again yet. But not to those that
        are known to want it at QoS 0: what may come at most once is not sent again."""
        matched = {} if retain else self.interest.match_within(topic, MOST_NODES) or {}
        return [(link, 2) for link in self.api.links if link is not source and matched.get(link, 2)]

    def _tell(self, link: Link, delta: Delta) -> None:
        link.inter_subscribe(delta.subscribe)  # first, so that nothing is missed between the two
        link.inter_unsubscribe(delta.unsubscribe)
        interest = self.towards[link]
        if interest.behind and link not in self._going_on:
            self._going_on.add(link)
            self.api.call_later(0, self._go_on, link, interest)

    def _go_on(self, link: Link, interest: CoveringSet[Link | None]) -> None:
        """Do a few milliseconds more of what one change of interest has caused."""
        if self.towards.get(link) is interest:
            self._going_on.discard(link)
            self._tell(link, interest.go_on())
