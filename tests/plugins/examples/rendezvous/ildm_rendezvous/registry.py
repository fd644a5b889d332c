"""Registry: each node knows which sites want the topics that are at home with it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence

from pydantic import TypeAdapter

from ildm.api import Link, NodeApi, Peer
from ildm.mqtt import FilterTable

from .base import Options, TopicFilter
from .gossip import Gossip
from .homes import WIDE, Homes
from .members import Member

REGISTER = b"r"
FILTERS = TypeAdapter(list[TopicFilter])


class Registry(Gossip):
    """Filters are registered at the home of their topics, at each tick again: who is silent is forgotten."""

    def __init__(self, api: NodeApi, config: Options) -> None:
        super().__init__(api, config)
        self.homes = Homes(self.members.alive, config.levels)
        self.narrow: FilterTable[str] = FilterTable()
        self.wide: FilterTable[str] = FilterTable()
        self.heard: dict[str, float] = {}
        self.held = 0

    def on_interest_changed(self, source: Link | None, changes: Mapping[str, int | None]) -> None:
        self.soon()

    def on_message(self, sender: Peer, data: bytes, turn: int) -> None:
        if data[:1] != REGISTER:
            super().on_message(sender, data, turn)
        elif sender.node_id in self.members.rows:
            self.heard[sender.node_id] = self.api.now()
            self.hold(self.narrow, sender.node_id, FILTERS.validate_json(data[1:])[: self.config.filters])

    def hold(self, table: FilterTable[str], site: str, filters: Sequence[str]) -> list[str]:
        """What a site wants now; answers what it did not want before."""
        before = table.filters(site)
        table.remove_key(site)
        for topic_filter in filters:
            table.add(topic_filter, site)
        self.held += len(table.filters(site)) - len(before)
        self.api.gauge("filters", self.held)
        return [topic_filter for topic_filter in filters if topic_filter not in before]

    def learn(self, rows: list[Member]) -> list[Member]:
        news = super().learn(rows)
        for row in news:
            self.homes.forget()
            self.hold(self.wide, row.node_id, () if row.gone else row.wide)
        return news

    def tick(self) -> None:
        super().tick()
        late = self.api.now() - 3 * self.config.interval
        for site in [site for site, heard in self.heard.items() if heard < late]:
            del self.heard[site]
            self.hold(self.narrow, site, ())
        self.soon()

    def tell(self) -> None:
        super().tell()
        homes = defaultdict[str, list[str]](list)
        for topic_filter in sorted(self.api.local_interest):
            homes[self.homes.of(topic_filter)].append(topic_filter)
        wide = tuple(homes.pop(WIDE, ()))
        wide = wide if len(wide) <= 100 else ("#",)  # keeps the table small
        if wide != self.me.wide and not self.me.gone:
            self.say(self.me._replace(life=self.me.life + 1, wide=wide))
        for home, filters in homes.items():
            self.send(self.members.peer(home), REGISTER + json.dumps(filters).encode())
