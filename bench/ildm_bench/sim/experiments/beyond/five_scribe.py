"""Scribe's trees with the delays of the other algorithms, over converged tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from ildm_bench.sim.experiments.beyond.five_sites import DISTANCES, NEAR, PROCESSING, SENDING, regions
from ildm_bench.sim.experiments.thesis.table_sizes import Interests, scribe_entries
from ildm_bench.sim.experiments.topics import SCRIBE
from ildm_bench.sim.scribe import Forest, Scribe
from ildm_bench.sim.tables import random_vectors


def scribe_rows(
    distance: str, nodes: int, counts: Sequence[int], seed: int
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A row for each topic, and that of the sites, whose upkeep is not known: -1."""
    generator = np.random.default_rng(seed)
    places = regions(nodes, seed)
    scribe = Scribe(random_vectors(generator, nodes))
    rows, members = [], []
    for topic, count in enumerate(counts):
        publisher, *subscribers = (int(one) for one in generator.choice(nodes, count + 1, replace=False))
        forest = scribe.forest(random_vectors(generator, 1), subscribers, np.zeros(count, np.int32))
        arrivals = arrival(forest, publisher, places, DISTANCES[distance])
        delays = [1000 * arrivals[node][0] for node in subscribers]
        rows.append(
            {
                "method": SCRIBE,
                "distance": distance,
                "subscribers": count,
                "messages": float(forest.messages_from([publisher], [0])[0]),
                "crossing": float(crossings(forest, publisher, places)),
                "delivered": 1.0,
                "hops": float(np.mean([arrivals[node][1] for node in subscribers])),
                "mean_ms": float(np.mean(delays)),
                "worst_ms": max(delays),
            }
        )
        members += [(publisher, topic, True), *((node, topic, False) for node in subscribers)]
    node, topics, publishes = (np.array(column) for column in zip(*members, strict=True))
    entries = scribe_entries(generator, Interests(nodes, len(counts), node, topics, publishes))["with DHT"][1]
    return rows, {
        "method": SCRIBE,
        "entries": float(entries.mean()),
        "upkeep": -1.0,
        "distance": distance,
    }


def crossings(forest: Forest, publisher: int, places: Sequence[int]) -> int:
    """Messages of one publish that go from region to region."""
    place = np.asarray(places)
    first = place[publisher] != place[forest.roots[0]]
    return int((place[forest.parent] != place[forest.child]).sum() + first)


def arrival(
    forest: Forest, publisher: int, places: Sequence[int], between: float
) -> dict[int, tuple[float, int]]:
    """Seconds and hops from the publisher to each node of the first topic's tree.

    A node handles a message for ``PROCESSING`` seconds and then sends its copies, one after the other.
    """

    def delay(one: int, other: int) -> float:
        return NEAR if places[one] == places[other] else between

    children: dict[int, list[int]] = defaultdict(list)
    for parent, child in zip(forest.parent.tolist(), forest.child.tolist(), strict=True):
        children[parent].append(child)
    root = int(forest.roots[0])
    found = {root: (0.0, 0)}
    if root != publisher:
        found[root] = (SENDING + delay(publisher, root) + PROCESSING, 1)
    waiting = [root]
    while waiting:
        node = waiting.pop()
        time, hops = found[node]
        for place, child in enumerate(children[node], 1):
            found[child] = (time + place * SENDING + delay(node, child) + PROCESSING, hops + 1)
            waiting.append(child)
    return found
