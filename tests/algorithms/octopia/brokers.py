"""Brokers that keep their tables by messages, delivered one after the other.

What is here of the protocol is that of the paper: no membership, no failures in the middle of something.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ildm_algorithms.octopia.content.content import ContentFilter, parse
from ildm_algorithms.octopia.grid.scot import Grid
from ildm_algorithms.octopia.tables.tables import AddressedCivs, Civ, CivSet, Clt, Prt

from .grid.grids import Routes, Spread


def content(topic_filter: str, text: str = "") -> ContentFilter:
    return ContentFilter(topic_filter, parse(text)) if text else ContentFilter(topic_filter)


class Brokers:
    """Tables of all nodes of a grid, and the messages that keep them."""

    def __init__(self, grid: Grid, routing: str = "spr", summary: int = 0) -> None:
        self.grid = grid
        self.routes = Routes(grid, routing)
        self.prt = {node_id: Prt() for node_id in grid.members}
        self.clt = {
            node_id: Clt(self.prt[node_id], self.routes.view(node_id).secondary, summary)
            for node_id in grid.members
        }
        self.sent: Counter[str] = Counter()
        self.uids: Counter[str] = Counter()

    def advertise(self, node_id: str, advertised: ContentFilter) -> int:
        self.uids[node_id] += 1
        uid = self.uids[node_id]
        self.clt[node_id].advertise(uid, advertised)
        for neighbor in self.routes.view(node_id).secondary.values():
            self.sent["ADV"] += 1
            self._tell(neighbor, node_id, self.clt[neighbor].advertised(node_id, uid, advertised))
        return uid

    def unadvertise(self, node_id: str, uid: int) -> None:
        self.clt[node_id].unadvertise(uid)
        for neighbor in self.routes.view(node_id).secondary.values():
            self.sent["UNADV"] += 1
            assert self.clt[neighbor].unadvertised(node_id, uid)

    def subscribe(self, node_id: str, wanted: ContentFilter, *, gone: bool = False) -> None:
        """Flooded in the cluster."""
        version = self.prt[node_id].version(node_id) + 1
        members = self.routes.view(node_id).cluster_members.values()
        for member in members:
            prt = self.prt[member]
            change = prt.change(node_id, version, {} if gone else {wanted: 0}, [wanted] if gone else ())
            self._all(member, self.clt[member].changed(change))
        self.sent["UNSUB" if gone else "SUB"] += len(members) - 1

    def unsubscribe(self, node_id: str, wanted: ContentFilter) -> None:
        self.subscribe(node_id, wanted, gone=True)

    def publish(self, node_id: str, topic: str, attributes: Mapping[str, Any] = {}) -> Spread:
        wanted = self.clt[node_id].clusters_of(topic, lambda: attributes)
        assert wanted is not None
        return self.routes.publish(node_id, self.matching(topic, attributes), wanted)

    def advertised(self, node_id: str, topic: str, attributes: Mapping[str, Any]) -> bool:
        return self.clt[node_id].clusters_of(topic, lambda: attributes) is not None

    def matching(self, topic: str, attributes: Mapping[str, Any] = {}) -> set[str]:
        return {home for prt in self.prt.values() for home in prt.match(topic, lambda: attributes)}

    def bits(self, node_id: str, uid: int) -> str:
        found = self.clt[node_id].bits(uid)
        return "".join(
            "?" if found.get(index, False) is None else "01"[found.get(index) is True]
            for index in reversed(range(len(self.grid.clusters)))
        )

    def _all(self, member: str, civs: AddressedCivs) -> None:
        for to, civ in civs:
            self._tell(member, to, civ)

    def _tell(self, sender: str, to: str, civ: Civ) -> None:
        # an answer to an advertisement that nothing is wanted is no message of the paper's
        before = [self.clt[to].bits(uid)[self.grid.cluster(sender)] for uid in civ.uids]
        assert self.clt[to].answered(self.grid.cluster(sender), civ) == []
        if isinstance(civ, CivSet):
            self.sent["SET"] += 1
        elif before != [None] * len(before):
            self.sent["UNSET"] += 1
