"""One topic in a graph of many, by all methods: what A10, A11 and A12 look at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any, NamedTuple

import numpy as np
from pyspark.sql import functions as F  # noqa: N812

from ildm_bench.sim.experiments.framework import Frames, Say, Scale, Summary, Tables, Verdict, table
from ildm_bench.sim.experiments.summary import collected, means_of_repeats
from ildm_bench.sim.experiments.topics import SCRIBE, SG
from ildm_bench.sim.flexible import FlexibleTopic
from ildm_bench.sim.routing import spread
from ildm_bench.sim.scribe import Scribe
from ildm_bench.sim.tables import NONE, Graph, build, random_vectors

LIMITS = (60, 120)
ATM = {limit: f"ATM-TBPS, L = {limit}" for limit in LIMITS}
HALF = {limit: f"ATM-TBPS, L = {limit}, half learned" for limit in LIMITS}
LEARNED, TRIED = 0.5, 5
"""Share of the room in a table that is filled in `HALF`; shares that were tried. The paper does not state
what its brokers have learned."""
BROKER = "one broker"
DIVIDED = "SG-TBPS, divided at the publisher"
"""SFB as in Fig. 9: the publisher itself divides the range at all its neighbours there."""
METHODS = (*ATM.values(), SG, SCRIBE)
FEW = 80
"""Subscribers up to which the paper speaks of few."""
EACH = 5
"""Topics of a broker on average."""
DELAY, PROCESSING, PER_CHILD = 10.0, 1.0, 0.1
"""Milliseconds: from node to node, of a node for a message, and for each of its copies (V-A)."""


def brokers(scale: Scale) -> int:
    return 10_000 if scale == "full" else 4_000


def sizes(scale: Scale) -> tuple[int, ...]:
    """S: subscribers of the measured topic."""
    return tuple(10 << n for n in range(10)) if scale == "full" else (10, 40, 80, 160, 2_560)


def graphs(size: int, scale: Scale) -> int:
    """How many are looked at; small topics differ more."""
    if scale == "small":
        return 8 if size <= 160 else 2
    return 32 if size <= 160 else 10 if size <= 1_280 else 5


class Found(NamedTuple):
    """A message to all subscribers by one method: hops and milliseconds to each."""

    hops: Sequence[int]
    latency: Sequence[float]


class Hop(NamedTuple):
    """A subscriber was reached; parents come before their children."""

    node: int
    parent: int
    order: int
    """Which of the parent's copies it got, from 1 on."""


def latencies(hops: Iterable[Hop], roots: Mapping[int, float]) -> dict[int, float]:
    """Milliseconds until each node has the message; ``roots``: who has it before, the publisher or a node."""
    at = dict(roots)
    for hop in hops:
        at[hop.node] = at[hop.parent] + PROCESSING + PER_CHILD * hop.order + DELAY
    return at


class Topic(NamedTuple):
    """Subscribers are the ranks [low, high), the publisher is the rank ``high``; each is another broker's."""

    graph: Graph
    low: int
    high: int

    def atm_tbps(self, limit: int, learned: float = 1.0, seed: int = 0) -> Found:
        branches = FlexibleTopic(self.graph, self.low, self.high, limit, learned, seed).spread(self.high)
        at = latencies((Hop(b.rank, b.parent, b.order) for b in branches), {NONE: 0.0})
        return Found([b.depth for b in branches], [at[b.rank] for b in branches])

    def sg_tbps(self) -> Found:
        """SFB; the range is entered at the farthest neighbour in it."""
        tree = spread(self.graph, self.high, self.low, self.high, "sfb")
        ranks = tree.ranks.tolist()
        below: dict[int, list[int]] = {}
        for rank, parent in zip(ranks, tree.parent.tolist(), strict=True):
            if parent != NONE:
                below.setdefault(ranks[parent], []).append(rank)
        entry = {
            rank: int(depth) * (PROCESSING + PER_CHILD + DELAY)
            for rank, depth, parent in zip(ranks, tree.depth, tree.parent, strict=True)
            if parent == NONE
        }
        hops = (
            Hop(child, rank, order)
            for rank in ranks
            for order, child in enumerate(_farthest_first(rank, below.get(rank, ())), 1)
        )
        at = latencies(hops, entry)
        return Found(tree.depth.tolist(), [at[rank] for rank in ranks])


def _farthest_first(rank: int, children: Iterable[int]) -> list[int]:
    """In the order of sending: of each side in turn, the farthest first."""
    ordered = sorted(children)
    left, right = [n for n in ordered if n < rank], [n for n in ordered if n > rank]
    sides = zip_longest(left, reversed(right))
    return [child for child in chain.from_iterable(sides) if child is not None]


