"""Rendezvous: publishers send to a topic's home, which sends to the sites that registered there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ildm.api import NodeApi, Peer, Stamp
from ildm.mqtt import FilterTable, Publish, Version, decode

from .base import Options
from .registry import Registry

PUBLISH, DELIVER = b"p", b"m"
FAREWELL = 1.0  # s from the last words to the end


class Rendezvous(Registry):
    """The messages; the module of the package says what is promised."""

    def __init__(self, api: NodeApi, config: Options) -> None:
        super().__init__(api, config)
        self.told: dict[str, str] = {}
        self.stops = float("inf")

    def on_publish(self, message: Publish, turn: int) -> None:
        home = self.homes.of(message.topic)
        if home == self.me.node_id:
            self.spread(message, home, turn)
        else:
            self.send(self.members.peer(home), PUBLISH + packed(message), turn)

    def on_message(self, sender: Peer, data: bytes, turn: int) -> None:
        if data[:1] not in (PUBLISH, DELIVER):
            super().on_message(sender, data, turn)
        elif isinstance(message := decode(data[1:], Version.V5), Publish):
            if data[:1] == DELIVER:
                self.api.inject(message)
            elif not (message.retain and self.has(message)):
                self.spread(message, sender.node_id, turn)

    def has(self, message: Publish) -> bool:
        return Stamp.of(message) in map(Stamp.of, self.api.retained(message.topic))

    def spread(self, message: Publish, origin: str, turn: int) -> None:
        """As the home: to all that want it, but for where it comes from."""
        sites = {**self.narrow.match(message.topic), **self.wide.match(message.topic)}
        if message.retain:
            sites[self.me.node_id] = 0  # to be kept here
        for site in sites:
            if site != origin:
                self.send(self.members.peer(site), DELIVER + packed(message), turn)

    def hold(self, table: FilterTable[str], site: str, filters: Sequence[str]) -> list[str]:
        new = super().hold(table, site, filters)
        for topic_filter in new if site != self.me.node_id else ():
            for message in self.api.retained(topic_filter):
                if table is self.narrow or self.homes.of(message.topic) == self.me.node_id:
                    self.send(self.members.peer(site), DELIVER + packed(message))
        return new

    def tell(self) -> None:
        super().tell()
        told, self.told = self.told, {}
        for message in self.api.retained("#"):
            self.told[message.topic] = home = self.homes.of(message.topic)
            if told.get(message.topic) != home != self.me.node_id:
                self.send(self.members.peer(home), PUBLISH + packed(message))

    def on_ildm_stop(self) -> None:
        self.stops = self.api.now() + FAREWELL
        self.say(self.me._replace(gone=True))

    def is_leaving(self) -> bool:
        return self.api.now() < self.stops


def packed(message: Publish) -> bytes:
    return replace(message, packet_id=1 if message.qos else None).encode(Version.V5)
