"""Which copies of a publication leave a node (OctopiA, Algorithms 3 and 4), as pure functions.

Static routing (SPR) sends a copy over each target link. Dynamic routing (IDR) lets one of the copies carry
the clusters whose iLinks are congested, as ``clusters`` (CIV_p), and the receiver serves them. The paper
leaves open what to do if an iLink is *down*: here both do so. If no target link is left, a copy for the
clusters alone looks for a way through the cluster (a *search*).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Set
from typing import NamedTuple, Protocol

from ildm_algorithms.octopia.grid.scot import View

NOBODY: frozenset[int] = frozenset()


class Copy(NamedTuple):
    """One copy, to a neighbour."""

    to: str
    clusters: frozenset[int] = NOBODY
    """Indices of the clusters that this copy still has to serve beside the receiver's own (CIV_p)."""
    tried: tuple[str, ...] = ()
    """Not empty: a search. The receiver does nothing for its own cluster with this copy; these regions of
    it were visited, in this order."""


class Routed(NamedTuple):
    """Copies of a publication that leave a node."""

    copies: list[Copy]
    undeliverable: frozenset[int] = NOBODY
    """Clusters that no way leads to from anywhere in this cluster."""


class Load(Protocol):
    """The links of a node, by the neighbour's id."""

    def usable(self, node_id: str) -> bool:
        """Whether anything can be sent there."""

    def queued(self, node_id: str) -> float:
        """Messages in the output queue."""

    def congested(self, node_id: str) -> bool:
        """By Eq. 3."""


def spr(
    here: View, targets: Collection[str], clusters: Set[int], load: Load, tried: tuple[str, ...] = ()
) -> Routed:
    """Static publication routing: reroutes where links are down alone.

    Args:
        targets: primary neighbours on the way to matching subscriptions, without the sender.
        clusters: indices of clusters to serve: at the publisher's node those whose bits are set, elsewhere
            what the copy carried.
        tried: of the copy; a search has no ``targets``.
    """
    return _routed(here, targets, clusters, load, load.usable, tried)


def idr(
    here: View, targets: Collection[str], clusters: Set[int], load: Load, tried: tuple[str, ...] = ()
) -> Routed:
    """Inter-cluster dynamic routing: goes round congested iLinks, too; otherwise like :func:`spr`."""
    return _routed(
        here,
        targets,
        clusters,
        load,
        lambda node_id: load.usable(node_id) and not load.congested(node_id),
        tried,
    )


def _routed(
    here: View,
    targets: Collection[str],
    clusters: Set[int],
    load: Load,
    free: Callable[[str], bool],
    tried: tuple[str, ...],
) -> Routed:
    along = [node_id for node_id in here.primary.values() if node_id in targets]
    asked = sorted(clusters - {here.cluster})
    across = [index for index in asked if index in here.secondary and free(here.secondary[index])]
    rest = [index for index in asked if index not in across]
    if not rest:
        return Routed([*map(Copy, along), *(Copy(here.secondary[index]) for index in across)])
    undeliverable = NOBODY
    search: list[Copy] = []
    carrier = _least(load, (here.secondary[index] for index in across))  # case I
    if carrier is None:
        carrier = _least(load, filter(free, along))  # case II
    if carrier is None:
        carrier = _least(load, filter(load.usable, (here.secondary[i] for i in rest if i in here.secondary)))
        if carrier is not None:  # case III
            index = next(i for i in rest if here.secondary.get(i) == carrier)
            across.append(index)
            rest.remove(index)
    if carrier is None:
        carrier = _least(load, filter(load.usable, along))
    if carrier is None:
        if step := _step(here, load, tried):
            to, visited = step
            search = [Copy(to, frozenset(rest), visited)]
        else:
            undeliverable = frozenset(rest)
    copies = [
        Copy(node_id, frozenset(rest) if node_id == carrier else NOBODY)
        for node_id in (*along, *(here.secondary[index] for index in across))
    ]
    return Routed(copies + search, undeliverable)


def _least(load: Load, nodes: Iterable[str]) -> str | None:
    """The first of the nodes with the shortest queue; None: there are none."""
    return min(nodes, key=load.queued, default=None)


def _step(here: View, load: Load, tried: tuple[str, ...]) -> tuple[str, tuple[str, ...]] | None:
    """The next node of a depth-first search through the tree of this cluster, and the regions visited.

    A node was reached from the only neighbour that was visited before it. So the regions in order are all
    that a search has to remember.
    """
    visited = tried if here.region in tried else (*tried, here.region)
    new = [node_id for region, node_id in here.primary.items() if region not in visited]
    near = _least(load, filter(load.usable, new))
    if near is not None:
        return near, visited
    before = visited[: visited.index(here.region)]
    back = [here.primary[region] for region in before if region in here.primary]
    return (back[0], visited) if back and load.usable(back[0]) else None
