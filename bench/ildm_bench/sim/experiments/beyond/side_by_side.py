"""Beyond the paper: what one publish costs under each algorithm, side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any, NamedTuple

import numpy as np

from ildm.api import Algorithm
from ildm.testing import PluginWorld, SimNode
from ildm_algorithms.pf import PublicationFlooding
from ildm_algorithms.sf import SubscriptionFlooding
from ildm_bench.report.numbers import counted
from ildm_bench.report.svg import Picture
from ildm_bench.sim.experiments.drawing import Words, curves
from ildm_bench.sim.experiments.framework import Experiment, Frames, Line, Say, Scale, Summary, Tables, table
from ildm_bench.sim.experiments.summary import collected, means
from ildm_bench.sim.experiments.topics import topics_in
from ildm_bench.sim.routing import Routing
from ildm_bench.sim.scribe import Scribe
from ildm_bench.sim.tables import random_vectors

FLOODING: Mapping[str, type[Algorithm]] = {"PF": PublicationFlooding, "SF": SubscriptionFlooding}
SHAPES = ("line", "tree")
SKIP_GRAPH: Mapping[str, Routing] = {"SG-TBPS, MRF": "mrf", "SG-TBPS, SFB": "sfb"}
SCRIBE = "Scribe"
METHODS = (*(f"{name}, {shape}" for name in FLOODING for shape in SHAPES), *SKIP_GRAPH, SCRIBE)
SENT = {
    "PF": "PF, line",
    "SF, line": "SF, line",
    "SF, tree": "SF, tree",
    "SG-TBPS": "SG-TBPS, SFB",
    "Scribe": SCRIBE,
}
PATHS = {
    "SF and PF, line": "SF, line",
    "SF and PF, tree": "SF, tree",
    "MRF": "SG-TBPS, MRF",
    "SFB": "SG-TBPS, SFB",
    "Scribe": SCRIBE,
}
"""Curves of the pictures by label; methods that cannot differ there share one."""
REPEATS = 5
BY = ["method", "subscribers"]


class Case(NamedTuple):
    """One publish: its messages, and how many subscribers are how many hops away."""

    method: str
    messages: int
    hops: Mapping[int, int]


def nodes_of(scale: Scale) -> int:
    """N; on a line every message of PF and SF takes N/2 hops or more to the ends."""
    return 1_000 if scale == "full" else 100


def subscriber_counts(scale: Scale) -> tuple[int, ...]:
    """Nodes that subscribe to the topic, at most all but the publisher's."""
    return (0, 1, 10, 100, 999) if scale == "full" else (0, 1, 10, 99)


def flooding_world(algorithm: type[Algorithm], shape: str, nodes: int, seed: int) -> PluginWorld:
    """Nodes of PF or SF; in the ``tree`` each joins one that was there, picked at random."""
    random = Random(seed)
    world = PluginWorld(algorithm, seed=seed)
    for number in range(nodes):
        known = number - 1 if shape == "line" else random.randrange(max(1, number))
        world.add(f"n{number}", introducer=f"n{known}" if number else None)
    world.settle()
    return world


def flooding_case(name: str, shape: str, nodes: int, subscribers: int, seed: int) -> Case:
    """The plugins themselves, at work in the simulator."""
    world = flooding_world(FLOODING[name], shape, nodes, seed)
    publisher, *others = Random(f"{seed}/{subscribers}").sample(list(world.nodes.values()), subscribers + 1)
    for node in others:
        node.subscribe("topic")
    world.settle()
    before = world.network.sent["publish"]
    publisher.publish("topic")
    world.settle()
    return Case(f"{name}, {shape}", world.network.sent["publish"] - before, Counter(map(_hops, others)))


def _hops(node: SimNode) -> int:
    (delivery,) = node.deliveries
    assert delivery.hops is not None
    return delivery.hops


def skip_graph_cases(generator: np.random.Generator, nodes: int, subscribers: int) -> Iterator[Case]:
    """SG-TBPS on converged tables: the publisher's key, its topic's subscribers, and keys of other topics."""
    topics = topics_in(generator, nodes, 1, 1, subscribers)
    for method, routing in SKIP_GRAPH.items():
        if topics.suspended(0):
            yield Case(method, 0, {})
        else:
            spreads = topics.publish(routing)
            yield Case(method, int(spreads.messages.sum()), dict(enumerate(spreads.path_lengths().tolist())))


