"""TID-S and TID-D: routing by the identifier of an advertisement's tree.

An advertisement floods the overlay; each broker keeps from whom it came first, and drops what comes again.
That is the advertisement's tree, and its identifier (TID) is that of the advertisement. A subscription goes
back along the tree of each advertisement that it overlaps, a copy for each, bound to that tree. A
publication carries the TID of its own advertisement and goes where rows bound to that lead. With TID-D a
broker that finds the way to a subscription congested looks for the same subscription under another TID, over
another link with a shorter queue, and sends the publication there with that one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ildm_algorithms.octopia.grid.congestion import LinkLoad
from ildm_bench.sim.brokers import Links, Selection
from ildm_bench.sim.workload import Publication, Publisher, Subscriber

ADV, SUB, PUB = "ADV", "SUB", "PUB"
LOCAL = ""
"""The last hop of what a broker's own client has sent."""


class Bound(NamedTuple):
    """A row of the PRT that is not of a client: a subscription, and where its copy came from."""

    subscriber: Subscriber
    tid: int
    last_hop: str


class Broker:
    """One broker's tables.

    Attributes:
        srt: advertisements by TID, with the broker that each came from first.
        own: subscriptions of its clients; they are bound to no tree.
        bound: by TID, then by subscription, its row.
        trees: of each subscription, its rows under all TIDs.
    """

    def __init__(self, neighbors: Iterable[str], tau: float, window: float) -> None:
        self.srt: dict[int, tuple[Publisher, str]] = {}
        self.own: list[Subscriber] = []
        self.bound: dict[int, dict[int, Bound]] = {}
        self.trees: dict[int, list[Bound]] = {}
        self.rows = 0
        self.loads = {node_id: LinkLoad(tau, window) for node_id in neighbors}
        self.seen: set[tuple[int, int]] = set()
        self.delivered: set[int] = set()


