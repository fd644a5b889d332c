"""OctopiA in `ildm_bench.sim.brokers`: the plugin's tables and routing, without what keeps it alive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ildm_algorithms.octopia.grid.congestion import LinkLoad
from ildm_algorithms.octopia.grid.routing import NOBODY, Copy, idr, spr
from ildm_algorithms.octopia.grid.scot import Grid, View
from ildm_algorithms.octopia.tables.tables import AddressedCivs, CivSet, Clt, Prt
from ildm_bench.sim.brokers import Links, Selection
from ildm_bench.sim.workload import TOPIC, Publication, Publisher, Subscriber, attributes

ADV, SUB, SET, UNSET, PUB = "ADV", "SUB", "SET", "UNSET", "PUB"
Reached = Callable[[str, Any, float], None]
"""A broker has a message (what kind of key says which), at which time."""


class Broker:
    """One node's tables, and what it knows of its links: a `ildm_algorithms.octopia.grid.routing.Load`."""

    def __init__(self, view: View, prt: Prt, links: Links, tau: float, window: float) -> None:
        self.view = view
        self.prt = prt
        self.rows = 0
        """Of the PRT that have come to this broker."""
        self.clt = Clt(prt, view.secondary)
        self.links = links
        self.at = 0.0
        """Time of the message that is being routed."""
        self.looked = 0
        self.loads = {
            node_id: LinkLoad(tau, window) for node_id in (*view.primary.values(), *view.secondary.values())
        }

    def usable(self, node_id: str) -> bool:
        return True

    def queued(self, node_id: str) -> float:
        return self.links.queued(self.view.node_id, node_id, self.at)

    def congested(self, node_id: str) -> bool:
        length = self.links.queued(self.view.node_id, node_id, self.at)
        self.looked += 1
        return self.loads[node_id].congested(self.at, length)