def scribe_case(generator: np.random.Generator, nodes: int, subscribers: int) -> Case:
    """Scribe on the DHT of such a graph; the publisher knows the root."""
    scribe = Scribe(random_vectors(generator, nodes))
    topics = random_vectors(generator, 1)
    publisher, *others = generator.choice(nodes, subscribers + 1, replace=False)
    forest = scribe.forest(topics, others, np.zeros(subscribers, np.int32))
    lengths = forest.path_lengths([publisher], [0])
    messages = int(forest.messages_from([publisher], [0])[0])
    return Case(SCRIBE, messages, dict(enumerate(lengths.tolist())))


def run(scale: Scale, seed: int, say: Say) -> Tables:
    """``messages``: a row for each publish; ``hops``: a row for each number of hops in it."""
    generator = np.random.default_rng(seed)
    nodes = nodes_of(scale)
    messages: list[dict[str, Any]] = []
    hops: list[dict[str, Any]] = []
    for subscribers in subscriber_counts(scale):
        say(f"{subscribers:,} subscribers")
        for repeat in range(REPEATS):
            cases = [
                flooding_case(name, shape, nodes, subscribers, seed + repeat)
                for name in FLOODING
                for shape in SHAPES
            ]
            cases += skip_graph_cases(generator, nodes, subscribers)
            cases.append(scribe_case(generator, nodes, subscribers))
            for case in cases:
                key = {"method": case.method, "subscribers": subscribers, "repeat": repeat}
                messages.append(key | {"messages": case.messages})
                hops += [key | {"hops": n, "pairs": pairs} for n, pairs in sorted(case.hops.items()) if pairs]
    return {"messages": table(messages), "hops": table(hops)}


def summarise(frames: Frames) -> Summary:
    return {
        "messages": collected(means(frames["messages"], BY, "messages"), *BY),
        "hops": collected(means(frames["hops"], BY, "hops", "pairs"), *BY),
    }


def by_case(summary: Summary, kind: str, figure: str = "mean") -> dict[tuple[str, int], float]:
    """One figure of each method and number of subscribers."""
    return {(row["method"], row["subscribers"]): row[figure] for row in summary[kind]}


def compare(summary: Summary, scale: Scale) -> list[Line]:
    messages, hops = by_case(summary, "messages"), by_case(summary, "hops")
    longest = by_case(summary, "hops", "largest")
    lines = []
    for subscribers in subscriber_counts(scale):
        for method in METHODS:
            ours = f"{messages[method, subscribers]:,.1f} messages"
            if subscribers:
                mean = hops[method, subscribers]
                ours += f"; {mean:,.2f} hops on average, at most {longest[method, subscribers]:,.0f}"
            lines.append(
                Line(
                    quantity=f"{counted(subscribers, 'subscriber')}: {method}",
                    paper="not compared",
                    ours=ours,
                    verdict="beyond",
                )
            )
    return lines


def draw(summary: Summary) -> list[Picture]:
    messages, hops = by_case(summary, "messages"), by_case(summary, "hops")
    counts = sorted({count for _, count in hops})
    x = "subscribers of the topic"
    sent = Words(
        "side_by_side_messages",
        "Messages per publish",
        x,
        "messages",
        "Mean of the repeats. PF is the same on the line and the tree, and so is SG-TBPS with MRF and SFB.",
    )
    paths = Words(
        "side_by_side_hops",
        "Length of the path of publishing",
        x,
        "mean hops",
        "Mean over the subscribers of all repeats. PF and SF go the same ways.",
    )
    return [
        curves(
            words,
            {label: (counts, [of[method, count] for count in counts]) for label, method in shown.items()},
            log_x=10,
            log_y=10,
        )
        for words, of, shown in ((sent, messages, SENT), (paths, hops, PATHS))
    ]


def parameters(scale: Scale) -> str:
    counts = ", ".join(f"{count:,}" for count in subscriber_counts(scale))
    return (
        f"{nodes_of(scale):,} nodes, one publish by one publisher; subscribers {counts} on other nodes; "
        f"{REPEATS} repeats; PF and SF on a line and on a tree in which each node joined one picked at random"
    )


EXPERIMENT = Experiment(
    name="side-by-side",
    runs="tables; plugins pf, sf",
    title="One publish under each algorithm",
    parameters=parameters,
    run=run,
    summarise=summarise,
    compare=compare,
    draw=draw,
    notes=(
        "PF and SF are the plugins themselves, run by the simulator message by message; SG-TBPS and Scribe "
        "are counted on converged tables.",
        "What subscribing costs is not counted: SF floods it, Scribe and SG-TBPS route it.",
        "Without subscribers the publishers of SG-TBPS are suspended.",
    ),
)
