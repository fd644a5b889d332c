"""The two scenarios of the paper (Table I), and one publish in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ildm_bench.sim.clusters import (
    Distribution,
    Hierarchy,
    Route,
    Times,
    from_end,
    from_publisher,
    from_start,
    graph_of,
)
from ildm_bench.sim.experiments.framework import Scale
from ildm_bench.sim.tables import Graph

ST, STLA = "ST", "STLA"
WITHOUT = "LATK alone"
"""Keys with places, but messages that enter the segment as in ST: at the farthest subscriber they know."""
SEARCHED, END = "STLA, search counted", "LATK, entered at the publisher's end"
"""STLA whose publisher searches for its start node before each message (IV-D, steps 1 and 2); and messages
that enter the segment at the subscriber next to the publisher's key."""
METHODS = (ST, WITHOUT, STLA)
DISTRIBUTIONS: tuple[Distribution, ...] = ("uniform", "Zipf")
FLAT: Distribution = "Zipf flat"
FLAT_READING = "Zipf over all clusters of the lowest layer, in the order of their identifiers"
FLAT_TRIED = 7
"""Laws of places that were tried for the worst cases of S8, on seeds 1 to 23."""
LAWS = (*DISTRIBUTIONS, FLAT)
REPEATS, PAIRS = 10, 20
"""Graphs of each number of subscribers, and of the largest, under all laws."""


@dataclass(frozen=True)
class Scenario:
    """A hierarchy and what its layers are called."""

    name: str
    hierarchy: Hierarchy
    layers: tuple[str, ...]
    """For each layer from 0: messages between clusters of the next one, or within the last."""
    unit: float
    """ms that distributions are resolved to."""


INTERNET = Scenario(
    "Internet",
    Hierarchy((7, 400), (100.0, 20.0, 2.0)),
    ("between continents", "between ASes", "within an AS"),
    unit=1.0,
)
DATA_CENTERS = Scenario(
    "data centres", Hierarchy((5,), (20.0, 0.2)), ("between DCs", "within a DC"), unit=0.1
)


def most(scale: Scale) -> int:
    """Subscribers at most."""
    return 100_000 if scale == "full" else 1_000


def sizes(scale: Scale) -> list[int]:
    """Numbers of subscribers, from 10."""
    every = (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
    return [count for count in every if count <= most(scale)]


class World(NamedTuple):
    """What publishes under several laws have in common: the graph, and who comes where among places."""

    graph: Graph
    draws: Times
    """float64[1 + subscribers] from [0, 1), of the publisher and the subscribers: their order of places."""


def one_world(generator: np.random.Generator, subscribers: int) -> World:
    return World(graph_of(generator, subscribers), generator.random(subscribers + 1))


def repeats(subscribers: int, scale: Scale) -> int:
    """Graphs."""
    return PAIRS if subscribers == most(scale) else REPEATS


def routes(
    generator: np.random.Generator,
    hierarchy: Hierarchy,
    subscribers: int,
    distribution: Distribution,
    methods: Sequence[str] = METHODS,
    world: World | None = None,
) -> dict[str, Route]:
    """One publish by each method, to the same subscribers from the same publisher.

    ``world``: with the same one ``uniform`` and ``Zipf flat`` have the same graph, the same order of keys and
    the publisher at the same place in it; of ``Zipf`` the graph alone is the same.
    """
    graph, draws = world or one_world(generator, subscribers)
    before = None
    if distribution == "Zipf":
        drawn = hierarchy.draw(generator, subscribers + 1, distribution)
    else:
        drawn = hierarchy.places(draws, distribution)
        before = int((draws[1:] < draws[0]).sum())
    publisher, places = int(drawn[0]), drawn[1:]
    ordered = np.sort(places)
    start = partial(from_start, generator, hierarchy, ordered, publisher, graph, before=before)
    ways: dict[str, Callable[[], Route]] = {
        # identifiers have nothing to do with places, so the order they were drawn in is that of the keys
        ST: lambda: from_publisher(generator, places, publisher, graph),
        WITHOUT: lambda: from_publisher(generator, ordered, publisher, graph),
        END: lambda: from_end(graph, ordered, publisher),
        STLA: start,
        SEARCHED: partial(start, search=True),
    }
    return {method: ways[method]() for method in methods}


def parameters(scenario: Scenario, what: str, graphs: str = str(PAIRS)) -> str:
    """Hierarchy, latencies, ``what`` was varied, and how many graphs there were."""
    hierarchy = scenario.hierarchy
    clusters = ", ".join(f"{hierarchy.clusters(layer):,}" for layer in range(hierarchy.layers))
    latency = ", ".join(f"{value:g}" for value in hierarchy.latency)
    return f"Layers of {clusters} clusters, {latency} ms; 1 publisher, {what}; {graphs} graphs"


def span(row: Any, digits: int = 0) -> str:
    """Mean and, in brackets, smallest and largest."""
    return f"{row['mean']:,.{digits}f} ({row['smallest']:,.{digits}f}-{row['largest']:,.{digits}f})"


def percent(row: Any) -> str:
    """The same of shares."""
    return f"{row['mean']:.0%} ({row['smallest']:.0%}-{row['largest']:.0%})"