class Octopia:
    """All brokers of a grid. Those of a cluster have one PRT in common, since at rest theirs are equal.

    Args:
        routing: ``spr`` or ``idr``.
        forced: IDR looks at its links and then takes the static paths (as in the paper's Fig. 13 to 16).

    Attributes:
        reached: told of each advertisement, subscription and publication at each broker.
        selections: of each publication at each broker, if it is a list.
    """

    def __init__(
        self,
        grid: Grid,
        links: Links,
        routing: str = "spr",
        *,
        tau: float = 10.0,
        window: float = 0.05,
        forced: bool = False,
    ) -> None:
        self.grid = grid
        self.links = links
        self.dynamic = routing == "idr"
        self.forced = forced
        prts = [Prt() for _ in grid.clusters]
        self.brokers = {
            node_id: Broker(View(grid, node_id), prts[grid.cluster(node_id)], links, tau, window)
            for node_id in grid.members
        }
        self.reached: Reached = _nobody
        self.selections: list[Selection] | None = None
        self._tau, self._window = tau, window
        self._homes: dict[tuple[int, int], Mapping[str, int]] = {}
        self._matching: dict[tuple[int, int], int] = {}
        self._targets: dict[tuple[str, str, int], tuple[list[str], bool]] = {}
        self._wanted: dict[tuple[str, int], frozenset[int]] = {}

    # what clients do ------------------------------------------------------------------------------

    def advertise(self, publisher: Publisher, at: float) -> None:
        self.links.post(at, lambda now: self._advertise(publisher, now))

    def subscribe(self, subscriber: Subscriber, at: float) -> None:
        self.links.post(at, lambda now: self._subscribe(subscriber.node_id, "", subscriber, now))

    def publish(self, node_id: str, publication: Publication) -> None:
        self.links.post(publication.began, lambda now: self._publish(node_id, publication, now))

    def tables_changed(self) -> None:
        """What was found for messages so far is looked up anew."""
        self._homes.clear()
        self._matching.clear()
        self._targets.clear()
        self._wanted.clear()

    def anew(self, links: Links, *, routing: str, forced: bool = False) -> None:
        """The same tables with empty queues."""
        self.links, self.dynamic, self.forced = links, routing == "idr", forced
        self.selections = None
        for broker in self.brokers.values():
            broker.links = links
            broker.loads = {near: LinkLoad(self._tau, self._window) for near in broker.loads}

    # what brokers do ------------------------------------------------------------------------------

    def receive(self, node_id: str, sender: str, message: tuple[Any, ...], at: float) -> None:
        match message[0]:
            case "PUB":
                _, publication, clusters, tried = message
                self._route(node_id, sender, publication, clusters, tried, at)
            case "SUB":
                self._subscribe(node_id, sender, message[1], at)
            case "ADV":
                self._advertised(node_id, sender, message[1], at)
            case _:
                at = self.links.processed(node_id, at, 0)
                cluster = self.grid.cluster(sender)
                self.brokers[node_id].clt.answered(cluster, message[1])

    def _advertise(self, publisher: Publisher, at: float) -> None:
        broker = self.brokers[publisher.node_id]
        at = self.links.processed(publisher.node_id, at, 0)
        broker.clt.advertise(publisher.uid, publisher.advertised)
        for neighbor in broker.view.secondary.values():
            self.links.send(publisher.node_id, neighbor, at, (ADV, publisher))
        self.reached(publisher.node_id, publisher, at)

    def _advertised(self, node_id: str, sender: str, publisher: Publisher, at: float) -> None:
        broker = self.brokers[node_id]
        at = self.links.processed(node_id, at, 0)
        civ = broker.clt.advertised(sender, publisher.uid, publisher.advertised)
        self._tell(node_id, [(sender, civ)], at)
        self.reached(node_id, publisher, at)

    def _subscribe(self, node_id: str, sender: str, subscriber: Subscriber, at: float) -> None:
        broker = self.brokers[node_id]
        at = self.links.processed(node_id, at, 0, len(broker.clt))
        wanted = subscriber.wanted
        if not sender:
            broker.prt.change(node_id, broker.prt.version(node_id) + 1, {wanted: 0})
        broker.rows += 1
        for neighbor in broker.view.primary.values():
            if neighbor != sender:
                self.links.send(node_id, neighbor, at, (SUB, subscriber))
        self._tell(node_id, broker.clt.subscribed(wanted), at)
        self.reached(node_id, subscriber, at)

    def _tell(self, node_id: str, civs: AddressedCivs, at: float) -> None:
        for to, civ in civs:
            self.links.send(node_id, to, at, (SET if isinstance(civ, CivSet) else UNSET, civ))

    def _publish(self, node_id: str, publication: Publication, at: float) -> None:
        key = (node_id, publication.symbol)
        wanted = self._wanted.get(key)
        if wanted is None:
            found = self.brokers[node_id].clt.clusters_of(TOPIC, lambda: attributes(publication.symbol))
            wanted = self._wanted[key] = found or NOBODY
        self._route(node_id, "", publication, wanted, (), at)

    def _route(
        self,
        node_id: str,
        sender: str,
        publication: Publication,
        clusters: frozenset[int],
        tried: tuple[str, ...],
        at: float,
    ) -> None:
        broker = self.brokers[node_id]
        at = self.links.processed(node_id, at, broker.rows)
        targets, local = self._matched(node_id, sender, publication.symbol)
        if local:
            self.reached(node_id, publication, at)
        broker.at, broker.looked = at, 0
        copies = [Copy(to) for to in targets]
        if clusters:
            route = idr if self.dynamic else spr
            copies = route(broker.view, targets, clusters, broker, tried).copies
            if self.forced:
                copies = spr(broker.view, targets, clusters, broker, tried).copies
            if broker.looked:
                at = self.links.searched(node_id, at, broker.looked)
        if self.selections is not None:
            matching = self._matching_rows(node_id, publication.symbol)
            asked = 0 if sender else len(broker.view.secondary)
            self.selections.append(Selection(broker.rows, matching + asked, broker.looked, local))
        for to, rest, visited in copies:
            if self.dynamic:
                broker.loads[to].sent()
            self.links.send(node_id, to, at, (PUB, publication, rest, visited))

    def _matching_rows(self, node_id: str, symbol: int) -> int:
        """Of a broker's PRT."""
        key = (self.grid.cluster(node_id), symbol)
        if key not in self._matching:
            index = self.brokers[node_id].prt.index
            self._matching[key] = len(index.match_filters(TOPIC, lambda: attributes(symbol)))
        return self._matching[key]

    def _matched(self, node_id: str, sender: str, symbol: int) -> tuple[list[str], bool]:
        key = (node_id, sender, symbol)
        known = self._targets.get(key)
        if known is None:
            at = (self.grid.cluster(node_id), symbol)
            if at not in self._homes:  # the PRTs of a cluster are the same
                self._homes[at] = self.brokers[node_id].prt.match(TOPIC, lambda: attributes(symbol))
            view, homes = self.brokers[node_id].view, self._homes[at]
            hops = {view.next_hop(home) for home in homes} - {None, sender}
            targets = [hop for hop in view.primary.values() if hop in hops]
            known = self._targets[key] = (targets, node_id in homes)
        return known


def _nobody(node_id: str, what: Any, at: float) -> None:
    """Nobody asks."""