def topic_in(generator: np.random.Generator, nodes: int, size: int) -> Topic:
    """Keys of ``nodes`` brokers drawn at random, those of the topic side by side somewhere among them."""
    keys = nodes * EACH
    owner = generator.integers(0, nodes, keys).astype(np.int32)
    low = int(generator.integers(0, keys - size))
    owner[low : low + size + 1] = generator.permutation(nodes)[: size + 1]
    return Topic(build(owner, random_vectors(generator, nodes)), low, low + size)


def scribe(generator: np.random.Generator, nodes: int, size: int) -> Found:
    """The publisher knows the root and sends to it; from there down the tree, children in order."""
    dht = Scribe(random_vectors(generator, nodes))
    members = generator.permutation(nodes)[: size + 1]
    subscribers, publisher = members[:size], int(members[size])
    forest = dht.forest(random_vectors(generator, 1), subscribers, np.zeros(size, np.int32))
    root = int(forest.roots[0])
    below: dict[int, list[int]] = {}
    for parent, child in zip(forest.parent.tolist(), forest.child.tolist(), strict=True):
        below.setdefault(parent, []).append(child)
    hops: list[Hop] = []
    waiting = [root]
    for node in waiting:
        for order, child in enumerate(below.get(node, ()), 1):
            hops.append(Hop(child, node, order))
            waiting.append(child)
    first = int(root != publisher)
    at = latencies(hops, {root: first * (PROCESSING + PER_CHILD + DELAY)})
    return Found((forest.depth + first).tolist(), [at[node] for node in subscribers.tolist()])


def one_broker(size: int) -> float:
    """Mean milliseconds where one broker sends to all: a root with so many children."""
    return PROCESSING + DELAY + PER_CHILD * (size + 1) / 2


def run(scale: Scale, seed: int, say: Say) -> Tables:
    """A row for each size, graph and method."""
    generator = np.random.default_rng(seed)
    nodes = brokers(scale)
    rows: list[dict[str, Any]] = []
    for size in sizes(scale):
        say(f"{size:,} subscribers")
        for number in range(graphs(size, scale)):
            topic = topic_in(generator, nodes, size)
            found = {name: topic.atm_tbps(limit) for limit, name in ATM.items()}
            found |= {name: topic.atm_tbps(limit, LEARNED, seed) for limit, name in HALF.items()}
            found |= {SG: topic.sg_tbps(), SCRIBE: scribe(generator, nodes, size)}
            if size <= FEW:
                found[DIVIDED] = topic.atm_tbps(limit=0)
            rows += [
                {
                    "method": method,
                    "subscribers": size,
                    "graph": number,
                    "hops": float(np.mean(of.hops)),
                    "longest": max(of.hops),
                    "latency": float(np.mean(of.latency)),
                    "slots": 2 * topic.graph.levels,
                }
                for method, of in found.items()
            ]
    return {"rows": table(rows)}


def summarise(frames: Frames, value: str) -> Summary:
    """Of each method and size the mean of ``value`` over graphs, with its spread."""
    by = ["method", "subscribers"]
    return {
        "means": collected(means_of_repeats(frames["rows"], by, "graph", value), *by),
        "slots": collected(
            frames["rows"].where(F.col("method") == SG).select("subscribers", "graph", "slots"),
            *("subscribers", "graph"),
        ),
    }


Of = Mapping[int, Mapping[str, Any]]
"""By size: mean, sd, smallest and largest over graphs."""


def of(summary: Summary, method: str) -> Of:
    return {row["subscribers"]: row for row in summary["means"] if row["method"] == method}


def above(one: Of, other: Of, at: Iterable[int]) -> Verdict:
    """Whether ``one`` is greater at those sizes: in all graphs, only on average, or not at all of them."""
    places = [*at]
    if all(one[size]["smallest"] > other[size]["largest"] for size in places):
        return "agree"
    return "open" if all(one[size]["mean"] > other[size]["mean"] for size in places) else "differs"


def curve(found: Of) -> tuple[list[float], list[float]]:
    return [*found], [row["mean"] for row in found.values()]


def ends(summary: Summary) -> dict[str, tuple[list[float], list[float]]]:
    """Error bars: the smallest and the largest of all graphs."""
    return {
        method: (
            [row["smallest"] for row in of(summary, method).values()],
            [row["largest"] for row in of(summary, method).values()],
        )
        for method in METHODS
    }


def parameters(scale: Scale) -> str:
    counts = ", ".join(f"{graphs(size, scale)} at S = {size:,}" for size in sizes(scale))
    return (
        f"{brokers(scale):,} brokers with {EACH} topics each on average; one topic with 1 publisher and S "
        f"subscribers; L = {', '.join(map(str, LIMITS))}; graphs: {counts}"
    )
