"""Result 7: subscribers at three places, live (S13: STLA's paper, V-B): STLA against SG-TBPS."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

from ildm.mqtt import Publish
from ildm.testing.live.process import ProcessError
from ildm_bench.clients import Client
from ildm_bench.measure.figures import Comparison
from ildm_bench.results.common import Bench, client_figures, comparison
from ildm_bench.results.content import addresses
from ildm_bench.results.tables import Metric, Row, averaged
from ildm_bench.testbed.distance import Distances
from ildm_bench.testbed.spec import TestbedSpec
from ildm_bench.testbed.testbed import Testbed

PLACES = ("kanazawa", "kyoto", "yokosuka")
"""In the order of STLA's keys; the publisher is at the first, and does not subscribe."""
SHARES = {"Zipf": (102, 34, 64), "uniform": (67, 66, 67)}
"""Of 200 subscribers."""
PAPER = {"STLA, Zipf": 59, "SG-TBPS, Zipf": 102, "STLA, uniform": 65, "SG-TBPS, uniform": 109}
"""Completion in ms."""
METHODS = {"SG-TBPS": "sg_tbps", "STLA": "stla"}
BETWEEN_MS, WITHIN_MS = 20.0, 0.2
DELIVERIES = 100
PAUSE = 0.05
"""Seconds between the arrival of a message at all and the next message."""
PATIENCE = 60.0
"""Seconds for the subscribers to be known, and for one message to reach all."""
TOPIC = "distance"
SEED = 13
METRICS = (
    Metric("sites", lambda row: f"{row.rounds['sites'][0]:g}"),
    averaged("completion ms", "completion_ms", ".1f"),
    averaged("mean ms", "mean_ms", ".1f"),
    Metric("lost", lambda row: "0" if row.run is None else str(row.run.missing)),
    Metric(
        "completion in the paper, 200 sites",
        lambda row: str(PAPER.get(row.label, "")),
    ),
)