class Padres:
    """All brokers of an overlay.

    Args:
        neighbors: of each broker.
        dynamic: TID-D, else TID-S.
        forced: TID-D searches for other ways and then takes the static ones.
        stored_once: a subscription has one row of the PRT, and its TIDs are in a table of their own; else it
            has a row for each tree.
        payload: a copy of a publication takes so many times as long to be sent as one of OctopiA, for the
            TIDs that it carries.
        answers: an advertisement is flooded to the broker it came from, too.

    Attributes:
        reached: told of each advertisement, subscription and publication at each broker.
        selections: of each publication at each broker, if it is a list.
        duplicates: copies that a broker had no use for: the publication had come under the same TID.
        discarded: told of each advertisement that a broker had already, when it is done with it.
        turned: copies that went by another TID than that they came with.
    """

    def __init__(
        self,
        neighbors: dict[str, list[str]],
        links: Links,
        *,
        dynamic: bool = False,
        tau: float = 10.0,
        window: float = 0.05,
        forced: bool = False,
        stored_once: bool = False,
        payload: float = 1.0,
        answers: bool = False,
    ) -> None:
        self.stored_once = stored_once
        self.payload = payload
        self.answers = answers
        self.neighbors = neighbors
        self.links = links
        self.dynamic = dynamic
        self.forced = forced
        self.brokers = {node_id: Broker(near, tau, window) for node_id, near in neighbors.items()}
        self.reached: Callable[[str, Any, float], None] = lambda node_id, what, at: None
        self.discarded: Callable[[str, Any, float], None] = lambda node_id, what, at: None
        self.selections: list[Selection] | None = None
        self.duplicates = 0
        self.turned = 0
        self._tau, self._window = tau, window
        self._matched: dict[tuple[str, str, int, int], tuple[list[Bound], list[str], bool]] = {}
        self._under_any: dict[tuple[str, int], int] = {}

    # what clients do ------------------------------------------------------------------------------

    def advertise(self, publisher: Publisher, at: float) -> None:
        self.links.post(at, lambda now: self._advertised(publisher.node_id, LOCAL, publisher, now))

    def subscribe(self, subscriber: Subscriber, at: float) -> None:
        self.links.post(at, lambda now: self._subscribe(subscriber, now))

    def publish(self, node_id: str, tid: int, publication: Publication) -> None:
        self.links.post(publication.began, lambda now: self._route(node_id, LOCAL, publication, tid, now))

    def tables_changed(self) -> None:
        """What was found for messages so far is looked up anew."""
        self._matched.clear()
        self._under_any.clear()

    def anew(self, links: Links, *, dynamic: bool, forced: bool = False) -> None:
        """The same tables with empty queues."""
        self.links, self.dynamic, self.forced = links, dynamic, forced
        self.duplicates = self.turned = 0
        self.selections = None
        for node_id, broker in self.brokers.items():
            broker.loads = {near: LinkLoad(self._tau, self._window) for near in self.neighbors[node_id]}
            broker.seen.clear()
            broker.delivered.clear()

    # what brokers do ------------------------------------------------------------------------------

    def receive(self, node_id: str, sender: str, message: tuple[Any, ...], at: float) -> None:
        match message[0]:
            case "PUB":
                self._route(node_id, sender, message[1], message[2], at)
            case "SUB":
                self._subscribed(node_id, sender, message[1], message[2], at)
            case _:
                self._advertised(node_id, sender, message[1], at)

    def _advertised(self, node_id: str, sender: str, publisher: Publisher, at: float) -> None:
        broker = self.brokers[node_id]
        at = self.links.processed(node_id, at, 0)
        if publisher.uid in broker.srt:
            self.discarded(node_id, publisher, at)
            return
        broker.srt[publisher.uid] = (publisher, sender)
        for neighbor in self.neighbors[node_id]:
            if neighbor != sender or self.answers:
                self.links.send(node_id, neighbor, at, (ADV, publisher))
        for subscriber in broker.own:
            if subscriber.wants(publisher.symbol) and sender != LOCAL:
                self.links.send(node_id, sender, at, (SUB, subscriber, publisher.uid))
        self.reached(node_id, publisher, at)

    def _subscribe(self, subscriber: Subscriber, at: float) -> None:
        node_id = subscriber.node_id
        broker = self.brokers[node_id]
        at = self.links.processed(node_id, at, 0, len(broker.srt))
        broker.own.append(subscriber)
        broker.rows += 1
        for tid, (publisher, last_hop) in broker.srt.items():
            if subscriber.wants(publisher.symbol) and last_hop != LOCAL:
                self.links.send(node_id, last_hop, at, (SUB, subscriber, tid))
        self.reached(node_id, subscriber, at)

    def _subscribed(self, node_id: str, sender: str, subscriber: Subscriber, tid: int, at: float) -> None:
        broker = self.brokers[node_id]
        at = self.links.processed(node_id, at, 0, len(broker.srt))
        row = Bound(subscriber, tid, sender)
        broker.bound.setdefault(tid, {})[subscriber.uid] = row
        trees = broker.trees.setdefault(subscriber.uid, [])
        broker.rows += not (self.stored_once and trees)
        trees.append(row)
        last_hop = broker.srt[tid][1]
        if last_hop == LOCAL:
            self.reached(node_id, subscriber, at)
        else:
            self.links.send(node_id, last_hop, at, (SUB, subscriber, tid))

    def _route(self, node_id: str, sender: str, publication: Publication, tid: int, at: float) -> None:
        broker = self.brokers[node_id]
        at = self.links.processed(node_id, at, broker.rows)
        turning = self.dynamic and not self.forced
        if turning:
            if (publication.number, tid) in broker.seen:
                self.duplicates += 1
                return
            broker.seen.add((publication.number, tid))
        rows, last_hops, local = self._matching(node_id, sender, publication.symbol, tid)
        if local and publication.number not in broker.delivered:
            if turning:
                broker.delivered.add(publication.number)
            self.reached(node_id, publication, at)
        copies: Iterable[tuple[str, int]] = [(last_hop, tid) for last_hop in last_hops]
        searched = asked = 0
        if self.dynamic:
            asked = len(last_hops)
            lengths = {hop: self.links.queued(node_id, hop, at) for hop in last_hops}
            congested = {hop for hop in last_hops if broker.loads[hop].congested(at, lengths[hop])}
            if self.forced or congested:
                searched = broker.rows
            if congested and turning:
                copies = self._other_ways(node_id, sender, rows, lengths, congested, at)
            at = self.links.searched(node_id, at, searched + asked)
        if self.selections is not None:
            candidates = self._candidates(node_id, publication.symbol)
            self.selections.append(Selection(broker.rows, candidates + searched, asked, local))
        for to, other in copies:
            if self.dynamic:
                broker.loads[to].sent()
            self.turned += other != tid
            self.links.send(node_id, to, at, (PUB, publication, other), self.payload)

    def _matching(
        self, node_id: str, sender: str, symbol: int, tid: int
    ) -> tuple[list[Bound], list[str], bool]:
        """Rows that match under a TID, the links that they name, and whether own clients want it."""
        key = (node_id, sender, symbol, tid)
        known = self._matched.get(key)
        if known is None:
            broker = self.brokers[node_id]
            rows = [
                row
                for row in broker.bound.get(tid, {}).values()
                if row.last_hop != sender and row.subscriber.wants(symbol)
            ]
            local = any(subscriber.wants(symbol) for subscriber in broker.own)
            known = self._matched[key] = (rows, list(dict.fromkeys(row.last_hop for row in rows)), local)
        return known

    def _candidates(self, node_id: str, symbol: int) -> int:
        """Rows that match, under whatever TID."""
        key = (node_id, symbol)
        if key not in self._under_any:
            broker = self.brokers[node_id]
            self._under_any[key] = sum(subscriber.wants(symbol) for subscriber in broker.own) + sum(
                len(rows) for rows in broker.trees.values() if rows[0].subscriber.wants(symbol)
            )
        return self._under_any[key]

    def _other_ways(
        self,
        node_id: str,
        sender: str,
        rows: list[Bound],
        lengths: dict[str, int],
        congested: set[str],
        at: float,
    ) -> list[tuple[str, int]]:
        """Where copies go and under which TID, with the least queue for each row whose link is congested."""
        broker = self.brokers[node_id]
        copies: dict[tuple[str, int], None] = {}
        for row in rows:
            way = (row.last_hop, row.tid)
            if row.last_hop in congested:
                best = lengths[row.last_hop]
                for other in broker.trees[row.subscriber.uid]:
                    if other.tid != row.tid and other.last_hop not in (row.last_hop, sender):
                        length = self.links.queued(node_id, other.last_hop, at)
                        if length < best:
                            best, way = length, (other.last_hop, other.tid)
            copies[way] = None
        return list(copies)
