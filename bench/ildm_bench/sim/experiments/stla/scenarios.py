"""The two scenarios of the paper (Table I), and one publish in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ildm_bench.sim.clusters import Distribution, Hierarchy, Route, from_publisher, from_start
from ildm_bench.sim.experiments.framework import Scale

ST, STLA = "ST", "STLA"
WITHOUT = "LATK alone"
"""Keys with places, but messages that enter the segment as in ST: at the farthest subscriber they know."""
METHODS = (ST, WITHOUT, STLA)
DISTRIBUTIONS: tuple[Distribution, ...] = ("uniform", "Zipf")
REPEATS = 10


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


def routes(
    generator: np.random.Generator,
    hierarchy: Hierarchy,
    subscribers: int,
    distribution: Distribution,
    methods: Sequence[str] = METHODS,
) -> dict[str, Route]:
    """One publish by each method, to the same subscribers from the same publisher."""
    drawn = hierarchy.draw(generator, subscribers + 1, distribution)
    publisher, places = int(drawn[0]), drawn[1:]
    ordered = np.sort(places)
    ways: dict[str, Callable[[], Route]] = {
        # identifiers have nothing to do with places, so the order they were drawn in is that of the keys
        ST: lambda: from_publisher(generator, places, publisher),
        WITHOUT: lambda: from_publisher(generator, ordered, publisher),
        STLA: lambda: from_start(generator, hierarchy, ordered, publisher),
    }
    return {method: ways[method]() for method in methods}


def parameters(scenario: Scenario, what: str) -> str:
    """Hierarchy, latencies, and ``what`` was varied."""
    hierarchy = scenario.hierarchy
    clusters = ", ".join(f"{hierarchy.clusters(layer):,}" for layer in range(hierarchy.layers))
    latency = ", ".join(f"{value:g}" for value in hierarchy.latency)
    return f"Layers of {clusters} clusters, {latency} ms; 1 publisher, {what}; {REPEATS} graphs"


def span(row: Any, digits: int = 0) -> str:
    """Mean and, in brackets, smallest and largest."""
    return f"{row['mean']:,.{digits}f} ({row['smallest']:,.{digits}f}-{row['largest']:,.{digits}f})"


def percent(row: Any) -> str:
    """The same of shares."""
    return f"{row['mean']:.0%} ({row['smallest']:.0%}-{row['largest']:.0%})"