def places(distribution: str, sites: int) -> list[str]:
    """The place of each subscriber's site: in proportion, in an order that the nodes' names do not tell."""
    shares = SHARES[distribution]
    counts = [sites * share // sum(shares) for share in shares]
    counts[0] += sites - sum(counts)
    found = [place for place, count in zip(PLACES, counts, strict=True) for _ in range(count)]
    Random(SEED).shuffle(found)
    return found


def distances(regions: Sequence[str]) -> Distances:
    """How far sites at these places are from each other."""
    return Distances(
        names=tuple(f"site-{number}" for number in range(len(regions))),
        regions=tuple((region,) for region in regions),
        delays_ms=tuple(
            tuple(
                0.0 if i == j else WITHIN_MS if here == there else BETWEEN_MS
                for j, there in enumerate(regions)
            )
            for i, here in enumerate(regions)
        ),
    )


def run(bench: Bench, sites: int = 60) -> Comparison:
    """The least of 100 deliveries to each subscriber, live; and the same plugins on 200 simulated nodes."""
    rows: list[Row] = []
    for distribution in SHARES:
        for method, algorithm in METHODS.items():
            label = f"{method}, {distribution}"
            bench.console.rule(label)
            at = [PLACES[0], *places(distribution, sites)]
            spec = TestbedSpec(["mosquitto"] * len(at), algorithm=algorithm, distances=distances(at))
            name = f"{algorithm}-{distribution}"
            found, disturbance = bench.client_rounds(name, label, spec, lambda bed: deliver(bed, DELIVERIES))
            least = [each["least_ms"] for each in found]
            rounds = _rounds(least, sites)
            figures = client_figures(
                label,
                least,
                sum(map(len, least)) * DELIVERIES,
                sum(each["lost"] for each in found),
                1000 * PAUSE,
                disturbance,
                {"completion_ms": rounds["completion_ms"]},
            )
            bench.console.print("the same on simulated nodes")
            done = bench.out / f"{name}-simulated.json"
            simulations = simulated(done, method, distribution, bench.profile.rounds)
            rows.append(Row(label, figures, rounds=rounds))
            rows.append(Row(f"{label}, simulated", rounds=_rounds(simulations, len(simulations[0]))))
    text = (
        f"{sites} live sites that subscribe, each with a node and a Mosquitto, and one that "
        f"publishes; {BETWEEN_MS:g} ms one way between places and {WITHIN_MS:g} ms within. Of each "
        f"subscriber the least of {DELIVERIES} deliveries counts. Simulated nodes run the same "
        "plugins over the same distances, and take no time themselves."
    )
    return comparison("Subscribers at three places", [text], METRICS, rows)


def _rounds(rounds_ms: Sequence[Sequence[float]], sites: int) -> dict[str, list[float]]:
    """What the table shows of each round."""
    return {
        "sites": [float(sites)],
        "completion_ms": [max(each) for each in rounds_ms],
        "mean_ms": [mean(each) for each in rounds_ms],
    }


def simulated(done: Path, method: str, distribution: str, rounds: int) -> list[list[float]]:
    """ms of each of 200 subscribers in each round, which has a seed of its own (experiment S13)."""
    if not done.exists():
        from ildm_bench.sim.experiments.stla.s13 import by_plugin, subscribers  # noqa: PLC0415 - slow to import
        from ildm_bench.sim.experiments.stla.scenarios import ST, STLA  # noqa: PLC0415

        name = STLA if method == "STLA" else ST
        least = [
            by_plugin(name, subscribers(distribution, "full"), SEED + round_, "full").tolist()
            for round_ in range(rounds)
        ]
        done.write_text(json.dumps(least))
    found: list[list[float]] = json.loads(done.read_text())
    return found


async def deliver(bed: Testbed, deliveries: int) -> dict[str, Any]:
    """Publish at site 0, one message after the other, to a subscriber at each other site.

    Returns ``least_ms`` of each subscriber, and how many deliveries were ``lost``.

    Raises:
        ProcessError: the subscribers are not found.
    """
    arrivals: list[dict[bytes, float]] = [{} for _ in bed.servers[1:]]
    missing: Counter[bytes] = Counter()
    complete = asyncio.Event()

    def arrived(number: int, payload: bytes) -> None:
        if payload not in arrivals[number]:
            arrivals[number][payload] = time.monotonic()
            missing[payload] -= 1
            if not missing[payload]:
                complete.set()

    async def publish(payload: bytes, limit: float) -> float:
        complete.clear()
        missing[payload] = len(arrivals)
        sent = time.monotonic()
        publisher.send(TOPIC, payload)
        try:
            async with asyncio.timeout(limit):
                await complete.wait()
        except TimeoutError:
            pass  # who has not got it is counted
        return sent

    def at(site: int) -> Callable[[Publish], None]:
        return lambda message: arrived(site, message.payload)

    clients: list[Client] = []
    for site, address in enumerate(addresses(bed)[1:]):
        clients.append(await Client.connect(address, f"distance-{site + 1}", at(site)))
        await clients[-1].subscribe(TOPIC)
    publisher = await Client.connect(addresses(bed)[0], "distance-0")
    with closing(publisher):
        give_up = time.monotonic() + PATIENCE
        attempt = 0
        while missing[b"first %d" % attempt] or not attempt:  # links are made, keys join
            attempt += 1
            await publish(b"first %d" % attempt, 2.0)
            if time.monotonic() > give_up:
                raise ProcessError(f"{missing[b'first %d' % attempt]} subscribers are not reached")
        times: dict[bytes, float] = {}
        for number in range(deliveries):
            times[b"%d" % number] = await publish(b"%d" % number, 5.0)
            await asyncio.sleep(PAUSE)
    for client in clients:  # the next round has clients of the same names
        client.close()
    found = [[at[payload] - sent for payload, sent in times.items() if payload in at] for at in arrivals]
    return {
        "least_ms": [1000 * min(each) for each in found if each],
        "lost": sum(deliveries - len(each) for each in found),
    }
