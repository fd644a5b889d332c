"""Result 9: a link between clusters becomes ten times slower; OctopiA goes around it (IDR) or waits (SPR)."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import mean
from typing import Any, NamedTuple

from ildm.mqtt import Publish
from ildm.testing.live.process import ProcessError
from ildm_bench.analysis.histogram import bucket, from_buckets, quantile
from ildm_bench.clients import Client, came_true, paced
from ildm_bench.measure.figures import Comparison, Course, Line
from ildm_bench.results.common import Bench, client_figures, comparison
from ildm_bench.results.content import addresses, copies_between
from ildm_bench.results.tables import Metric, Row, averaged
from ildm_bench.testbed.distance import Distances
from ildm_bench.testbed.spec import TestbedSpec
from ildm_bench.testbed.testbed import Testbed

WAYS = {"SPR": "spr", "IDR": "idr"}
CLUSTERS = ("tokyo", "osaka", "kyoto")
DISTANCES = Distances.by_regions(dict.fromkeys(CLUSTERS, 2), 1.0, 5.0)
"""Sites 0 and 1 are in Tokyo, 2 and 3 in Osaka; the even ones are a region, the others another."""
PUBLISHER, FAR, BESIDE = 0, 2, 3
"""The link between the first two becomes slow; the third is in the cluster of the second."""
FAST = 1_000_000.0
"""Bytes a second of each link between clusters."""
SLOW = FAST / 10
PAYLOAD = 8_000
UNSENT = 64 << 10
"""Bytes that the system may take from a node before it has sent them."""
RATE = 50.0
"""Messages a second; each cluster gets 0.4 MB of them."""
SECONDS = 70.0
SLOWED, RESTORED = 10.0, 40.0
"""When, of these seconds."""
REST = 60.0
"""Seconds that the last messages may take."""
TOPIC = "feed/all"
FILTER = "filter/n>=0/feed/#"
METRICS = (
    averaged("delay ms at the far cluster before, mean", "before_ms", ",.0f"),
    averaged("p99", "before_p99_ms", ",.0f"),
    averaged("while slow, mean", "slow_ms", ",.0f"),
    averaged("p99", "slow_p99_ms", ",.0f"),
    averaged("largest", "largest_ms", ",.0f"),
    averaged("copies between clusters, per message", "copies", ".2f"),
    Metric("lost", lambda row: str(row.figures.missing)),
    averaged("overtaken", "overtaken", ",.0f"),
)


class Delivery(NamedTuple):
    """One message at one subscriber, in seconds since the first was sent."""

    site: int
    number: int
    sent: float
    delay: float


def run(bench: Bench) -> Comparison:
    """The same stream with each routing; from one second on a link is slow, from another on as before."""
    rows: list[Row] = []
    lines: list[Line] = []
    for label, routing in WAYS.items():
        bench.console.rule(label)
        spec = TestbedSpec(
            ["mosquitto"] * len(DISTANCES.names),
            algorithm={"name": "octopia", "routing": routing},
            distances=DISTANCES,
            shaped=True,
            node_extra={"link": {"unsent_bytes": UNSENT}},
        )
        found, disturbance = bench.client_rounds(routing, label, spec, deliver)
        far = [
            [each for each in map(Delivery._make, round_["deliveries"]) if each.site in {FAR, BESIDE}]
            for round_ in found
        ]
        expected = sum(round_["messages"] for round_ in found) * (len(DISTANCES.names) - 1)
        lost = expected - sum(len(round_["deliveries"]) for round_ in found)
        delays = [[1000 * each.delay for each in round_] for round_ in far]
        spread = {
            "largest_ms": [max(each) for each in delays],
            "copies": [round_["copies"] for round_ in found],
        }
        rounds = {**spread, "overtaken": [float(round_["overtaken"]) for round_ in found]}
        for name, begin, end in (("before", 0.0, SLOWED), ("slow", SLOWED, RESTORED)):
            parts = [[each.delay for each in round_ if begin <= each.sent < end] for round_ in far]
            rounds[f"{name}_ms"] = [1000 * mean(each) for each in parts]
            rounds[f"{name}_p99_ms"] = [tail_ms(each) for each in parts]
        run = client_figures(label, delays, expected, lost, 1000 / RATE, disturbance, spread)
        rows.append(Row(label, run, rounds=rounds))
        lines.append(over_time(label, [each for round_ in far for each in round_]))
    text = (
        f"Three clusters of two sites, {FAST / 1e6:g} MB/s between clusters. A site of {CLUSTERS[0]} "
        f"sends {RATE:g} messages of {PAYLOAD / 1000:g} kB a second to all others (QoS 0). After "
        f"{SLOWED:g} s its link to {CLUSTERS[1]} passes a tenth, from {RESTORED:g} s on all again. "
        f"Drawn is the delay at the two sites of {CLUSTERS[1]}. IDR notices by what waits at a node: "
        "what the system and the connection have taken by then (about 150 kB with link.unsent_bytes "
        f"{UNSENT}) waits for the slow link all the same."
    )
    course = Course(
        title=f"Delay of what arrives at {CLUSTERS[1]}, by when it was sent",
        axis="Mean delay in the second, ms",
        caption="Of all messages that were sent in a second.",
        logarithmic=True,
        lines=lines,
        marks={"slow": SLOWED, "as before": RESTORED},
    )
    return comparison("A link becomes slow", [text], METRICS, rows, courses=[course])


def tail_ms(delays: Sequence[float]) -> float:
    """The 99th percentile of delays in seconds."""
    return quantile(from_buckets((bucket(round(each * 1e9)), 1) for each in delays), 0.99) / 1e6


def over_time(label: str, deliveries: Sequence[Delivery]) -> Line:
    """Mean delay in ms of what was sent in each second."""
    by_second: dict[int, list[float]] = defaultdict(list)
    for each in deliveries:
        by_second[int(each.sent)].append(1000 * each.delay)
    seconds = sorted(by_second)
    return Line(
        label=label,
        seconds=[float(second) for second in seconds],
        values=[mean(by_second[second]) for second in seconds],
    )


async def deliver(bed: Testbed) -> dict[str, Any]:
    """Publish at one site to a subscriber at each other site, and slow the link meanwhile.

    Raises:
        ProcessError: the subscribers are not found.
    """
    distance = bed.distance
    assert distance is not None
    sites = range(len(bed.servers))
    for one in sites:
        for other in sites[:one]:
            if DISTANCES.crosses(one, other):
                distance.slow(one, other, FAST)
    clock = time.monotonic
    sent: dict[int, float] = {}
    found: list[Delivery] = []
    newest: dict[int, int] = {}
    overtaken = 0
    began = clock()

    def arrived(site: int) -> Callable[[Publish], None]:
        def at_once(message: Publish) -> None:
            nonlocal overtaken
            number = int(message.payload[:20].partition(b":")[2].partition(b",")[0])
            overtaken += number < newest.get(site, -1)
            newest[site] = max(number, newest.get(site, -1))
            found.append(Delivery(site, number, sent[number] - began, clock() - sent[number]))

        return at_once

    clients = [
        await Client.connect(address, f"slow-{site}", arrived(site))
        for site, address in enumerate(addresses(bed))
        if site != PUBLISHER
    ]
    for client in clients:
        await client.subscribe(FILTER)
    publisher = await Client.connect(addresses(bed)[PUBLISHER], "slow-publisher")

    def publish(number: int) -> None:
        sent[number] = clock()
        publisher.send(TOPIC, b'{"n":%d,"x":"%s"}' % (number, b"x" * PAYLOAD))

    give_up = clock() + REST
    number = 0
    while len({each.site for each in found if each.number == number - 1}) < len(clients):
        if clock() > give_up:
            raise ProcessError("not all subscribers are reached")
        publish(number)
        number += 1
        await asyncio.sleep(0.5)
    found.clear()
    overtaken = 0
    copies, first, began = copies_between(bed, DISTANCES), number, clock()
    pending = [(SLOWED, SLOW), (RESTORED, FAST)]
    messages = round(SECONDS * RATE)
    async for step in paced(RATE, messages):
        if pending and clock() - began >= pending[0][0]:
            distance.slow(PUBLISHER, FAR, pending.pop(0)[1])
        publish(first + step)
    await came_true(lambda: len(found) >= messages * len(clients), REST)
    for client in (*clients, publisher):
        client.close()
    return {
        "deliveries": found,
        "messages": messages,
        "copies": (copies_between(bed, DISTANCES) - copies) / messages,
        "overtaken": overtaken,
    }
