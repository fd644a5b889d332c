"""Where nodes are, and what that means for a message: clusters in clusters, as STLA has them (IV-A, V-A).

A place is one number for each node: clusters of the lowest layer, counted through the whole hierarchy, so
numbers compare as the paths of clusters (FQCI) do, and the first cluster of a cluster has its own number
times the number of its children. Latencies are in ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ildm_bench.sim.routing import Tree, spread
from ildm_bench.sim.tables import NONE, Counts, Ranks, build, random_vectors

Distribution = Literal["uniform", "Zipf"]
Times = npt.NDArray[np.float64]

SIGMA = 0.1
"""Standard deviation of a hop's latency, as part of its mean; the paper does not state it."""


@dataclass(frozen=True)
class Hierarchy:
    """Clusters in clusters. Layer 0 is the world, those of layer i lie in clusters of layer i-1."""

    children: tuple[int, ...]
    """For each layer from 0: how many clusters lie in one of it; the last holds nodes."""
    latency: tuple[float, ...]
    """For each layer from 0 to the lowest: mean of a hop between nodes without a deeper cluster in common."""

    @property
    def layers(self) -> int:
        """The world and all below."""
        return len(self.children) + 1

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """For each layer: how many clusters of the lowest layer a cluster of it has."""
        return tuple(prod(self.children[layer:]) for layer in range(self.layers))

    def clusters(self, layer: int) -> int:
        """|L_i| of the paper."""
        return prod(self.children[:layer])

    def cluster(self, places: Counts, layer: int) -> Counts:
        """int64[nodes]: the cluster of a layer each place is in."""
        found: Counts = places // self.sizes[layer]
        return found

    def deepest(self, one: Counts, other: Counts) -> Counts:
        """int64[pairs]: the layer of the deepest cluster both places are in."""
        alike = [self.cluster(one, layer) == self.cluster(other, layer) for layer in range(1, self.layers)]
        layers: Counts = np.sum(alike, axis=0, dtype=np.int64)
        return layers

    def draw(self, generator: np.random.Generator, nodes: int, distribution: Distribution) -> Counts:
        """int64[nodes]: independent places.

        ``Zipf``: of the clusters in one cluster the i-th most popular has the weight 1/i, at every layer.
        Which one that is, is random: order and popularity of clusters have nothing to do with each other.
        """
        places = np.zeros(nodes, np.int64)
        for layer, children in enumerate(self.children):
            if distribution == "uniform":
                chosen = generator.integers(0, children, nodes)
            else:
                weights = 1 / np.arange(1, children + 1)
                popularity = generator.choice(children, nodes, p=weights / weights.sum())
                parents = self.clusters(layer)
                ids = generator.permuted(np.tile(np.arange(children), (parents, 1)), axis=1)
                chosen = ids[places, popularity]
            places = places * children + chosen
        return places

    def hops(self, generator: np.random.Generator, one: Counts, other: Counts) -> Times:
        """float64[pairs]: latencies of single messages, Gaussian and not below 0."""
        mean = np.asarray(self.latency)[self.deepest(one, other)]
        return np.maximum(generator.normal(mean, SIGMA * mean), 0.0)


# one publish --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Route:
    """The messages that carry one publish to all subscribers, each to another one of them.

    In the order of their depth: the receiver's rank, the index of the message before it (``NONE``: it comes
    from the publisher), depth (1 for those), and the places of both ends.
    """

    ranks: Ranks
    parent: Ranks
    depth: Ranks
    sender: Counts
    receiver: Counts

    def layers(self, hierarchy: Hierarchy) -> Counts:
        """int64[layers]: messages by the deepest layer with a cluster that both ends are in."""
        return np.bincount(hierarchy.deepest(self.sender, self.receiver), minlength=hierarchy.layers)

    def times(self, hierarchy: Hierarchy, generator: np.random.Generator, per_hop: float = 0.0) -> Times:
        """float64[messages]: when each arrives, in ms from the publish; ``per_hop``: ms at each receiver."""
        return summed(self, hierarchy.hops(generator, self.sender, self.receiver) + per_hop)


def summed(route: Route, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """[messages]: each message's value and those of all before it on its path."""
    total = values.copy()
    edges = np.flatnonzero(np.diff(route.depth)) + 1
    for wave in np.split(np.arange(total.size), edges)[1:]:
        total[wave] += total[route.parent[wave]]
    return total


def routed(tree: Tree, places: Counts, publisher: int) -> Route:
    """The messages of a tree; the first goes from the publisher's place to where the tree begins."""
    receiver = places[tree.ranks]
    sender = np.where(tree.parent == NONE, publisher, receiver[tree.parent])
    depth = tree.depth - tree.depth.min(initial=0) + np.int32(1)
    return Route(tree.ranks, tree.parent, depth, sender, receiver)


def from_publisher(generator: np.random.Generator, places: Counts, publisher: int) -> Route:
    """Straight over the graph from the publisher's key, behind those of the subscribers, as in SG-TBPS.

    ``places``: of the subscribers in the order of their keys.
    """
    graph = build(np.arange(places.size + 1), random_vectors(generator, places.size + 1))
    return routed(spread(graph, places.size, 0, places.size, "sfb"), places, publisher)


def from_start(generator: np.random.Generator, hierarchy: Hierarchy, places: Counts, publisher: int) -> Route:
    """STLA: by way of the start node. ``places``: of the subscribers, ascending."""
    graph = build(np.arange(places.size), random_vectors(generator, places.size))
    start = start_of(hierarchy, places, publisher, generator)
    return routed(spread(graph, start, 0, graph.keys, "sfb"), places, publisher)


def start_of(
    hierarchy: Hierarchy, places: Sequence[int] | Counts, publisher: int, generator: np.random.Generator
) -> int:
    """Rank of the start node of a publisher: as :func:`ildm_algorithms.stla.start.nearest`, among sorted
    places.

    Node ids decide among equal places, so that of the publisher lies anywhere between them.
    """
    first, last = (int(np.searchsorted(places, publisher, side)) for side in ("left", "right"))
    after = int(generator.integers(first, last + 1))
    near = [rank for rank in (after - 1, after) if 0 <= rank < len(places)]
    here = np.full(len(near), publisher)
    return near[int(np.argmax(hierarchy.deepest(np.asarray(places)[near], here)))]
