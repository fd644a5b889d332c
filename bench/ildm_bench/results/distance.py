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

from ildm.mqtt import (
    ConnAck,
    Connect,
    Framer,
    Packet,
    Publish,
    SubAck,
    Subscribe,
    Subscription,
    Version,
    decode,
)
from ildm.testing.live.process import ProcessError
from ildm_bench.measure.figures import Comparison, RunFigures
from ildm_bench.measure.spread import words
from ildm_bench.micro.measure import machine
from ildm_bench.results.common import SHARED_CORES, Bench, client_figures, socket_words
from ildm_bench.testbed.distance import Distances
from ildm_bench.testbed.spec import TestbedSpec
from ildm_bench.testbed.testbed import Testbed

PLACES = ("kanazawa", "kyoto", "yokosuka")
"""In the order of STLA's keys; the publisher is at the first, and does not subscribe."""
SHARES = {"Zipf": (102, 34, 64), "uniform": (67, 66, 67)}
"""Of 200 subscribers."""
PAPER = {("STLA", "Zipf"): 59, ("SG-TBPS", "Zipf"): 102, ("STLA", "uniform"): 65, ("SG-TBPS", "uniform"): 109}
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
HEADING = ["", "sites", "completion ms", "mean ms", "lost", "completion in the paper, 200 sites"]


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


def run(bench: Bench, command: str, sites: int) -> Comparison:
    """The least of 100 deliveries to each subscriber, live; and the same plugins on 200 simulated nodes."""
    rows: list[list[str]] = []
    runs: list[RunFigures] = []
    for distribution in SHARES:
        for method, algorithm in METHODS.items():
            label = f"{method}, {distribution}"
            bench.console.rule(label)
            at = [PLACES[0], *places(distribution, sites)]
            spec = TestbedSpec(["mosquitto"] * len(at), algorithm=algorithm, distances=distances(at))
            name = f"{algorithm}-{distribution}"
            found, disturbance = bench.client_rounds(name, label, spec, lambda bed: deliver(bed, DELIVERIES))
            least = [each["least_ms"] for each in found]
            lost = sum(each["lost"] for each in found)
            runs.append(
                client_figures(
                    label,
                    least,
                    sum(map(len, least)) * DELIVERIES,
                    lost,
                    1000 * PAUSE,
                    disturbance,
                    {"completion_ms": [max(each) for each in least]},
                )
            )
            paper = f"{PAPER[method, distribution]}"
            rows.append([label, str(sites), *_words(least), str(lost), paper])
            bench.console.print("the same on simulated nodes")
            done = bench.out / f"{name}-simulated.json"
            simulations = simulated(done, method, distribution, bench.profile.rounds)
            rows.append([f"{label}, simulated", str(len(simulations[0])), *_words(simulations), "0", ""])
    return Comparison(
        title="Subscribers at three places",
        text="\n".join(
            [
                f"{sites} live sites that subscribe, each with a node and a Mosquitto, and one that "
                f"publishes; {BETWEEN_MS:g} ms one way between places and {WITHIN_MS:g} ms within. Of each "
                f"subscriber the least of {DELIVERIES} deliveries counts. Simulated nodes run the same "
                "plugins over the same distances, and take no time themselves.",
                socket_words([True]),
                SHARED_CORES,
                machine(),
            ]
        ),
        command=command,
        runs=runs,
        table=[HEADING, *rows],
        reference=runs[0].label if runs else "",
    )


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


class Listener(asyncio.Protocol):
    """A client that tells when which message has come."""

    def __init__(self, arrived: Callable[[bytes], None]) -> None:
        self._arrived = arrived
        self._framer = Framer(1 << 20)
        self._answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        if not self._answered.done():
            self._answered.set_exception(ProcessError("a client has lost its connection"))

    def data_received(self, data: bytes) -> None:
        for frame in self._framer.feed(data):
            match decode(frame, Version.V311):
                case ConnAck() | SubAck():
                    self._answered.set_result(None)
                case Publish(payload=payload):
                    self._arrived(payload)

    async def ask(self, packet: Packet) -> None:
        """Send what is answered, and await that."""
        self._answered = asyncio.get_running_loop().create_future()
        self.send(packet)
        async with asyncio.timeout(PATIENCE):
            await self._answered

    def send(self, packet: Packet) -> None:
        self._transport.write(packet.encode(Version.V311))

    def close(self) -> None:
        self._transport.close()


async def deliver(bed: Testbed, deliveries: int) -> dict[str, Any]:
    """Publish at site 0, one message after the other, to a subscriber at each other site.

    Returns ``least_ms`` of each subscriber, and how many deliveries were ``lost``.

    Raises:
        ProcessError: the subscribers are not found.
    """
    loop = asyncio.get_running_loop()
    arrivals: list[dict[bytes, float]] = [{} for _ in bed.servers[1:]]
    missing: Counter[bytes] = Counter()
    complete = asyncio.Event()

    def arrived(number: int, payload: bytes) -> None:
        if payload not in arrivals[number]:
            arrivals[number][payload] = time.monotonic()
            missing[payload] -= 1
            if not missing[payload]:
                complete.set()

    async def connected(site: int, what: Callable[[bytes], None]) -> Listener:
        front = bed.servers[site].front
        assert front is not None
        _, client = await loop.create_connection(lambda: Listener(what), *front.address)
        await client.ask(Connect(client_id=f"distance-{site}", keep_alive=0))
        return client

    async def publish(payload: bytes, limit: float) -> float:
        complete.clear()
        missing[payload] = len(arrivals)
        sent = time.monotonic()
        publisher.send(Publish(topic=TOPIC, payload=payload))
        try:
            async with asyncio.timeout(limit):
                await complete.wait()
        except TimeoutError:
            pass  # who has not got it is counted
        return sent

    clients: list[Listener] = []
    wanted = Subscribe(packet_id=1, subscriptions=[Subscription(topic_filter=TOPIC)])
    for site in range(1, len(bed.servers)):
        client = await connected(site, lambda payload, number=site - 1: arrived(number, payload))  # type: ignore[misc]
        clients.append(client)
        await client.ask(wanted)
    publisher = await connected(0, lambda payload: None)
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


def _words(rounds_ms: Sequence[Sequence[float]]) -> tuple[str, str]:
    """Completion and mean, of each the mean over the rounds and how far these differ."""
    completions, means = [max(each) for each in rounds_ms], [mean(each) for each in rounds_ms]
    return words(mean(completions), completions, ".1f"), words(mean(means), means, ".1f")
