"""What T3.9, T3.10 and T3.11 share: the patterns of Table 3.2 and the paths in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ildm_bench.sim.experiments.framework import Scale
from ildm_bench.sim.experiments.topics import Integers, lengths_by_topic, topics_in
from ildm_bench.sim.routing import Routing


class Pattern(NamedTuple):
    """A row of Table 3.2."""

    name: str
    publishers: int
    subscribers: int

    @property
    def size(self) -> int:
        return self.publishers + self.subscribers

    @property
    def label(self) -> str:
        return f"{self.name} ({self.publishers}, {self.subscribers})"


PATTERNS = (
    Pattern("alpha", 10, 990),
    Pattern("beta", 500, 500),
    Pattern("gamma", 990, 10),
    Pattern("delta", 1, 9),
    Pattern("epsilon", 5, 5),
    Pattern("zeta", 9, 1),
)
LARGE, SMALL = PATTERNS[:3], PATTERNS[3:]
TABLE = "(pub_t, sub_t) of Table 3.2: " + ", ".join(
    f"{pattern.name} ({pattern.publishers}, {pattern.subscribers})" for pattern in PATTERNS
)


def sizes(scale: Scale) -> tuple[int, ...]:
    """N: nodes of the overlay."""
    return (1_000, 10_000, 100_000) if scale == "full" else (1_000, 4_000)


def repeats(nodes: int, scale: Scale) -> int:
    """Graphs of a size that are looked at; one topic of 1,000 nodes says little about a thousand others."""
    return max(1, min(10, (100_000 if scale == "full" else 8_000) // nodes))


def skip_graph_lengths(
    generator: np.random.Generator, pattern: Pattern, nodes: int, routings: Sequence[Routing]
) -> dict[Routing, Integers]:
    """Pairs of a new graph by topic and hops, `lengths_by_topic` of each routing."""
    count = nodes // pattern.size
    topics = topics_in(generator, nodes, count, pattern.publishers, pattern.subscribers)
    return {routing: lengths_by_topic(topics, topics.publish(routing)) for routing in routings}


def length_rows(method: str, pattern: Pattern, nodes: int, repeat: int, lengths: Integers) -> pa.Table:
    """Rows: how many pairs of publisher and subscriber of a topic are so many hops apart."""
    topic, hops = np.nonzero(lengths)
    size = topic.size
    return pa.table(
        {
            "method": pa.array([method] * size, pa.string()),
            "pattern": pa.array([pattern.name] * size, pa.string()),
            "nodes": np.full(size, nodes, np.int32),
            "repeat": np.full(size, repeat, np.int32),
            "topic": topic.astype(np.int32),
            "hops": hops.astype(np.int32),
            "pairs": lengths[topic, hops],
        }
    )
