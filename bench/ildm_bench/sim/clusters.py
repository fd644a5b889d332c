"""Where nodes are, and what that means for a message: clusters in clusters, as STLA has them (IV-A, V-A).

A place is one number for each node: clusters of the lowest layer, counted through the whole hierarchy, so
numbers compare as the paths of clusters (FQCI) do, and the first cluster of a cluster has its own number
times the number of its children. Latencies are in ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ildm_bench.sim.routing import Tree, spread, spread_many
from ildm_bench.sim.tables import NONE, Counts, Graph, Ranks, build, random_vectors

Distribution = Literal["uniform", "Zipf", "Zipf flat"]
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
        ``Zipf flat``: see `places`.
        """
        if distribution == "Zipf flat":
            return self.places(generator.random(nodes), distribution)
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

    def places(self, draws: Times, distribution: Literal["uniform", "Zipf flat"]) -> Counts:
        """int64[nodes]: the place of each draw from [0, 1); nodes are in the order of their draws.

        ``Zipf flat``: the i-th cluster of the lowest layer has the weight 1/i, counted through the whole
        hierarchy, so that most nodes are in the first cluster of each layer.
        """
        lowest = self.sizes[0]
        if distribution == "uniform":
            found: Counts = (draws * lowest).astype(np.int64)
        else:
            weights = np.cumsum(1 / np.arange(1, lowest + 1))
            found = np.searchsorted(weights / weights[-1], draws, "right").astype(np.int64)
        return np.minimum(found, lowest - 1)

    def hops(self, generator: np.random.Generator, one: Counts, other: Counts) -> Times:
        """float64[pairs]: latencies of single messages, Gaussian and not below 0."""
        mean = np.asarray(self.latency)[self.deepest(one, other)]
        return np.maximum(generator.normal(mean, SIGMA * mean), 0.0)


# one publish --------------------------------------------------------------------------------------


class Search(NamedTuple):
    """Messages one after another before the first that carries something: places of their ends."""

    sender: Counts
    receiver: Counts


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
    search: Search | None = None

    def layers(self, hierarchy: Hierarchy) -> Counts:
        """int64[layers]: messages by the deepest layer with a cluster that both ends are in."""
        return np.bincount(hierarchy.deepest(self.sender, self.receiver), minlength=hierarchy.layers)

    def times(self, hierarchy: Hierarchy, generator: np.random.Generator, per_hop: float = 0.0) -> Times:
        """float64[messages]: when each arrives, in ms from the publish or the search before it; ``per_hop``:
        ms at each receiver."""
        times: Times = summed(self, hierarchy.hops(generator, self.sender, self.receiver) + per_hop)
        if self.search is not None:
            times += (hierarchy.hops(generator, *self.search) + per_hop).sum()
        return times


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


def graph_of(generator: np.random.Generator, subscribers: int) -> Graph:
    """The keys of so many subscribers and, behind them, of the publisher."""
    return build(np.arange(subscribers + 1), random_vectors(generator, subscribers + 1))


def from_publisher(
    generator: np.random.Generator, places: Counts, publisher: int, graph: Graph | None = None
) -> Route:
    """Straight over the graph from the publisher's key, behind those of the subscribers, as in SG-TBPS.

    ``places``: of the subscribers in the order of their keys.
    """
    graph = graph or graph_of(generator, places.size)
    return routed(spread(graph, places.size, 0, places.size, "sfb"), places, publisher)


def from_end(graph: Graph, places: Counts, publisher: int) -> Route:
    """By way of the subscriber that is the publisher's left neighbour, at the end of the segment."""
    return routed(spread(graph, places.size - 1, 0, places.size, "sfb"), places, publisher)


