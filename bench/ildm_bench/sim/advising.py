"""The advice of `ildm.advice` against the simulator, on networks drawn at random."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

from ildm.advice import PREFERENCES, Network, Preference, Topic, advise
from ildm.testing import Delivery, SimNode
from ildm_bench.sim.experiments.beyond.five_sites import Sites

METHODS = {"sf": "SF, tree", "sg_tbps": "SG-TBPS", "atm_tbps": "ATM-TBPS", "stla": "STLA"}
"""The method of `five` that stands for an algorithm of the advice."""
WARM, MESSAGES, SPACING = 4, 4, 0.4
CALM, LEARNING = 6.0, 8.0
CLOSE = 1.1
"""A choice that costs at most so many times the best is as good as the best."""


def drawn(seed: int) -> Network:
    """A network without churn: up to 40 sites in up to 5 regions, up to 4 topics."""
    random = Random(f"{seed}/network")
    sites = random.randint(6, 40)
    regions = random.randint(1, min(5, sites // 3))
    near = random.uniform(1, 10)
    topics = [
        Topic(
            name=f"topic-{number}",
            subscribers=max(1, round((sites - 1) ** random.random())),
            rate=round(random.uniform(0.1, 10), 1),
        )
        for number in range(random.randint(1, 4))
    ]
    far = near * random.uniform(2, 20)
    return Network(sites=sites, regions=regions, near_ms=near, far_ms=far, topics=topics)


def costs(network: Network, algorithm: str, seed: int) -> dict[Preference, float]:
    """What a delivery takes (ms, mean), and the copies from region to region (or from site to site, in one
    region) for each message published: measured on simulated sites, each topic by its rate."""
    distance = (network.near_ms / 1000, network.between_ms / 1000)
    sites = Sites(METHODS[algorithm], distance, network.sites, seed, among=network.regions)
    world = sites.world
    arrived: list[Delivery] = []

    def delivered(node: SimNode, delivery: Delivery) -> None:
        arrived.append(delivery)

    world.on_delivery = delivered
    random = Random(f"{seed}/topics")  # the same sites under all algorithms
    parts: list[tuple[Topic, SimNode, list[SimNode]]] = []
    for topic in network.topics:
        publisher, *interested = random.sample(sites.living(), topic.subscribers + 1)
        for node in interested:
            node.subscribe(topic.name)
        parts.append((topic, publisher, interested))
    world.run(CALM)
    for _ in range(WARM):
        for topic, publisher, _ in parts:
            publisher.publish(topic.name)
        world.run(1.0)
    world.run(LEARNING)
    delays: list[tuple[float, float]] = []
    carried: list[tuple[float, float]] = []
    for topic, publisher, interested in parts:
        arrived.clear()
        copies, crossed = sites.copies, sites.crossed
        for _ in range(MESSAGES):
            publisher.publish(topic.name)
            world.run(SPACING)
        world.run(2.0)
        each = [1000 * (one.time - one.sent) for one in arrived if one.sent is not None]
        delays.append((float(np.mean(each)), topic.rate * topic.subscribers))
        if network.regions == 1:
            sent = (sites.copies - copies) / MESSAGES
        elif sites.shape:
            sent = float(sites.crossings(publisher, interested))
        else:
            sent = (sites.crossed - crossed) / MESSAGES
        carried.append((sent, topic.rate))
    return {"delay": _weighted(delays), "traffic": _weighted(carried)}


def _weighted(values: Sequence[tuple[float, float]]) -> float:
    return sum(value * weight for value, weight in values) / sum(weight for _, weight in values)


class Checked(NamedTuple):
    """One network under one preference."""

    seed: int
    prefer: Preference
    named: str
    best: str
    factor: float
    """Cost of what was named over the least cost."""


def simulated(
    seeds: Sequence[int], store: Path | None = None, simulate: bool = True
) -> Iterator[dict[str, Any]]:
    """The networks of these seeds and the costs of each algorithm; ``store`` (JSON lines) is added to.

    Without ``simulate`` those alone that the store has.
    """
    known: dict[int, dict[str, Any]] = {}
    if store is not None and store.exists():
        known = {row["seed"]: row for row in map(json.loads, store.read_text().splitlines())}
    for seed in seeds:
        if seed not in known and not simulate:
            continue
        if seed not in known:
            network = drawn(seed)
            found = {algorithm: costs(network, algorithm, seed) for algorithm in METHODS}
            known[seed] = {"seed": seed, "network": network.model_dump(), "costs": found}
            if store is not None:
                store.parent.mkdir(parents=True, exist_ok=True)
                with store.open("a") as file:
                    file.write(json.dumps(known[seed]) + "\n")
        yield known[seed]


def checked(rows: Sequence[dict[str, Any]]) -> list[Checked]:
    """The advice for each network and preference, beside the best of the simulator."""
    found = []
    for row in rows:
        for prefer in PREFERENCES:
            network = Network.model_validate(row["network"] | {"prefer": prefer})
            named = advise(network).algorithm
            of_each = {algorithm: costs[prefer] for algorithm, costs in row["costs"].items()}
            best = min(of_each, key=of_each.__getitem__)
            # no copy at all from region to region is the best that can be
            factor = of_each[named] / of_each[best] if of_each[best] else 1.0 + of_each[named]
            found.append(Checked(row["seed"], prefer, named, best, factor))
    return found


def lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """For people: the share of good advice by preference, and where it was bad."""
    found = checked(rows)
    told = [
        f"{prefer}: best or within {CLOSE - 1:.0%} in {share(found, prefer):.1%} of {len(rows)} networks; "
        f"always {_always(rows, prefer)}"
        for prefer in PREFERENCES
    ]
    bad = [each for each in found if each.factor > CLOSE]
    return told + [
        f"network {each.seed}, {each.prefer}: named {each.named}, {each.factor:.2f} times {each.best}"
        for each in bad
    ]


def _always(rows: Sequence[dict[str, Any]], prefer: Preference) -> str:
    """The same share of each algorithm, were it named whatever the network is."""
    shares = []
    for algorithm in METHODS:
        good = 0
        for row in rows:
            best = min(costs[prefer] for costs in row["costs"].values())
            own = row["costs"][algorithm][prefer]
            good += own <= CLOSE * best if best else own <= CLOSE - 1
        shares.append(f"{algorithm} {good / len(rows):.0%}")
    return ", ".join(shares)


def share(found: Sequence[Checked], prefer: Preference) -> float:
    """Of the networks those for which the advice is the best or within `CLOSE` of it."""
    factors = [each.factor for each in found if each.prefer == prefer]
    return sum(factor <= CLOSE for factor in factors) / len(factors)
