"""What T3.14 and T3.15 share: sizes of routing tables (thesis 3.4.4)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ildm_bench.sim.experiments.topics import Integers
from ildm_bench.sim.scribe import Scribe
from ildm_bench.sim.tables import NONE, build, distinct, neighbor_counts, random_vectors, table_sizes


class Interests(NamedTuple):
    """Who takes part in what: int64[parts] each, ``publishes`` bool[parts]; nodes 0..nodes-1."""

    nodes: int
    topics: int
    node: Integers
    topic: Integers
    publishes: NDArray[np.bool_]


def skip_graph_entries(
    generator: np.random.Generator, interests: Interests, unique: bool
) -> tuple[Integers, ...]:
    """int64[nodes]: entries of each node's tables, and if ``unique`` the different nodes among them."""
    order = np.lexsort((interests.node, interests.publishes, interests.topic))
    graph = build(interests.node[order], random_vectors(generator, interests.nodes))
    return (table_sizes(graph), neighbor_counts(graph)) if unique else (table_sizes(graph),)


def scribe_entries(
    generator: np.random.Generator, interests: Interests
) -> dict[str, tuple[Integers, Integers]]:
    """int64[nodes] twice, entries with and without redundancy: of the topics alone, that is children tables
    and roots that publishers know (thesis 3.2.2), and with the tables of the DHT."""
    scribe = Scribe(random_vectors(generator, interests.nodes))
    joining = ~interests.publishes
    forest = scribe.forest(
        random_vectors(generator, interests.topics), interests.node[joining], interests.topic[joining]
    )
    known = interests.node[interests.publishes]
    roots = forest.roots[interests.topic[interests.publishes]].astype(np.int64)
    away = known != roots
    cached = known[away] * interests.nodes + roots[away]
    children = forest.parent.astype(np.int64) * interests.nodes + forest.child
    topical = np.concatenate([cached, children])
    whole = np.concatenate([topical, _dht_pairs(scribe)])
    return {
        "topics": _counted(topical, interests.nodes),
        "with DHT": _counted(whole, interests.nodes),
    }


def _dht_pairs(scribe: Scribe) -> Integers:
    """Node and neighbour of each entry, as node x nodes + neighbour."""
    graph = build(np.arange(scribe.nodes), scribe.vectors)
    parts = []
    for side in (graph.left, graph.right):
        for row in side:
            here = np.flatnonzero(row != NONE)
            parts.append(here * scribe.nodes + row[here])
    return np.concatenate(parts)


def _counted(pairs: Integers, nodes: int) -> tuple[Integers, Integers]:
    every = np.bincount(pairs // nodes, minlength=nodes)
    return every, np.bincount(distinct(pairs) // nodes, minlength=nodes)
