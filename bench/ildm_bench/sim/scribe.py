"""Scribe on the DHT of a Skip Graph (thesis 3.1.1, 3.4), over converged tables.

Nodes are sorted by name ids, given as positions 0..n-1; membership vectors are the numeric ids. A message
is routed by numeric id as in SkipNet: on the ring of level i to the right until a node shares one digit
more with the target, then up as many levels as it shares digits. In the highest ring that no node leaves
upwards it goes on to the node whose id is numerically closest to the target: the root. Each step on a ring
is a hop.

Where a message goes next depends on the node and the target only. So the JOINs of a topic make a tree without
any further rule, and its edges are the children tables.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ildm_bench.sim.tables import Counts, Ranks, Vectors, distinct, level_count, lists


@dataclass
class Forest:
    """The multicast trees of some topics.

    roots: int32[topics]. Per subscription: topic int32[subscriptions], depth int32[subscriptions], hops from
    the root. Per edge: edge_topic, parent, child: int32[edges], by topic and child.
    """

    nodes: int
    roots: Ranks
    topic: Ranks
    depth: Ranks
    edge_topic: Ranks
    parent: Ranks
    child: Ranks

    @property
    def topics(self) -> int:
        return int(self.roots.size)

    @property
    def messages(self) -> Counts:
        """int64[topics]: messages of one publication down the tree."""
        return np.bincount(self.edge_topic, minlength=self.topics)

    def messages_from(self, publishers: npt.ArrayLike, topics: npt.ArrayLike) -> Counts:
        """int64[publications]: messages of one publication each; publishers know the root (thesis 3.1.1)."""
        down: Counts = self.messages[np.asarray(topics)]
        return down + self._first_hops(publishers, topics)

    def path_lengths(self, publishers: npt.ArrayLike, topics: npt.ArrayLike) -> Counts:
        """int64[longest + 1]: pairs of a publisher and a subscriber of its topic, per hops between them."""
        deepest = int(self.depth.max(initial=0)) + 1
        cells = np.bincount(
            self.topic.astype(np.int64) * deepest + self.depth, minlength=self.topics * deepest
        )
        depths = cells.reshape(self.topics, deepest)
        first = self._first_hops(publishers, topics)
        lengths = np.zeros(deepest + 1, np.int64)
        for hops in (0, 1):
            shared = np.bincount(np.asarray(topics)[first == hops], minlength=self.topics)
            lengths[hops : hops + deepest] += shared @ depths
        return lengths[: int(np.flatnonzero(lengths).max(initial=0)) + 1]

    def children(self) -> Counts:
        """int64[nodes]: entries of each node's children tables, all topics together."""
        return np.bincount(self.parent, minlength=self.nodes)

    def child_nodes(self) -> Counts:
        """int64[nodes]: different nodes in each node's children tables."""
        merged = distinct(self.parent.astype(np.int64) * self.nodes + self.child)
        return np.bincount(merged // self.nodes, minlength=self.nodes)

    def forwarding(self, published: npt.ArrayLike) -> Counts:
        """int64[nodes]: copies each node sends down the trees; published: int[topics], publications.

        The message of a publisher to the root is not among them.
        """
        weights = np.asarray(published, np.float64)[self.edge_topic]
        return np.rint(np.bincount(self.parent, weights, minlength=self.nodes)).astype(np.int64)

    def _first_hops(self, publishers: npt.ArrayLike, topics: npt.ArrayLike) -> Ranks:
        roots: Ranks = self.roots[np.asarray(topics)]
        away: npt.NDArray[np.bool_] = roots != np.asarray(publishers)
        return away.astype(np.int32)


class Scribe:
    """The nodes of the DHT; vectors: uint64[nodes] in the order of name ids."""

    def __init__(self, vectors: npt.ArrayLike) -> None:
        self.vectors: Vectors = np.ascontiguousarray(vectors, np.uint64)
        if self.vectors.ndim != 1 or not self.vectors.size:
            raise ValueError("vectors must have one dimension and at least one node")
        self.ring = _rings(self.vectors)
        self._ascending = np.argsort(self.vectors, kind="stable").astype(np.int32)
        self._sorted = self.vectors[self._ascending]

    @property
    def nodes(self) -> int:
        return int(self.vectors.size)

    def roots(self, topics: npt.ArrayLike) -> Ranks:
        """int32[topics]: the node of the longest common prefix with each id, numerically closest among those.

        It is next to the id in numeric order: on one side all nodes differ from the id at the same digit.
        """
        ids = np.asarray(topics, np.uint64)
        after = np.searchsorted(self._sorted, ids)
        above = np.minimum(after, self.nodes - 1)
        below = np.maximum(after - 1, 0)
        upward = common_digits(self._sorted[above], ids) >= common_digits(self._sorted[below], ids)
        return self._ascending[np.where(upward, above, below)]

    def next_hops(self, nodes: npt.ArrayLike, ids: npt.ArrayLike) -> Ranks:
        """int32[messages]: where each message to an id goes from a node that is not its root."""
        at = np.asarray(nodes, np.int32)
        shared = common_digits(self.vectors[at], np.asarray(ids, np.uint64))
        to: Ranks = self.ring[np.minimum(shared, self.ring.shape[0] - 1), at]
        return to

    def forest(self, topics: npt.ArrayLike, subscribers: npt.ArrayLike, subscribed: npt.ArrayLike) -> Forest:
        """The trees that JOINs make.

        topics: uint64[topics], their ids. subscribers: int[subscriptions], the nodes that join; subscribed:
        int[subscriptions], the index of the topic each one joins. Raises ValueError for indices out of range.
        """
        ids = np.asarray(topics, np.uint64)
        nodes = np.asarray(subscribers, np.int32)
        topic = np.asarray(subscribed, np.int32)
        if nodes.shape != topic.shape:
            raise ValueError("subscribers and subscribed differ in length")
        if nodes.size and (int(nodes.min()) < 0 or int(nodes.max()) >= self.nodes):
            raise ValueError(f"a subscriber is not among the nodes 0..{self.nodes - 1}")
        if topic.size and (int(topic.min()) < 0 or int(topic.max()) >= ids.size):
            raise ValueError(f"a topic is not among 0..{ids.size - 1}")
        roots = self.roots(ids)
        depth = np.zeros(nodes.size, np.int32)
        edges = []
        going = np.flatnonzero(nodes != roots[topic])
        at = nodes[going]
        while going.size:
            to = topic[going]
            edges.append(to.astype(np.int64) * self.nodes + at)
            depth[going] += 1
            at = self.next_hops(at, ids[to])
            on = at != roots[to]
            going, at = going[on], at[on]
        joined = distinct(np.concatenate(edges)) if edges else np.empty(0, np.int64)
        edge_topic, child = (part.astype(np.int32) for part in np.divmod(joined, self.nodes))
        return Forest(
            self.nodes, roots, topic, depth, edge_topic, self.next_hops(child, ids[edge_topic]), child
        )

    def table_sizes(self) -> Counts:
        """int64[nodes]: neighbours in the DHT's own tables, one per level and side, rings seen as lines."""
        sizes = np.zeros(self.nodes, np.int64)
        owner = np.arange(self.nodes, dtype=np.int32)
        for order, linked in lists(owner, self.vectors, self.ring.shape[0]):
            sizes[order[linked]] += 1
            sizes[order[np.flatnonzero(linked) - 1]] += 1
        return sizes


def common_digits(first: Vectors, second: Vectors) -> Ranks:
    """int32[...]: leading bits that 64-bit ids share."""
    differ = first ^ second
    high, low = (
        (differ >> np.uint64(32)).astype(np.float64),
        (differ & np.uint64(0xFFFFFFFF)).astype(np.float64),
    )
    # Halves of 32 bits are exact as floats, so that the exponent is the bit length.
    digits = np.where(high > 0, 32 - np.frexp(high)[1], 64 - np.frexp(low)[1])
    return digits.astype(np.int32)


def _rings(vectors: Vectors) -> Ranks:
    """int32[levels, nodes]: the right neighbour on the ring of each level; a node alone points to itself."""
    owner = np.arange(vectors.size, dtype=np.int32)
    levels = level_count(owner, vectors)
    rings = np.tile(owner, (levels, 1))
    for level, (order, linked) in enumerate(lists(owner, vectors, levels)):
        ring = rings[level]
        behind = np.flatnonzero(linked)
        ring[order[behind - 1]] = order[behind]
        starts = np.flatnonzero(~linked)
        if starts.size:
            ring[order[np.append(starts[1:], order.size) - 1]] = order[starts]
    return rings