def from_start(
    generator: np.random.Generator,
    hierarchy: Hierarchy,
    places: Counts,
    publisher: int,
    graph: Graph | None = None,
    *,
    before: int | None = None,
    search: bool = False,
) -> Route:
    """STLA: by way of the start node. ``places``: of the subscribers, ascending.

    ``before``: how many of them have lesser keys than the publisher would as a subscriber; None: drawn.
    ``search``: the publisher does not know the start node, and searches first (IV-D, steps 1 and 2).
    """
    graph = graph or graph_of(generator, places.size)
    if before is None:
        before = rank_of(places, publisher, generator)
    start = nearest_of(hierarchy, places, publisher, before)
    route = routed(spread(graph, start, 0, places.size, "sfb"), places, publisher)
    return replace(route, search=searched(graph, places, publisher, before)) if search else route


def from_heads(
    hierarchy: Hierarchy, places: Counts, publisher: int, graph: Graph, before: int, layer: int
) -> Route:
    """STLA with heads: one copy to each cluster of a layer, whose head spreads it to the others there.

    Heads are the first subscribers of their clusters, that of the publisher's the start node. They have a
    graph of their own, over which the start node sends to them; inside a cluster the graph is that of all.
    """
    start = nearest_of(hierarchy, places, publisher, before)
    first = np.flatnonzero(np.diff(hierarchy.cluster(places, layer), prepend=-1))
    last = np.append(first[1:], places.size)
    home = int(np.searchsorted(first, start, "right")) - 1
    heads = first.copy()
    heads[home] = start
    between = spread(build(np.arange(heads.size), graph.vectors[heads]), home, 0, heads.size, "sfb")
    inside = spread_many(graph, heads, first, last, "sfb")
    entries = np.flatnonzero(inside.parent == NONE)
    entry_of = np.empty(heads.size, np.int64)
    entry_of[np.searchsorted(first, inside.ranks[entries], "right") - 1] = entries
    parent, depth = inside.parent.astype(np.int64), inside.depth.astype(np.int64)
    deeper = np.empty(heads.size, np.int64)
    deeper[between.ranks] = between.depth
    depth += deeper[np.searchsorted(first, inside.ranks, "right") - 1]
    sent = between.parent != NONE
    parent[entry_of[between.ranks[sent]]] = entry_of[between.ranks[between.parent[sent]]]
    order = np.argsort(depth, kind="stable")
    place = np.empty(order.size + 1, np.int64)
    place[order], place[NONE] = np.arange(order.size), NONE
    tree = Tree(
        inside.ranks[order], depth[order].astype(np.int32), place[parent[order]].astype(np.int32), order.size
    )
    return routed(tree, places, publisher)


def searched(graph: Graph, places: Counts, publisher: int, before: int) -> Search:
    """From the publisher's key over the graph to the last key not above that of the publisher as a
    subscriber (to the first of all where there is none), and the answer straight back."""
    at, found, passed = graph.keys - 1, max(before - 1, 0), [publisher]
    while at > found:
        left = graph.left[:, at]
        at = int(left[np.flatnonzero(left >= found)[-1]])
        passed.append(int(places[at]))
    passed.append(publisher)
    return Search(np.array(passed[:-1]), np.array(passed[1:]))


def rank_of(places: Sequence[int] | Counts, publisher: int, generator: np.random.Generator) -> int:
    """How many subscribers, sorted by places, have lesser keys than the publisher would as one of them.

    Node ids decide among equal places, so that of the publisher lies anywhere between them.
    """
    first, last = (int(np.searchsorted(places, publisher, side)) for side in ("left", "right"))
    return int(generator.integers(first, last + 1))


def start_of(
    hierarchy: Hierarchy, places: Sequence[int] | Counts, publisher: int, generator: np.random.Generator
) -> int:
    """Rank of the start node of a publisher among sorted places."""
    return nearest_of(hierarchy, places, publisher, rank_of(places, publisher, generator))


def nearest_of(hierarchy: Hierarchy, places: Sequence[int] | Counts, publisher: int, before: int) -> int:
    """The same as :func:`ildm_algorithms.stla.start.nearest`, with ``before`` keys before its own."""
    near = [rank for rank in (before - 1, before) if 0 <= rank < len(places)]
    here = np.full(len(near), publisher)
    return near[int(np.argmax(hierarchy.deepest(np.asarray(places)[near], here)))]
