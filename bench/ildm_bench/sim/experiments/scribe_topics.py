"""Topics of equal size in Scribe, their members anywhere in the DHT."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ildm_bench.sim.experiments.thesis.paths import Pattern
from ildm_bench.sim.experiments.topics import Integers
from ildm_bench.sim.scribe import Forest, Scribe
from ildm_bench.sim.tables import random_vectors


@dataclass(frozen=True)
class ScribeTopics:
    """``publishers`` and ``subscribers``: int64[topics, members], nodes; no node has two parts."""

    publishers: Integers
    subscribers: Integers
    forest: Forest


def scribe_topics(
    generator: np.random.Generator, nodes: int, count: int, publishers: int, subscribers: int
) -> ScribeTopics:
    """A DHT of random ids, in it topics of random ids with members drawn at random."""
    scribe = Scribe(random_vectors(generator, nodes))
    size = publishers + subscribers
    members = generator.permutation(nodes)[: count * size].reshape(count, size)
    joining = members[:, publishers:]
    forest = scribe.forest(
        random_vectors(generator, count), joining.ravel(), np.repeat(np.arange(count), subscribers)
    )
    return ScribeTopics(members[:, :publishers], joining, forest)


def scribe_lengths(generator: np.random.Generator, pattern: Pattern, nodes: int) -> tuple[Integers, Integers]:
    """int64[topics, longest + 1] twice: pairs of publisher and subscriber of each topic by hops between them,
    and by hops in the tree alone, without the one to its root."""
    count = nodes // pattern.size
    topics = scribe_topics(generator, nodes, count, pattern.publishers, pattern.subscribers)
    depth = topics.forest.depth.reshape(count, pattern.subscribers)
    deepest = int(depth.max(initial=0)) + 1
    cells = np.arange(count)[:, None] * deepest + depth
    depths = np.bincount(cells.ravel(), minlength=count * deepest).reshape(count, deepest)
    at_root = (topics.publishers == topics.forest.roots[:, None]).sum(axis=1)[:, None]
    lengths, inside = np.zeros((2, count, deepest + 1), np.int64)
    lengths[:, 1:] += depths * (pattern.publishers - at_root)
    lengths[:, :-1] += depths * at_root
    inside[:, :-1] = depths * pattern.publishers
    return lengths, inside
