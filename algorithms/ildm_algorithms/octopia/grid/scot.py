"""The structured cyclic overlay (OctopiA, sections 3 and 4): a tree of regions times a full mesh of clusters.

A node stands where a region and a cluster cross. Nodes of a cluster are linked as the tree of regions says
(aLinks, *primary* neighbours), nodes of a region each with each (iLinks, *secondary* neighbours).
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from ildm.mqtt.errors import IldmError

DIGEST_BYTES = 16


class GridError(IldmError):
    """The grid of regions and clusters makes no sense; says what is wrong, and where."""


class Place(NamedTuple):
    """Where a node stands. Text: ``region/cluster``."""

    region: str
    cluster: str

    @classmethod
    def parse(cls, text: str) -> Place:
        """
        Raises:
            GridError: it is not ``region/cluster``.
        """
        region, slash, cluster = text.partition("/")
        if not (slash and region and cluster) or "/" in cluster:
            raise GridError(f"members: a place is written region/cluster, not {text!r}")
        return cls(region, cluster)

    def __str__(self) -> str:
        return f"{self.region}/{self.cluster}"


class Grid:
    """The whole overlay as its configuration says; the same at all nodes.

    Places without a member are allowed: clusters may differ in size.

    Args:
        regions: edges ``a-b`` of their tree; a region that is alone stands for itself.
        clusters: their names; a cluster's place in this list is its index.
        members: place of each node, by id; a place holds one node.

    Attributes:
        regions: their labels in order, each with its neighbours in the tree, in order.
        digest: ``DIGEST_BYTES`` bytes, equal where the grid is, however it was written down.

    Raises:
        GridError: names the edge, cluster or member that is wrong.
    """

    def __init__(self, regions: Sequence[str], clusters: Sequence[str], members: Mapping[str, Place]) -> None:
        self.regions: dict[str, tuple[str, ...]] = _tree(regions)
        self._labels = list(self.regions)
        self.clusters: tuple[str, ...] = _clusters(clusters)
        self.members: dict[str, Place] = dict(members)
        self._index = {name: index for index, name in enumerate(self.clusters)}
        self._at: dict[Place, str] = {}
        for node_id, place in self.members.items():
            if place.region not in self.regions:
                known = ", ".join(self.regions)
                raise GridError(f"members: {node_id!r} is in region {place.region!r}; regions has {known}")
            if place.cluster not in self._index:
                known = ", ".join(self.clusters)
                raise GridError(f"members: {node_id!r} is in cluster {place.cluster!r}; clusters has {known}")
            if place in self._at:
                raise GridError(f"members: {self._at[place]!r} and {node_id!r} are both at {place}")
            self._at[place] = node_id
        self.digest = self._digested()

    def place(self, node_id: str) -> Place:
        """
        Raises:
            GridError: it is no member.
        """
        try:
            return self.members[node_id]
        except KeyError:
            raise GridError(f"node {node_id!r} is no member of the grid") from None

    def cluster(self, node_id: str) -> int:
        """Index of a member's cluster.

        Raises:
            GridError: it is no member.
        """
        return self._index[self.place(node_id).cluster]

    def at(self, region: str, cluster: int) -> str | None:
        """The member at a place; None: nobody."""
        return self._at.get(Place(region, self.clusters[cluster]))

    def cluster_indices(self, numbers: Iterable[int]) -> frozenset[int]:
        """The same numbers, if they are indices of clusters.

        Raises:
            GridError: there are not so many clusters.
        """
        found = frozenset(numbers)
        if found and max(found) >= len(self.clusters):
            raise GridError(f"cluster {max(found)} of {len(self.clusters)}")
        return found

    def region_names(self, numbers: Iterable[int]) -> tuple[str, ...]:
        """Regions by their place among the labels.

        Raises:
            GridError: there are not so many regions.
        """
        found = tuple(numbers)
        if found and max(found) >= len(self._labels):
            raise GridError(f"region {max(found)} of {len(self._labels)}")
        return tuple(self._labels[number] for number in found)

    def region_numbers(self, names: Iterable[str]) -> tuple[int, ...]:
        """Places of regions among the labels."""
        return tuple(map(self._labels.index, names))

    def _digested(self) -> bytes:
        edges = sorted([a, b] for a, near in self.regions.items() for b in near if a < b)
        whole = [[*self.regions], edges, self.clusters, sorted(self.members.items())]
        return hashlib.blake2b(json.dumps(whole).encode(), digest_size=DIGEST_BYTES).digest()


def _tree(edges: Sequence[str]) -> dict[str, tuple[str, ...]]:
    near: dict[str, set[str]] = {}
    joined: dict[str, str] = {}  # a label of the same part of the tree

    def root(label: str) -> str:
        while joined[label] != label:
            label = joined[label]
        return label

    for edge in edges:
        labels = edge.split("-")
        if len(labels) > 2 or not all(labels) or "/" in edge:
            raise GridError(f"regions: an edge is written a-b, not {edge!r}")
        for label in labels:
            near.setdefault(label, set())
            joined.setdefault(label, label)
        if len(labels) == 2:
            a, b = labels
            if root(a) == root(b):
                raise GridError(f"regions: edge {edge!r} closes a cycle, and they have to be a tree")
            near[a].add(b)
            near[b].add(a)
            joined[root(b)] = root(a)
    if not near:
        raise GridError("there are no regions")
    roots = sorted({root(label) for label in near})
    if len(roots) > 1:
        raise GridError(f"regions: no edges join {roots[0]!r} and {roots[1]!r}")
    return {label: tuple(sorted(near[label])) for label in sorted(near)}


def _clusters(names: Sequence[str]) -> tuple[str, ...]:
    if not names:
        raise GridError("there are no clusters")
    for at, name in enumerate(names):
        if not name or "/" in name:
            raise GridError(f"clusters: none can be named {name!r}")
        if name in names[:at]:
            raise GridError(f"clusters: {name!r} is listed twice")
    return tuple(names)


def contracted(regions: Mapping[str, Iterable[str]], live: Set[str]) -> dict[str, tuple[str, ...]]:
    """The tree of those regions of a cluster where somebody lives.

    Around each part of dead regions that hang together, the live ones link to the least-labelled of them.
    The result is a tree, and the same in whatever order they died.

    Args:
        regions: the tree: each label with its neighbours.
        live: labels that remain.

    Returns:
        Each live label with its neighbours, in order.
    """
    near: dict[str, set[str]] = {label: {n for n in regions[label] if n in live} for label in sorted(live)}
    seen: set[str] = set()
    for label in regions:
        if label in live or label in seen:
            continue
        around: set[str] = set()
        waiting = [label]
        seen.add(label)
        while waiting:
            for neighbor in regions[waiting.pop()]:
                if neighbor in live:
                    around.add(neighbor)
                elif neighbor not in seen:
                    seen.add(neighbor)
                    waiting.append(neighbor)
        least = min(around, default="")
        for other in around - {least}:
            near[least].add(other)
            near[other].add(least)
    return {label: tuple(sorted(found)) for label, found in near.items()}


class View:
    """The grid as one node sees it while some nodes are dead.

    Attributes:
        region: its own.
        cluster: index of its own.
        primary: live neighbours of its cluster by region, in the order of their labels.
        secondary: live neighbours of its region by index of their cluster, in order.
        cluster_members: live nodes of its cluster by region, itself among them.

    Raises:
        GridError: the node is no member.
    """

    def __init__(self, grid: Grid, node_id: str, dead: Set[str] = frozenset()) -> None:
        self.grid = grid
        self.node_id = node_id
        self.dead = frozenset(dead) - {node_id}
        self.region = grid.place(node_id).region
        self.cluster = grid.cluster(node_id)
        self.cluster_members: dict[str, str] = {
            region: member
            for region in grid.regions
            if (member := grid.at(region, self.cluster)) is not None and member not in self.dead
        }
        self.tree: dict[str, tuple[str, ...]] = contracted(grid.regions, self.cluster_members.keys())
        """Regions of ``cluster_members``, each with its neighbours in the contracted tree."""
        self.primary: dict[str, str] = {
            region: self.cluster_members[region] for region in self.tree[self.region]
        }
        self.secondary: dict[int, str] = {
            index: member
            for index in range(len(grid.clusters))
            if index != self.cluster
            and (member := grid.at(self.region, index)) is not None
            and member not in self.dead
        }
        self._next: dict[str, str] = self._hops()

    def next_hop(self, home: str) -> str | None:
        """The primary neighbour on the way to a node of this cluster; None: it is this node, is dead, or
        is elsewhere."""
        return self._next.get(home)

    def hops(self, homes: Iterable[str]) -> set[str]:
        """The primary neighbours on the way to nodes, as far as they are alive and in this cluster."""
        return {self._next[home] for home in homes if home in self._next}

    def _hops(self) -> dict[str, str]:
        found: dict[str, str] = {}
        waiting: deque[tuple[str, str, str]] = deque(
            (region, self.region, node_id) for region, node_id in self.primary.items()
        )
        while waiting:
            region, before, first = waiting.popleft()
            found[self.cluster_members[region]] = first
            waiting.extend((further, region, first) for further in self.tree[region] if further != before)
        return found
