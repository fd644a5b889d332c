"""Topics in a graph of one key for each node: subscribers left of publishers (thesis 3.2.1)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ildm_bench.sim.routing import Routing, Spreads, spread, spread_many
from ildm_bench.sim.tables import NONE, Graph, build, random_vectors

Integers = NDArray[np.int64]

SG = "SG-TBPS"
SCRIBE = "Scribe"


@dataclass(frozen=True)
class Topics:
    """``count`` topics of equal size in the graph, the first from rank ``first`` on; ranks around are default
    keys. Each topic's subscribers come before its publishers."""

    graph: Graph
    first: int
    count: int
    publishers: int
    subscribers: int

    @property
    def lows(self) -> Integers:
        """Rank of the first key of each topic, that of its first subscriber."""
        return self.first + np.arange(self.count) * (self.publishers + self.subscribers)

    @property
    def highs(self) -> Integers:
        """Rank after the last subscriber of each topic: that of its rendezvous point."""
        return self.lows + self.subscribers

    def of_base_4(self) -> Topics:
        """The same topics in the Skip Graph whose vectors are read two bits at a time: every other level."""
        graph = self.graph
        left, right = (np.ascontiguousarray(side[::2]) for side in (graph.left, graph.right))
        return replace(self, graph=Graph(graph.owner, graph.vectors, left, right))

    def of_levels(self, levels: int) -> Topics:
        """The same topics in a Skip Graph of no more levels than that."""
        graph = self.graph
        return replace(
            self, graph=Graph(graph.owner, graph.vectors, graph.left[:levels], graph.right[:levels])
        )

    def publisher_ranks(self) -> Integers:
        """int64[count x publishers], topic by topic."""
        return (self.highs[:, None] + np.arange(self.publishers)).ravel()

    def publish(self, routing: Routing) -> Spreads:
        """One message of each publisher to its subscribers; queries in the order of `publisher_ranks`."""
        lows, highs = (np.repeat(ends, self.publishers) for ends in (self.lows, self.highs))
        return spread_many(self.graph, self.publisher_ranks(), lows, highs, routing)

    def suspended(self, topic: int) -> bool:
        """Whether the rendezvous point sees no subscriber: its left neighbour at level 0 is none."""
        left = int(self.graph.left[0][self.highs[topic]])
        return left == NONE or left < int(self.lows[topic])

    def signal(self, topic: int, routing: Routing) -> int:
        """Messages that suspend or resume a topic's publishers: from the rendezvous point to all of them."""
        point = int(self.highs[topic])
        return spread(self.graph, point, point, point + self.publishers, routing).messages


def topics_in(
    generator: np.random.Generator, nodes: int, count: int, publishers: int, subscribers: int
) -> Topics:
    """A graph of ``nodes`` nodes with random vectors; where it has room the topics begin at random.

    Raises:
        ValueError: they do not fit.
    """
    taken = count * (publishers + subscribers)
    if taken > nodes:
        raise ValueError(f"{count} topics of {publishers} + {subscribers} keys do not fit into {nodes} nodes")
    first = int(generator.integers(nodes - taken + 1))
    graph = build(np.arange(nodes), random_vectors(generator, nodes))
    return Topics(graph, first, count, publishers, subscribers)


def lengths_by_topic(topics: Topics, spreads: Spreads) -> Integers:
    """int64[count, longest + 1]: pairs of publisher and subscriber of each topic by hops between them."""
    depths = spreads.depths
    longest = int(spreads.hops.max(initial=0)) + depths.shape[1]
    found = np.zeros((topics.count, longest), np.int64)
    topic = np.arange(spreads.tree.size) // topics.publishers
    reached = spreads.tree != NONE
    keyed = np.stack([topic[reached], spreads.tree[reached], spreads.hops[reached]])
    (of, tree, hops), times = np.unique(keyed, axis=1, return_counts=True)
    for hop in np.unique(hops):
        here = hops == hop
        shifted = found[:, hop : hop + depths.shape[1]]
        np.add.at(shifted, of[here], depths[tree[here]] * times[here][:, None])
    return found
