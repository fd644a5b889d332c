"""Publications that are followed through a grid, hop by hop."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from ildm_algorithms.octopia.grid.routing import NOBODY, Copy, Routed, idr, spr
from ildm_algorithms.octopia.grid.scot import Grid, Place, View

ROUTING = {"spr": spr, "idr": idr}


def grid_of(regions: str, clusters: int) -> Grid:
    """``grid_of("a-b b-c", 3)``: all places are filled, by nodes named ``a0``, ``a1`` and so on."""
    names = [str(index) for index in range(clusters)]
    edges = regions.split()
    labels = sorted({label for edge in edges for label in edge.split("-")})
    return Grid(edges, names, {f"{label}{name}": Place(label, name) for label in labels for name in names})


class Links:
    """What one node knows of its links: queues by neighbour, which are congested, which are down."""

    def __init__(
        self, queues: Mapping[str, float] = {}, congested: Collection[str] = (), down: Collection[str] = ()
    ) -> None:
        self.queues = queues
        self.hot = congested
        self.down = down

    def usable(self, node_id: str) -> bool:
        return node_id not in self.down

    def queued(self, node_id: str) -> float:
        return self.queues.get(node_id, 0.0)

    def congested(self, node_id: str) -> bool:
        return node_id in self.hot


class Hop(NamedTuple):
    sender: str
    copy: Copy

    def __str__(self) -> str:
        bits = "".join("01"[index in self.copy.clusters] for index in reversed(range(4)))
        return f"{self.sender}>{self.copy.to}" + (f" {bits}" if self.copy.clusters else "")


class Spread(NamedTuple):
    """What came of one publication."""

    hops: list[Hop]
    undeliverable: frozenset[int]

    def __str__(self) -> str:
        return ", ".join(map(str, self.hops))


class Routes:
    """Follows a publication through a grid whose matching places are given.

    Args:
        links: what each node knows; nodes that are not named have empty queues.
        dead: nodes that all know to be dead.
    """

    def __init__(
        self, grid: Grid, routing: str = "spr", links: Mapping[str, Any] = {}, dead: Collection[str] = ()
    ) -> None:
        self.grid = grid
        self.route = ROUTING[routing]
        self.links = links
        self.dead = frozenset(dead)
        self._views: dict[str, View] = {}

    def view(self, node_id: str) -> View:
        if node_id not in self._views:
            self._views[node_id] = View(self.grid, node_id, self.dead)
        return self._views[node_id]

    def publish(self, node_id: str, matching: Collection[str], wanted: Iterable[int] | None = None) -> Spread:
        """
        Args:
            matching: nodes with subscriptions that match.
            wanted: clusters whose bits are set; None: those of ``matching``.
        """
        here = self.view(node_id)
        if wanted is None:
            wanted = {self.grid.cluster(home) for home in matching}
        hops: list[Hop] = []
        undeliverable = NOBODY
        waiting = deque([Hop("", Copy(node_id, frozenset(wanted) - {here.cluster}))])
        while waiting:
            sender, copy = waiting.popleft()
            at = self.view(copy.to)
            homes = () if copy.tried else matching
            targets = {hop for home in homes if (hop := at.next_hop(home)) not in (None, sender)}
            done = self._routed(at, targets, copy)
            undeliverable |= done.undeliverable
            new = [Hop(copy.to, each) for each in done.copies]
            hops += new
            waiting.extend(new)
        return Spread(hops, undeliverable)

    def _routed(self, at: View, targets: Collection[Any], copy: Copy) -> Routed:
        links = self.links.get(at.node_id) or Links()
        return self.route(at, targets, copy.clusters, links, copy.tried)
