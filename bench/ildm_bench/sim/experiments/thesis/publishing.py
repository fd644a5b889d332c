"""What T3.7 and T3.8 share: a topic that loses its subscribers, and what publishing costs (thesis 3.4.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ildm_bench.sim.experiments.framework import Say, Scale
from ildm_bench.sim.experiments.topics import SCRIBE, SG, topics_in
from ildm_bench.sim.scribe import Scribe
from ildm_bench.sim.tables import random_vectors

PUBLISHERS = (10, 100)
REPEATS = 5
METHODS = (SG, SCRIBE)


def nodes_of(scale: Scale) -> int:
    """Nodes of the overlay."""
    return 100_000 if scale == "full" else 5_000


def subscriber_counts(scale: Scale) -> tuple[int, ...]:
    """How many subscribers are left when the publishers publish, without the 0 of T3.8."""
    return (1_000, 100, 10) if scale == "full" else (200, 50, 10)


def publish_rows(scale: Scale, seed: int, counts: Sequence[int], say: Say) -> list[dict[str, Any]]:
    """A row for each message published: the messages it costs on the overlay."""
    generator = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for publishers in PUBLISHERS:
        for repeat in range(REPEATS):
            say(f"{publishers} publishers, repeat {repeat + 1}")
            scribe = _scribe(generator, nodes_of(scale), publishers, max(counts), counts)
            for count in counts:
                proposed = _proposed(generator, nodes_of(scale), publishers, count)
                rows += [
                    {
                        "method": method,
                        "publishers": publishers,
                        "subscribers": count,
                        "repeat": repeat,
                        "publisher": publisher,
                        "messages": int(messages),
                    }
                    for method, found in ((SG, proposed), (SCRIBE, scribe[count]))
                    for publisher, messages in enumerate(found)
                ]
    return rows


def _proposed(generator: np.random.Generator, nodes: int, publishers: int, subscribers: int) -> Sequence[int]:
    """Messages of each publisher, none of them suspended. Those who unsubscribed have a default key somewhere
    else."""
    topics = topics_in(generator, nodes, 1, publishers, subscribers)
    return [int(messages) for messages in topics.publish("mrf").messages]


def _scribe(
    generator: np.random.Generator, nodes: int, publishers: int, most: int, counts: Sequence[int]
) -> dict[int, Sequence[int]]:
    """Messages of each publisher, by how many of the same subscribers are left."""
    scribe = Scribe(random_vectors(generator, nodes))
    members = generator.choice(nodes, publishers + most, replace=False)
    topic = random_vectors(generator, 1)
    publishing, joined = members[:publishers], members[publishers:]
    found = {}
    for count in counts:
        forest = scribe.forest(topic, joined[:count], np.zeros(count, np.int32))
        found[count] = forest.messages_from(publishing, np.zeros(publishers, np.int32)).tolist()
    return found
